# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs that do not know of hvdrun, with the PyTorch of the system's Python, or
# of the Python that HVD_TEST_TORCH names.

PYTHON3=${HVD_TEST_TORCH:-/usr/bin/python3}

need_torch() {
    sanitized && skip "Python is not built with sanitizers"
    "$PYTHON3" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("torch") is None)' || skip "needs python3-torch"
}

# Runs tests/python/torch_env.py on $2 ranks; it must exit with code $1.
plain_torch() {
    need_torch
    # Threads that the tests' runner limits are hvdrun's to limit here.
    unset OMP_NUM_THREADS
    expect_exit "$1" "$HVDRUN" -np "$2" --no-tag-output "$PYTHON3" -B \
        "$ROOT/tests/python/torch_env.py" "$3"
}

test_plain_torch() {
    plain_torch 0 4 train
    grep -qx 'trained on 4 ranks of 1' out
    [ ! -s err ]
}

test_fsdp() {
    need_torch
    "$PYTHON3" -c 'import sys, torch; sys.exit(torch.__version__ < "2")' ||
        skip "FSDP without a GPU needs PyTorch 2 (HVD_TEST_TORCH)"
    plain_torch 0 2 fsdp
    grep -qx 'trained on 2 ranks of 1' out
}

test_plain_torch_killed_at_start() {
    plain_torch 137 2 init
    grep -q 'rank 1 .*failed: killed by signal 9' err
}

test_plain_torch_killed_later() {
    plain_torch 137 2 step
    grep -q 'rank 1 .*failed: killed by signal 9' err
}

test_threads() {
    unset OMP_NUM_THREADS
    # shellcheck disable=SC2016
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output --log-level info \
        sh -c 'echo "threads $OMP_NUM_THREADS"'
    [ "$(grep -c '^threads 1$' out)" -eq 2 ]
    [ "$(grep -c 'OMP_NUM_THREADS=1' err)" -eq 1 ]
    # shellcheck disable=SC2016
    OMP_NUM_THREADS=3 expect_exit 0 "$HVDRUN" -np 2 --no-tag-output --log-level info \
        sh -c 'echo "threads $OMP_NUM_THREADS"'
    [ "$(grep -c '^threads 3$' out)" -eq 2 ]
    absent OMP_NUM_THREADS err
}

# The report has the whole traceback of the rank that failed first, with the
# error that led to it, whatever was written afterwards.
test_traceback() {
    sanitized && skip "Python is not built with sanitizers"
    [ -x "$PYTHON3" ] || skip "no $PYTHON3"
    expect_exit 1 "$HVDRUN" -np 3 "$PYTHON3" -B \
        "$ROOT/tests/python/deep_traceback.py"
    sed -n '/^hvdrun: the last traceback in rank 1/,$p' err >report
    [ "$(grep -c '^  Traceback (most recent call last):$' report)" -eq 2 ]
    [ "$(grep -c '^    File "/src/.*, in level_[a-t]$' report)" -eq 20 ]
    grep -qx '  ValueError: the innermost error' report
    grep -qx '  RuntimeError: the outermost error' report
    [ "$(grep -c 'connection closed' report)" -le 12 ]
    grep -qx '  warning: connection closed 49' report
}

test_uncaught_exception() {
    expect_exit 134 "$HVDRUN" -np 1 sh -c '
echo "terminate called after throwing an instance of '\''E'\''" >&2
echo "  what():  too hot" >&2
kill -ABRT $$'
    grep -q "^hvdrun: the exception in rank 0's stderr:" err
    grep -qx '    what():  too hot' err
}
