# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs of MPICH on several hosts without mpiexec (--wireup pmi1).

MPI_PROGRAM=$BUILD/tests/mpich/mpi_program

# HVD_TEST_MPICH names the prefix of another MPICH, as in test_pmi1.sh.
up() {
    if [ "${HVD_TEST_MPICH-}" ]; then
        MPI_PROGRAM=$PWD/mpi_program
        "$HVD_TEST_MPICH/bin/mpicc" -o "$MPI_PROGRAM" \
            "$ROOT/tests/system/prog/mpi_program.c"
    fi
    [ -x "$MPI_PROGRAM" ] || skip "MPICH is not installed"
    cluster_up "$@"
}

# Starts a job, compares its lines, and ends it.  Its ranks do not call
# MPI_Finalize: with connections between hosts, that of MPICH 4.0 with UCX often
# hangs, with mpiexec, too.
check_ranks() { # LINES OPTION...
    local lines=$1
    shift
    start_on login job "$HVDRUN" --wireup pmi1 --no-tag-output "$@" \
        "$MPI_PROGRAM" stay
    wait_for '[ "$(grep -c here job.out)" = "$(wc -l <<<"'"$lines"'")" ]'
    kill -TERM "$(job_pids job hvdrun)"
    finish job 143
    sort job.out | diff - <(echo "$lines")
}

# Ranks know who shares their host, in every order and with unequal slots.
test_pmi1_hosts() {
    up 2
    expect_exit 0 login "$HVDRUN" --wireup pmi1 -H n1:2,n2:2 "$MPI_PROGRAM" meet
    check_ranks "$(printf 'rank %d of 4, 2 here\n' 0 1 2 3)" -H n1:2,n2:2
    check_ranks "rank 0 of 5, 3 here
rank 1 of 5, 2 here
rank 2 of 5, 3 here
rank 3 of 5, 2 here
rank 4 of 5, 3 here" -np 5 -H n1:3,n2:2 --map-by node
    check_ranks "rank 0 of 3, 1 here
rank 1 of 3, 2 here
rank 2 of 3, 2 here" -H n2:1,n1:2
    cluster_down
}

test_pmi1_hosts_death() {
    up 2
    kill_mpi_ranks_on_n2 pmi1
    # One that never calls MPI_Init, and exits with 0.
    # shellcheck disable=SC2016
    expect_exit 1 login "$HVDRUN" -H n1:2,n2:2 --wireup pmi1 sh -c \
        '[ $PMI_RANK = 3 ] || exec "$1" hello' sh "$MPI_PROGRAM"
    tells 'rank 3 .*had left the others before that'
    cluster_down
}
