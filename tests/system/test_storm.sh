# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A storm of faults.  In jobs of mixed collectives, at a random instant, one or
# two ranks or one of our processes are killed, stop, leave, or call something
# else.  Each job must end in time, with the exit code of the true cause, which
# hvdrun names, and leave nothing.
#
# HVD_TEST_STORM_S=1800 (with HVD_TEST_LIMIT above it) makes a storm that long;
# HVD_TEST_STORM_SEED is the first job's seed.  A failure prints the seed of
# its job.

storm_begin() {
    storm_seed=${HVD_TEST_STORM_SEED:-0}
    storm_jobs=0
    storm_end=$((SECONDS + ${HVD_TEST_STORM_S:-0}))
}

storm_goes_on() {
    storm_seed=$((storm_seed + 1))
    storm_jobs=$((storm_jobs + 1))
    if [ "${HVD_TEST_STORM_S:-0}" -eq 0 ]; then
        [ $storm_jobs -le 5 ]
    else
        [ $SECONDS -lt "$storm_end" ]
    fi
}

# Chooses a job by storm_seed: $ranks, $victim, $fault, $when, and what the
# other ranks do after a failure, $after.
choose() {
    local deaths=(kill:9 kill:15 kill:11 kill:6 exit:3 leave:4)
    local faults=("${deaths[@]}" stop exit:0 agent skip size "$@")
    local ways=(exit leave shutdown sleep mixed)
    RANDOM=$storm_seed
    ranks=$((2 + RANDOM % 5))
    victim=$((RANDOM % ranks))
    fault=${faults[RANDOM % ${#faults[@]}]}
    after=${ways[RANDOM % ${#ways[@]}]}
    when=$((RANDOM * 32768 % 400000 + RANDOM))
    rounds=40
    case $fault in
    skip | size) when=$((RANDOM % rounds)) ;;
    esac
    # Ranks that sleep are ended only when a rank has failed.  A rank that
    # leaves out an operation of the last round exits with 0, too, so nobody
    # must sleep then.
    case $fault:$when in
    exit:0:* | skip:$((rounds - 1))) [ "$after" = exit ] || after=leave ;;
    esac
    tcp=$((RANDOM % 2))
    # A second rank that dies at about the same time as the first.
    second=$(((victim + 1) % ranks))
    second_fault=
    case ${fault%:*}$((RANDOM % 3)) in
    kill0 | exit0 | leave0)
        second_fault=${deaths[RANDOM % ${#deaths[@]}]} ;;
    esac
}

# Runs the chosen job by COMMAND and sets $got to hvdrun's exit code.
storm_job() { # COMMAND...
    local job=("$PROG/storm" "$storm_seed" "$rounds" "$after"
        "$victim" "$fault" "$when")
    local began=$SECONDS
    [ -z "$second_fault" ] ||
        job+=("$second" "$second_fault" "$((when + RANDOM % 5000))")
    got=0
    [ "$tcp" = 0 ] || job=(env HVD_FORCE_TCP=1 "${job[@]}")
    timeout -s KILL 60 "$@" --grace 1 --start-timeout "${start_limit:-6}" \
        --stall-check-warning-time-seconds 1 \
        --stall-check-shutdown-time-seconds 3 "${job[@]}" \
        >out 2>err || got=$?
    [ $((SECONDS - began)) -lt 55 ] || storm_fail "it did not end"
}

storm_fail() {
    cp err "storm.$storm_seed.err"
    fail "seed $storm_seed: $fault of rank $victim of $ranks at $when," \
        "${second_fault:+$second_fault of rank $second,}" \
        "others: $after, TCP: $tcp: exit $got: $*"
}

# Fails the job unless a line of hvdrun itself matches $1.
says() {
    grep -aEq -- "$1" < <(ours) || storm_fail "hvdrun does not say '$1'"
}

# Prints the exit code of hvdrun after the fault $1 of a rank.
exit_code() {
    case $1 in
    kill:*) echo $((128 + ${1#*:})) ;;
    *) echo "${1#*:}" ;;
    esac
}

words() {
    case $1 in
    kill:*) echo "killed by signal ${1#*:} " ;;
    *) echo "exit code ${1#*:}$" ;;
    esac
}

# Succeeds if hvdrun's report and exit code name RANK and FAULT as the cause.
is_culprit() { # RANK FAULT
    [ -n "$2" ] && [ "$got" -eq "$(exit_code "$2")" ] && grep -aEq -- \
        "^hvdrun: rank $1 on host [^ ]+ \(pid [0-9]+\) failed: $(words "$2")" \
        < <(ours)
}

judge() {
    local others
    ! grep -aq 'storm: wrong value' err || storm_fail "a wrong value"
    # The second rank may have died first.
    ! is_culprit "$second" "$second_fault" || return 0
    # The fault's message may be lost if the agent ends just then.
    if ! grep -aqF "storm: ${fault%:*}" err &&
        ! [[ $fault,$got =~ ^(agent,125|hvdrun,137)$ ]]; then
        [ "$got" -eq 0 ] || storm_fail "no fault happened"
        return
    fi
    case $fault in
    exit:0)
        # Leaving with success is no failure in itself, but ranks that fail
        # because of it say who left.
        [ "$got" -eq 0 ] ||
            grep -aEq "^\[[0-9]+\]<stderr>:storm: .*rank $victim" err ||
            storm_fail "no rank is told who left" ;;
    kill:* | exit:* | leave:*)
        is_culprit "$victim" "$fault" || storm_fail "another culprit" ;;
    hvdrun) [ "$got" -eq 137 ] || storm_fail "not 137" ;;
    stop)
        [ "$got" -ne 0 ] || storm_fail "nobody failed"
        says "rank $victim "
        others=$(grep -aE '^\[[0-9]+\]<stderr>:.*kept the others waiting' err |
            grep -avw "rank $victim" || :)
        [ -z "$others" ] || [ -n "$second_fault" ] ||
            storm_fail "another rank is blamed" ;;
    agent)
        [ "$got" -eq 125 ] || storm_fail "not 125"
        says '^hvdrun: host [^ ]+: lost the agent' ;;
    skip)
        [ "$got" -ne 0 ] || storm_fail "nobody failed"
        grep -aq "rank $victim" err || storm_fail "rank $victim is not named" ;;
    size)
        [ "$got" -eq 0 ] || storm_fail "the job did not go on"
        [ "$(grep -ac 'storm: .*: mismatch: .*count' err)" -eq "$ranks" ] ||
            storm_fail "not every rank is told" ;;
    esac
}

test_storm_on_one_host() {
    storm_begin
    while storm_goes_on; do
        choose hvdrun
        storm_job env "HVD_TEST_JOB=$HVD_TEST_TOKEN.storm" "$HVDRUN" \
            -np "$ranks"
        judge
        wait_for 'gone storm'
    done
}

test_storm_on_three_hosts() {
    local hosts start_limit=20
    cluster_up 3
    storm_begin
    while storm_goes_on; do
        choose
        tcp=0 # of its own accord
        hosts=n1:2,n2:2,n3:2
        [ $((storm_seed % 3)) -ne 0 ] || hosts=n1:1,n2:1,n3:4
        storm_job "$CLUSTER_PROG" exec "$CLUSTER" login "$HVDRUN" -H $hosts -np "$ranks"
        judge
        nothing_left
    done
    cluster_down
}
