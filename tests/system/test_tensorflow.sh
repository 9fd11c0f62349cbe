# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvd.tensorflow and hvd.keras.  Most tests need TensorFlow, which no
# distribution has as a package: HVD_TEST_TENSORFLOW names a Python with it,
# such as .venv/bin/python (default: python3).

TF_TESTS=$ROOT/tests/python

need_package() {
    [ -e "$BUILD/python/hvd/_hvd.abi3.so" ] || skip "make python was not run"
    sanitized && skip "Python itself is not built with a sanitizer"
    export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1
}

need_tensorflow() {
    TF_PYTHON=${HVD_TEST_TENSORFLOW:-python3}
    need_package
    "$TF_PYTHON" -c 'import tensorflow, keras' 2>/dev/null ||
        skip "$TF_PYTHON has no TensorFlow; set HVD_TEST_TENSORFLOW"
    export TF_CPP_MIN_LOG_LEVEL=3
}

# Runs a program of tests/python on 2 and 3 ranks.
run_ranks() { # PROGRAM
    local np
    for np in 2 3; do
        expect_exit 0 "$HVDRUN" -np "$np" "$TF_PYTHON" "$TF_TESTS/$1"
        [ "$(grep -c 'rank [0-9]: ok' out)" -eq "$np" ]
    done
}

test_tensorflow_is_not_needed_to_import() {
    need_package
    cat >program.py <<'END'
import sys
import hvd.tensorflow as hvd
from hvd import keras
hvd.init()
assert hvd.is_initialized() and hvd.size() == 2
assert not {"tensorflow", "keras", "numpy"} & set(sys.modules)
sys.modules["tensorflow"] = None
try:
    hvd.broadcast_variables([1], 0)
except ImportError:
    print("fine")
END
    expect_exit 0 "$HVDRUN" -np 2 /usr/bin/python3 program.py
    [ "$(grep -c fine out)" -eq 2 ]
    expect_exit 0 "$HVDRUN" -np 2 /usr/bin/python3 -c '
import hvd.tensorflow as hvd; hvd.init(); print(hvd.is_initialized())'
    [ "$(grep -c True out)" -eq 2 ]
}

test_tensorflow_operations() {
    need_tensorflow
    run_ranks tensorflow_ops.py
}

test_tensorflow_graphs_train_as_one_process() {
    need_tensorflow
    run_ranks tensorflow_v1.py
}

test_tensorflow_keras_trains_as_one_process() {
    need_tensorflow
    run_ranks tensorflow_keras.py
}

# The script of the image hvdrun-tensorflow, as mpijob.yaml starts it.
test_tensorflow_example_for_horovod() {
    local np
    need_tensorflow
    for np in 1 2; do
        expect_exit 0 "$HVDRUN" --horovod -np "$np" --no-tag-output \
            "$TF_PYTHON" "$ROOT/examples/python/tensorflow_digits.py"
        grep -qx "accuracy 0\.9[0-9]* on $np ranks" out || fail "$(cat out err)"
    done
}

test_tensorflow_goes_on_when_a_rank_dies() {
    need_tensorflow
    expect_exit 0 "$HVDRUN" -np 3 --min-np 1 "$TF_PYTHON" \
        "$TF_TESTS/tensorflow_elastic.py"
    [ "$(grep -c 'graph=False: trained on 2 ranks$' out)" -eq 2 ]
    [ "$(grep -c 'graph=True: trained on 1 ranks$' out)" -eq 1 ]
    rm -f "$TMPDIR"/__autograph_generated_file* # of the ranks that were killed
}
