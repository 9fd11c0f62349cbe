# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvd-bench runs every collective on both planes, prints what the manual says,
# and refuses wrong use.  Each run also checks the results of the library.

collectives='allreduce broadcast allgather alltoall reducescatter barrier'

bench() {
    local np=$1
    shift
    "$HVDRUN" -np "$np" --no-tag-output "$HVD_BENCH" "$@" >bench.out ||
        fail "np $np: hvd-bench $*: $(tail -n 3 bench.out)"
}

# Runs hvd-bench with as few iterations as it accepts.
quick() {
    bench "$@" --iters 2 --warmup 0
}

# json EXPRESSION: fails the test if EXPRESSION is false.  In it, `lines` is
# the list of objects in bench.out.
json() {
    command -v python3 >/dev/null || skip "needs python3"
    python3 - "$1" <<'PYTHON' || fail "not so: $1: $(cat bench.out)"
import json
import sys

with open("bench.out", encoding="utf-8") as file:
    lines = [json.loads(line) for line in file]
sys.exit(0 if eval("(" + sys.argv[1] + ")") else 1)
PYTHON
}

# every PLANE WANTED NP...: runs each collective with --plane PLANE and checks
# the objects that hvd-bench prints; their plane must be WANTED.
every() {
    local plane=$1 wanted=$2 np what
    shift 2
    for np in "$@"; do
        [ "$np" -gt 1 ] || wanted=self
        for what in $collectives; do
            quick "$np" "$what" --plane "$plane" --json --sizes 4,1000,300000
            json "all(o['collective'] == '$what' and o['ranks'] == $np and
                o['plane'] == '$wanted' and o['median_us'] > 0 and
                o['min_us'] <= o['median_us'] <= o['max_us'] and
                o['bytes'] == 4 * o['count'] and
                o['checked'] == ('$what' != 'barrier') for o in lines)"
            if [ "$what" = barrier ]; then
                json 'len(lines) == 1 and lines[0]["bytes"] == 0'
            else
                json 'len(lines) == 3 and 300000 <= lines[2]["bytes"] < 300016'
            fi
        done
        wanted=$plane
    done
}

test_every_collective_in_shared_memory() {
    every shm shm 1 2 4
}

test_every_collective_over_tcp() {
    every tcp tcp 1 2 4
}

test_plane_is_what_the_library_uses() {
    quick 2 barrier --json
    json 'lines[0]["plane"] == "shm"'
    HVD_FORCE_TCP=1 quick 2 barrier --json
    json 'lines[0]["plane"] == "tcp"'
    expect_exit 1 env HVD_FORCE_TCP=1 "$HVDRUN" -np 2 "$HVD_BENCH" barrier \
        --plane shm
    grep -q 'plane shm: 2 ranks placed like this use tcp' err
}

test_bandwidths() {
    local what factor
    while read -r what factor; do
        quick 4 "$what" --json --sizes 4K
        json "all(abs(o['algbw_gbs'] - o['bytes'] / o['median_us'] / 1e3) <
            1e-3 + 0.01 * o['algbw_gbs'] and abs(o['busbw_gbs'] -
            $factor * o['algbw_gbs']) < 1e-3 for o in lines)"
    done <<'TABLE'
allreduce 1.5
broadcast 1
allgather 0.75
alltoall 0.75
reducescatter 0.75
TABLE
}

test_dtypes() {
    local t what
    for t in uint8 int8 uint16 int16 int32 int64 float16 bfloat16 float32 \
        float64 bool; do
        for what in allreduce reducescatter alltoall; do
            quick 3 "$what" --dtype $t --sizes 8,100000
        done
    done
}

test_ops() {
    local op
    for op in sum min max product band bor average; do
        quick 3 allreduce --op $op --dtype int32 --sizes 8,100000
        quick 3 reducescatter --op $op --dtype int32 --sizes 12,100000
    done
    for op in float16 bfloat16 float32 float64; do
        quick 3 allreduce --op adasum --dtype $op --sizes 8,100000
    done
}

test_wires() {
    local wire t
    for wire in full float16 bfloat16; do
        for t in float32 float64 int32; do
            quick 2 allreduce --wire $wire --dtype $t --sizes 8,1M
        done
    done
    quick 2 allreduce --wire float16 --json
    json 'all(o["wire"] == "float16" for o in lines)'
}

test_bursts_and_groups() {
    local what
    for what in $collectives; do
        quick 2 "$what" --burst 17 --sizes 4,70000
        quick 2 "$what" --async 3 --sizes 4,70000
    done
    for what in allreduce allgather reducescatter; do
        quick 2 "$what" --group 5 --sizes 4,70000
    done
    quick 2 allreduce --burst 64 --sizes 4 --plane tcp --json
    json 'lines[0]["mode"] == "burst" and lines[0]["tensors"] == 64'
    quick 2 allreduce --group 3 --sizes 64K --alloc --json
    json 'lines[0]["mode"] == "group" and lines[0]["bytes"] == 65536'
}

# Makes libhvd use the test doubles of CUDA and NCCL (tests/nccl).
on_gpus() {
    [ -e "$BUILD/tests/nccl/libcuda.so.1" ] || skip "built without NCCL"
    export HVD_CUDA_LIBRARY=$BUILD/tests/nccl/libcuda.so.1
    export HVD_NCCL_LIBRARY=$BUILD/tests/nccl/libnccl.so.2
    export FAKE_CUDA_DELAY_US=20
}

test_device_memory() {
    local what flags
    on_gpus
    for what in allreduce broadcast allgather alltoall reducescatter; do
        for flags in '' --stream '--events --raw' '--raw --burst 3' \
            '--stream --async 3'; do
            # shellcheck disable=SC2086 # a list of words
            quick 2 "$what" --device cuda --plane nccl --sizes 8,70000 \
                --json $flags
            json "all(o['plane'] == 'nccl' and o['device'] == 'cuda' and
                o['checked'] and ('raw_median_us' in o) == ('raw' in '$flags')
                and o['events'] == ('events' in '$flags')
                and o['stream'] >= o['events'] for o in lines)"
        done
    done
    for what in allreduce broadcast allgather; do
        quick 2 "$what" --device cuda --in-place --raw --sizes 8,70000
    done
    for what in allreduce allgather reducescatter; do
        quick 2 "$what" --device cuda --group 3 --raw --stream --sizes 8,70000
    done
    quick 3 allreduce --device cuda --process-set 0,2 --raw --sizes 8,70000
    quick 1 allreduce --device cuda --raw --sizes 8,70000
    grep -q 'raw_us' bench.out
}

test_device_dtypes() {
    local t
    on_gpus
    for t in uint8 int8 uint16 int16 int32 int64 float16 bfloat16 float32 \
        float64 bool; do
        quick 2 allreduce --device cuda --dtype $t --sizes 8,70000
    done
    for t in uint8 int64 bfloat16 float64; do
        quick 2 reducescatter --device cuda --raw --dtype $t --op max \
            --sizes 8,70000
    done
}

test_device_is_not_there() {
    expect_exit 1 env HVD_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$HVD_BENCH" \
        allreduce --device cuda
    one_line err
    on_gpus
    expect_exit 1 env FAKE_CUDA_FAIL=cuMemAlloc:2:0 "$HVD_BENCH" \
        allreduce --device cuda --sizes 8
    one_line err
    grep -q 'cuMemAlloc: .*CUDA_ERROR_OUT_OF_MEMORY' err
    expect_exit 1 env HVD_NCCL_LIBRARY=/nowhere/libnccl.so.2 "$HVD_BENCH" \
        allreduce --device cuda --raw --sizes 8
    one_line err
}

test_resnet50() {
    quick 2 allreduce --resnet50 --json
    json 'len(lines) == 1 and lines[0]["bytes"] == 102228128 and
        lines[0]["tensors"] == 161'
}

test_buffers() {
    local what
    for what in $collectives; do
        quick 2 "$what" --alloc --sizes 8,100000,1M
    done
    for what in allreduce broadcast allgather; do
        quick 2 "$what" --in-place --sizes 8,100000
        quick 2 "$what" --in-place --alloc --sizes 8,1M
    done
}

test_process_sets() {
    quick 4 allreduce --process-set 1,3 --json --sizes 8,100000
    json 'len(lines) == 2 and all(o["ranks"] == 2 and o["process_set"] > 0
        for o in lines)'
    quick 4 reducescatter --process-set 0-1/2-3 --json --sizes 100000
    json 'sorted(o["process_set"] for o in lines) == [1, 2]'
    quick 3 broadcast --process-set 2,1 --plane tcp --sizes 8,100000
    quick 3 alltoall --process-set 2 --sizes 8
    expect_exit 1 "$HVDRUN" -np 2 "$HVD_BENCH" allreduce --process-set 1-2
    grep -q 'process-set' err
}

test_idle() {
    bench 2 idle 0.2 --json
    json 'len(lines) == 1 and lines[0]["idle_seconds"] >= 0.2 and
        lines[0]["cpu_percent"] >= 0 and lines[0]["wakeups_per_s"] >= 0'
}

test_table() {
    quick 2 allreduce --sizes 8,1K --burst 2 --op max
    [ "$(grep -c '^#' bench.out)" -eq 2 ]
    [ "$(grep -vc '^#' bench.out)" -eq 2 ]
    grep -q 'float32 max, burst of 2' bench.out
}

test_without_hvdrun() {
    expect_exit 0 "$HVD_BENCH" allreduce --sizes 1K --iters 2
    [ -s out ]
}

test_wrong_use() {
    local args
    while read -r args; do
        # shellcheck disable=SC2086 # a list of words
        expect_exit 2 "$HVD_BENCH" $args
        one_line err
        [ ! -s out ] || fail "$args: prints $(head -n 1 out)"
    done <<'TABLE'

allredoos
allreduce twice
allreduce --dtype float31
allreduce --op median
allreduce --op band
allreduce --op adasum --dtype int8
allreduce --sizes x
allreduce --sizes 8:4
allreduce --plane warp
allreduce --device gpu
allreduce --raw
allreduce --stream
barrier --device cuda
allreduce --device cuda --alloc
allreduce --device cuda --raw --dtype int16
allreduce --wire int8
alltoall --wire float16
alltoall --in-place
broadcast --group 2
barrier --resnet50
allreduce --burst 0
allreduce --burst 2 --group 2
allreduce --process-set 0,0
allreduce --process-set 9999
allreduce --iters
allreduce --alloc=yes
idle
TABLE
}
