# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun ps, kill and doctor on this machine, and through an --rsh command that
# runs a shell for each host name.  test_cluster_operator.sh has what would
# touch the jobs of other tests: kill --all and clean.

# Starts job $1 of $2 ranks (1), with its id in ./$1.  The ranks end only by a
# signal such as SIGTERM.
start_job() {
    start "$1" "$HVDRUN" -np "${2:-1}" \
        sh -c "echo \$HVD_JOB_ID >$PWD/$1.tmp; mv $PWD/$1.tmp $PWD/$1; exec sleep 1000"
    wait_for "[ -s $1 ]"
}

ps_lists() { # [OPTION...] ID PATTERN
    local id=${*: -2:1} pattern=${*: -1}
    expect_exit 0 "$HVDRUN" ps "${@:1:$#-2}"
    grep -E "^${id:0:12} .*$pattern" out || fail "ps does not list $id"
}

test_ps_lists_a_running_job() {
    start_job job 2
    ps_lists "$(cat job)" '0-1 .* running +sleep 1000$'
    sed 1q out >first
    grep -q '^JOB  *HOST  *RANKS  *PIDS  *USER  *ELAPSED  *CPU  *MEMORY  *STATE  *COMMAND$' first
    expect_exit 0 "$HVDRUN" ps --json
    python3 - "$(cat job)" <<'END'
import json, sys
jobs = [j for j in json.load(open("out"))["jobs"] if j["id"] == sys.argv[1]]
assert len(jobs) == 1, jobs
host = jobs[0]["hosts"][0]
assert host["state"] == "running" and host["agent"] > 1, host
assert sorted(p["rank"] for p in host["procs"]) == [0, 1], host
END
    kill -INT "$pid"
    finish job 130
    expect_exit 0 "$HVDRUN" ps
    absent "^$(head -c 12 job) " out
}

test_kill_by_prefix() {
    start_job one
    start_job two
    expect_exit 0 "$HVDRUN" kill "$(head -c 8 one)"
    grep -qx "host .*: ended job $(head -c 12 one), 1 process" out
    finish one 125
    grep -Eq 'the agent got SIGINT from pid [0-9]+ \(hvdrun kill\)' one.err
    gone one || fail "processes are left"
    ps_lists "$(cat two)" running
    expect_exit 0 "$HVDRUN" kill "$(cat two)"
    finish two 125
}

test_kill_of_nothing() {
    expect_exit 1 "$HVDRUN" kill 0123456789abcdef0123456789abcdef
    one_line err
    grep -q 'no job' err
    expect_exit 2 "$HVDRUN" kill 12345
    one_line err
    expect_exit 2 "$HVDRUN" kill nothexdigits
    one_line err
    expect_exit 2 "$HVDRUN" kill
    one_line err
}

# kill ends a job that ignores SIGTERM after the grace time of kill, not that
# of the job.
test_kill_is_not_ignored() {
    start job "$HVDRUN" --grace 1000 -np 1 sh -c \
        "trap '' TERM; echo \$HVD_JOB_ID >$PWD/id.tmp; mv $PWD/id.tmp $PWD/id
        while :; do sleep 1; done"
    wait_for '[ -s id ]'
    expect_exit 0 "$HVDRUN" kill --grace 0.1 "$(cat id)"
    finish job 125
    gone job || fail "processes are left"
}

# After hvdrun, agent and guardian have been killed at once, ps finds the job's
# processes by their marks and kill ends them.
test_orphans_are_listed_and_ended() {
    start_job job
    local rank agents launcher=$pid
    rank=$(job_pids job sleep)
    agents=$(job_pids job hvd-agent)
    # Stop all first, so that none acts when it sees another die.
    # shellcheck disable=SC2086
    kill -STOP "$launcher" $agents
    # The rank ends with its agent, by its parent-death signal.  So the orphan
    # is a process without that signal that has the job's mark.
    start orphan env HVD_JOB_ID="$(cat job)" HVD_RANK=0 sleep 1000
    # shellcheck disable=SC2086
    kill -KILL "$launcher" $agents
    finish job 137
    wait_for "! alive $rank"
    ps_lists "$(cat job)" 'orphaned +sleep 1000'
    expect_exit 0 "$HVDRUN" kill "$(cat job)"
    grep -q 'ended what was left of job' out
    finish orphan 143
}

# Makes ./via, the command for --rsh: host H is a shell that first runs
# ./host-H, if that exists.
rsh_hosts() {
    export HOME=$PWD/home XDG_CACHE_HOME=$PWD/cache
    mkdir -p home cache
    cat >via <<'END'
#!/bin/sh
[ ! -f "host-$1" ] || . "./host-$1"
exec /bin/sh
END
    chmod +x via
}

test_ps_and_kill_through_rsh() {
    rsh_hosts
    start_job job
    ps_lists --rsh './via {host}' -H a,b "$(cat job)" running
    # The two hosts are one machine, so both list the job.
    [ "$(grep -c "^$(head -c 12 job) *[ab] " out)" -eq 2 ]
    expect_exit 0 "$HVDRUN" kill --rsh './via {host}' -H b "$(cat job)"
    finish job 125
}

test_ps_tells_who_cannot_be_asked() {
    rsh_hosts
    start_job job
    echo 'exit 7' >host-b
    expect_exit 125 "$HVDRUN" ps --rsh './via {host}' -H a,b
    grep -q "^$(head -c 12 job) *a " out
    one_line err
    grep -q 'host b: ' err
    kill -INT "$pid"
    finish job 130
}

test_doctor_here() {
    expect_exit 0 "$HVDRUN" doctor --json
    python3 - <<'END'
import json
report = json.load(open("out"))
host = report["hosts"][0]
assert host["reached"] and host["report"]["cpus"] > 0, host
assert all(f["kind"] == "note" for f in report["findings"]), report
END
}

# doctor finds what differs on each of three hosts.
test_doctor_finds_differences() {
    rsh_hosts
    printf 'SHELL=%s/noisy\nexport SHELL\n' "$PWD" >host-b
    printf '#!/bin/sh\necho welcome to b\n' >noisy
    chmod +x noisy
    printf 'ulimit -n 256\n' >host-c
    expect_exit 1 "$HVDRUN" doctor --rsh './via {host}' -H a,b,c ./noisy
    grep -Eq '^WRONG shell +b: .* 13 bytes .* welcome to b' out
    grep -Eq '^WRONG limits +c: only 256 open files' out
    grep -Eq '^ +fix: ' out
    grep -Eq '^ok +program ' out
    grep -q '3 hosts, 2 findings' out
}

test_doctor_tells_unreachable_hosts() {
    rsh_hosts
    echo 'exit 7' >host-b
    expect_exit 1 "$HVDRUN" doctor --rsh './via {host}' -H a,b
    grep -q '^WRONG agent .*b: ' out
    grep -q 'runs on 1 of 2' out
}

test_doctor_names_what_is_missing() {
    expect_exit 1 "$HVDRUN" doctor ./no-such-program
    grep -q '^WRONG program .*no-such-program' out
}

test_operator_wrong_use() {
    expect_exit 2 "$HVDRUN" ps -H 'a['
    one_line err
    expect_exit 2 "$HVDRUN" ps --hostfile no-such-file
    one_line err
    expect_exit 2 "$HVDRUN" ps extra
    one_line err
    expect_exit 2 "$HVDRUN" doctor -np 2
    one_line err
    expect_exit 2 "$HVDRUN" doctor --network-interfaces 1.2.3.4/99
    one_line err
}

# Ctrl-C ends ps while a host does not answer.
test_operator_interrupted() {
    rsh_hosts
    echo "touch $PWD/asked; exec sleep 1000" >host-a
    start ps "$HVDRUN" ps --rsh './via {host}' -H a
    wait_for '[ -e asked ]'
    kill -INT "$pid"
    finish ps 130
    wait_for 'gone ps'
}
