# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# In random bursts of operations, on every plane, one rank does something other
# than the rest.  Every rank then gets the right status or the right values,
# and goes on.  To repeat a failure, run `differ SEED 1 BURSTS` with the seed
# and burst that it names and as many ranks.

# random NP-OR-HOSTS SEED BURSTS [VARIABLE=VALUE...]: runs differ from SEED on;
# with 20 seeds if HVD_TEST_FULL=1, with N seeds if HVD_DIFFER_FACTOR=N.
random() {
    local ranks=$1 seed=$2 bursts=$3 seeds=1
    shift 3
    ! full || seeds=20
    seeds=${HVD_DIFFER_FACTOR:-$seeds}
    case $ranks in
    *[!0-9]*) set -- "$@" "$HVDRUN" -H "$ranks" --rsh 'env PLAYED={host}' ;;
    *) set -- "$@" "$HVDRUN" -np "$ranks" ;;
    esac
    expect_exit 0 env "$@" --no-tag-output \
        "$PROG/differ" "$seed" "$seeds" "$bursts"
    grep -Eq '^[1-9][0-9]* results, [1-9][0-9]* mismatches$' out
}

test_differ_in_shared_memory() {
    local np
    expect_exit 0 "$PROG/differ" 1 1 50
    for np in 2 3 4 5 6 7 8; do
        random $np $((100 * np)) 60
    done
    random 9 900 40 HVD_DOMAINS=0,0,0,0,1,1,1,1,2
}

test_differ_over_tcp() {
    local np
    for np in 2 3 4 6 8; do
        random $np $((110 * np)) 40 HVD_FORCE_TCP=1
    done
}

test_differ_on_several_hosts() {
    local hosts
    for hosts in x1,x2 x1:2,x2:2 x1:3,x2:1 x1:2,x2:3,x3:1 x1:4,x2:4; do
        random $hosts 1200 40
    done
}

test_differ_with_other_thresholds() {
    random 3 1300 60 HVD_FUSION_THRESHOLD=0
    random 3 1400 60 HVD_FUSION_THRESHOLD=200
}

under_mpi() {
    local np
    for np in 2 3 6; do
        mpi_launcher $np
        expect_exit 0 timeout 120 "${unchecked_leaks[@]}" \
            env HVD_CPU_PLANE=mpi "${launcher[@]}" \
            "$PROG/differ" $((150 * np)) "${HVD_DIFFER_FACTOR:-1}" 40
        grep -Eq '^[1-9][0-9]* results, [1-9][0-9]* mismatches$' out
    done
}

test_differ_over_mpi() {
    each_mpi under_mpi
}

test_differ_has_a_seed() {
    expect_exit 99 "$PROG/differ"
    expect_exit 99 "$PROG/differ" 1 2
}
