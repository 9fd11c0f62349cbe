# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# When ranks wait for one that does not come, hvdrun prints one report: who
# waits for what, who is missing, where that rank is and what it does.  If
# wanted, the job then ends.

times=(--stall-check-warning-time-seconds 1
    --stall-check-shutdown-time-seconds 3)

# says PATTERN: fails unless a line of ./err matches PATTERN.
says() {
    grep -Eq -- "$1" err || fail "not said: $1: $(cat err)"
}

# Prints the pid of rank 1, from the debug log in ./err.
pid_of_1() {
    sed -n 's/.*rank 1 is pid \([0-9]*\).*/\1/p' err
}

can_look() {
    command -v eu-stack >/dev/null || command -v gdb >/dev/null
}

# stalls VERB HOST HVDRUN-ARG...: rank 1, on HOST, keeps the others waiting by
# VERB.  Fails unless both reports follow and hvdrun exits with 124.
stalls() {
    local verb=$1 host=$2
    shift 2
    expect_exit 124 "$HVDRUN" --grace 1 --log-level DEBUG "${times[@]}" "$@" \
        --no-tag-output "$PROG/stall_rank" "$verb"
    says '^hvdrun: stall: [12] of 3 ranks waits? for others, for up to [0-9.]+ s'
    says '^  allreduce "grad.7": ranks? .* for [0-9.]+ s; missing: rank 1$'
    says "^  rank 1 on host $host \\(pid $(pid_of_1)\\) "
    says 'last operation: allreduce "grad.6", [0-9.]+ s ago'
    [ "$(grep -c '^  rank [0-9] on host' err)" -eq \
        "$(grep -c '^hvdrun: stall: [12] of' err)" ] || fail "more suspects"
    says 'HVD_STALL_SHUTDOWN_TIME_SECONDS'
    # The ranks that waited get the same in their error.
    [ "$(grep -c 'rank [02]: .*rank 1 (pid' out)" -eq 2 ] || fail "$(cat out)"
    grep -Eq "rank [02]: .*on host $host: kept the others waiting" out
    grep -q 'it has not issued allreduce "grad.7"' out
}

host="(localhost|$(hostname))"

test_stall_never() {
    stalls never "$host" -np 3
    says "\\(pid $(pid_of_1)\\) sleeps"
    can_look || return 0
    sanitized || says '^    #[0-9]+ .*never'
}

test_stall_stopped() {
    stalls stop "$host" -np 3
    says "\\(pid $(pid_of_1)\\) is stopped by a signal"
    can_look || return 0
    sanitized || says '^    #[0-9]+ .*stop'
}

test_stall_spinning() {
    stalls spin "$host" -np 3
    says 'runs, at [0-9]+ % of a core'
    can_look || return 0
    sanitized || says '^    #[0-9]+ .*spin'
}

test_stall_without_a_debugger() {
    mkdir bin
    stalls never "$host" -np 3 -x PATH="$PWD/bin"
    says 'no stack: neither eu-stack nor gdb'
}

# The report is right if the ranks are on several hosts.
test_stall_on_several_hosts() {
    local verb
    for verb in never stop; do
        stalls $verb x2 -H x1,x2,x3 --rsh 'env PLAYED={host}'
    done
    stalls spin x1 -H x1:2,x2:1 --rsh 'env PLAYED={host}'
}

# When the missing rank comes after all, hvdrun says once that the wait is
# over, and the job goes on.
test_stall_that_is_over() {
    start job "$HVDRUN" "${times[@]:0:2}" -np 3 --no-tag-output \
        "$PROG/stall_rank" late
    wait_for 'grep -q "missing: rank 1" job.err'
    touch go
    finish job 0
    grep -q '^hvdrun: stall: over' job.err
    [ "$(grep -c 'stall: over' job.err)" -eq 1 ]
}

test_stall_environment() {
    export HOROVOD_STALL_CHECK_TIME_SECONDS=1
    export HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2
    expect_exit 124 "$HVDRUN" -np 2 --grace 1 "$PROG/stall_rank" never
    says 'missing: rank 1'
}

test_stall_shutdown_only() {
    expect_exit 124 "$HVDRUN" -np 2 --grace 1 \
        --stall-check-warning-time-seconds 0 \
        --stall-check-shutdown-time-seconds 1 "$PROG/stall_rank" never
    [ "$(grep -c 'stall: 1 of 2' err)" -eq 1 ]
}

test_stall_check_off() {
    start job "$HVDRUN" -np 2 "${times[@]}" --no-stall-check --no-tag-output \
        "$PROG/stall_rank" late
    sleep 4 # longer than both times: nothing may happen
    touch go
    finish job 0
    absent stall job.err
}

# disagree CASE FEW [HVDRUN-ARG...]: all ranks have called something, by CASE,
# and will never agree; the last rank waits for the pattern FEW.  Fails unless
# the report and the error of each rank say which rank waits for what and
# accuse nobody.
disagree() {
    local case=$1 few=$2 many='allreduce "[ab]"'
    shift 2
    mkdir -p no-debugger
    expect_exit 124 "$HVDRUN" -np 3 --grace 1 --no-tag-output \
        -x PATH="$PWD/no-debugger" -x HVD_STALL_CHECK_TIME_SECONDS=0.2 \
        -x HVD_STALL_SHUTDOWN_TIME_SECONDS=0.3 "$@" "$PROG/disagree" "$case"
    says '^hvdrun: stall: [123] of 3 ranks waits? for others'
    says "^  $many: ranks 0, 1 wait for [0-9.]+ s; missing: rank 2\$"
    says "^  $few: rank 2 waits for [0-9.]+ s; missing: ranks 0, 1\$"
    for rank in 0 1 2; do
        says "^  rank $rank on host .*; it waits for allreduce"
        grep -E "^rank $rank: .*do not agree" out >told ||
            fail "rank $rank: $(cat out)"
        grep -Eq "ranks 0, 1 wait for $many(;|\$)" told || fail "$(cat told)"
        grep -Eq "rank 2 waits for $few(;|\$)" told || fail "$(cat told)"
    done
    absent 'kept the others' out
}

b='allreduce "b"'

# disagree_in_all_cases [HVDRUN-ARG...]
disagree_in_all_cases() {
    disagree names "$b" "$@"
    disagree blocking allreduce "$@"
    disagree mismatch allreduce "$@"
    disagree learned "$b" "$@"
    disagree mixed allreduce "$@"
    disagree fewer allreduce "$@"
}

test_stall_disagree() {
    disagree_in_all_cases
}

test_stall_disagree_tcp() {
    HVD_FORCE_TCP=1 disagree_in_all_cases
}

# The report is also right with one rank a host, and with two ranks on a host,
# whose leaders sleep in shared memory.
test_stall_disagree_on_several_hosts() {
    disagree_in_all_cases -H x1,x2,x3 --rsh 'env PLAYED={host}'
    disagree blocking allreduce -H x1:2,x2:1 --rsh 'env PLAYED={host}'
}

# A program that works is not reported.
test_stall_quiet() {
    expect_exit 0 "$HVDRUN" -np 2 --stall-check-warning-time-seconds 1 \
        "$PROG/coll" sum 1000 200
    absent stall err
}
