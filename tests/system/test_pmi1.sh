# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs of MPICH that hvdrun starts without mpiexec (--wireup pmi1).

MPI_PROGRAM=$BUILD/tests/mpich/mpi_program

# Skips the test without MPICH.  HVD_TEST_MPICH names the prefix of another one,
# with bin/mpicc.
need_mpich() {
    if [ "${HVD_TEST_MPICH-}" ]; then
        MPI_PROGRAM=$PWD/mpi_program
        "$HVD_TEST_MPICH/bin/mpicc" -o "$MPI_PROGRAM" \
            "$ROOT/tests/system/prog/mpi_program.c"
    fi
    [ -x "$MPI_PROGRAM" ] || skip "MPICH is not installed"
}

run_hello() { # [OPTION...]
    expect_exit 0 "$HVDRUN" --no-tag-output "$@" "$MPI_PROGRAM" hello
}

test_pmi1_hello() {
    need_mpich
    run_hello -np 4 --wireup pmi1
    sort out | diff - <(printf 'rank %d of 4, 4 here\n' 0 1 2 3)
    [ ! -s err ]
}

# An MPI program cannot go on without a rank.
test_pmi1_is_not_elastic() {
    need_mpich
    expect_exit 125 "$HVDRUN" -np 2 --min-np 1 "$MPI_PROGRAM" hello
    grep -q 'this is an MPI program, which cannot go on without a rank' err
    [ ! -s out ]
    expect_exit 125 "$HVDRUN" -np 2 --restart-failed 1 "$MPI_PROGRAM" hello
}

# Variables of another launcher, whose descriptor is not even open here, do not
# reach the ranks.  They get one descriptor besides their stdio.
test_pmi1_environment() {
    need_mpich
    # shellcheck disable=SC2016
    PMI_FD=77 PMI_RANK=5 PMI_SIZE=9 PMI_PORT=localhost:1 PMI_ID=3 \
        HYDRA_TOPO_DEBUG=1 MPI_LOCALRANKID=8 MPIR_CVAR_CH3_NOLOCAL=0 \
        expect_exit 0 "$HVDRUN" -np 2 --wireup pmi1 --no-tag-output sh -c '
        echo "$PMI_FD $PMI_RANK $PMI_SIZE ${PMI_PORT-unset} ${PMI_ID-unset}" \
            "$MPI_LOCALRANKID $MPI_LOCALNRANKS ${HYDRA_TOPO_DEBUG-unset}" \
            "${MPIR_CVAR_CH3_NOLOCAL-unset}"
        for fd in 3 4 5 6 7 8 9; do [ ! -e /proc/$$/fd/$fd ] || echo "fd $fd"
        done
        exec "$1" hello' sh "$MPI_PROGRAM"
    grep -qx '3 0 2 unset unset 0 2 unset 0' out
    grep -qx '3 1 2 unset unset 1 2 unset 0' out
    [ "$(grep -c '^fd 3$' out)" = 2 ]
    [ "$(grep -c '^fd' out)" = 2 ]
    grep -qx 'rank 1 of 2, 2 here' out
}

# hvdrun in a rank of mpiexec or of another hvdrun starts a job of its own.
test_pmi1_nested() {
    need_mpich
    local outer
    for outer in "mpiexec.mpich -n 1" "$HVDRUN -np 1 --no-tag-output"; do
        # shellcheck disable=SC2086
        expect_exit 0 $outer "$HVDRUN" -np 2 --wireup pmi1 \
            --no-tag-output "$MPI_PROGRAM" hello
        sort out | diff - <(printf 'rank %d of 2, 2 here\n' 0 1)
    done
}

# The job has the code that was given to MPI_Abort; 0 and 256, which a process
# cannot fail with, become 1.
test_pmi1_abort() {
    need_mpich
    local code
    for code in 7:7 0:1 256:1 300:44; do
        expect_exit "${code#*:}" "$HVDRUN" -np 3 --wireup pmi1 \
            "$MPI_PROGRAM" abort "${code%:*}"
        grep -q "rank 1 .*failed: exit code ${code#*:}: .*MPI_Abort" err
    done
}

# Kills rank 1 where it waits for rank 0.
kill_at() { # WHERE
    rm -f pid.*
    start job "$HVDRUN" -np 3 --wireup pmi1 "$MPI_PROGRAM" pause "$1"
    wait_for '[ -e pid.0 ] && [ -e pid.1 ] && [ -e pid.2 ]'
    kill -KILL "$(cat pid.1)"
    finish job 137
    grep -q 'rank 1 .*SIGKILL' job.err
    wait_for 'gone job'
}

test_pmi1_killed() {
    need_mpich
    kill_at init
    kill_at middle
    kill_at finalize
}

# A rank that ends without MPI_Finalize has failed, whatever its exit code.
test_pmi1_no_finalize() {
    need_mpich
    expect_exit 1 "$HVDRUN" -np 3 --wireup pmi1 "$MPI_PROGRAM" quit
    grep -q 'rank 1 .*exited with 0, but without MPI_Finalize' err
}

# Ranks that wait in MPI_Init for one that never calls it do not wait for ever.
test_pmi1_one_rank_without_mpi() {
    need_mpich
    # shellcheck disable=SC2016
    expect_exit 1 "$HVDRUN" -np 3 --wireup pmi1 sh -c \
        '[ $PMI_RANK = 1 ] || exec "$1" hello' sh "$MPI_PROGRAM"
    grep -q 'rank 1 ended without calling MPI_Init' err
    grep -q 'rank 1 .*had left the others before that' err
}

# The rank that calls MPI_Abort first is the culprit, though it ends last.
test_pmi1_first_abort_counts() {
    expect_exit 7 "$HVDRUN" -np 2 --wireup pmi1 bash -c '
        echo cmd=init pmi_version=1 pmi_subversion=1 >&3
        read -r _ <&3
        if [ "$PMI_RANK" = 1 ]; then
            echo cmd=abort exitcode=7 >&3
            : >aborted
            sleep 60
        fi
        until [ -e aborted ]; do :; done
        sleep 0.01
        echo cmd=abort exitcode=9 >&3'
    grep -q 'rank 1 .*MPI_Abort' err
}

test_pmi1_spawn_is_refused() {
    need_mpich
    expect_exit 0 "$HVDRUN" -np 1 --wireup pmi1 --no-tag-output \
        "$MPI_PROGRAM" spawn
    [ "$(grep -c '^MPI_Comm_spawn' out)" = 2 ]
    ! grep -qi 'no mpi error' out || fail 'it was not refused'
    # Debian's MPICH 4.0 gives up before it asks.
    if [ -s err ] || [ "${HVD_TEST_MPICH-}" ]; then
        one_line err
        grep -q 'rank 0 called MPI_Comm_spawn.*--mpi' err
    fi
}

# Without the wire-up each rank is a world of its own; with a kind that its MPI
# does not speak, too, but then a warning says so.
test_pmi1_singletons() {
    need_mpich
    run_hello -np 3 --wireup none
    diff out <(printf 'rank 0 of 1, 1 here\n%.0s' 1 2 3)
    [ ! -s err ]
    expect_exit 0 "$HVDRUN" -np 3 --wireup pmi1 "$MPI_PROGRAM" none
    one_line err
    grep -q 'ranks 0, 1 and 2 .*--wireup pmi1' err
    [ -x "$BUILD/tests/openmpi/mpi_program" ] || return 0
    expect_exit 0 "$HVDRUN" -np 2 --wireup pmi1 --no-tag-output \
        "$BUILD/tests/openmpi/mpi_program" hello
    diff out <(printf 'rank 0 of 1, 1 here\n%.0s' 1 2)
    grep -q 'ranks 0 and 1 .*--wireup pmi1' err
}

test_pmi1_many_ranks() {
    local ranks=24
    need_mpich
    ! full || ranks=64
    expect_exit 0 "$HVDRUN" -np $ranks --wireup pmi1 "$MPI_PROGRAM" meet
    [ ! -s err ]
}

# Without --wireup the agent sees what the program needs.
test_pmi1_auto() {
    need_mpich
    run_hello -np 2 --log-level info
    grep -q 'wire-up of MPI: pmi1 (.*(MPICH)' err
    grep -qx 'rank 1 of 2, 2 here' out
    expect_exit 0 "$HVDRUN" -np 2 --log-level info true
    ! grep -q 'wire-up' err
}

# What is not PMI ends the job with a reason.
test_pmi1_broken_protocol() {
    need_mpich
    expect_exit 1 "$HVDRUN" -np 2 --wireup pmi1 sh -c \
        'echo cmd=nonsense >&3; sleep 1000'
    grep -q 'the unknown PMI request "nonsense"' err
    expect_exit 1 "$HVDRUN" -np 2 --wireup pmi1 sh -c \
        'yes | tr -d "\n" >&3; sleep 1000'
    grep -q "is not PMI's protocol" err
    expect_exit 1 "$HVDRUN" -np 2 --wireup pmi1 sh -c \
        'echo cmd=init pmi_version=1 >&3; exec 3<&-; sleep 1000'
    grep -q 'closed its connection to PMI' err
}
