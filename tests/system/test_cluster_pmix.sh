# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs of Open MPI on several hosts without mpirun (--wireup pmix).

MPI_PROGRAM=$BUILD/tests/openmpi/mpi_program

up() {
    [ -x "$MPI_PROGRAM" ] || skip "Open MPI is not installed"
    [ -s "$BUILD/pmix" ] && [ "$(cat "$BUILD/pmix")" ] ||
        skip "this build is without PMIx"
    cluster_up "$@"
}

run_hello() {
    expect_exit 0 login "$HVDRUN" --wireup pmix --no-tag-output "$@" \
        "$MPI_PROGRAM" hello
}

# Ranks know who shares their host, whatever their order, with addresses from a
# fence or, with direct modex, fetched when they are needed.
test_pmix_hosts() {
    local modex
    up 2
    for modex in 1 0; do
        OMPI_MCA_pmix_base_collect_data=$modex run_hello -H n1:2,n2:2 \
            -x OMPI_MCA_pmix_base_collect_data
        sort out | diff - <(printf 'rank %d of 4, 2 here\n' 0 1 2 3)
    done
    run_hello -np 3 -H n1:2,n2:1 --map-by node
    sort out | diff - <(
        echo 'rank 0 of 3, 2 here'
        echo 'rank 1 of 3, 1 here'
        echo 'rank 2 of 3, 2 here'
    )
    cluster_down
}

# A rank that dies ends those on the other host, wherever they wait for it.
test_pmix_hosts_death() {
    local where
    up 2
    for where in init middle finalize; do
        rm -f pid.*
        start_on login job "$HVDRUN" -H n1:2,n2:2 --wireup pmix \
            "$MPI_PROGRAM" pause $where
        wait_for '[ -e pid.0 ] && [ -e pid.1 ] && [ -e pid.2 ] && [ -e pid.3 ]'
        on n2 kill -KILL "$(cat pid.3)"
        finish job 137
        tells 'rank 3 .*SIGKILL' job.err
    done
    # A rank that breaks its connection without ending keeps no one waiting.
    expect_exit 1 login timeout 60 "$HVDRUN" -H n1:2,n2:2 --wireup pmix \
        "$MPI_PROGRAM" leave
    tells 'has left PMIx before MPI_Finalize'
    expect_exit 7 login "$HVDRUN" -H n1:2,n2:2 --wireup pmix \
        "$MPI_PROGRAM" abort 7
    tells 'rank 1 .*MPI_Abort'
    cluster_down
}

# Each host decides what Open MPI need not look for.
test_pmix_hosts_without_fabric() {
    up 2
    printf '#!/bin/sh\necho "mtl=${OMPI_MCA_mtl-unset}"\nexec %s hello\n' \
        "$MPI_PROGRAM" >script
    chmod +x script
    expect_exit 0 login "$HVDRUN" --log-level info --no-tag-output \
        -H n1:1,n2:1 "$PWD/script"
    [ "$(grep -c ' of 2, 1 here' out)" = 2 ]
    # The same file and the same devices.
    [ "$(grep -c 'no fabric' err)" != 1 ]
    [ "$(grep mtl= out | sort -u | wc -l)" = 1 ]
    if grep -q 'OMPI_MCA_mtl=' err; then
        grep -q '^mtl=^.*psm,psm2$' out
    else
        grep -qx 'mtl=unset' out
    fi
    cluster_down
}
