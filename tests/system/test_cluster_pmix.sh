# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs of Open MPI on several hosts without mpirun (--wireup pmix).

MPI_PROGRAM=$BUILD/tests/openmpi/mpi_program
MPICH_PROGRAM=$BUILD/tests/mpich/mpi_program

# HVD_TEST_OPENMPI names the prefix of another Open MPI, as in test_pmix.sh.
up() {
    if [ "${HVD_TEST_OPENMPI-}" ]; then
        MPI_PROGRAM=$PWD/mpi_program
        "$HVD_TEST_OPENMPI/bin/mpicc" -o "$MPI_PROGRAM" \
            "$ROOT/tests/system/prog/mpi_program.c"
    fi
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
    # A rank that breaks its connection without ending keeps no one waiting.  (In
    # Open MPI 5 others wait for it by messages, of which PMIx knows nothing.)
    if ! [ "${HVD_TEST_OPENMPI-}" ]; then
        expect_exit 1 login timeout 60 "$HVDRUN" -H n1:2,n2:2 --wireup pmix \
            "$MPI_PROGRAM" leave
        tells 'has left PMIx before MPI_Finalize'
    fi
    cluster_down
}

# A rank whose addresses are needed, but that does not come to MPI_Init, is named
# in the end.
test_pmix_hosts_late() {
    up 2
    # shellcheck disable=SC2016
    expect_exit 1 login timeout 60 "$HVDRUN" -H n1:1,n2:1 --wireup pmix \
        -x OMPI_MCA_pmix_base_collect_data=0 \
        -x OMPI_MCA_pmix_base_async_modex=1 -x OMPI_MCA_async_mpi_init=1 \
        -x HVD_PMIX_TIMEOUT=1 sh -c '
        [ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec sleep 300
        exec "$1" hello' sh "$MPI_PROGRAM"
    tells 'rank 0 .*rank 1 did not give its addresses .* 1 s'
    expect_exit 125 login timeout 60 "$HVDRUN" -np 1 --wireup pmix \
        -x HVD_PMIX_TIMEOUT=soon "$MPI_PROGRAM" hello
    tells 'HVD_PMIX_TIMEOUT'
    cluster_down
}

# Runs /tmp/prog, which must end because n2 has another program than n1.
expect_difference() { # LINE
    expect_exit 1 login timeout 60 "$HVDRUN" -H n1:2,n2:2 /tmp/prog hello
    ours | grep -v 'ended .* ranks' >lines
    one_line lines
    tells "$1"
}

# Ranks do not wait for those of a host where the program is another one.
test_pmix_hosts_differ() {
    up 2
    on n1 cp "$MPI_PROGRAM" /tmp/prog
    on n2 sh -c 'printf "#!/bin/sh\nsleep 300\n" >/tmp/prog; chmod +x /tmp/prog'
    expect_difference 'rank [01] .*host n2 found no MPI in the program'
    if [ -x "$MPICH_PROGRAM" ]; then
        on n2 cp "$MPICH_PROGRAM" /tmp/prog
        expect_difference 'host n2 uses --wireup pmi1, this host pmix'
    fi
    on n1 rm /tmp/prog
    on n2 rm /tmp/prog
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
