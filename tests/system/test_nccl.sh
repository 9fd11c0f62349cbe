# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Collectives in device memory.  Without a GPU: what libhvd says where CUDA or
# NCCL is missing, and all else on test doubles of both (tests/nccl).

doubles=$BUILD/tests/nccl

need_plugin() {
    [ -e "$BUILD/lib/hvd/libhvd-nccl.so" ] || skip "built without NCCL"
}

# Makes libhvd use the doubles, which delay the device's work at random.
with_doubles() {
    need_plugin
    export HVD_NCCL=1
    export HVD_CUDA_LIBRARY=$doubles/libcuda.so.1
    export HVD_NCCL_LIBRARY=$doubles/libnccl.so.2
    export FAKE_CUDA_SEED=$RANDOM
}

ranks() {
    local np=$1
    shift
    "$HVDRUN" -np "$np" --no-tag-output "$@"
}

# Runs the ranks on the hosts $1, all of which this machine plays.  NCCL_HOSTID
# tells NCCL that they are different hosts, as their devices are the same.
many() {
    local hosts=$1
    shift
    # shellcheck disable=SC2016 # the rank's shell expands it
    "$HVDRUN" -H "$hosts" --rsh 'env PLAYED={host}' --no-tag-output \
        sh -c 'NCCL_HOSTID=$HVD_CROSS_RANK exec "$@"' sh "$@"
}

# says N PATTERN: fails unless exactly N lines of ./out match PATTERN.
says() {
    [ "$(grep -Ec -- "$2" out)" -eq "$1" ] ||
        fail "not $1 times '$2': $(cat out err)"
}

# ---- What is not there ------------------------------------------------------

# Without the plug-in, libhvd works in host memory and refuses device memory.
test_nccl_no_plugin() {
    [ -e "$PROG/nccl_verbs" ] || skip "built without NCCL"
    mkdir -p here/lib here/tests/prog
    cp -P "$BUILD"/lib/libhvd.so* here/lib
    cp "$PROG/nccl_verbs" here/tests/prog
    expect_exit 0 ranks 2 here/tests/prog/nccl_verbs alone
    says 2 'stream is set, and this process cannot use device memory'
    HVD_NCCL=1 expect_exit 0 ranks 2 here/tests/prog/nccl_verbs init
    says 2 'NCCL plane unavailable: .*libhvd-nccl.so'
}

test_nccl_no_driver() {
    need_plugin
    grep -q libcuda.so.1 < <(ldconfig -p) && skip "there is a CUDA driver"
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" alone
    says 2 'stream is set, and this process cannot use device memory'
    [ ! -s err ] || fail "a word about it: $(cat err)"
    export HVD_NCCL=1
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" init
    says 2 'NCCL plane unavailable: no CUDA driver: .*libcuda.so.1'
    export HVD_NCCL=0
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" alone
}

# feature NAME VALUE: fails unless hvd_feature says so, in a world or not.
feature() {
    expect_exit 0 "$PROG/coll" feature "$1"
    [ "$(cat out)" = "$1: $2, $2" ] || fail "not $2: $(cat out)"
}

# What is built does not depend on a GPU, nor on what HVD_NCCL asks for.
test_nccl_feature() {
    mkdir empty
    HVD_PLUGIN_DIR=$PWD/empty feature cuda_built 0
    HVD_PLUGIN_DIR=$PWD/empty feature nccl_built 0
    need_plugin
    feature cuda_built 1
    HVD_NCCL_LIBRARY=$PWD/none feature nccl_built 0
    export HVD_NCCL_LIBRARY=$doubles/libnccl.so.2
    feature nccl_built 22809
    HVD_NCCL=0 feature nccl_built 22809
    FAKE_NCCL_VERSION=2705 feature nccl_built 0
}

# The NCCL that is installed can be loaded without a GPU, and its own error is
# passed on.
test_nccl_installed_library() {
    local lib=/usr/local/cuda/lib64/libnccl.so.2
    with_doubles
    [ -e $lib ] || lib=$(ldconfig -p | sed -n 's/.*libnccl.so.2 .*=> //p')
    [ -e "$lib" ] || skip "no NCCL is installed"
    sanitized && skip "NCCL is not built with sanitizers"
    export HVD_NCCL_LIBRARY=$lib
    expect_exit 0 ranks 1 "$PROG/nccl_verbs" init
    says 1 success
    # NCCL loads the CUDA driver itself, and must find none in what follows.
    grep -q libcuda.so.1 < <(ldconfig -p) && skip "there is a CUDA driver"
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" work null 3
    grep -Eq 'rank [01]: the operating system refused: .*unhandled cuda' out
    says 0 success
}

test_nccl_versions_and_libraries() {
    with_doubles
    FAKE_NCCL_VERSION=21304 expect_exit 0 ranks 2 "$PROG/nccl_verbs" init
    says 2 'NCCL 2.13.4 of .*libnccl.so.2 is too old: 2.14 is needed'
    HVD_NCCL_LIBRARY=/none expect_exit 0 ranks 2 "$PROG/nccl_verbs" init
    says 2 'no NCCL: /none: .*HVD_NCCL_LIBRARY'
    HVD_CUDA_LIBRARY=/none expect_exit 0 ranks 2 "$PROG/nccl_verbs" init
    says 2 'no CUDA driver: /none: '
    HVD_NCCL_LIBRARY=$doubles/libcuda.so.1 \
        expect_exit 0 ranks 1 "$PROG/nccl_verbs" init
    says 1 'NCCL plane unavailable: .* is no NCCL'
    FAKE_CUDA_FAIL=cuInit:100 expect_exit 0 ranks 2 "$PROG/nccl_verbs" init
    says 2 'the CUDA driver finds no device'
    FAKE_CUDA_FAIL=cuInit:999 expect_exit 0 ranks 1 "$PROG/nccl_verbs" init
    says 1 'NCCL plane unavailable: .*CUDA_ERROR_UNKNOWN'
    NCCL_COMM_BLOCKING=1 expect_exit 0 ranks 1 "$PROG/nccl_verbs" init
    says 1 "NCCL_COMM_BLOCKING is 1"
    HVD_NCCL_TIMEOUT=soon expect_exit 0 ranks 1 "$PROG/nccl_verbs" init
    says 1 'HVD_NCCL_TIMEOUT'
    # Unless NCCL is asked for, hvd_init succeeds without it, and device memory
    # is still recognised.
    unset HVD_NCCL
    HVD_NCCL_LIBRARY=/none expect_exit 0 ranks 2 "$PROG/nccl_verbs" work null 3
    says 2 'the buffers are in device memory: .*unavailable: no NCCL: /none'
}

# ---- Values -----------------------------------------------------------------

# The doubles give right results, and report each wrong use that they look for.
test_nccl_doubles() {
    local verb
    need_plugin
    for verb in values hang; do
        expect_exit 0 "$PROG/nccl_double" $verb
        [ ! -s err ] || fail "$verb: $(cat err)"
    done
    # The other verbs make real errors, which sanitizers would report.
    sanitized && return
    for verb in order touch host-memory beyond differ progress event; do
        expect_exit 0 "$PROG/nccl_double" $verb
    done
}

# A program with calls of NCCL of its own, whose id it broadcasts by libhvd.
test_nccl_id() {
    [ -x "$EXAMPLES/nccl_id" ] || skip "built without NCCL's library"
    # shellcheck disable=SC2016 # the rank's shell expands it
    LD_LIBRARY_PATH=$doubles expect_exit 0 ranks 3 \
        sh -c 'NCCL_HOSTID=$HVD_RANK exec "$1"' sh "$EXAMPLES/nccl_id"
    says 1 '^NCCL added 65536 numbers of 3 ranks$'
    # On one host, NCCL refuses a GPU for several ranks.
    LD_LIBRARY_PATH=$doubles expect_exit 1 ranks 2 "$EXAMPLES/nccl_id"
    grep -q 'nccl_id: rank [01]: ncclCommInitRank: invalid usage' err
}

test_nccl_values_1() { values 1; }
test_nccl_values_2() { values 2; }
test_nccl_values_3() { values 3; }
test_nccl_values_4() { values 4; }

values() {
    local stream
    with_doubles
    for stream in null own; do
        expect_exit 0 ranks "$1" "$PROG/nccl_verbs" values $stream $RANDOM
    done
}

# The timeline says which algorithm carried out each collective.
test_nccl_algorithms() {
    local name
    with_doubles
    HVD_TIMELINE=$PWD/t.json expect_exit 0 ranks 2 "$PROG/nccl_verbs" \
        values own $RANDOM
    for name in allreduce allreduce.fused staged broadcast allgather \
        allgather.ragged alltoall reducescatter reducescatter.uneven; do
        grep -q "\"nccl.$name\"" t.1.json || fail "no nccl.$name"
    done
}

# libhvd works with NCCL 2.14, which lacks later functions.
test_nccl_values_old_library() {
    with_doubles
    export HVD_NCCL_LIBRARY=$doubles/libnccl-old.so.2 FAKE_NCCL_VERSION=21406
    expect_exit 0 ranks 3 "$PROG/nccl_verbs" values own $RANDOM no-float8
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" values null $RANDOM no-float8
}

# A batch that is far larger than the fusion buffer is reduced in blocks.
test_nccl_values_in_blocks() {
    with_doubles
    export HVD_FUSION_THRESHOLD=1
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" values own $RANDOM large
}

# Hierarchical and torus allreduce give right results, whether NCCL can split
# communicators or, as in version 2.14, needs a new id for each.
test_nccl_values_layers() {
    local hosts
    with_doubles
    for hosts in x1:2,x2:2 x1:1,x2:2; do
        HVD_HIERARCHICAL_ALLREDUCE=1 expect_exit 0 many $hosts "$PROG/nccl_verbs" \
            values own $RANDOM allreduce fused wire
        HVD_TORUS_ALLREDUCE=1 HVD_TIMELINE=$PWD/$hosts.json \
            expect_exit 0 many $hosts "$PROG/nccl_verbs" \
            values null $RANDOM allreduce fused wire
    done
    # torus needs the same number of ranks on all hosts
    grep -q '"nccl.allreduce.torus"' x1:2,x2:2.0.json
    absent 'nccl.allreduce.torus' x1:1,x2:2.0.json
    export HVD_NCCL_LIBRARY=$doubles/libnccl-old.so.2 FAKE_NCCL_VERSION=21406
    HVD_TORUS_ALLREDUCE=1 expect_exit 0 many x1:2,x2:2 "$PROG/nccl_verbs" \
        values own $RANDOM no-float8 allreduce fused
}

# ---- Order ------------------------------------------------------------------

test_nccl_streams() {
    local np
    with_doubles
    for np in 1 2 4; do
        expect_exit 0 ranks $np "$PROG/nccl_verbs" stream $RANDOM
        says $np 'launched ahead'
        expect_exit 0 ranks $np "$PROG/nccl_verbs" requests
        FAKE_CUDA_DELAY_US=3000 expect_exit 0 ranks $np "$PROG/nccl_verbs" \
            values own $RANDOM mixed sets
    done
}

# The same with operations that overlap, in each of several sets.
test_nccl_several_streams() {
    with_doubles
    export HVD_NUM_NCCL_STREAMS=3
    expect_exit 0 ranks 3 "$PROG/nccl_verbs" stream $RANDOM
    says 3 'launched ahead'
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" requests
    FAKE_CUDA_DELAY_US=3000 expect_exit 0 ranks 4 "$PROG/nccl_verbs" \
        values own $RANDOM mixed sets
    expect_exit 0 ranks 3 "$PROG/nccl_verbs" remove 30
    expect_exit 137 ranks 3 --grace 20 "$PROG/nccl_verbs" die 1 5 kill
    says 2 'rank [02]: a peer died: rank 1 .*SIGKILL'
    elastic 2 2 2 1 -- 0 1 kill
}

# The timeline shows when the device worked, within what the host saw; the
# statistics show for how long.
test_nccl_timeline() {
    with_doubles
    FAKE_CUDA_DELAY_US=2000 expect_exit 0 ranks 2 --timeline t.json --stats \
        "$PROG/nccl_verbs" requests
    grep -Eq '^  on the device: 6 per rank, of [0-9.]+ ms each$' err ||
        fail "no time of the device: $(cat err)"
    python3 - <<'END'
import json
events = json.load(open("t.json"))
device = [e for e in events if e["name"] == "NCCL_ALLREDUCE"]
host = [e for e in events if e["name"] == "ALLREDUCE"]
assert len(device) == 12, len(device)
assert all(e["dur"] > 0 for e in device), device
first = min(e["ts"] for e in host)
assert all(e["ts"] >= first - 1000 for e in device), (first, device)
END
}

# A process set can be removed while its operations are in flight, without
# waiting for a time limit.
test_nccl_set_removed() {
    with_doubles
    FAKE_CUDA_DELAY_US=200 expect_exit 0 ranks 3 "$PROG/nccl_verbs" remove 30
}

# Process sets do not deadlock if a device runs the kernels of one communicator
# at a time, as when they fill it.
test_nccl_sets_on_a_full_device() {
    with_doubles
    FAKE_NCCL_SERIAL=1 expect_exit 0 ranks 4 "$PROG/nccl_verbs" \
        values own $RANDOM sets mixed
}

test_nccl_places() {
    with_doubles
    expect_exit 0 ranks 1 "$PROG/nccl_verbs" places
    expect_exit 0 ranks 3 "$PROG/nccl_verbs" places
}

# Operations work while another thread of the program captures a CUDA graph.
test_nccl_capture_elsewhere() {
    with_doubles
    expect_exit 0 ranks 1 "$PROG/nccl_verbs" capture
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" capture
}

test_nccl_mismatch() {
    with_doubles
    expect_exit 0 ranks 2 "$PROG/nccl_verbs" mismatch
    expect_exit 0 ranks 4 "$PROG/nccl_verbs" mismatch
}

# ---- Life and failures ------------------------------------------------------

test_nccl_again() {
    with_doubles
    expect_exit 0 ranks 1 "$PROG/nccl_verbs" again 3
    expect_exit 0 ranks 3 "$PROG/nccl_verbs" again 4
}

test_nccl_rank_dies() {
    with_doubles
    expect_exit 137 ranks 3 --grace 20 "$PROG/nccl_verbs" die 1 5 kill
    says 2 'rank [02]: a peer died: rank 1 .*SIGKILL'
    expect_exit 137 ranks 3 --grace 20 "$PROG/nccl_verbs" die 1 0 kill
    says 2 'rank [02]: a peer died: rank 1 .*SIGKILL'
    expect_exit 0 ranks 3 "$PROG/nccl_verbs" die 1 5 exit
    says 2 'rank [02]: shut down: rank 1 '
}

# A rank dies after it has launched an operation; the others, whose devices
# wait for it, learn of the death.
test_nccl_rank_dies_in_a_collective() {
    with_doubles
    FAKE_NCCL=hang:1:6 expect_exit 142 ranks 3 --grace 20 "$PROG/nccl_verbs" \
        die 1 2 later
    says 2 'rank [02]: a peer died: rank 1 .*SIGALRM'
}

# elastic RESIZED DONE SIZE IN_SET OPTION... -- RANK K HOW: in a job of three
# ranks in which RANK dies, RESIZED others are told, and DONE finish.
elastic() {
    local want=("${@:1:4}") options=()
    shift 4
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    expect_exit 0 ranks 3 --min-np 1 "${options[@]}" "$PROG/nccl_verbs" elastic \
        "$@" 10 "${want[2]}"
    says "${want[0]}" "^rank [0-2]: .*generation 1 has ended: rank $1 .*killed"
    says "${want[1]}" \
        "^rank [0-2]: done, ${want[2]} ranks, ${want[3]} in the set\$"
}

# The others abort their communicators, and make new ones in the next
# generation.
test_nccl_elastic() {
    with_doubles
    elastic 2 2 2 2 -- 1 5 kill
    elastic 2 2 2 1 -- 0 1 kill
    elastic 2 2 2 1 -- 2 9 kill
    # Each rank a host of its own: the base is TCP.
    export HVD_FORCE_TCP=1
    elastic 2 2 2 1 -- 0 5 kill
    elastic 2 2 2 2 -- 1 3 kill
}

# The devices of the others wait in a collective for a rank that dies there.
test_nccl_elastic_in_flight() {
    with_doubles
    export FAKE_NCCL=hang:1:6
    elastic 2 2 2 2 -- 1 1 later
    export HVD_FORCE_TCP=1
    elastic 2 2 2 2 -- 1 1 later
}

# A rank that is started again gets a communicator with the others.
test_nccl_elastic_restart() {
    with_doubles
    elastic 2 3 3 1 --restart-failed 1 -- 2 5 kill
}

test_nccl_rank_stops() {
    with_doubles
    export HVD_STALL_CHECK_TIME_SECONDS=1 HVD_STALL_SHUTDOWN_TIME_SECONDS=2
    expect_exit 124 ranks 3 --grace 5 "$PROG/nccl_verbs" die 1 5 stop
    says 2 'rank [02]: timed out: rank 1 .*allreduce.*stopped by a signal'
}

# Puts the rank below a shell that ignores SIGTERM, so that it is not ended
# before it has printed what it knows.  hvdrun still looks at the rank itself.
heedless=(sh -c 'trap "" TERM; "$@" && exit 1' sh)

# names FAULT SAID VERB...: with FAULT, rank 1 hangs.  Fails unless the other
# ranks and hvdrun name it and say SAID, both when hvdrun ends the job and when
# the ranks give up by themselves.
names() {
    local host="rank 1 \\(pid [0-9]+\\) on host [^ ]+: kept the others waiting"
    local limit="CUDA device [02] has waited for 2 s.*HVD_NCCL_TIMEOUT"
    HVD_STALL_CHECK_TIME_SECONDS=1 HVD_STALL_SHUTDOWN_TIME_SECONDS=2 \
        FAKE_NCCL=$1 expect_exit 124 ranks 3 --grace 1 "${heedless[@]}" \
        "$PROG/nccl_verbs" "${@:3}"
    says 2 "^rank [02]: timed out: $host.*$2"
    grep -Eq '^  allreduce on the device: ranks 0(, |-)2 wait ' err ||
        fail "$(cat err)"
    grep -Eq '^  rank 1 on host .*its last operation: allreduce' err ||
        fail "$(cat err)"
    absent '^  rank [02] on host' err
    FAKE_NCCL=$1 HVD_NCCL_TIMEOUT=2 expect_exit 1 ranks 3 --grace 1 \
        "${heedless[@]}" "$PROG/nccl_verbs" "${@:3}"
    says 2 "^rank [02]: timed out: allreduce: $limit.*: $host.*$2"
}

test_nccl_launch_hangs() {
    local stream
    with_doubles
    for stream in null own; do
        names stuck:1:4 'it has not launched allreduce on the device' \
            work $stream 30
    done
}

test_nccl_rank_stops_after_a_launch() {
    local stream
    with_doubles
    for stream in null own; do
        names stop:1:4 'it is stopped by a signal' work $stream 30
    done
}

# A rank that hangs while it makes its communicator is named with its host.
test_nccl_rank_hangs_on_another_host() {
    with_doubles
    FAKE_NCCL=stuck:2:1 HVD_NCCL_TIMEOUT=1 expect_exit 1 \
        many x1:2,x2:1 "${heedless[@]}" "$PROG/nccl_verbs" work own 3
    says 2 '^rank [01]: .*: rank 2 .* on host x2: .* has not launched'
}

# If all devices hang, the cause cannot be known: the message says so and names
# no rank.
test_nccl_device_hangs_everywhere() {
    with_doubles
    HVD_STALL_CHECK_TIME_SECONDS=1 HVD_STALL_SHUTDOWN_TIME_SECONDS=2 \
        FAKE_NCCL=hang:1:4 expect_exit 124 ranks 3 "${heedless[@]}" \
        "$PROG/nccl_verbs" work own 30
    says 3 'timed out: allreduce on the device: all ranks have launched it, and'
    says 3 'ranks 0-2 wait; all react: NCCL, a device or the network hangs'
}

# hangs FAULT WHAT VERB...: with FAULT, a device hangs in WHAT.  Fails unless
# each rank says that its device has waited too long, or names the rank that
# said so.
hangs() {
    local late="timed out: $2: CUDA device [012] has waited for 2 s"
    FAKE_NCCL=$1 HVD_NCCL_TIMEOUT=2 \
        expect_exit 0 ranks 3 "$PROG/nccl_verbs" "${@:3}"
    grep -q "$late.*HVD_NCCL_TIMEOUT" out || fail "$(cat out)"
    says 3 "$late|shut down: rank [012] "
}

test_nccl_device_hangs() {
    with_doubles
    hangs hang:1:4 allreduce retry
    hangs absent:1 'NCCL, allreduce' retry
}

# libhvd's watchdog ends the wait even if the program does not wait for its
# stream.
test_nccl_device_hangs_unwatched() {
    with_doubles
    hangs hang:1:4 allreduce work own 30
}

# A hierarchical allreduce that hangs ends on all ranks, although the work of
# one communicator is queued behind that of another.
test_nccl_layer_hangs() {
    with_doubles
    HVD_HIERARCHICAL_ALLREDUCE=1 FAKE_NCCL=hang:1:1 HVD_NCCL_TIMEOUT=2 \
        expect_exit 0 many x1:2,x2:2 "$PROG/nccl_verbs" retry
    says 4 'timed out: |shut down: rank [0123] '
}

# fails FAULT SAID VERB...: with FAULT, rank 1 fails.  Fails the test unless
# rank 1 says SAID and the others name rank 1.
fails() {
    FAKE_NCCL=$1 expect_exit 0 ranks 3 "$PROG/nccl_verbs" "${@:3}"
    says 1 "rank 1: the operating system refused: .*$2"
    says 2 'rank [02]: .*rank 1 '
}

test_nccl_call_fails() {
    with_doubles
    fails call:1:4:5 'ncclAllReduce: invalid usage' retry
}

test_nccl_fails_later() {
    with_doubles
    fails error:1:4:6 'remote process exited.*injected' retry
    fails error:1:4 'unhandled system error.*injected' work own 30
}

test_nccl_init_fails() {
    with_doubles
    fails init:1 'ncclCommInitRankConfig: unhandled system error.*inject' retry
}

# If one rank cannot use NCCL at all, all ranks are told which and why.
test_nccl_rank_cannot() {
    local fault
    with_doubles
    for fault in cuModuleLoadData:209:1 cuMemHostAlloc:2:1:2; do
        FAKE_CUDA_FAIL=$fault expect_exit 0 ranks 3 "$PROG/nccl_verbs" retry
        says 3 "rank 1 .*cannot use NCCL: ${fault%%:*}: .*CUDA_ERROR_"
    done
    FAKE_CUDA_DEVICES=1 expect_exit 0 ranks 2 "$PROG/nccl_verbs" work null 3
    says 2 'ranks 0 and 1 .*use the same GPU'
}

# libhvd works without memory from ncclMemAlloc and without registered buffers.
test_nccl_no_memory_of_nccl() {
    with_doubles
    FAKE_CUDA_FAIL=ncclMemAlloc:2:1,ncclCommRegister:2:0 \
        expect_exit 0 ranks 2 "$PROG/nccl_verbs" values own $RANDOM fused
}

# An error of CUDA after the start is passed on in CUDA's words.
test_nccl_cuda_fails() {
    with_doubles
    FAKE_CUDA_FAIL=kernel:719:1:2 expect_exit 0 ranks 2 \
        "$PROG/nccl_verbs" work packed 30
    says 1 'rank 1: the operating system refused: .*CUDA_ERROR_LAUNCH_FAILED'
    says 1 'rank 0: .*rank 1 '
    FAKE_CUDA_FAIL=cuEventRecord:700:1:3 \
        expect_exit 0 ranks 2 "$PROG/nccl_verbs" work null 30
    says 1 'rank 1: .*cuEventRecord: .*CUDA_ERROR_ILLEGAL_ADDRESS'
    says 1 'rank 0: .*rank 1 '
}
