# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Random collectives of every kind, dtype, op, shape, process set and way of
# issuing have the results of a formula that each rank computes by itself: in
# shared memory, over TCP, and both.  To repeat a failure, run `prop SEED 1
# BATCHES` with the seed that it names and as many ranks.

# random NP-OR-HOSTS SEED SEEDS BATCHES [VARIABLE=VALUE...]: runs prop with
# SEEDS seeds from SEED on; HVD_TEST_FULL=1 makes them ten times as many.
random() {
    local ranks=$1 seed=$2 seeds=$3 batches=$4
    shift 4
    ! full || seeds=$((10 * seeds))
    case $ranks in
    *[!0-9]*) set -- "$@" "$HVDRUN" -H "$ranks" --rsh 'env PLAYED={host}' ;;
    *) set -- "$@" "$HVDRUN" -np "$ranks" ;;
    esac
    expect_exit 0 env "$@" --no-tag-output \
        "$PROG/prop" "$seed" "$seeds" "$batches"
    [ "$(grep -c '^[1-9][0-9]* operations$' out)" -gt 0 ]
}

test_properties_of_one() {
    expect_exit 0 "$PROG/prop" 1 10 20
}

test_properties_in_shared_memory() {
    local np
    for np in 1 2 3 4 5 6 7 8; do
        random $np $((100 * np)) 2 15
    done
}

test_properties_by_domain() {
    random 9 900 1 10 HVD_DOMAINS=0,0,0,0,1,1,1,1,2
    random 12 1200 1 8 HVD_DOMAINS=1,0,1,1,2,2,2
    random x1:9,x2:2 1300 1 8 HVD_DOMAINS=1,0,1,0
}

test_properties_over_tcp() {
    local np
    for np in 2 3 4; do
        random $np $((100 * np)) 2 12 HVD_FORCE_TCP=1
    done
}

test_properties_on_several_hosts() {
    local hosts
    for hosts in x1,x2 x1:2,x2:2 x1:3,x2:1 x1:2,x2:3,x3:1; do
        random $hosts 2000 2 12
    done
}

# Results are right with kernels and thresholds that this machine would not
# choose by itself.
test_properties_of_other_choices() {
    random 3 3000 1 12 HVD_SIMD=portable
    random 3 3100 1 12 HVD_SIMD=avx2
    random 2 3200 1 12 HVD_FUSION_THRESHOLD=0
    random 4 3300 1 12 HVD_FUSION_THRESHOLD=4096
}

test_properties_have_a_seed() {
    expect_exit 99 "$PROG/prop"
    expect_exit 99 "$PROG/prop" 1 2
}
