# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# libhvd programs that an MPI's own launcher starts, without hvdrun.  The same
# binaries as elsewhere run in shared memory and over MPI.

# Leaks are not checked, as MPI's own libraries have some.
limits=(timeout 120 "${unchecked_leaks[@]}")

# under NP EXIT CMD...: fails unless CMD on NP ranks ends with exit code EXIT.
# Its standard input never ends: MPICH's launcher passes the end of its own on
# and fails if ranks that do not call MPI have ended before it does so.
under() {
    mpi_launcher "$1"
    [ -p endless ] || mkfifo endless
    expect_exit "$2" "${limits[@]}" "${launcher[@]}" "${@:3}" <>endless
}

# fails NP CMD...: fails the test if CMD on NP ranks exits with 0 or hangs.
# The launcher chooses the exit code of a failure.
fails() {
    local got=0
    mpi_launcher "$1"
    shift
    "${limits[@]}" "${launcher[@]}" "$@" >out 2>err </dev/null || got=$?
    if [ "$got" -eq 0 ] || [ "$got" -eq 124 ]; then
        fail "exit $got: $*"
    fi
}

ranks_find_each_other() {
    under 3 0 "$PROG/coll" topo
    sort out | diff - <(printf 'rank %d/3 local %d/3 cross 0/1\n' 0 0 1 1 2 2)
    under 1 0 "$PROG/coll" topo
    [ "$(cat out)" = 'rank 0/1 local 0/1 cross 0/1' ]
    under 3 0 "$PROG/coll" again 3
    under 2 0 env HVD_SIZE=1 "$PROG/coll" topo
    sort -u out | diff - <(echo 'rank 0/1 local 0/1 cross 0/1')
}

test_mpi_world_topology() {
    each_mpi ranks_find_each_other
}

# feature NP NAME INSIDE OUTSIDE: fails unless hvd_feature says so, in a world
# of NP ranks and after it.
feature() {
    under "$1" 0 "$PROG/coll" feature "$2"
    sort -u out | diff - <(echo "$2: $3, $4")
}

features_are_told() {
    feature 2 mpi_built 1 1
    feature 2 mpi_enabled 1 0
    feature 2 gloo_built 1 1
    feature 2 gloo_enabled 0 0
    feature 2 is_homogeneous 1 -3
    under 1 0 env HVD_PLUGIN_DIR=/none "$PROG/coll" feature mpi_built
    grep -qx 'mpi_built: 0, 0' out
}

test_mpi_world_features() {
    each_mpi features_are_told
}

# Collectives of all kinds give right results, as in test_properties.sh, on
# either plane.
properties_hold() {
    local np
    for np in 2 3 4; do
        under $np 0 "$PROG/prop" $((100 * np)) 2 12
        under $np 0 env HVD_CPU_PLANE=mpi "$PROG/prop" $((100 * np)) 2 12
    done
    [ "$(grep -c '^[1-9][0-9]* operations$' out)" -gt 0 ]
}

test_mpi_world_properties() {
    each_mpi properties_hold
}

planes_are_chosen() {
    local plane
    for plane in shm:auto shm:native mpi:mpi; do
        under 2 0 env HVD_CPU_PLANE=${plane#*:} \
            "$HVD_BENCH" allreduce --sizes 8,100K --iters 5 --plane ${plane%:*}
    done
    under 2 0 env HOROVOD_CPU_OPERATIONS=mpi \
        "$HVD_BENCH" allreduce --sizes 8 --iters 5 --plane mpi
    fails 2 env HVD_CPU_PLANE=nccl "$PROG/coll" topo
    grep -q 'HVD_CPU_PLANE: "nccl" is not one of auto, native, mpi' err
    fails 2 sh -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
        [ $rank = 0 ] || export HVD_CPU_PLANE=mpi
        exec "$PROG/coll" topo'
    grep -q 'HVD_CPU_PLANE is auto on rank 0 and mpi on rank 1' err
    fails 2 env HVD_FORCE_TCP=1 "$PROG/coll" topo
    grep -q 'HVD_FORCE_TCP needs' err
}

test_mpi_world_planes() {
    each_mpi planes_are_chosen
}

# waits PLANE CMD...: runs three ranks that wait for ever, which must fail.
waits() {
    fails 3 env HVD_CPU_PLANE="$1" HVD_STALL_CHECK_TIME_SECONDS=0.6 \
        HVD_STALL_SHUTDOWN_TIME_SECONDS=2 "${@:2}"
}

# warns PATTERN [MOST]: fails unless a line on stderr matches, and at most MOST.
warns() {
    local lines
    lines=$(grep -Ec -- "$1" err) || :
    [ "$lines" -ge 1 ] && [ "$lines" -le "${2:-99}" ] ||
        fail "$lines: $1: $(cat err)"
}

too_long='waited longer than HVD_STALL_SHUTDOWN_TIME_SECONDS \(2 s\) for'
host='( on host [^ ]*)?'
has_waited='has waited (0\.[5-9]|[1-9]\.[0-9]) s for'

missing_ranks_are_named() {
    local run what whom="rank 1$host, which has not begun it"
    for run in native: mpi: native:joined mpi:joined; do
        # Over MPI, the rank after the missing one reports it.
        what='allreduce "grad.7"'
        [ $run != mpi:joined ] || what=hvd_join
        waits ${run%:*} "$PROG/stall_rank" never ${run#*:}
        # one rank, after the time and again after twice the time
        warns "$what $has_waited $whom" 2
        grep -Eq "$what $too_long $whom" out ||
            fail "$(cat out)"
    done
}

test_mpi_world_names_missing_ranks() {
    each_mpi missing_ranks_are_named
}

# Nobody is to blame if all have called something; each says what it waits for.
disagreeing_ranks_are_named() {
    local run case few many='allreduce "[ab]"'
    for run in native:names mpi:names mpi:mismatch mpi:fewer; do
        case=${run#*:} few=allreduce
        [ "$case" != names ] || few='allreduce "b"'
        waits ${run%:*} "$PROG/disagree" "$case"
        warns "$many $has_waited rank 2$host, which waits in $few\$"
        warns "$few $has_waited ranks 0-1; rank 0$host waits in $many\$"
        grep -Eq "$too_long rank" out || fail "$case: $(cat out)"
    done
}

test_mpi_world_names_ranks_that_disagree() {
    each_mpi disagreeing_ranks_are_named
}

# The limit is for one operation: a queue of them may take longer.
queues_may_take_longer() {
    local plane
    for plane in native mpi; do
        HVD_CPU_PLANE=$plane HVD_STALL_SHUTDOWN_TIME_SECONDS=1 \
            under 3 0 "$PROG/stall_rank" slow
    done
}

test_mpi_world_of_long_queues() {
    each_mpi queues_may_take_longer
}

# A wait that ends is reported, and has no other effect.
late_ranks_are_waited_for() {
    local plane
    for plane in native mpi; do
        rm -f go
        mpi_launcher 3
        start job env HVD_CPU_PLANE=$plane HVD_STALL_CHECK_TIME_SECONDS=0.3 \
            "${limits[@]}" "${launcher[@]}" "$PROG/stall_rank" late
        wait_for "grep -q '\"grad.7\" has waited .* for rank 1' job.err"
        touch go
        finish job 0
    done
}

test_mpi_world_waits_for_late_ranks() {
    each_mpi late_ranks_are_waited_for
}

slow_peers_are_waited_for() {
    HVD_CPU_PLANE=mpi under 3 0 "$BUILD/tests/$mpi/mpi_user" stopped 500 10
}

test_mpi_world_slow_peers() {
    each_mpi slow_peers_are_waited_for
}

# When one rank has a wrong setting, no rank waits for ever, and MPI is
# finalised.
failures_to_join_are_told() {
    local name
    for name in CPU_PLANE ALLOC_BYTES MPI_CHUNK FORCE_TCP; do
        under 3 0 "$BUILD/tests/$mpi/mpi_user" refused "HVD_$name"
    done
}

test_mpi_world_failures_to_join() {
    each_mpi failures_to_join_are_told
}

users_mpi_is_respected() {
    local user=$BUILD/tests/$mpi/mpi_user plane
    for plane in auto mpi; do
        export HVD_CPU_PLANE=$plane
        under 2 0 "$user" level serialized
        under 3 0 "$user" level multiple
        under 2 0 "$user" level single
        under 2 0 "$user" finalized
        under 3 0 "$user" early
        under 2 0 "$user" comm
        under 5 0 "$user" comm
        under 3 0 "$user" beside 9
    done
    unset HVD_CPU_PLANE
}

test_mpi_world_beside_the_users() {
    each_mpi users_mpi_is_respected
}

# When a rank dies, the launcher ends the others at once; when it shuts down,
# they are told.
failures_end_the_job() {
    local plane how kind
    for plane in native mpi; do
        export HVD_CPU_PLANE=$plane
        for how in kill 5; do
            fails 3 "$PROG/coll" lose allreduce $how 1 20 "$PWD/$how.$plane"
        done
        for kind in small allreduce; do
            under 3 0 "$PROG/coll" lose $kind shutdown 1 20 "$PWD/$kind.$plane"
            [ "$(grep -c 'rank 1 on host .* has shut down' out)" -eq 2 ]
        done
    done
    unset HVD_CPU_PLANE
}

test_mpi_world_failures() {
    each_mpi failures_end_the_job
}

# Ranks learn the same whether hvdrun or MPI's launcher started them.
examples_give_the_same() {
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output "$EXAMPLES/train_digits"
    grep -v ' s$' out >hvdrun.out
    under 2 0 "$EXAMPLES/train_digits"
    grep -v ' s$' out | diff hvdrun.out -
    grep -q 'accuracy 9' hvdrun.out
}

test_mpi_world_examples() {
    each_mpi examples_give_the_same
}

test_mpi_world_without_a_plugin() {
    mkdir empty
    expect_exit 1 env OMPI_COMM_WORLD_SIZE=2 HVD_PLUGIN_DIR="$PWD/empty" \
        "$PROG/coll" topo
    grep -q "OMPI_COMM_WORLD_SIZE is 2): there is no $PWD/empty/libhvd-mpi.so" err
    echo text >empty/libhvd-mpi.so
    expect_exit 1 env OMPI_COMM_WORLD_SIZE=2 HVD_PLUGIN_DIR="$PWD/empty" \
        "$PROG/coll" topo
    grep -q 'libhvd-mpi.so: ' err
    # without HVD_PLUGIN_DIR, a plug-in folder that others can write to is
    # refused
    mkdir -m 777 hvd
    chmod 777 hvd
    cp "$(dirname "$PROG")/../lib/libhvd.so.0" .
    cp empty/libhvd-mpi.so hvd
    expect_exit 1 env OMPI_COMM_WORLD_SIZE=2 LD_LIBRARY_PATH="$PWD" \
        "$PROG/coll" topo
    grep -q "$PWD/hvd can be written by others" err
    # a single rank needs no plug-in
    expect_exit 0 env OMPI_COMM_WORLD_SIZE=1 HVD_PLUGIN_DIR="$PWD/empty" \
        "$PROG/coll" topo
    expect_exit 1 env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 "$PROG/coll" topo
    grep -q 'srun started 4 processes that do not know of each other' err
    expect_exit 0 env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 HVD_SIZE=1 \
        "$PROG/coll" topo
}

test_mpi_world_needs_a_launcher() {
    expect_exit 1 "$HVDRUN" -np 2 env HVD_CPU_PLANE=mpi "$PROG/coll" topo
    grep -q 'HVD_CPU_PLANE: mpi needs an MPI launcher' err
}
