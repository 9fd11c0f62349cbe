# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# tests/gpu/run, on the test doubles of CUDA and NCCL (tests/nccl): it passes,
# and notices failures.

need_doubles() {
    [ -e "$BUILD/tests/nccl/libcuda.so.1" ] || skip "built without NCCL"
    sanitized && skip "too slow with sanitizers"
    return 0
}

gpu_run() {
    "$ROOT/tests/gpu/run" "$@" >out 2>err
}

test_gpu_run() {
    need_doubles
    gpu_run --fake "$BUILD" || fail "$(grep '^FAIL' out)"
    absent '^FAIL' out
    # Each result is printed when the check ends, and again in the final table.
    [ "$(grep -c '^pass  np 2: a rank that hangs' out)" -eq 2 ]
    [ "$(grep -c '^pass  np 2: a rank that dies' out)" -eq 2 ]
    [ "$(grep -c '^skip  kernels: speed  *needs a GPU' out)" -eq 2 ]
}

test_gpu_run_notices() {
    need_doubles
    # An error of the device makes a check fail, ...
    ! FAKE_CUDA_FAIL=cuMemcpyAsync:700:0:20 gpu_run --fake "$BUILD" alone
    grep -q '^FAIL  np 1' out
    # ... and the checks after it still run.
    grep -q '^pass  np 1: again' out
    ! FAKE_CUDA_DEVICES=0 HVD_RANK=0 gpu_run --fake "$PWD"
    grep -q 'has no tests/nccl' err
}

# An interrupted run still ends with the table, which the log holds from the
# beginning.
test_gpu_run_interrupted() {
    local pid
    need_doubles
    GPU_LOG=$PWD/kept "$ROOT/tests/gpu/run" --fake "$BUILD" failures \
        >out 2>err &
    pid=$!
    until grep -qs '^pass  device' kept/table; do
        [ -e "/proc/$pid" ] || fail "$(cat out err)"
        sleep 0.05
    done
    kill "$pid"
    ! wait "$pid"
    [ "$(grep -c '^FAIL .*interrupted' out)" -eq 2 ] || fail "$(cat out err)"
    grep -q '^FAIL .*interrupted' kept/table
    grep -q '^==== device: exit 0' kept/log
}

test_gpu_run_bounds() {
    need_doubles
    ! gpu_run --fake "$BUILD" sleep
    grep -q 'there is no step sleep' err
    ! GPU_LIMIT_S=0 gpu_run --fake "$BUILD"
    grep -q '^FAIL  device  *no time left' out
}

# A packed folder works on its own, without the source tree.
test_gpu_pack() {
    need_doubles
    [ -x "$BUILD/tests/static/hvdrun" ] || skip "no static hvdrun"
    BUILD=$BUILD gpu_run pack packed
    [ "$(du -sm packed | cut -f 1)" -le 60 ] || fail "$(cat out)"
    cp -r "$BUILD/tests/nccl" packed/tests
    (cd / && env -i PATH="$PATH" TMPDIR="$TMPDIR" HVD_TEST_TOKEN= \
        "$OLDPWD/packed/tests/gpu/run" --fake "$OLDPWD/packed" alone) >out ||
        fail "$(grep '^FAIL' out)"
    grep -q '^pass  np 1: stream' out
    "packed/examples/train_digits" >out
    # Without a GPU, the example says so in one line.
    ! packed/examples/train_digits_cuda >out 2>err
    one_line err
    [ ! -s out ]
}
