# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun ps, kill, clean and doctor on several hosts.

# start_job NAME HOSTS [COMMAND]: starts a job that runs until it is ended,
# with its id in ./NAME.
start_job() {
    start_on login "$1" "$HVDRUN" -H "$2" sh -c \
        "[ \$HVD_RANK != 0 ] || { echo \$HVD_JOB_ID >$1.tmp; mv $1.tmp $1; }
        ${3:-exec sleep 1000}"
    wait_for "[ -s $1 ]"
}

prefix() {
    head -c 12 "$1"
}

test_cluster_ps_and_kill() {
    cluster_up 2
    start_job one n1:2,n2
    start_job two n2
    expect_exit 0 login "$HVDRUN" ps -H n1,n2
    grep -Eq "^$(prefix one) +n1 +0-1 .* running +sleep 1000$" out
    grep -Eq "^$(prefix one) +n2 +2 .* running +sleep 1000$" out
    [ "$(grep -c "^$(prefix two) " out)" -eq 1 ]
    expect_exit 0 login "$HVDRUN" kill -H 'n[1-2]' "$(head -c 8 one)"
    [ "$(grep -c "^host n[12]: .*job $(prefix one)" out)" -eq 2 ]
    grep -q "ended job $(prefix one)" out
    finish one 125
    grep -q '(hvdrun kill)' one.err
    expect_exit 0 login "$HVDRUN" ps -H n1,n2
    absent "^$(prefix one) " out
    grep -Eq "^$(prefix two) +n2 " out
    expect_exit 0 login "$HVDRUN" kill -H n1,n2 --all
    finish two 125
    expect_exit 0 login "$HVDRUN" kill -H n1,n2 --all
    [ ! -s out ]
    cluster_down
}

# A user can neither see nor end the job of another user.
test_cluster_kill_is_for_ones_own() {
    need_nobody
    cluster_up 1
    start_job job n1
    expect_exit 0 as_alice n1 "$HVDRUN" ps
    [ ! -s out ]
    expect_exit 1 as_alice n1 "$HVDRUN" kill "$(cat job)"
    expect_exit 0 as_alice n1 "$HVDRUN" kill --all
    expect_exit 0 as_alice n1 "$HVDRUN" clean
    expect_exit 0 login "$HVDRUN" ps -H n1
    grep -q "^$(prefix job) .*running" out
    expect_exit 0 login "$HVDRUN" kill -H n1 "$(cat job)"
    finish job 125
    cluster_down
}

# Prints how many processes on HOST ($1) have a command line that matches
# PATTERN ($2).
count_on() {
    on "$1" ps -eo args= | grep -c "$2" || :
}

# clean finds a process by the job's mark in its environment, even if it has
# left its process group and hvdrun, agent and guardian were killed at once.
test_cluster_clean_ends_orphans() {
    cluster_up 2
    start_job job n1,n2 'setsid sleep 2000 & touch started.$HVD_RANK; wait'
    start_job other n2
    wait_for '[ -e started.0 ] && [ -e started.1 ]'
    wait_for '[ "$(count_on n1 "^[s]leep 2000")" -eq 1 ]'
    kill_job_and_agents job n1
    # The rank on n1 ends with its agent, and the agent of n2 ends its own
    # ranks.
    wait_for '[ "$(count_on n1 "[t]ouch started")" -eq 0 ]'
    wait_for '[ "$(agents n2 | wc -w)" -eq 2 ]'
    [ "$(count_on n1 "^[s]leep 2000")" -eq 1 ]
    expect_exit 0 login "$HVDRUN" clean --dry-run -H n1,n2
    grep -q "host n1: would end what was left of job $(prefix job), 1 process" out
    expect_exit 0 login "$HVDRUN" ps -H n1,n2
    grep -Eq "^$(prefix job) +n1 .* orphaned +sleep 2000" out
    expect_exit 0 login "$HVDRUN" clean -H n1,n2
    grep -q "host n1: ended what was left of job $(prefix job), 1 process" out
    absent "$(prefix other)" out
    [ "$(count_on n1 "^[s]leep 2000")" -eq 0 ]
    expect_exit 0 login "$HVDRUN" ps -H n1,n2
    absent "^$(prefix job) " out
    grep -q "^$(prefix other) .*running" out
    expect_exit 0 login "$HVDRUN" kill -H n2 "$(cat other)"
    finish other 125
    cluster_down
}

test_cluster_clean_removes_old_agents() {
    local cache=/root/.cache/hvd
    cluster_up 1
    expect_exit 0 login "$HVDRUN" ps -H n1
    on n1 sh -c "cp $cache/hvd-agent-* $cache/hvd-agent-old
        touch -d '31 days ago' $cache/hvd-agent-old; echo x >$cache/.push-1
        touch -d '2 days ago' $cache/.push-1; echo x >$cache/mine"
    expect_exit 0 login "$HVDRUN" clean --dry-run -H n1
    [ "$(grep -c 'would remove' out)" -eq 2 ]
    expect_exit 0 login "$HVDRUN" clean -H n1
    [ "$(grep -c ': removed ' out)" -eq 2 ]
    [ "$(on n1 sh -c "ls -A $cache | wc -l")" -eq 2 ]
    on n1 test -e "$cache/mine"
    on n1 rm "$cache/mine"
    cluster_down
}

test_cluster_doctor_of_good_hosts() {
    cluster_up 3
    expect_exit 0 login "$HVDRUN" doctor -H 'n[1-3]' sh
    grep -q 'every host connects to every other' out
    grep -Eq '^n3 .* -$' out
    expect_exit 0 login "$HVDRUN" doctor --json -H 'n[1-3]'
    python3 - <<'END'
import json
report = json.load(open("out"))
assert len(report["matrix"]) == 6, report["matrix"]
assert all(p["reached"] and p["rtt_us"] > 0 for p in report["matrix"])
assert all(h["addresses"] and h["interfaces"] for h in report["hosts"])
END
    cluster_down
}

# doctor finds a firewall that lets connections through one way only.
test_cluster_doctor_finds_asymmetry() {
    cluster_up 3
    on n2 iptables -A INPUT -p tcp --syn -s 10.66.0.1 -j DROP
    on n2 ip6tables -A INPUT -p tcp --syn -s fd66::1 -j DROP
    expect_exit 1 login "$HVDRUN" doctor -H 'n[1-3]'
    grep -q '^WRONG network *n1: cannot connect to n2, which can connect' out
    grep -q '1 finding$' out
    grep -Eq '^n1 .* NO ' out
    cluster_down
}

test_cluster_doctor_finds_what_is_wrong() {
    cluster_up 4 --noise 'echo welcome'
    on n2 mount -o remount,ro /root
    faulty hostkey n3 ecdsa
    faulty sshd n4 stop
    expect_exit 1 login "$HVDRUN" doctor --start-timeout 10 \
        -H 'n[1-4],nosuch'
    grep -Eq '^WRONG shell .*n[[]1-2[]]: .*welcome' out
    grep -Eq '^WRONG home .*n2: .*Read-only' out
    grep -Eq '^WRONG host key .*n3: ' out
    grep -Eq '^WRONG tcp .*n4: ' out
    grep -Eq '^WRONG dns .*nosuch: ' out
    on n2 mount -o remount,rw /root
    cluster_down
}
