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

test_pmix_hosts_death() {
    up 2
    kill_mpi_ranks_on_n2 pmix
    # A rank that breaks its connection without ending keeps no one waiting.
    expect_exit 1 login timeout 60 "$HVDRUN" -H n1:2,n2:2 --wireup pmix \
        "$MPI_PROGRAM" leave
    tells 'has left PMIx before MPI_Finalize'
    cluster_down
}
