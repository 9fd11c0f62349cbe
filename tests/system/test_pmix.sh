# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs of Open MPI that hvdrun starts without mpirun (--wireup pmix).

MPI_PROGRAM=$BUILD/tests/openmpi/mpi_program

# Skips the test where Open MPI or PMIx is missing.  HVD_TEST_OPENMPI names the
# prefix of another Open MPI, with bin/mpicc.
need_pmix() {
    if [ "${HVD_TEST_OPENMPI-}" ]; then
        MPI_PROGRAM=$PWD/mpi_program
        "$HVD_TEST_OPENMPI/bin/mpicc" -o "$MPI_PROGRAM" \
            "$ROOT/tests/system/prog/mpi_program.c"
    fi
    [ -x "$MPI_PROGRAM" ] || skip "Open MPI is not installed"
    [ -s "$BUILD/pmix" ] && [ "$(cat "$BUILD/pmix")" ] ||
        skip "this build is without PMIx"
}

test_pmix_hello() {
    need_pmix
    expect_exit 0 "$HVDRUN" -np 4 --wireup pmix --no-tag-output \
        "$MPI_PROGRAM" hello
    sort out | diff - <(printf 'rank %d of 4, 4 here\n' 0 1 2 3)
    [ ! -s err ]
}

# Without an option, a program that needs Open MPI gets what it needs, and starts
# anyway where that is missing.
test_pmix_by_itself() {
    need_pmix
    expect_exit 0 "$HVDRUN" -np 3 --no-tag-output "$MPI_PROGRAM" hello
    sort out | diff - <(printf 'rank %d of 3, 3 here\n' 0 1 2)
    expect_exit 0 "$HVDRUN" -np 2 -x HVD_PMIX_LIBRARY=/nonexistent/lib \
        "$MPI_PROGRAM" none
    one_line err
    grep -q 'warning: .*/nonexistent/lib' err
}

# hvd-pmix loads the copy of PMIx that the program's Open MPI uses.
test_pmix_of_the_program() {
    local file
    need_pmix
    start_waiting --log-level info
    file=$(sed -n 's/.*its PMIx is //p' job.err)
    [ -e "$file" ] || fail "no PMIx was found: $(cat job.err)"
    grep -qF " $(readlink -f "$file")" "/proc/$server/maps"
    kill -TERM "$(job_pids job hvdrun)"
    finish job 143
    nothing_is_left
}

# Variables of another launcher do not reach the ranks; those that scripts
# expect of mpirun do.
test_pmix_environment() {
    need_pmix
    # shellcheck disable=SC2016
    OMPI_COMM_WORLD_RANK=7 PMIX_RANK=7 PMIX_NAMESPACE=other \
        OMPI_MCA_orte_launch=1 OMPI_MCA_ess=singleton OMPI_MCA_pmix=isolated \
        expect_exit 0 "$HVDRUN" -np 2 --wireup pmix --no-tag-output sh -c '
        echo "$OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE" \
            "$OMPI_COMM_WORLD_LOCAL_RANK $OMPI_COMM_WORLD_LOCAL_SIZE" \
            "$PMIX_RANK ${OMPI_MCA_orte_launch-unset} ${OMPI_MCA_pmix-unset}"
        exec "$1" hello' sh "$MPI_PROGRAM"
    grep -qx '0 2 0 2 0 unset unset' out
    grep -qx '1 2 1 2 1 unset unset' out
    grep -qx 'rank 1 of 2, 2 here' out
}

# Ranks that had not come to MPI_Abort end, too, and the job has its code.
test_pmix_abort() {
    need_pmix
    expect_exit 7 "$HVDRUN" -np 3 --wireup pmix "$MPI_PROGRAM" abort 7
    grep -q 'rank 1 .*MPI_Abort' err
}

# Kills rank 1 where it waits for rank 0.
kill_at() {
    rm -f pid.*
    start job "$HVDRUN" -np 3 --wireup pmix "$MPI_PROGRAM" pause "$1"
    wait_for '[ -e pid.0 ] && [ -e pid.1 ] && [ -e pid.2 ]'
    # It is in MPI_Init when PMIx has its thread.
    wait_for '[ "$(ls /proc/$(cat pid.1)/task | wc -l)" -gt 1 ]'
    kill -KILL "$(cat pid.1)"
    finish job 137
    grep -q 'rank 1 .*SIGKILL' job.err
    wait_for 'gone job'
}

test_pmix_killed_in_init() {
    need_pmix
    kill_at init
}

test_pmix_killed_in_the_middle() {
    need_pmix
    kill_at middle
}

test_pmix_killed_in_finalize() {
    need_pmix
    kill_at finalize
}

# A rank that ends without MPI_Finalize has failed, whatever its exit code.
test_pmix_no_finalize() {
    need_pmix
    expect_exit 1 "$HVDRUN" -np 3 --wireup pmix "$MPI_PROGRAM" quit
    grep -q 'rank 1 .*MPI_Finalize' err
}

test_pmix_spawn_is_refused() {
    need_pmix
    expect_exit 0 "$HVDRUN" -np 1 --wireup pmix --no-tag-output \
        "$MPI_PROGRAM" spawn
    [ "$(grep -cE '^MPI_Comm_spawn.*: MPI_ERR_(SPAWN|UNKNOWN)' out)" = 2 ]
    one_line err
    grep -q 'rank 0 called MPI_Comm_spawn.*--mpi' err
}

# A program that does not use MPI is not one world, and the user learns that.
test_pmix_singletons() {
    need_pmix
    expect_exit 0 "$HVDRUN" -np 3 --wireup pmix "$MPI_PROGRAM" none
    one_line err
    grep -q 'ranks 0, 1 and 2 .*--wireup pmix' err
    expect_exit 3 "$HVDRUN" -np 2 --wireup pmix sh -c 'exit 3'
    grep -q 'warning: .*rank.* without using --wireup pmix' err
    expect_exit 127 "$HVDRUN" -np 2 --wireup pmix sh -c 'exit 127'
    ! grep -q 'without using' err || fail 'a hint for what never ran'
    # Where MPI finds hvdrun, a failure before MPI_Init needs no such hint.
    # shellcheck disable=SC2016
    expect_exit 3 "$HVDRUN" -np 2 --wireup pmix sh -c '
        [ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$1" hello
        sleep 2
        exit 3' sh "$MPI_PROGRAM"
    ! grep -q 'without using' err || fail 'a needless hint'
}

test_pmix_library_is_missing() {
    need_pmix
    expect_exit 125 "$HVDRUN" -np 2 --wireup pmix \
        -x HVD_PMIX_LIBRARY=/nonexistent/libpmix.so.2 touch "$PWD/started"
    check_refusal '--wireup pmix: .*/nonexistent/libpmix.so.2'
}

# libhvd works beside MPI, and over MPI if it is asked to.
test_pmix_libhvd() {
    need_pmix
    export HVD_PLUGIN_DIR=$BUILD/tests/openmpi
    expect_exit 0 "${unchecked_leaks[@]}" "$HVDRUN" -np 3 \
        --wireup pmix \
        "$HVD_PLUGIN_DIR/mpi_user" beside 3
    expect_exit 0 "${unchecked_leaks[@]}" "$HVDRUN" -np 3 \
        --wireup pmix -x HVD_CPU_PLANE=mpi \
        "$HVD_PLUGIN_DIR/mpi_user" level multiple
    # An MPI that has no launcher believes that each rank is alone.  The ranks
    # start one after the other: when three did so at once, MPI_Init itself
    # failed on one of them, in one of some hundred runs.
    expect_exit 1 "${unchecked_leaks[@]}" "$HVDRUN" -np 3 \
        --wireup none -x HVD_CPU_PLANE=mpi \
        sh -c 'sleep $((3 * HVD_RANK)); exec "$@"' sh \
        "$HVD_PLUGIN_DIR/mpi_user" beside 3
    grep -q 'needs an MPI launcher' out
    rm -rf "${TMPDIR:-/tmp}"/ompi.*
}

# Starts a job that waits, and finds its agent and its server, which has no
# variable of the test.
start_waiting() {
    local agent
    start job "$HVDRUN" "$@" -np 2 --wireup pmix "$MPI_PROGRAM" pause middle
    wait_for '[ -e pid.0 ] && [ -e pid.1 ]'
    for agent in $(job_pids job hvd-agent); do
        server=$(pgrep -P "$agent" -x hvd-pmix || :)
        [ ! "$server" ] || break
    done
    [ "$server" ] || fail "there is no hvd-pmix"
    AGENT=$agent
}

nothing_is_left() {
    wait_for 'gone job'
    wait_for '! alive $server'
}

test_pmix_killed_agent() {
    need_pmix
    start_waiting
    kill -KILL "$AGENT"
    finish job 125
    nothing_is_left
}

test_pmix_killed_server() {
    need_pmix
    start_waiting
    kill -KILL "$server"
    finish job 125
    grep -q 'hvd-pmix was killed by signal 9' job.err
    nothing_is_left
}

test_pmix_killed_hvdrun() {
    need_pmix
    start_waiting
    kill -KILL "$(job_pids job hvdrun)"
    nothing_is_left
}

# A rank that ends well before MPI_Init keeps no one waiting.
test_pmix_absent() {
    need_pmix
    # shellcheck disable=SC2016
    expect_exit 1 timeout 60 "$HVDRUN" -np 2 --wireup pmix sh -c '
        [ "$OMPI_COMM_WORLD_RANK" = 1 ] && exit 0
        exec "$1" hello' sh "$MPI_PROGRAM"
    grep -q 'rank 1 ended without calling MPI_Init' err
}

# The last of several programs of a rank must finalize, too.
test_pmix_quit_later() {
    need_pmix
    # shellcheck disable=SC2016
    expect_exit 1 timeout 60 "$HVDRUN" -np 2 --wireup pmix sh -c '
        "$1" meet && exec "$1" quit' sh "$MPI_PROGRAM"
    grep -q 'without MPI_Finalize' err
}

# Runs MPI_PROGRAM by a script that prints the parameter first.  The agent finds
# the program in it.
run_with_mtl() {
    printf '#!/bin/sh\necho "mtl=${OMPI_MCA_mtl-unset}"\nexec %s hello\n' \
        "$MPI_PROGRAM" >script
    chmod +x script
    rm -f ld.*
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --log-level info "$@" \
        -x LD_DEBUG=files -x LD_DEBUG_OUTPUT="$PWD/ld" ./script
    grep -qx 'rank 0 of 1, 1 here' out
}

loads_psm() {
    grep -q 'file=libpsm' ld.*
}

# Without a fabric, MPI does not load what looks for one, unless the user wants
# that.
test_pmix_without_fabric() {
    local f conf=/etc/openmpi/openmpi-mca-params.conf
    need_pmix
    for f in /sys/class/infiniband/* /dev/infiniband/* /dev/hfi1* \
        /dev/ipath*; do
        [ ! -e "$f" ] || skip "this host has a fabric"
    done
    grep -qx 'mtl = ^ofi' $conf 2>/dev/null ||
        skip "this is not Debian's Open MPI"
    mkdir home
    export HOME=$PWD/home
    run_with_mtl
    grep -qx 'mtl=^ofi,psm,psm2' out
    grep -q 'no fabric .*; OMPI_MCA_mtl=^ofi,psm,psm2$' err
    ! loads_psm || fail 'a library for a fabric was loaded'
    mkdir home/.openmpi
    echo 'mtl = ^ofi,portals4' >home/.openmpi/mca-params.conf
    run_with_mtl
    grep -qx 'mtl=^ofi,portals4,psm,psm2' out
    echo 'mtl = psm2' >home/.openmpi/mca-params.conf
    run_with_mtl
    grep -qx 'mtl=unset' out
    run_with_mtl -x OMPI_MCA_mtl=^ofi
    grep -qx 'mtl=^ofi' out
    ! grep -q 'OMPI_MCA_mtl' err || fail 'it was not set'
    loads_psm
}
