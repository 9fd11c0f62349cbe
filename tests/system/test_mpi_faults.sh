# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Faults of ranks under an MPI's own launcher: a call of MPI or of malloc
# fails, a rank does not come, settings differ between ranks.  Each rank ends
# with a status and one line.  See mpi_fail.c and mpi_fault.c.

# Skips the test on a build whose own malloc cannot be replaced.
preloads() {
    ! sanitized || skip "preloads before the sanitizer"
}

# find_ranks PID: sets ranks_left to the children of PID that still run.
find_ranks() {
    local rank
    ranks_left=()
    for rank in $(ps -o pid= --ppid "$1"); do
        [ "$(ps -o stat= -p "$rank" | cut -c1)" = Z ] || ranks_left+=("$rank")
    done
}

# ended PID: waits for the launcher PID and returns its exit code.  Kills it
# after a minute, with the ranks that still run, which are in ranks_left then.
# Open MPI's mpirun crashes or hangs by itself at times, after a failure and
# when all ranks have ended: it is killed as soon as it has had no ranks for
# 15 s, which is no failure.
ended() {
    local i alone_s=0
    ranks_left=()
    for ((i = 0; i < 600 && alone_s < 15; i++)); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
        [ $((i % 10)) -eq 9 ] || continue
        find_ranks "$1"
        alone_s=$((${#ranks_left[@]} ? 0 : alone_s + 1))
    done
    if kill -0 "$1" 2>/dev/null; then
        kill -KILL "${ranks_left[@]}" "$1"
        rm -rf "$TMPDIR"/ompi.*
    else
        ranks_left=()
    fi
    wait "$1"
}

# launch NP CMD...: runs CMD on NP ranks and sets $status to the exit code.
# Fails the test if a rank hangs or crashes.
launch() {
    local launcher ranks_left=()
    mpi_launcher "$1"
    shift
    status=0
    "${unchecked_leaks[@]}" "${launcher[@]}" "$@" >out 2>err </dev/null &
    ended $! || status=$?
    [ ${#ranks_left[@]} -eq 0 ] || fail "$mpi: does not end: $*"
    # Open MPI's mpirun itself may crash here while it ends after a failure.
    if grep -aq 'PMIx_server_finalize' err; then
        rm -rf "$TMPDIR"/ompi.*
        return
    fi
    if grep -aqi 'segmentation\|abort(\|MPI_ERRORS_ARE_FATAL' err; then
        fail "$mpi: crashed: $*"
    fi
}

# faulty WAIT [VARIABLE=VALUE...]: runs mpi_fault on 3 ranks, which write their
# status to said/RANK.  Ranks 0 and 2 wait $patience seconds for others in
# hvd_init, or the default time.
faulty() {
    local wait=$1
    shift
    rm -rf said
    mkdir said
    # shellcheck disable=SC2016 # expanded by the rank's shell
    launch 3 sh -c '
        [ -z "$0" ] || [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] ||
            export HVD_START_TIMEOUT="$0"
        exec "$@"' "${patience:-}" \
        env LD_PRELOAD="$BUILD/tests/$mpi/mpi_fail.so" "$@" \
        "$PROG/mpi_fault" "$PWD/said" "$wait"
}

# says RANK PATTERN: fails unless RANK wrote one line that matches PATTERN.
says() {
    [ -f "said/$1" ] || fail "$mpi: rank $1 ended without a status"
    one_line "said/$1"
    grep -q "$2" "said/$1" || fail "$mpi: rank $1 says: $(cat "said/$1")"
}

# Makes call number $2 of the MPI function $1 fail on rank 1.  Fails unless the
# status of rank 1 names the function and the others say the pattern $3.
fails_everywhere() {
    local function=$1 k=$2 peers=$3 r
    faulty 20 MPI_FAIL="$function $k 1"
    [ "$status" -ne 0 ] || fail "$mpi: $function $k: exit 0"
    says 1 "^[1-9].*$function"
    for r in 0 2; do
        says $r "^[1-9].*$peers"
    done
}

told='rank 1 on host [^ ]* has failed: .*'

every_call_can_fail() {
    nm -D --undefined-only "$HVD_PLUGIN_DIR/libhvd-mpi.so" |
        awk '/ MPI_/ { print $2 }' | sort >called
    nm -D --defined-only "$HVD_PLUGIN_DIR/mpi_fail.so" |
        awk '/ MPI_/ { print $3 }' | sort >covered
    comm -23 called covered >uncovered
    [ ! -s uncovered ] || fail "$mpi: not in mpi_fail.c: $(cat uncovered)"
    [ -s called ]
}

test_mpi_faults_cover_all_calls() {
    each_mpi every_call_can_fail
}

# Each MPI call of the start fails once.  The rank names it.  The others cannot
# be told before there is a plane, and wait until their time limit.
start_up_fails() {
    local call calls=(Init_thread:1 Comm_idup:1 Op_create:5 Iallgather:1 Isend:1)
    export HVD_CPU_PLANE=mpi
    faulty 20
    [ "$status" -eq 0 ]
    ! full || calls+=(Query_thread:1 Comm_rank:1 Comm_size:1 Test:1
        Comm_set_errhandler:3 Iallreduce:1 Iallreduce:3 Comm_create_keyval:1
        Comm_set_attr:1 Comm_idup:2 Irecv:1 Irecv:4)
    for call in "${calls[@]}"; do
        patience=4 fails_everywhere "MPI_${call%:*}" "${call#*:}" \
            'ranks have come to hvd_init\|START_TIMEOUT'
    done
    # peers take part in copying a communicator
    patience=4 faulty 20 MPI_FAIL='MPI_Comm_idup 2 1'
    says 1 '^7 .*MPI_Comm_idup.*MPI names no peer'
    # the receive for farewells, and the last agreement of hvd_init
    for call in Irecv:5 Iallreduce:6; do
        fails_everywhere "MPI_${call%:*}" "${call#*:}" \
            "hvd_init: ${told%.*}MPI_${call%:*}: "
        says 0 '^7 '
        says 2 '^7 '
    done
}

test_mpi_faults_at_start() {
    preloads
    each_mpi start_up_fails
}

work_fails() {
    local call group_failed
    export HVD_CPU_PLANE=mpi HVD_MPI_BLOCKING=0
    for call in Isend:4 Isend:7 Irecv:30 Iallreduce:8 Ibcast:1 Iallgather:7 \
        Iallgatherv:2 Ialltoall:2 Ialltoallv:2 Ireduce_scatter:2; do
        fails_everywhere "MPI_${call%:*}" "${call#*:}" \
            "${told}MPI_${call%:*}"
    done
    for call in Comm_group Group_incl; do
        group_failed="\(a call of MPI for a plane$\|MPI_$call: \)"
        fails_everywhere "MPI_$call" 1 "_add: ${told%.*}$group_failed"
        says 0 '^7 '
        says 2 '^7 '
    done
    # as between hosts, where the first message makes a connection
    if [ "$mpi" = openmpi ]; then
        OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo \
            fails_everywhere MPI_Ibcast 1 "${told}MPI_Ibcast"
    fi
    # a message has an addressee to name; a collective has not
    faulty 20 MPI_FAIL='MPI_Isend 4 1'
    says 1 '^7 .*rank 0 on host .*: MPI_Isend'
    faulty 20 MPI_FAIL='MPI_Ibcast 1 1'
    says 1 '^7 .*MPI_Ibcast.*MPI names no peer'
    unset HVD_MPI_BLOCKING
}

test_mpi_faults_at_work() {
    preloads
    each_mpi work_fails
}

# With blocking collectives, ranks inside a call cannot be told.  They end when
# the launcher ends the job, as MPI is not finalised.
blocking_calls_fail() {
    local call wait
    export HVD_CPU_PLANE=mpi
    for call in Allreduce Bcast Allgatherv Alltoallv Reduce_scatter \
        Comm_create_group; do
        # Rank 2 is not in the set that fails, so it can be told, and MPICH would
        # kill rank 1 as soon as rank 2 ends: it waits for rank 1's status.
        wait=0
        [ "$call" != Comm_create_group ] || wait=3
        faulty "$wait" MPI_FAIL="MPI_$call 1 1"
        if [ "$status" -ne 0 ]; then
            says 1 "^7 .*MPI_$call"
        else # with fewer cores than ranks MPICH is not called so
            [ "$mpi" = mpich ] || fail "$mpi: MPI_$call was not called"
        fi
    done
}

test_mpi_faults_in_blocking_calls() {
    preloads
    each_mpi blocking_calls_fail
}

# A failing MPI call while a plane or MPI ends does no harm.
ends_fail() {
    local call
    export HVD_CPU_PLANE=mpi
    for call in Cancel Wait Comm_free Group_free Op_free Finalize; do
        faulty 20 MPI_FAIL="MPI_$call 1 1"
        says 1 '^0 '
    done
}

test_mpi_faults_at_the_end() {
    preloads
    each_mpi ends_fail
}

# If memory runs out on one rank, all ranks fail, or none does.
memory_runs_out() {
    local k r plane failed most=44 step=5
    ! full || step=1
    for plane in mpi auto; do
        failed=0
        for ((k = 2; k <= most; k += step)); do
            faulty 20 MALLOC_FAIL="$k 1" HVD_CPU_PLANE=$plane
            if grep -q '^0 ' said/1; then
                [ "$status" -eq 0 ] || fail "$mpi: $plane $k: exit $status"
                continue
            fi
            failed=$((failed + 1))
            says 1 '^2 .*no memory'
            for r in 0 2; do
                says $r '^[24] .*\(memory\|rank 1 on host .* has failed\)'
            done
        done
        [ "$failed" -gt 3 ] || fail "$mpi: $plane: $failed failures"
    done
}

test_mpi_faults_of_memory() {
    preloads
    each_mpi memory_runs_out
}

somebody_is_missing() {
    local r
    rm -rf said
    mkdir said
    # shellcheck disable=SC2016 # expanded by the rank's shell
    HVD_START_TIMEOUT=5 launch 3 sh -c '
        await() {
            until [ -e "said/$1" ] && [ -e "said/$2" ]; do sleep 0.05; done
        }
        rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
        if [ $rank = 1 ]; then
            await 0 2
            exec touch said/1
        fi
        touch said/up.$rank
        await up.0 up.2
        exec "$PROG/mpi_fault" "$PWD/said" 20'
    for r in 0 2; do
        says $r '^8 init hvd_init: 2 of 3 ranks have come.*missing: 1:'
    done
    HVD_START_TIMEOUT=3 launch 3 "$BUILD/tests/$mpi/mpi_user" absent
    # mpirun may print both messages on one line.
    [ "$(grep -o '2 of 3 ranks have come to hvd_init, missing: 1' out |
        wc -l)" -eq 2 ]
}

test_mpi_faults_rank_does_not_come() {
    each_mpi somebody_is_missing
}

# All ranks end rightly even if one is stopped for longer than a leaving rank
# waits.
long_stops_end() {
    local blocking
    for blocking in 0 1; do
        HVD_CPU_PLANE=mpi HVD_MPI_BLOCKING=$blocking HVD_START_TIMEOUT=10 \
            launch 3 "$BUILD/tests/$mpi/mpi_user" stopped 3500 10
        absent 'not so' out
    done
    # A rank that learns that another one is leaving does not go on alone, which
    # could only end by the end of the job.
    HVD_CPU_PLANE=mpi HVD_START_TIMEOUT=10 \
        launch 3 "$BUILD/tests/$mpi/mpi_user" stopped 3500 1000
    absent 'not so' out
    [ "$status" -eq 0 ] || fail "$mpi: exit $status"
}

test_mpi_faults_long_stops() {
    each_mpi long_stops_end
}

memory_differs() {
    # shellcheck disable=SC2016 # expanded by the rank's shell
    launch 2 sh -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
        export HVD_ALLOC_BYTES=$((65536 * (1 + rank)))
        exec "$PROG/coll" topo'
    [ "$status" -ne 0 ]
    grep -q 'HVD_ALLOC_BYTES.* makes 65536 bytes on rank 0 and 131072 on rank 1' \
        err
}

test_mpi_faults_memory_differs() {
    each_mpi memory_differs
}

segment_is_another() {
    HVD_CPU_PLANE=native launch 2 env SEGMENT_FAKE=1 \
        LD_PRELOAD="$BUILD/tests/$mpi/mpi_fail.so" "$PROG/coll" topo
    [ "$status" -ne 0 ]
    grep -q 'it is not the segment of rank 0\|has failed\|no shared memory' err
    HVD_CPU_PLANE=auto launch 2 env SEGMENT_FAKE=1 \
        LD_PRELOAD="$BUILD/tests/$mpi/mpi_fail.so" "$HVD_BENCH" allreduce \
        --sizes 8 --iters 5 --plane mpi
    [ "$status" -eq 0 ] || fail "$mpi: $(cat err)"
}

test_mpi_faults_segment_is_another() {
    preloads
    each_mpi segment_is_another
}

# A launcher may tell a process its rank and no more, or not be that of the MPI
# in use.  Rank 0 then runs alone, and every other rank gets an error.
test_mpi_faults_worlds_of_one() {
    mkdir empty
    expect_exit 1 env PMIX_RANK=2 PMIX_NAMESPACE=job \
        HVD_PLUGIN_DIR="$PWD/empty" "$PROG/coll" topo
    grep -q 'PMIX_RANK is 2): there is no ' err
    expect_exit 0 env PMIX_RANK=0 PMIX_NAMESPACE=job \
        HVD_PLUGIN_DIR="$PWD/empty" "$PROG/coll" topo
    expect_exit 0 env PMIX_RANK=2 PMIX_NAMESPACE=job HVD_SIZE=1 \
        "$PROG/coll" topo
    expect_exit 1 env SLURM_PROCID=3 SLURM_NTASKS=4 "$PROG/coll" topo
    one_line err
    grep -q 'SLURM_PROCID is 3, and the processes do not know of each' err
    expect_exit 0 env SLURM_PROCID=0 SLURM_NTASKS=4 "$PROG/coll" topo
    [ -e "$BUILD/tests/mpich/libhvd-mpi.so" ] || return 0
    expect_exit 1 "${unchecked_leaks[@]}" PMIX_RANK=2 PMIX_NAMESPACE=job \
        HVD_PLUGIN_DIR="$BUILD/tests/mpich" "$PROG/coll" topo
    grep -q 'PMIX_RANK is 2 and MPICH.* finds one rank' err
    expect_exit 0 "${unchecked_leaks[@]}" PMIX_RANK=0 PMIX_NAMESPACE=job \
        HVD_PLUGIN_DIR="$BUILD/tests/mpich" "$PROG/coll" topo
    [ "$(cat out)" = 'rank 0/1 local 0/1 cross 0/1' ]
}
