# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvd.torch: the scripts of tests/python and the examples, with the PyTorch of
# the system's Python.

PYTHON3=${PYTHON:-/usr/bin/python3}

need_torch() {
    sanitized && skip "Python is not built with sanitizers"
    [ -e "$BUILD/python/hvd/_hvd.abi3.so" ] || skip "needs make python"
    "$PYTHON3" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("torch") is None)' || skip "needs python3-torch"
}

# Sets the array job to the start of a command on $1 ranks.
torch_job() {
    job=("$HVDRUN" -np "$1" --no-tag-output -x "PYTHONPATH=$BUILD/python"
        -x OMP_NUM_THREADS=1 "$PYTHON3" -B)
}

# Runs script $2 of tests/python, with arguments, on $1 ranks.
passes() {
    local np=$1 script=$2
    need_torch
    torch_job "$np"
    expect_exit 0 "${job[@]}" "$ROOT/tests/python/$script" "${@:3}"
}

test_torch_ops() {
    passes 2 torch_ops.py
}

test_torch_ops_of_three() {
    passes 3 torch_ops.py
}

test_torch_optimizer() {
    passes 2 torch_optimizer.py
}

test_torch_optimizer_of_three() {
    passes 3 torch_optimizer.py
}

test_torch_layers() {
    passes 2 torch_layers.py
}

test_torch_process_sets() {
    passes 6 torch_sets.py
    grep -q '^sets ok$' out
}

# A rank that is killed in its backward pass: the other has an error that names
# it and a traceback, and nothing is left.
test_torch_killed() {
    need_torch
    torch_job 2
    expect_exit 137 "${job[@]}" "$ROOT/tests/python/torch_faults.py" killed
    grep -q '^rank 0 got: .*rank 1' out
    grep -q 'HorovodInternalError: .*rank 1' err
    grep -q 'Traceback' err
}

test_torch_killed_elastic() {
    need_torch
    torch_job 2
    expect_exit 137 "${job[@]}" "$ROOT/tests/python/torch_faults.py" killed_elastic
    grep -q 'the training cannot go on: .*rank 1' err
}

test_torch_exception() {
    need_torch
    torch_job 2
    expect_exit 1 "${job[@]}" "$ROOT/tests/python/torch_faults.py" throws
    grep -q 'thrown by the test' err
    grep -q 'rank 1 .*failed' err
}

test_torch_interrupt() {
    need_torch
    torch_job 2
    expect_exit 130 "${job[@]}" "$ROOT/tests/python/torch_faults.py" interrupted
    grep -q '^interrupted$' out
}

test_torch_forks() {
    passes 2 torch_faults.py workers
    [ "$(grep -c '^went on$' out)" -eq 2 ]
}

test_torch_exit_in_flight() {
    passes 2 torch_faults.py exits
}

# Prints the last percentage in file $1 on a line about accuracy.
accuracy() {
    grep -i 'test accuracy' "$1" | grep -oE '[0-9]+\.[0-9]+'
}

# The same training in C and in Python.
test_torch_digits() {
    local c python
    need_torch
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output "$EXAMPLES/train_digits"
    c=$(accuracy out)
    torch_job 2
    expect_exit 0 "${job[@]}" "$ROOT/examples/python/train_digits.py"
    python=$(accuracy out)
    awk "BEGIN { d = $c - $python; exit !(d <= 0.51 && d >= -0.51) }" ||
        fail "accuracy $python %, in C $c %"
}

test_torch_anomaly() {
    need_torch
    torch_job 4
    expect_exit 0 "${job[@]}" "$ROOT/examples/python/anomaly_autoencoder.py"
    grep -q '^weights are equal on all ranks$' out
    awk '/loss/ { if (!n++) first = $NF; last = $NF }
        END { exit !(n > 2 && last < first / 2) }' out
}

# How many are done in time depends on the machine; torch_optimizer.py checks
# that the backward pass waits for none.
test_torch_overlap() {
    need_torch
    torch_job 2
    expect_exit 0 "${job[@]}" "$ROOT/examples/python/overlap.py" overlap.json
    "$PYTHON3" -c 'import json; assert len(json.load(open("overlap.json"))) > 24'
    grep -q ' of 24 operations were done during backward$' out
}
