# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The fault matrix.  Whichever process dies or stops, and whichever host is cut
# off, the job ends everywhere in time, the message says what happened where,
# and nothing is left on any host.

GRACE=1

# Starts a job on two hosts with two ranks each.  Every rank is a tree of
# processes that resist signals.
start_trees() {
    cluster_up 2
    start_on login job "$HVDRUN" --grace $GRACE "$@" -H n1:2,n2:2 \
        "$PROG/actor" tree "$PWD/up"
    wait_for '[ "$(count_files up.?)" -eq 4 ]'
    on n1 ps -eo args= >ps.n1
    [ "$(grep -c "tree $PWD/up" ps.n1)" -eq 10 ] || fail "$(cat ps.n1)"
    stopwatch
}

# ended CODE SECONDS PATTERN [COMMAND HOST ARG...]: fails unless hvdrun exits
# with CODE and all ranks have ended at most SECONDS after the fault, and hvdrun
# says PATTERN.  Then repairs the network with `faulty COMMAND HOST ARG...`,
# because an sshd that cannot reach its client never ends.
ended() {
    local code=$1 limit=$2 pattern=$3
    finish job "$code"
    gone_from n1
    gone_from n2
    in_time $((limit * 1000)) $BUSY_MS
    [ -z "$pattern" ] || tells "$pattern" job.err
    [ $# -eq 3 ] || faulty "${@:4}"
    cluster_down
}

# Waits until no rank is left on host $1.
gone_from() {
    wait_for '[ "$(on '"$1"' ps -eo args= |
        grep -c "[t]ree $PWD/up")" -eq 0 ]'
}

# hvdrun promises to end a job within the grace time and a second.  After the
# loss of a host, REACH is added: the time in which a second connection must
# come about.  Silence counts as the loss of a host after SILENT at most: of
# --heartbeat 3, three PINGs and the time up to the next are unanswered.  A
# machine that is busy with other tests gets BUSY_MS more.
SOON=$((GRACE + 1))
REACH=3
SILENT=4
BUSY_MS=3000

test_faults_exit_code() {
    cluster_up 2
    expect_exit 7 login "$HVDRUN" --grace $GRACE -H n1:2,n2:2 sh -c '
        [ $HVD_RANK = 3 ] || exec sleep 1000
        echo "the last words" >&2; echo $$ >pid; exit 7'
    tells 'rank 3 .*n2'
    tells 'the last words'
    tells '7'
    grep -q "$(cat pid)" err
    cluster_down
}

test_faults_signals() {
    local sig
    cluster_up 2
    for sig in SEGV:139 KILL:137 ABRT:134; do
        expect_exit ${sig#*:} login "$HVDRUN" --grace $GRACE -H n1,n2 sh -c '
            ulimit -c 0; [ $HVD_RANK = 1 ] && kill -'${sig%:*}' $$
            exec sleep 1000'
        tells "rank 1 .*n2.*SIG${sig%:*}"
    done
    cluster_down
}

# hvdrun names the rank that failed first, even if its host reports later than
# the host of another rank that failed.
test_faults_first_of_two_hosts() {
    local i
    cluster_up 2
    for i in 1 2 3; do
        rm -f go.*
        expect_exit 5 login "$HVDRUN" --grace $GRACE -H n1,n2 sh -c '
            if [ $HVD_RANK = 1 ]; then
                sleep 0.2; touch go.'$i'; exit 5
            fi
            while [ ! -e go.'$i' ]; do sleep 0.005; done; sleep 0.02; exit 9'
        tells 'rank 1 .*n2'
    done
    cluster_down
}

test_faults_children_hold_stdout() {
    cluster_up 2
    stopwatch
    expect_exit 7 login "$HVDRUN" --grace $GRACE -H n1,n2 sh -c '
        [ $HVD_RANK = 1 ] && { sleep 1000 & exit 7; }; exec sleep 1000'
    in_time $((SOON * 1000 + 1000)) $BUSY_MS # a second to start
    tells 'rank 1 .*n2'
    cluster_down
}

test_faults_worker_killed() {
    start_trees
    on n2 ps -eo pid=,ppid=,args= | grep "[t]ree $PWD/up" | sort -n >ranks
    kill_on n2 KILL "$(awk 'NR == 1 { print $1 }' ranks)"
    ended 137 $SOON 'rank [23] .*n2.*SIGKILL'
}

test_faults_hvdrun_terminated() {
    local sig
    for sig in INT:130 TERM:143 HUP:129; do
        start_trees
        kill "-${sig%:*}" "$(the job hvdrun)"
        ended ${sig#*:} $SOON "SIG${sig%:*}"
        rm -r up.?
    done
}

test_faults_hvdrun_killed() {
    start_trees
    kill -KILL "$(the job hvdrun)"
    ended 137 $SOON ''
}

test_faults_hvdrun_killed_with_openssh() {
    start_trees --launcher openssh
    kill -KILL "$(the job hvdrun)"
    ended 137 $SOON ''
}

test_faults_hvdrun_stopped() {
    start_trees --heartbeat 3
    kill -STOP "$(the job hvdrun)"
    gone_from n1
    gone_from n2
    in_time $(((SILENT + SOON) * 1000)) $BUSY_MS
    resume job
    stopwatch
    ended 125 $SOON 'n[12]'
}

test_faults_sshd_killed() {
    start_trees
    kill_on n2 KILL "$(sessions n2)"
    ended 125 $SOON 'host n2: .*(connection|lost|closed)'
}

test_faults_ssh_client_killed() {
    start_trees --launcher openssh
    local client
    client=$(on login ps -eo pid=,args= | awk '/ssh .*n2/ && !/awk|hvdrun/ {
        print $1; exit }')
    on login kill -KILL "$client"
    ended 125 $SOON 'host n2: '
}

# A job survives a restart of the sshd of a host: only its listener ends.
test_faults_sshd_restarted() {
    start_trees
    faulty sshd n2 stop
    faulty sshd n2 start
    sleep 0.5
    alive "$(the job hvdrun)"
    stopwatch
    kill -TERM "$(the job hvdrun)"
    ended 143 $SOON SIGTERM
}

test_faults_agent_killed() {
    start_trees
    kill_on n2 KILL "$(agents n2 | tail -n 1)"
    ended 125 $SOON 'host n2: .*agent.*(SIGKILL|killed)'
}

test_faults_guardian_killed() {
    start_trees
    kill_on n2 KILL "$(agents n2 | head -n 1)"
    ended 125 $SOON 'host n2: .*guardian'
}

# When agent and guardian of a host are killed, hvdrun connects a second time
# and ends the processes that resist signals or have left the tree.
test_faults_agent_and_guardian_killed() {
    start_trees
    kill_agents n2
    ended 125 $SOON 'host n2: lost the agent'
    tells 'host n2: ended [0-9]+ processes that the job had left' job.err
}

# Starts a job whose ranks have a plain child and one that has left session and
# process group.  Only these are left when the ranks end with their agent.
start_parents() {
    cluster_up 2
    start_on login job "$HVDRUN" --grace $GRACE "$@" -H n1:2,n2:2 sh -c '
        sleep 771 & (setsid sleep 772 >/dev/null 2>&1 </dev/null &)
        touch up.$HVD_RANK; exec sleep 773'
    wait_for '[ "$(count_files up.?)" -eq 4 ]'
}

children_on() {
    on "$1" ps -eo args= | grep -c '^[s]leep 77' || :
}

# The children of ranks on a host whose agents were killed have ended before
# hvdrun does.
test_faults_children_of_killed_agents() {
    local launcher
    for launcher in ssh2 openssh; do
        start_parents --launcher $launcher
        kill_agents n2
        finish job 125
        [ "$(children_on n2)" -eq 0 ]
        [ "$(children_on n1)" -eq 0 ]
        tells 'host n2: ended 4 processes that the job had left' job.err
        cluster_down
        rm up.?
    done
}

# If the host cannot be reached again, hvdrun says so, and the command that it
# prints ends the leftovers later.
test_faults_no_second_connection() {
    local command
    start_parents
    faulty sshd n2 stop
    kill_agents n2
    finish job 125
    tells 'n2: what the job may have left there could not be ended' job.err
    [ "$(children_on n1)" -eq 0 ]
    [ "$(children_on n2)" -eq 4 ]
    faulty sshd n2 start
    command=$(sed -n 's/^hvdrun: .*end what is left with: hvdrun //p' job.err)
    expect_exit 0 login sh -c "'$HVDRUN' $command"
    grep -q 'n2: ended what was left of job .*, 4 processes' out
    [ "$(children_on n2)" -eq 0 ]
    cluster_down
}

# When hvdrun, agent and guardian are all killed, the ranks end with their
# agent, and `hvdrun clean` ends their children.
test_faults_everything_of_us_killed() {
    start_parents
    kill_job_and_agents job n2
    wait_for '[ "$(on n2 ps -eo args= | grep -c "^[s]leep 773")" -eq 0 ]'
    wait_for '[ "$(children_on n1)" -eq 0 ]'
    [ "$(children_on n2)" -eq 4 ]
    expect_exit 0 login "$HVDRUN" clean -H n1,n2 --grace 1
    [ "$(children_on n2)" -eq 0 ]
    cluster_down
}

test_faults_agent_stopped() {
    start_trees --heartbeat 3
    kill_on n2 STOP "$(agents n2 | tail -n 1)"
    ended 125 $((SILENT + SOON)) 'host n2: .*(stopped|SIGSTOP)'
}

test_faults_agent_and_guardian_stopped() {
    start_trees --heartbeat 3
    kill_on n2 STOP "$(agents n2)"
    ended 125 $((SILENT + SOON)) 'host n2: '
}

test_faults_link_down() {
    start_trees --heartbeat 3
    faulty link n2 down
    ended 125 $((SILENT + REACH + SOON)) \
        'host n2: .*(nothing|heard|lost|silent|answer)' \
        link n2 up
}

test_faults_packets_dropped() {
    start_trees --heartbeat 3
    faulty drop n2
    ended 125 $((SILENT + REACH + SOON)) \
        'host n2: .*(nothing|heard|lost|silent|answer)' \
        undrop n2
}

test_faults_login_node_cut_off() {
    start_trees --heartbeat 3
    faulty link login down
    ended 125 $((SILENT + REACH + SOON)) 'hosts? n[12](, n2)?: ' link login up
}

# A link that is down for less than the heartbeat limit does not end the job.
test_faults_link_down_for_a_moment() {
    cluster_up 2
    start_on login job "$HVDRUN" --heartbeat 10 -H n1,n2 sh -c '
        touch up.$HVD_RANK; while [ ! -e go ]; do sleep 0.05; done; echo done'
    wait_for '[ "$(count_files up.?)" -eq 2 ]'
    faulty link n2 down
    sleep 2
    faulty link n2 up
    touch go
    finish job 0
    [ "$(grep -c 'done' job.out)" -eq 2 ]
    cluster_down
}

test_faults_power_off() {
    start_trees --heartbeat 3
    faulty link n2 down
    kill -KILL "$(faulty pid n2)"
    finish job 125
    gone_from n1
    in_time $(((SILENT + REACH + SOON) * 1000)) $BUSY_MS
    tells 'host n2: ' job.err
    trap - EXIT
    "$CLUSTER_PROG" down "$CLUSTER"
}

test_faults_no_heartbeat_wanted() {
    cluster_up 1
    start_on login job "$HVDRUN" --heartbeat 0 -H n1 sh -c '
        touch up; while [ ! -e go ]; do sleep 0.05; done'
    wait_for '[ -e up ]'
    kill -STOP "$(the job hvdrun)"
    sleep 3
    resume job
    touch go
    finish job 0
    cluster_down
}

# A job whose ranks start daemons and fork all the time ends completely.
test_faults_daemons_and_forkers() {
    cluster_up 2
    start_on login job "$HVDRUN" --grace $GRACE -H n1,n2 sh -c '
        setsid sh -c "sleep 1000 & sleep 1000 &" >/dev/null 2>&1 </dev/null
        exec "$PROG/actor" chase "$PWD/up"'
    wait_for '[ "$(count_files up.?)" -eq 2 ]'
    kill -TERM "$(the job hvdrun)"
    finish job 143
    cluster_down
}

test_faults_time_limit() {
    cluster_up 2
    expect_exit 124 login "$HVDRUN" --timeout 2 --grace $GRACE -H n1,n2 \
        "$PROG/actor" tree "$PWD/up"
    tells 'timeout'
    cluster_down
}

test_faults_out_of_memory() {
    local group listener
    sanitized && skip "sanitizers need more memory"
    cluster_up 2
    memory_group $((96 << 20))
    listener=$(ps -eo pid=,args= | awk -v conf="$PWD/cluster/n2/sshd_config" \
        '/sshd/ && index($0, conf) && !/awk/ { print $1 }')
    echo "$listener" >"$group/cgroup.procs"
    start_on login oom "$HVDRUN" --grace 1 -H n1,n2 sh -c '
        [ $HVD_RANK = 1 ] && exec "$PROG/actor" eat 512; exec sleep 1000'
    finish oom
    nothing_left
    kill -KILL "$listener"
    wait_for 'rmdir "$group" 2>/dev/null'
    tells 'rank 1 .*n2' oom.err
    tells 'memory' oom.err
    [ "$status" -eq 137 ] || fail "exit $status"
    cluster_down
}

test_faults_full_disk_of_a_rank() {
    cluster_up 2
    on n2 mkdir /tmp/data
    on n1 mkdir /tmp/data
    on n2 mount -n -t tmpfs -o size=64k tmpfs /tmp/data
    expect_exit 1 login "$HVDRUN" --grace 1 --wdir /tmp/data -H n1,n2 sh -c '
        head -c 1000000 /dev/zero >model || exit 1; exec sleep 1000'
    tells 'rank 1 .*n2'
    tells 'disk|no space|full'
    on n2 umount -n /tmp/data
    on n1 rm -r /tmp/data
    on n2 rmdir /tmp/data
    cluster_down
}

# ---- Ctrl-C at every stage -----------------------------------------------

# Sends SIGINT to hvdrun twice and fails unless it ends soon, with exit code 0
# or 130.
interrupt_twice() {
    local began=$SECONDS hvdrun
    hvdrun=$(the job hvdrun)
    kill -INT "$hvdrun"
    sleep 0.2
    kill -INT "$hvdrun" 2>/dev/null || :
    finish job
    case $status in
    0 | 130) ;;
    *) fail "exit $status" ;;
    esac
    [ $((SECONDS - began)) -le 20 ] || fail "took $((SECONDS - began)) s"
}

test_faults_ctrl_c_while_connecting() {
    local launcher
    cluster_up 2
    faulty drop n2
    for launcher in ssh2 openssh; do
        start_on login job "$HVDRUN" --launcher $launcher \
            --start-timeout 100 -H n1,n2,dead sleep 1000
        wait_for '[ -n "$(agents n1)" ]'
        interrupt_twice
        [ "$status" -eq 130 ]
        nothing_left
    done
    cluster_down
}

test_faults_ctrl_c_while_resolving() {
    cluster_up 1 --slow-dns
    start_on login job "$HVDRUN" --start-timeout 100 -H n1,nosuch sleep 1000
    wait_for '[ -n "$(agents n1)" ]'
    interrupt_twice
    [ "$status" -eq 130 ]
    cluster_down
}

# Ctrl-C ends hvdrun while it sends the agent to a host that reads slowly; the
# next job starts.
test_faults_ctrl_c_while_pushing() {
    cluster_up 1
    cp "$(command -v head)" real_head
    printf '#!/bin/sh\ntouch "%s/pushing"; sleep 1; exec "%s/real_head" "$@"\n' \
        "$PWD" "$PWD" >slow_head
    chmod +x slow_head
    on n1 mount -n --bind "$PWD/slow_head" /usr/bin/head
    start_on login job "$HVDRUN" -H n1 sleep 1000
    wait_for '[ -e pushing ]'
    interrupt_twice
    on n1 umount -nl /usr/bin/head
    expect_exit 0 login "$HVDRUN" -H n1 true
    cluster_down
}

test_faults_ctrl_c_at_any_moment() {
    local pause
    cluster_up 4
    for pause in 0.01 0.03 0.06 0.1 0.15 0.2 0.25 0.3 0.4 0.5; do
        start_on login job "$HVDRUN" --grace 1 -H 'n[1-4]:2' sleep 1000
        wait_for '[ -n "$(job_pids job hvdrun)" ]'
        # an arbitrary moment of the start, on purpose
        sleep $pause
        interrupt_twice
        [ "$status" -eq 130 ]
    done
    nothing_left
    cluster_down
}

test_faults_ctrl_c_while_running() {
    start_trees
    interrupt_twice
    [ "$status" -eq 130 ]
    cluster_down
}

# Ctrl-C ends a job at once whose ranks ignore SIGTERM and have a long grace
# time.
test_faults_ctrl_c_while_ending() {
    cluster_up 2
    start_on login job "$HVDRUN" --grace 100 -H n1:2,n2:2 \
        "$PROG/actor" tree "$PWD/up"
    wait_for '[ "$(count_files up.?)" -eq 4 ]'
    kill -TERM "$(the job hvdrun)"
    wait_for 'grep -q SIGTERM job.err'
    kill -INT "$(the job hvdrun)"
    finish job 143
    cluster_down
}

test_faults_ctrl_c_on_a_terminal() {
    local status=0
    cluster_up 2
    login "$PROG/pty" "file:$PWD/up.0" "file:$PWD/up.1" 'send:\003' \
        'expect:SIGINT' 'send:\003' wait -- "$HVDRUN" --grace 100 -H n1,n2 \
        "$PROG/actor" tree "$PWD/up" >out || status=$?
    [ "$status" -eq 130 ] || fail "exit $status"
    cluster_down
}

test_faults_terminal_closed() {
    local status=0
    cluster_up 2
    login "$PROG/pty" "file:$PWD/up.0" "file:$PWD/up.1" hangup wait -- \
        "$HVDRUN" --grace 1 -H n1,n2 "$PROG/actor" tree "$PWD/up" \
        >out || status=$?
    [ "$status" -eq 129 ] || fail "exit $status"
    cluster_down
}

# Ctrl-Z stops the ranks on every host, and heartbeats do not end the stopped
# job.
test_faults_suspended() {
    cluster_up 2
    start_on login job "$HVDRUN" --heartbeat 4 --grace 1 -H n1,n2 sh -c '
        touch up.$HVD_RANK; while [ ! -e go ]; do sleep 0.05; done; echo done'
    wait_for '[ "$(count_files up.?)" -eq 2 ]'
    kill -TSTP "$(the job hvdrun)"
    wait_for '[ "$(on n2 ps -eo stat=,args= | grep -c "^T.*touch up")" -eq 1 ]'
    sleep 8
    resume job
    touch go
    finish job 0
    [ "$(grep -c 'done' job.out)" -eq 2 ]
    cluster_down
}

# When a rank on another host keeps the others waiting, hvdrun prints one
# report from what the agents tell it; then the job ends everywhere.
test_faults_stall() {
    local verb pid
    for verb in never stop spin; do
        cluster_up 2
        expect_exit 124 login "$HVDRUN" --grace $GRACE --log-level DEBUG \
            --stall-check-warning-time-seconds 1 \
            --stall-check-shutdown-time-seconds 3 --no-tag-output \
            -H n2:1,n1:2 "$PROG/stall_rank" $verb
        pid=$(sed -n 's/.*rank 1 is pid \([0-9]*\).*/\1/p' err)
        tells '^hvdrun: stall: 2 of 3 ranks wait for others'
        tells '^  allreduce "grad.7": ranks 0, 2 wait for .*; missing: rank 1$'
        tells "^  rank 1 on host n1 .pid $pid. "
        [ $verb != stop ] || tells 'is stopped by a signal'
        [ $verb != spin ] || tells 'runs, at [0-9]* % of a core'
        [ "$(grep -c "rank [02]: timed out: rank 1 .pid $pid. on host n1" \
            out)" -eq 2 ] || fail "$(cat out)"
        cluster_down
    done
}
