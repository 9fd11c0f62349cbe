# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The MPI plane by itself, without libhvd, under every MPI that is installed;
# see tests/system/prog/mpi_plane.c.

# Those for which there is a plug-in and a launcher.
mpis=()
for mpi in openmpi mpich; do
    if [ -e "$BUILD/tests/$mpi/libhvd-mpi.so" ] &&
        command -v "mpiexec.$mpi" >/dev/null; then
        mpis+=("$mpi")
    fi
done

need_mpi() {
    [ ${#mpis[@]} -gt 0 ] || skip "no MPI is installed"
}

# under MPI NP [VARIABLE=VALUE...] MODE: no word, and exit code 0.  MPI's own
# libraries do not free all they have.
under() {
    local mpi=$1 np=$2 launcher
    shift 2
    case $mpi in
    openmpi)
        launcher=(mpiexec.openmpi --oversubscribe --bind-to none -np "$np")
        [ "$(id -u)" -ne 0 ] || launcher+=(--allow-run-as-root)
        ;;
    mpich) launcher=(mpiexec.mpich -n "$np") ;;
    esac
    expect_exit 0 timeout 120 "${unchecked_leaks[@]}" "${@:1:$#-1}" \
        "${launcher[@]}" "$PROG/mpi_plane" \
        "$BUILD/tests/$mpi/libhvd-mpi.so" "${@: -1}"
    [ ! -s out ] || fail "$mpi, $np: stdout is not empty"
}

test_mpi_collectives() {
    local mpi np
    need_mpi
    for mpi in "${mpis[@]}"; do
        for np in 1 2 3 4 5; do
            under "$mpi" $np collectives
        done
    done
}

test_mpi_counts_beyond_a_call() {
    local mpi
    need_mpi
    for mpi in "${mpis[@]}"; do
        under "$mpi" 2 HVD_MPI_CHUNK=7 collectives
        under "$mpi" 3 HVD_MPI_CHUNK=100 collectives
    done
}

test_mpi_ranks_agree() {
    local mpi np
    need_mpi
    for mpi in "${mpis[@]}"; do
        for np in 2 3 5; do
            under "$mpi" $np agreement
        done
    done
}

test_mpi_planes_side_by_side() {
    local mpi np
    need_mpi
    for mpi in "${mpis[@]}"; do
        for np in 2 4; do
            under "$mpi" $np sets
        done
    done
}

test_mpi_rank_leaves() {
    local mpi np
    need_mpi
    for mpi in "${mpis[@]}"; do
        for np in 2 3 4; do
            under "$mpi" $np leave
            under "$mpi" $np given-up
        done
    done
}

# What the program itself has done with MPI.
test_mpi_of_the_program() {
    local mpi
    need_mpi
    for mpi in "${mpis[@]}"; do
        under "$mpi" 2 own
        under "$mpi" 1 too-low
        under "$mpi" 1 too-late
    done
}

test_mpi_plugin_exports() {
    local mpi
    need_mpi
    for mpi in "${mpis[@]}"; do
        nm -D --defined-only "$BUILD/tests/$mpi/libhvd-mpi.so" |
            awk '{ print $3 }' | sort >symbols
        printf '%s\n' hvd_mpi_library hvd_plugin | cmp - symbols
    done
}
