# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The job's key-value store: put, get, wait, watch, delete and fences, on one
# host and on several that this machine plays.

# two_hosts EXIT CMD...: runs CMD on four ranks of two hosts, which are shells
# on this machine, and fails unless hvdrun exits with EXIT.
two_hosts() {
    mkdir -p home
    expect_exit "$1" env HOME="$PWD/home" "$HVDRUN" -np 4 -H ha:2,hb:2 \
        --rsh 'env -u {host}' --no-tag-output "${@:2}"
}

test_values_between_ranks() {
    two_hosts 0 "$PROG/rdv" put k% v% wait k0 wait k3 fence end % \
        get nosuch del k% fence deleted % get k1
    [ "$(grep -c '^v0$' out)" = 4 ]
    [ "$(grep -c '^v3$' out)" = 4 ]
    [ "$(grep -c '^none$' out)" = 8 ]
    [ "$(grep -c '^0=0 1=1 2=2 3=3 $' out)" = 8 ]
}

test_a_watch_sees_the_next_value() {
    # shellcheck disable=SC2016
    two_hosts 0 sh -c 'if [ $HVD_RANK = 3 ]; then
            exec "$0" put k one fence ready "" fence watching "" \
                sleep 50 put k two
        else
            exec "$0" fence ready "" wait k fence watching "" watch k
        fi' "$PROG/rdv"
    [ "$(grep -c '^one$' out)" = 3 ]
    [ "$(grep -c '^two$' out)" = 3 ]
}

test_fence_of_some_ranks() {
    # shellcheck disable=SC2016
    two_hosts 0 sh -c 'case $HVD_RANK in
        0 | 3) exec "$0" some odd r% 0,3 ;;
        esac' "$PROG/rdv"
    [ "$(grep -c '^0=r0 3=r3 $' out)" = 2 ]
    # shellcheck disable=SC2016
    two_hosts 1 sh -c '[ $HVD_RANK != 1 ] || exec "$0" some odd r% 0,3' \
        "$PROG/rdv"
    grep -q 'no member of the fence' err
}

test_fences_on_one_host() {
    expect_exit 0 "$HVDRUN" -np 8 --no-tag-output "$PROG/rdv" \
        fence a v% fence b % rank
    [ "$(grep -c '^0=0 1=1 2=2 3=3 4=4 5=5 6=6 7=7 $' out)" = 8 ]
    grep -qx '7 of 8 on host 0 of 1' out
}

# If a rank leaves without coming to a fence, those that wait are told which.
test_a_missing_rank_is_named() {
    # shellcheck disable=SC2016
    two_hosts 0 sh -c '[ $HVD_RANK = 3 ] && exit 0
        "$0" fence f % || echo "failed $?"' "$PROG/rdv"
    [ "$(grep -c '^failed 1$' out)" = 3 ]
    grep -q 'rank 3.* on host hb' err
}

test_large_values() {
    two_hosts 0 "$PROG/rdv" big k% 1048576 fence put ""
    two_hosts 1 "$PROG/rdv" big k% 1048577
    grep -q 'too long' err
}

test_a_hostile_worker_is_dropped() {
    two_hosts 0 "$PROG/rdv" junk
    [ "$(grep -cE '^(answered|closed)$' out)" = 4 ]
}

test_values_are_of_one_job() {
    two_hosts 0 "$PROG/rdv" put k v
    two_hosts 0 "$PROG/rdv" get k
    [ "$(grep -c '^none$' out)" = 4 ]
}
