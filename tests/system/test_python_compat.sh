# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Scripts that import horovod run on hvd, but a real Horovod is preferred.

PYTHON=/usr/bin/python3

# Skips the test if the package cannot be used here; else puts it on the path.
need_package() { # MODULE...
    local module
    sanitized && skip "Python does not load libraries that have sanitizers"
    [ -e "$BUILD"/python/hvd/__init__.py ] || skip "no package: make python"
    for module in "$@"; do
        "$PYTHON" -c "import $module" 2>/dev/null || skip "no Python module $module"
    done
    unset PYTHONPATH
    export PYTHONDONTWRITEBYTECODE=1
}

# Makes a Python environment in ./venv with a module horovod that is not ours.
with_other_horovod() {
    "$PYTHON" -m venv --system-site-packages --without-pip venv ||
        skip "no Python module venv"
    site=$(venv/bin/python -c 'import sysconfig
print(sysconfig.get_path("purelib"))')
    mkdir "$site/horovod"
    echo '__version__ = "the real one"' >"$site/horovod/__init__.py"
    echo 'name = "real"' >"$site/horovod/common.py"
}

test_one_line_without_tensorflow() {
    need_package
    "$PYTHON" -c 'import horovod' 2>err && skip "Horovod is installed"
    [ -d "$BUILD"/python/hvd/tensorflow/ ] || skip "no hvd.tensorflow here"
    expect_exit 0 "$HVDRUN" --horovod -np 2 --no-tag-output "$PYTHON" -c '
import horovod.tensorflow as hvd
hvd.init()
print(hvd.is_initialized())'
    [ "$(cat out)" = $'True\nTrue' ]
}

test_names() {
    need_package torch
    expect_exit 0 "$HVDRUN" --horovod=force -np 2 "$PYTHON" \
        "$ROOT/tests/python/compat_names.py"
    [ "$(grep -c ':OK$' err)" -eq 2 ]
}

test_scripts() {
    need_package torch
    expect_exit 0 "$HVDRUN" --horovod=force -np 2 -x OMP_NUM_THREADS=1 "$PYTHON" \
        "$ROOT/tests/python/horovod_scripts.py"
    [ "$(grep -c ':OK$' err)" -eq 2 ]
}

test_real_horovod_wins_unless_forced() {
    local site
    need_package
    with_other_horovod
    set -- venv/bin/python -c '
import horovod.common
print(horovod.__version__, horovod.common.__file__, horovod.__spec__.origin)'
    expect_exit 0 "$HVDRUN" --horovod -np 1 --no-tag-output "$@"
    [ "$(cat out)" = "the real one $site/horovod/common.py $site/horovod/__init__.py" ]
    expect_exit 0 "$HVDRUN" --horovod=force -np 1 --no-tag-output "$@"
    grep -q '^0\.28\.1 .*/hvd/compat/horovod/common/__init__\.py .*/hvd/compat/horovod/__init__\.py$' out
    PYTHONPATH=$site expect_exit 0 "$HVDRUN" --horovod=force -np 1 \
        --no-tag-output "$@"
    grep -q '^0\.28\.1 ' out
}

test_enable_and_disable() {
    local site
    need_package
    with_other_horovod
    export PYTHONPATH=$BUILD/python
    expect_exit 0 venv/bin/python -m hvd.compat status
    grep -q '^not enabled' out
    expect_exit 0 venv/bin/python -m hvd.compat enable
    grep -q "^wrote $site/hvd-horovod.pth" out
    grep -q "^note: $site/horovod/__init__.py is preferred" out
    expect_exit 0 venv/bin/python -c 'import horovod; print(horovod.__version__)'
    [ "$(cat out)" = 'the real one' ]
    rm -r "$site/horovod"
    expect_exit 0 venv/bin/python -c 'import horovod; print(horovod.__version__)'
    [ "$(cat out)" = 0.28.1 ]
    expect_exit 0 venv/bin/python -m hvd.compat status
    grep -q "^enabled by $site/hvd-horovod.pth" out
    grep -q '^import horovod: hvd' out
    expect_exit 0 venv/bin/python -m hvd.compat disable
    expect_exit 0 venv/bin/python -m hvd.compat disable
    grep -q 'removed nothing' out
    expect_exit 1 venv/bin/python -c 'import horovod'
}

test_run_a_function() {
    need_package cloudpickle
    cat >run.py <<'END'
import sys, hvd.compat.launch as launch

def work(x, times=1):
    import hvd.common as hvd
    hvd.init()
    print("no newline", hvd.rank(), end="")
    return [x * times, hvd.rank(), hvd.size(), "y" * 200000]

for rank, value in enumerate(launch.run(work, ("a",), {"times": 3}, num_proc=2)):
    assert value == ["aaa", rank, 2, "y" * 200000], value[:3]

try:
    launch.run(lambda: 1 // 0, np=2)
except RuntimeError as e:
    print(e)
try:
    launch.run(work, min_np=1)
except ValueError as e:
    print(e)
END
    export PYTHONPATH=$BUILD/python
    expect_exit 0 "$PYTHON" run.py
    grep -q '\[0\]<stdout>:no newline 0$' out
    grep -q '^hvdrun exited with code 1; its report says why$' out
    grep -q '^run() has no elastic jobs' out
    grep -q 'ZeroDivisionError' err
    absent hvd-result out
}

# Without cloudpickle, a function of a module can be sent, but not one of the
# program: in the ranks that name would be another function.
test_run_without_cloudpickle() {
    need_package
    cat >work.py <<'END'
def work(x):
    import hvd.common as hvd
    hvd.init()
    return x + hvd.rank()
END
    cat >run.py <<'END'
import pickle, sys
sys.modules["cloudpickle"] = None
import hvd.compat.launch as launch
from work import work

class Settings:
    pass

def main(x):
    raise AssertionError

assert launch.run(work, (5,), num_proc=2) == [5, 6]
for call in (main, (1,)), (work, (Settings(),)), (work, (Settings,)):
    try:
        launch.run(*call, num_proc=2)
    except pickle.PicklingError as e:
        print(e)
END
    mkdir hidden
    echo 'raise ImportError("hidden by the test")' >hidden/cloudpickle.py
    export PYTHONPATH=$PWD/hidden:$PWD:$BUILD/python
    expect_exit 0 "$PYTHON" run.py
    [ "$(grep -c 'defined in the program itself: install cloudpickle' out)" -eq 3 ]
    grep -q '^main is' out
}

test_module_of_the_launcher() {
    need_package
    PYTHONPATH=$BUILD/python/hvd/compat:$BUILD/python HVD_COMPAT_FORCE=1 \
        expect_exit 0 "$PYTHON" -m horovod.runner.launch -np 2 echo hello
    [ "$(grep -c hello out)" -eq 2 ]
}
