# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Ranks of elastic jobs that are asked to leave: hosts that go away, jobs that
# stop at a commit, and ranks that hang.  prog/elastic_steps checks all sums,
# and that no step is done twice.

# start_steps HOSTS MIN_NP FLAGS [OPTION]...: starts a job of elastic_steps on
# hosts that this machine plays, and waits until its ranks work.
start_steps() {
    rm -f job.out job.err
    start job "$HVDRUN" -H "$1" --rsh 'env PLAYED={host}' --min-np "$2" \
        --no-tag-output "${@:4}" "$PROG/elastic_steps" 1000000 1000 "fp$3"
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
}

ranks() {
    job_pids job elastic_steps
}

# rank_pid RANK: prints its pid.
rank_pid() {
    local p
    for p in $(ranks); do
        if grep -szqx "HVD_RANK=$1" "/proc/$p/environ"; then
            echo "$p"
        fi
    done
}

# job_id PID: prints the id of the job to which a process belongs.
job_id() {
    tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^HVD_JOB_ID=//p'
}

# Ends the rest of the job.
stop() {
    kill -INT "$pid"
    finish job 130
    gone job
}

test_a_host_goes() {
    start_steps a:2,b:2 2 '' --preempt-file going
    echo '# nothing yet' >going
    echo 'B 20' >>going # names of hosts have no case
    wait_for 'grep -q "4 -> 2 ranks (generation 2)" job.err'
    grep -q 'host b goes in 20 s (preempt-file): its 2 ranks leave at the next commit' job.err
    wait_for '[ "$(grep -c "^removed [23] " job.out)" -eq 2 ]'
    [ "$(grep '^removed' job.out | cut -d' ' -f3 | sort -u | wc -l)" -eq 1 ]
    sleep 0.2
    [ "$(ranks | wc -l)" -eq 2 ]
    absent 'killed' job.err
    stop
}

test_a_script_says_it() {
    cat >tell <<'END'
[ -e go ] || exit 0
echo "b 60"
END
    start_steps a:1,b:1,c:1 1 '' --preempt-script 'sh ./tell'
    touch go
    wait_for 'grep -q "host b goes in 60 s (preempt-script): its 1 rank leaves" job.err'
    wait_for 'grep -q "3 -> 2 ranks (generation 2)" job.err'
    stop
}

# A host is the same by any of its names.
test_names_of_a_host() {
    start_steps a:1,b:1 1 '' --preempt-file going
    echo 'B 20' >going
    wait_for 'grep -q "host b goes in 20 s (preempt-file): its 1 rank leaves" job.err'
    stop
    rm going
    start job "$HVDRUN" -H localhost:1,127.0.0.1:1 --min-np 1 \
        --preempt-file going --no-tag-output "$PROG/elastic_steps" 1000000 1000 fp
    wait_for 'grep -q "^working" job.out'
    echo '127.0.0.1 20' >going
    finish job 75
    grep -q 'host localhost goes in 20 s (preempt-file): all ranks stop' job.err
    gone job
}

# A rank that does not commit in time is killed; the others go on.
test_too_late() {
    local victim
    start_steps a:2,b:1 2 cn --preempt-file going
    victim=$(rank_pid 2)
    echo 'b 1' >going
    wait_for '! alive '"$victim"
    wait_for 'grep -q "3 -> 2 ranks (generation 2), stopped for" job.err'
    # A second less a fifth, by which the rank is to be gone.
    grep -Eq '^notice 2 [67][0-9]{2}$' job.out || fail "$(cat job.out)"
    grep -q 'rank 2 on host b .*killed by signal 9 (SIGKILL): by hvdrun: has not left at a commit in time' job.err
    stop
}

# If too few would stay, all stop at one commit, and the job can be run again.
test_too_few_would_stay() {
    start_steps a:1,b:2 3 '' --preempt-file going
    echo 'b 20' >going
    finish job 75
    grep -q 'host b goes in 20 s (preempt-file): all ranks stop at the next commit' job.err
    grep -q '^hvdrun: 3 ranks have stopped at a commit: exit code 75$' job.err
    [ "$(grep '^removed' job.out | cut -d' ' -f3 | uniq -c | wc -l)" -eq 1 ]
    gone job
}

# The host of all ranks goes: a spare gets the state before they leave.
test_all_hosts_go() {
    local np
    for np in 1 2; do
        start_steps "a:$np,b:$np" 1 '' -np "$np" --max-np "$np" \
            --spares "$np" --preempt-file going
        wait_for 'grep -q "starts $np spare rank" job.err'
        echo 'a 60' >going
        wait_for '[ "$(grep -c "^removed" job.out)" -eq '"$np"' ]'
        wait_for '[ "$(ranks | wc -l)" -eq '"$np"' ]'
        # Rank 0 of another job would begin with step 0.
        sleep 0.3
        [ "$(grep -c '^working' job.out)" -eq 1 ] || fail "$(cat job.err)"
        rm going
        stop
    done
}

# A rank that fails takes its host out; later the whole host comes back.
test_whole_hosts() {
    start_steps a:2,b:2 2 '' --elastic-unit host
    kill -KILL "$(rank_pid 3)"
    wait_for 'grep -q "3 -> 2 ranks (generation 3)" job.err'
    grep -q 'host b: its other 1 rank leaves at the next commit (--elastic-unit host)' job.err
    wait_for '[ "$(grep -c "^removed 2 " job.out)" -eq 1 ]'
    # The last host has nobody to leave it to.
    kill -KILL "$(rank_pid 1)"
    finish job 137
    gone job
    start_steps a:2,b:2 2 '' --elastic-unit host -np 4 --max-np 5 \
        --blacklist-cooldown-range 1 1
    kill -KILL "$(rank_pid 3)"
    wait_for 'grep -q "3 -> 2 ranks (generation 3)" job.err'
    wait_for 'grep -q "host b: starts 2 ranks" job.err'
    wait_for 'grep -q -- "-> 4 ranks" job.err'
    absent 'lost' job.err
    stop
}

# An agent that gets SIGTERM, as when its host is shut down.
test_an_agent_gets_sigterm() {
    local agent
    start_steps a:2,b:2 2 '' --grace 10
    # The agent is the parent of its ranks.
    agent=$(ps -o ppid= -p "$(rank_pid 3)")
    kill -TERM "${agent// /}"
    wait_for 'grep -q "4 -> 2 ranks (generation 2)" job.err'
    grep -Eq 'host b goes in 10 s \(the agent got SIGTERM from pid [0-9]+' job.err
    wait_for '! alive '"$agent"
    absent 'lost' job.err
    stop
}

# It ends with its ranks, also if one of them was started again.
test_an_agent_with_a_restarted_rank() {
    local agent
    start_steps a:2,b:2 2 '' --grace 60 --restart-failed 3
    agent=$(ps -o ppid= -p "$(rank_pid 3)")
    kill -KILL "$(rank_pid 3)"
    wait_for 'grep -q "3 -> 4 ranks (generation 3)" job.err'
    kill -TERM "${agent// /}"
    wait_for 'grep -q "4 -> 2 ranks (generation 4)" job.err'
    wait_for '! alive '"$agent"
    absent 'lost' job.err
    stop
}

# The operator says it: hvdrun drain.
test_drain() {
    local id
    start_steps a:2,b:2 2 ''
    id=$(job_id "$(rank_pid 0)")
    expect_exit 0 "$HVDRUN" drain --job "$id" localhost
    [ "$(cat out)" = "host localhost: job ${id:0:12} leaves at its next commit" ]
    # The machine plays both hosts: one of the two agents was told.
    wait_for 'grep -q "4 -> 2 ranks (generation 2)" job.err'
    grep -q 'host [ab] goes (hvdrun drain): its 2 ranks leave' job.err
    wait_for '[ "$(grep -c "^removed" job.out)" -eq 2 ]'
    # No other processes that get the signal, say of a batch system, do that.
    kill -USR1 "$(ps -o ppid= -p "$(ranks | head -n 1)" | tr -d ' ')"
    sleep 0.3
    [ "$(ranks | wc -l)" -eq 2 ]
    # The rest cannot do without each other.
    expect_exit 0 "$HVDRUN" drain --job "${id:0:8}" --within 60 localhost
    finish job 75
    gone job
    expect_exit 1 "$HVDRUN" drain --job "$id" localhost
    grep -q '^hvdrun: error: drain: no job of yours runs there$' err
}

test_drain_of_a_static_job() {
    start job "$HVDRUN" --no-tag-output -np 1 sh -c 'echo $$; sleep 1000'
    wait_for '[ -s job.out ]'
    expect_exit 1 "$HVDRUN" drain --job "$(job_id "$(cat job.out)")" localhost
    grep -q 'stays: it is not elastic' out
    kill -INT "$pid"
    finish job 130
    gone job
}

test_stop_at_commit() {
    start_steps a:2,b:2 4 '' --stop-at-commit
    kill -TERM "$pid"
    finish job 75
    [ "$(grep -c '^removed' job.out)" -eq 4 ]
    [ "$(grep '^removed' job.out | cut -d' ' -f3 | sort -u | wc -l)" -eq 1 ]
    grep -q '^hvdrun: SIGTERM.*: all ranks stop at the next commit, or are ended in 5 s' job.err
    gone job
}

# Agents that could start ranks again, or have started none, end with the rest.
test_stop_with_idle_agents() {
    start_steps a:2,b:1,c:1 1 '' --stop-at-commit --restart-failed 3 \
        -np 3 --max-np 3 --grace 60
    kill -KILL "$(rank_pid 1)"
    wait_for 'grep -q "2 -> 3 ranks (generation 3)" job.err'
    kill -TERM "$pid"
    finish job 75
    [ "$(grep -c '^removed' job.out)" -eq 3 ] || fail "$(cat job.out job.err)"
    gone job
}

# A rank dies after the signal: the others do one more step, and stop.
test_stop_after_a_death() {
    start_steps a:2,b:2 1 '' --stop-at-commit
    ranks | xargs kill -STOP
    kill -TERM "$pid"
    sleep 0.1
    kill -KILL "$(ranks | tail -n 1)"
    ranks | xargs kill -CONT
    finish job 75
    [ "$(grep -c '^removed' job.out)" -eq 3 ] || fail "$(cat job.out job.err)"
    [ "$(grep '^removed' job.out | cut -d' ' -f3 | sort -u | wc -l)" -eq 1 ]
    gone job
}

# Ranks that never commit are ended after the grace time; a second signal ends
# them at once.
test_they_do_not_stop() {
    local from
    start_steps a:2 2 c --stop-at-commit --grace 1
    from=$(now_ms)
    kill -TERM "$pid"
    finish job 143
    [ $(($(now_ms) - from)) -ge 1000 ]
    grep -q 'not all ranks have stopped at a commit' job.err
    gone job
    start_steps a:2 2 c --stop-at-commit --grace 60
    kill -TERM "$pid"
    wait_for 'grep -q "all ranks stop" job.err'
    kill -TERM "$pid"
    finish job 143
    gone job
}

test_bad_answers() {
    start_steps a:1,b:1 1 '' --preempt-file going --preempt-script 'echo no; exit 3'
    printf 'b 10\nb 1 2\n' >going
    wait_for 'grep -q "preempt-file: line 2: more than a host and its seconds" job.err'
    wait_for 'grep -q "preempt-script: exit code 3" job.err'
    echo 'x 10' >going
    wait_for 'grep -q "preempt-file: host x is none of the job" job.err'
    absent '->' job.err
    stop
}

# A rank that is stopped keeps the others waiting: it is killed after the
# shutdown time, and they go on.
test_a_rank_hangs() {
    local victim from ms
    start_steps a:2,b:1 2 t --stall-check-shutdown-time-seconds 2
    victim=$(rank_pid 1)
    from=$(now_ms)
    kill -STOP "$victim"
    wait_for 'grep -q "3 -> 2 ranks (generation 2), stopped for" job.err'
    ms=$(($(now_ms) - from))
    [ $ms -lt 2600 ] || fail "$ms ms: $(cat job.err)"
    grep -q "rank 1 on host a (pid $victim) is stopped by a signal" job.err
    grep -q 'rank 1 on host a .*killed by signal 9 (SIGKILL): by hvdrun: kept the others waiting for 2' job.err
    wait_for 'grep -q "^change 2 3 2" job.out'
    sleep 2.5 # nobody is killed who waited with the others
    [ "$(ranks | wc -l)" -eq 2 ]
    stop
}

# If too few would be left, the job ends as a static one does; but not if the
# rank is started again.
test_a_rank_hangs_that_is_needed() {
    start_steps a:2 2 '' --stall-check-shutdown-time-seconds 1 --grace 1
    kill -STOP "$(rank_pid 1)"
    finish job 124
    gone job
    start_steps a:2 2 '' --stall-check-shutdown-time-seconds 1 --restart-failed 1
    wait_for '[ -n "$(rank_pid 1)" ]'
    kill -STOP "$(rank_pid 1)"
    wait_for 'grep -q "2 -> 2 ranks (generation 2), stopped for" job.err'
    stop
}

# `hvdrun kill` ends an elastic job, and does not let its ranks leave.
test_kill_ends_it() {
    local id
    start job "$HVDRUN" -np 2 --min-np 1 --grace 1 --no-tag-output \
        "$PROG/elastic_steps" 1000000 1000 fp
    wait_for 'grep -q "^working" job.out'
    id=$(job_id "$(rank_pid 0)")
    expect_exit 0 "$HVDRUN" kill "$id"
    wait_for '! alive '"$pid"
    finish job
    [ "$status" -ne 0 ]
    grep -q 'the agent got SIGINT' job.err
    absent 'removed' job.out
    gone job
}
