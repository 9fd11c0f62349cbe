# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun ps, kill, clean and doctor on several hosts.

# Starts job $1 on n1 and n2 with the hvdrun options that follow, and sets $id
# to its job id.
start_job() {
    local name=$1
    shift
    start_on login "$name" "$HVDRUN" --grace 1 -H n1:2,n2:2 "$@" sh -c '
        echo "$HVD_JOB_ID" >'"$name"'.id.$HVD_RANK; touch '"$name"'.up.$HVD_RANK
        exec sleep 1000' hvd-test-argument
    wait_for '[ "$(count_files '"$name"'.up.?)" -eq 4 ]'
    id=$(cat "$name.id.0")
    [ "${#id}" -eq 32 ]
}

json_is() { # FILE: well-formed
    python3 -m json.tool "$1" >/dev/null 2>&1 ||
        ! command -v python3 >/dev/null || fail "not JSON: $(head -c 500 "$1")"
}

test_commands_ps() {
    cluster_up 3
    expect_exit 0 login "$HVDRUN" ps -H n1,n2,n3
    start_job job
    expect_exit 0 login "$HVDRUN" ps -H n1,n2,n3
    grep -q "${id:0:12}" out
    [ "$(grep -c 'n1' out)" -ge 1 ]
    [ "$(grep -c 'n2' out)" -ge 1 ]
    expect_exit 0 login "$HVDRUN" ps --json -H n1,n2,n3
    json_is out
    grep -q "$id" out
    kill -TERM "$(the job hvdrun)"
    finish job 143
    expect_exit 0 login "$HVDRUN" ps -H n1,n2,n3
    absent "${id:0:12}" out
    cluster_down
}

test_commands_ps_with_a_host_that_is_not_there() {
    local status=0
    cluster_up 2
    start_job job
    login "$HVDRUN" ps --start-timeout 3 -H n1,dead,n2,nosuch >out 2>err ||
        status=$?
    [ $status -ne 0 ]
    grep -q "${id:0:12}" out
    tells 'dead'
    tells 'nosuch'
    kill -TERM "$(the job hvdrun)"
    finish job 143
    cluster_down
}

test_commands_kill() {
    local other
    cluster_up 2
    start_job one
    other=$id
    start_job two
    expect_exit 0 login "$HVDRUN" kill -H n1,n2 "$id"
    finish two
    [ "$status" -ne 0 ]
    tells 'kill|SIGTERM|ended' two.err
    alive "$(the one hvdrun)"
    expect_exit 0 login "$HVDRUN" ps -H n1,n2
    grep -q "${other:0:12}" out
    absent "${id:0:12}" out
    expect_exit 0 login "$HVDRUN" kill --all -H n1,n2
    finish one
    [ "$status" -ne 0 ]
    cluster_down
}

test_commands_kill_refuses() {
    local status wrong
    cluster_up 1
    start_on n1 bystander sleep 1000
    wait_for '[ -n "$(job_pids bystander sleep)" ]'
    for wrong in sleep '*' 1234 00000000000000000000000000000000; do
        status=0
        login "$HVDRUN" kill -H n1 "$wrong" >out 2>err || status=$?
        [ $status -ne 0 ] || fail "kill $wrong: exit 0"
        [ -s err ]
    done
    kill -TERM "$(the bystander sleep)"
    finish bystander 143
    cluster_down
}

# ps and kill as root neither list nor end a job that runs as alice; as alice
# they do.
test_commands_another_user() {
    cluster_up 1
    login ssh alice@n1 true
    start_on login job "$HVDRUN" --grace 1 -H alice@n1 sh -c '
        echo "$HVD_JOB_ID" >/tmp/id; exec sleep 1000'
    wait_for 'on n1 test -s /tmp/id'
    id=$(on n1 cat /tmp/id)
    on n1 rm /tmp/id
    expect_exit 0 login "$HVDRUN" ps -H n1
    absent "${id:0:12}" out
    login "$HVDRUN" kill -H n1 "$id" >out 2>err || :
    alive "$(the job hvdrun)"
    expect_exit 0 login "$HVDRUN" ps -H alice@n1
    grep -q "${id:0:12}" out
    expect_exit 0 login "$HVDRUN" kill -H alice@n1 "$id"
    finish job
    cluster_down
}

# clean ends the processes of a job that has no agent any more, and leaves a
# job that runs and processes that belong to no job alone.
test_commands_clean() {
    cluster_up 2
    start_job job
    on n1 env HVD_JOB_ID=0123456789abcdef0123456789abcdef HVD_RANK=0 sh -c \
        'setsid sleep 4321 >/dev/null 2>&1 </dev/null & :'
    on n1 sh -c 'setsid sleep 1234 >/dev/null 2>&1 </dev/null & :'
    expect_exit 0 login "$HVDRUN" clean --dry-run -H n1,n2
    grep -q '0123456789ab' out
    [ "$(on n1 ps -eo args= | grep -c '[s]leep 4321')" -eq 1 ]
    expect_exit 0 login "$HVDRUN" clean -H n1,n2
    [ "$(on n1 ps -eo args= | grep -c '[s]leep 4321')" -eq 0 ]
    [ "$(on n1 ps -eo args= | grep -c '[s]leep 1234')" -eq 1 ]
    alive "$(the job hvdrun)"
    [ "$(on n1 ps -eo args= | grep -c '[s]leep 1000')" -eq 2 ]
    on n1 sh -c 'kill $(ps -eo pid=,args= | awk "/[s]leep 1234/ { print \$1 }")'
    kill -TERM "$(the job hvdrun)"
    finish job 143
    cluster_down
}

# ---- doctor -----------------------------------------------------------------

test_commands_doctor_of_good_hosts() {
    local word
    cluster_up 3
    expect_exit 0 login "$HVDRUN" doctor -H n1,n2,n3
    for word in dns agent clock processors GiB limits network; do
        grep -qi "$word" out || fail "nothing about $word: $(cat out)"
    done
    expect_exit 0 login "$HVDRUN" doctor --json -H n1,n2,n3
    json_is out
    printf 'n1\nn2\n' >hosts
    expect_exit 0 login "$HVDRUN" doctor --hostfile hosts
    cluster_down
}

diagnoses() { # PATTERN ARG...
    local status=0 pattern=$1
    shift
    login "$HVDRUN" doctor --start-timeout 5 "$@" >out 2>err || status=$?
    [ $status -ne 0 ] || fail "exit 0: $(cat out)"
    grep -Eqi -- "$pattern" out err ||
        fail "nothing about '$pattern': $(cat out err)"
}

test_commands_doctor_of_bad_hosts() {
    cluster_up 3 --noise 'echo noise'
    faulty sshd n2 stop
    diagnoses 'n2.*refused' -H n1,n2
    faulty sshd n2 start 'PubkeyAuthentication no'
    diagnoses 'n2.*key' -H n1,n2
    faulty hostkey n3 ed25519
    diagnoses 'n3.*(changed|host key)' -H n1,n3
    diagnoses 'nosuch.*(resolve|name)' -H n1,nosuch
    diagnoses 'dead' -H n1,dead
    on n1 mount -o remount,noexec /root
    on n1 mount -o remount,noexec /tmp
    diagnoses 'n1.*noexec' -H n1
    cluster_down
}

test_commands_doctor_sees_shell_noise() {
    cluster_up 1 --noise 'echo noise from the start-up file'
    login "$HVDRUN" doctor -H n1 >out 2>err || :
    grep -qi 'noise' out err
    cluster_down
}

test_commands_doctor_of_the_network() {
    cluster_up 3
    faulty drop n1 n2
    diagnoses 'n1.*n2|n2.*n1' -H n1,n2,n3
    faulty undrop n1 n2
    on n2 iptables -w -I INPUT -s 10.66.0.3 -p tcp --syn -j DROP
    on n2 ip6tables -w -I INPUT -s fd66::3 -p tcp --syn -j DROP
    diagnoses 'n3.*n2|n2.*n3' -H n1,n2,n3
    cluster_down
}

test_commands_doctor_of_a_program() {
    cluster_up 2
    on n1 cp /bin/true /tmp/prog
    diagnoses 'n2.*/tmp/prog' -H n1,n2 /tmp/prog
    on n2 cp /bin/false /tmp/prog
    diagnoses 'n2.*program' -H n1,n2 /tmp/prog
    on n1 rm /tmp/prog
    on n2 rm /tmp/prog
    cluster_down
}

test_commands_refuse() {
    need_root
    refused 'nothing can follow' ps -H n1
    refused 'nothing can follow' clean -H n1
    refused '-np' ps -np 4 -H n1
    expect_exit 2 "$HVDRUN" kill -H n1
    check_refusal 'hvdrun ps|--all'
    expect_exit 2 "$HVDRUN" doctor -H 'n['
    one_line err
}
