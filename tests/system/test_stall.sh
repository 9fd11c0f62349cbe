# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Ranks that wait for one that does not come: one report from hvdrun that
# says who waits for what, who is missing, where that is and what it does;
# and the end of the job, if that is wanted.

times=(--stall-check-warning-time-seconds 1
    --stall-check-shutdown-time-seconds 3)

# What the report says of a rank: says PATTERN
says() {
    grep -Eq -- "$1" err || fail "not said: $1: $(cat err)"
}

# The pid of rank 1, from the debug log.
pid_of_1() {
    sed -n 's/.*rank 1 is pid \([0-9]*\).*/\1/p' err
}

can_look() {
    command -v eu-stack >/dev/null || command -v gdb >/dev/null
}

# stalls VERB HOST HVDRUN-ARG...: exit 124 after both reports
stalls() {
    local verb=$1 host=$2
    shift 2
    expect_exit 124 "$HVDRUN" --grace 1 --log-level DEBUG "${times[@]}" "$@" \
        --no-tag-output "$PROG/stall" "$verb"
    says '^hvdrun: stall: [12] of 3 ranks waits? for others, for up to [0-9.]+ s'
    says '^  allreduce "grad.7": ranks? .* for [0-9.]+ s; missing: rank 1$'
    says "^  rank 1 on host $host \\(pid $(pid_of_1)\\) "
    says 'last operation: allreduce "grad.6", [0-9.]+ s ago'
    [ "$(grep -c '^  rank [0-9] on host' err)" -eq \
        "$(grep -c '^hvdrun: stall: [12] of' err)" ] || fail "more suspects"
    says 'HVD_STALL_SHUTDOWN_TIME_SECONDS'
    # The ranks that waited were told so.
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

# Rank 1 is on the second host; the others on two.
test_stall_on_several_hosts() {
    local verb
    for verb in never stop; do
        stalls $verb x2 -H x1,x2,x3 --rsh 'env PLAYED={host}'
    done
    stalls spin x1 -H x1:2,x2:1 --rsh 'env PLAYED={host}'
}

# The wait ends: that is said, and nothing else happens.
test_stall_that_is_over() {
    start job "$HVDRUN" "${times[@]:0:2}" -np 3 --no-tag-output \
        "$PROG/stall" late
    wait_for 'grep -q "missing: rank 1" job.err'
    touch go
    finish job 0
    grep -q '^hvdrun: stall: over' job.err
    [ "$(grep -c 'stall: over' job.err)" -eq 1 ]
}

test_stall_environment() {
    export HOROVOD_STALL_CHECK_TIME_SECONDS=1
    export HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2
    expect_exit 124 "$HVDRUN" -np 2 --grace 1 "$PROG/stall" never
    says 'missing: rank 1'
}

test_stall_shutdown_only() {
    expect_exit 124 "$HVDRUN" -np 2 --grace 1 \
        --stall-check-warning-time-seconds 0 \
        --stall-check-shutdown-time-seconds 1 "$PROG/stall" never
    [ "$(grep -c 'stall: 1 of 2' err)" -eq 1 ]
}

test_stall_check_off() {
    start job "$HVDRUN" -np 2 "${times[@]}" --no-stall-check --no-tag-output \
        "$PROG/stall" late
    sleep 4 # longer than both times: nothing may happen
    touch go
    finish job 0
    absent stall job.err
}

# A program that works is never reported, and nothing wakes up to look.
test_stall_quiet() {
    expect_exit 0 "$HVDRUN" -np 2 --stall-check-warning-time-seconds 1 \
        "$PROG/coll" sum 1000 200
    absent stall err
}
