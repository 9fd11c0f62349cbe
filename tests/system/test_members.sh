# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Process sets that their members make alone, on one host, on several, and over
# TCP alone.

# many HOSTS ARG...: runs hvdrun ARG... on HOSTS, all of which this machine
# plays.
many() {
    local hosts=$1
    shift
    "$HVDRUN" -H "$hosts" --rsh 'env PLAYED={host}' --no-tag-output "$@"
}

ranks() {
    local np=$1
    shift
    "$HVDRUN" -np "$np" --no-tag-output "$@"
}

# told N PATTERN: fails unless exactly N lines of ./out match PATTERN.
told() {
    [ "$(grep -Ec -- "$2" out)" -eq "$1" ] ||
        fail "not $1 times '$2': $(cat out err)"
}

test_members_again_and_again() {
    local np
    for np in 1 2 5; do
        expect_exit 0 ranks $np "$PROG/members_rank" cycles
    done
    HVD_FORCE_TCP=1 expect_exit 0 ranks 4 "$PROG/members_rank" cycles
    expect_exit 0 many x1:2,x2:3 "$PROG/members_rank" cycles
    expect_exit 0 many x1:1,x2:1,x3:2 "$PROG/members_rank" cycles
}

# The sets live on when ranks die.
test_members_in_elastic_jobs() {
    local force
    for force in 0 1; do
        HVD_FORCE_TCP=$force expect_exit 0 ranks 5 --min-np 1 \
            "$PROG/members_rank" keep
        grep -q 'finished with 3 of 5 ranks' err
    done
    expect_exit 0 many x1:2,x2:3 --min-np 1 "$PROG/members_rank" keep
    expect_exit 0 many x1:2,x2:1,x3:2 --min-np 1 "$PROG/members_rank" keep
    grep -q 'finished with 3 of 5 ranks' err
}

test_members_in_threads() {
    expect_exit 0 ranks 2 "$PROG/members_rank" threads
    expect_exit 0 ranks 5 "$PROG/members_rank" threads
    expect_exit 0 many x1:2,x2:2 "$PROG/members_rank" threads
}

test_members_while_all_make_sets() {
    expect_exit 0 ranks 2 "$PROG/members_rank" mixed
    expect_exit 0 ranks 5 "$PROG/members_rank" mixed
    expect_exit 0 many x1:2,x2:2 "$PROG/members_rank" mixed
}

test_members_fill_the_table() {
    expect_exit 0 ranks 3 "$PROG/members_rank" fill
}

# A rank that has no number left fails with the others, which have.
test_members_fill_the_table_of_one() {
    expect_exit 0 ranks 3 "$PROG/members_rank" uneven
    told 1 'rank 0: .*there are 256 process sets already'
    told 2 'rank [12]: .*too many process sets that their members have made'
}

test_members_wrong_arguments() {
    expect_exit 0 ranks 2 "$PROG/members_rank" wrong
    expect_exit 0 many x1:1,x2:1 "$PROG/members_rank" wrong
}

test_members_that_do_not_come() {
    local text='not all members have called it with tag "absent"'
    HVD_START_TIMEOUT=2 expect_exit 0 ranks 3 "$PROG/members_rank" absent
    told 2 "timed out: .*$text"
    expect_exit 137 ranks 3 "$PROG/members_rank" die
    told 2 'a peer died: .*rank 2 .*killed by signal 9'
    expect_exit 0 ranks 3 "$PROG/members_rank" leave
    told 2 'a peer died: .*rank 2'
    expect_exit 0 many x1:2,x2:1 "$PROG/members_rank" leave
    told 2 'a peer died: .*rank 2'
}

# Who comes after ranks that it disagrees with learns of that at once.
test_members_that_differ() {
    HVD_START_TIMEOUT=3 expect_exit 0 ranks 3 "$PROG/members_rank" differ
    grep -q 'disagree.*tag "differ" with other ranks on another rank' out
    told 3 'rank [0-2]: (ranks disagree|timed out|a peer died)'
}

test_members_at_shutdown() {
    expect_exit 0 ranks 3 "$PROG/members_rank" shutdown
}

members_are_refused() {
    mpi_launcher 2
    expect_exit 0 timeout 60 "${unchecked_leaks[@]}" "${launcher[@]}" \
        "$PROG/members_rank" refuse
    told 2 'under an MPI launcher; use hvd_process_set_add'
}

test_members_under_mpi() {
    each_mpi members_are_refused
}
