# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Elastic jobs with libhvd on this machine: whichever ranks are killed, and
# whenever, the others do each step once, with the right sums.
# test_elastic_storm.sh has many deaths at random instants.

# start_steps NP STEPS[:GENERATION] COUNT FLAGS [OPTION]...: starts a job of
# prog/elastic_steps and waits until its ranks work.
start_steps() {
    start job "$HVDRUN" -np "$1" --min-np 1 --no-tag-output "${@:5}" \
        "$PROG/elastic_steps" "$2" "$3" "f$4"
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
}

ranks() {
    job_pids job elastic_steps
}

# finished RANKS STEPS: fails unless the job ends well, with that many ranks
# that have done all steps, and as many as the others.
finished() {
    finish job 0
    all_done "$1" "$2" || fail "not $1 ranks finished: $(cat job.out job.err)"
}

test_a_rank_is_killed() {
    local victim count flags
    for victim in 1 3 4; do # rank 0 is the first
        for count in 1 1000 100000; do
            case $count in 1) flags=pt ;; 1000) flags=pst ;; *) flags='at' ;; esac
            start_steps 4 400:2 $count $flags
            kill -KILL "$(ranks | sort -n | sed -n ${victim}p)"
            finish job 0
        done
    done
}

test_over_tcp() {
    start_steps 4 1000:2 3000 p -x HVD_FORCE_TCP=1
    kill -KILL "$(ranks | sort -n | head -n 1)"
    wait_for 'grep -q "4 -> 3 ranks (generation 2), stopped for" job.err'
    finished 3 1000
}

# All but one die at the same moment.
test_one_is_left() {
    start_steps 5 1000:2 3000 p
    ranks | sort -n | tail -n +2 | xargs kill -KILL
    finished 1 1000
    grep -q 'finished with 1 of 5 ranks' job.err
}

test_too_few_are_left() {
    start job "$HVDRUN" -np 3 --min-np 3 --grace 1 --no-tag-output \
        "$PROG/elastic_steps" 100000 1000 fp
    wait_for 'grep -q "^working" job.out'
    kill -KILL "$(ranks | sort -n | head -n 1)"
    finish job 137
    grep -q 'fewer than --min-np 3' job.err
    grep -q 'rank 0 on host .* failed: killed by signal 9' job.err
    gone job
}

# A rank that leaves by hvd_shutdown, and one that exits without it, are no
# failures; the others go on without them.
test_ranks_leave() {
    expect_exit 0 "$HVDRUN" -np 4 --min-np 1 --no-tag-output \
        "$PROG/elastic_steps" 300 1000 pl
    [ "$(grep -c '^left' out)" -eq 2 ]
    [ "$(grep -c '^done [0-9] 2 300$' out)" -eq 2 ] || fail "$(cat out err)"
}

# A rank that has failed is started again, and the others let it in: also in
# place of rank 0, whose successor gets the state of the others.
test_restarts() {
    local count
    start_steps 3 8000:5 1000 p --restart-failed 1
    for count in 1 2; do # the lowest pid is rank 0's, then rank 1's
        kill -KILL "$(ranks | sort -n | head -n 1)"
        wait_for "[ \$(grep -c '3 -> 2 ranks' job.err) -eq $count ]"
        wait_for "[ \$(grep -c '2 -> 3 ranks' job.err) -eq $count ]"
    done
    finished 3 8000
    [ "$(grep -c 'starts again in [01].[0-9] s (1 of 1)' job.err)" -eq 2 ]
    absent lost job.err
}

# hold_last SIGNAL: ends the rank with the highest pid, $victim, by SIGNAL, and
# holds it at its end until `release`, as the kernel does while it writes a
# core or frees much memory.
hold_last() {
    victim=$(ranks | sort -n | tail -n 1)
    "$PROG/hold_end" "$victim" >hold.out 2>hold.err &
    holder=$!
    wait_for "grep -q traced hold.out || ! alive $holder"
    grep -q traced hold.out || skip "$(cat hold.err)"
    kill "-$1" "$victim"
    wait_for 'grep -q holds hold.out'
}

release() {
    kill -USR1 "$holder"
    wait "$holder"
}

# The others need not wait until it can be reaped.
test_rank_that_is_dying() {
    local victim holder
    start_steps 3 3000:2 1000 p
    hold_last KILL
    wait_for 'grep -q "3 -> 2 ranks (generation 2)" job.err'
    [ -d "/proc/$victim" ]
    release
    finished 2 3000
    [ "$(grep -c "(pid $victim): killed by signal 9" job.err)" -eq 1 ]
}

# A restart needs its memory, and GPUs.
test_restart_of_a_rank_that_is_dying() {
    local victim holder
    start_steps 2 5000:3 1000 p --restart-failed 1 --log-level info
    hold_last SEGV
    wait_for "grep -q 'rank 1 starts again when pid $victim has ended' job.err"
    [ "$(ranks | grep -cvx "$victim")" -eq 1 ]
    release
    wait_for 'grep -q "1 -> 2 ranks (generation 3)" job.err'
    finished 2 5000
}

# It is not started again if its host is withdrawn meanwhile.
test_withdrawal_of_a_rank_that_is_dying() {
    local victim holder
    printf '#!/bin/sh\ncat hosts\n' >d
    chmod +x d
    printf '%s\n' a:1 b:1 >hosts
    start job "$HVDRUN" --rsh 'env PLAYED={host}' -np 2 --min-np 1 --max-np 2 \
        --host-discovery-script ./d --discovery-interval 0.1 --no-tag-output \
        --restart-failed 1 --log-level info "$PROG/elastic_steps" 1000000 1000 fp
    wait_for 'grep -q "^working" job.out'
    hold_last KILL
    wait_for "grep -q 'starts again when pid $victim has ended' job.err"
    echo "$(sed -n 's/.* host \([ab]\): rank .* starts again when.*/\1/p' job.err):1" >gone
    grep -vxFf gone hosts >left && mv left hosts
    wait_for 'grep -q "host [ab] goes (no longer listed)" job.err'
    sleep 0.3
    release
    sleep 0.5
    [ "$(ranks | wc -l)" -eq 1 ]
    kill -INT "$pid"
    finish job 130
}

# The ranks wait for the restart, because without --min-np all are needed.
test_restart_that_is_awaited() {
    start job "$HVDRUN" -np 3 --restart-failed 1 --no-tag-output \
        "$PROG/elastic_steps" 3000:2 1000 fp
    wait_for 'grep -q "^working" job.out'
    kill -KILL "$(ranks | sort -n | sed -n 2p)"
    finished 3 3000
    grep -q '3 -> 3 ranks (generation 2), stopped for' job.err
}

# A job that fails again and again before its first commit does not go on
# without end.
test_no_progress() {
    expect_exit 3 "$HVDRUN" -np 2 --restart-failed 9 --grace 1 \
        "$PROG/elastic_steps" 100 10 x
    grep -q '^hvdrun: the job ends, because 3 generations in a row have failed before a commit, the last by rank 1 on host .*: exit code 3$' err
}

# A program that fails at once is started a bounded number of times.
test_restarts_are_bounded() {
    expect_exit 7 "$HVDRUN" -np 2 --min-np 2 --restart-failed 1 --grace 1 \
        sh -c '[ $HVD_RANK = 1 ] && exit 7; exec sleep 1000'
    [ "$(grep -c 'rank 1 .*exit code 7' err)" -eq 2 ]
    grep -q 'fewer than --min-np 2' err
}

# hvdrun is killed while ranks wait for a generation, or work.
test_hvdrun_is_killed() {
    start_steps 4 100000 1000 p
    kill -KILL "$(ranks | sort -n | head -n 1)"
    kill -KILL "$(job_pids job hvdrun)"
    wait_for -t 15 'gone job'
}
