# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The MPI plane by itself, without libhvd, under every MPI that is installed.
# See tests/system/prog/mpi_plane_rank.c.

# under NP [VARIABLE=VALUE...] MODE: fails unless mpi_plane_rank MODE on NP
# ranks exits with 0 and prints nothing to stdout.  Leaks are not checked, as
# MPI's own libraries have some.
under() {
    local np=$1
    shift
    mpi_launcher "$np"
    expect_exit 0 timeout 120 "${unchecked_leaks[@]}" "${@:1:$#-1}" \
        "${launcher[@]}" "$PROG/mpi_plane_rank" \
        "$HVD_PLUGIN_DIR/libhvd-mpi.so" "${@: -1}"
    [ ! -s out ] || fail "$mpi, $np: stdout is not empty"
}

# with NPS MODE...: runs each MODE with each number of ranks in NPS.
with() {
    local np mode
    for np in $1; do
        for mode in "${@:2}"; do
            under "$np" "$mode"
        done
    done
}

test_mpi_collectives() {
    each_mpi with '1 2 3 4 5' collectives
}

test_mpi_counts_beyond_a_call() {
    each_mpi under 2 HVD_MPI_CHUNK=7 collectives
    each_mpi under 3 HVD_MPI_CHUNK=100 collectives
}

test_mpi_ranks_agree() {
    each_mpi with '2 3 5' agreement
}

test_mpi_planes_side_by_side() {
    each_mpi with '2 4' sets
}

test_mpi_rank_leaves() {
    each_mpi with '2 3 4' leave given-up given-up-driven
}

# The plane works beside an MPI that the program itself has initialised, and
# refuses one that it cannot use.
test_mpi_of_the_program() {
    each_mpi with 2 own
    each_mpi with 1 too-low too-late
}

exports_two_names() {
    nm -D --defined-only "$HVD_PLUGIN_DIR/libhvd-mpi.so" |
        awk '{ print $3 }' | sort >symbols
    printf '%s\n' hvd_mpi_library hvd_plugin | cmp - symbols
}

test_mpi_plugin_exports() {
    each_mpi exports_two_names
}
