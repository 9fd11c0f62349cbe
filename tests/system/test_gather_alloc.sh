# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Gathers that ask their callers for memory, on each plane; device memory is in
# test_nccl.sh.  See tests/system/prog/gather_alloc_cases.h.

# The last run is long: under AddressSanitizer it finds what an operation does
# not give back.
test_gathers_ask_for_memory() {
    local np
    for np in 1 2 4; do
        expect_exit 0 "$HVDRUN" -np "$np" "$PROG/gather_alloc" 10
    done
    expect_exit 0 "$HVDRUN" -np 3 env HVD_FORCE_TCP=1 "$PROG/gather_alloc" 10
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/gather_alloc" 10000
}

# Also where a piece of data needs more than one call of MPI, and where ranks
# busy-wait in none.
over_mpi() {
    local np=$1
    shift
    mpi_launcher "$np"
    expect_exit 0 timeout 120 "${unchecked_leaks[@]}" HVD_CPU_PLANE=mpi "$@" \
        "${launcher[@]}" "$PROG/gather_alloc" 100
}

test_gathers_ask_for_memory_over_mpi() {
    each_mpi over_mpi 2
    each_mpi over_mpi 3 HVD_MPI_BLOCKING=0
    each_mpi over_mpi 4 HVD_MPI_CHUNK=100000
}
