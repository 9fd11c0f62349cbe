# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The test hosts of `cluster` themselves, on which the other tests rely.

test_hosts_have_names_and_addresses() {
    local i
    cluster_up 3
    for i in 1 2 3; do
        [ "$(login ssh "n$i" hostname)" = "n$i" ]
        [ "$(login ssh "10.66.0.$i" 'echo $HOME')" = /root ]
        [ "$(login ssh "fd66::$i" uname -n)" = "n$i" ]
        [ "$(login ssh "alice@n$i" 'echo $HOME')" = /home/alice ]
    done
    [ "$(as_alice login ssh n2 id -un)" = alice ]
    [ "$(on n1 stat -c '%a %U' /root /root/.ssh /home/alice/.ssh | xargs)" = \
        '700 root 700 root 700 alice' ]
    [ "$(login hostname)" = login ]
    cluster_down
    [ ! -e cluster ]
}

test_hosts_share_the_test_but_no_tmp() {
    cluster_up 2
    echo hello >here
    [ "$(on n1 cat here)" = hello ]
    on n1 test -x "$HVDRUN"
    on n1 touch /tmp/mine /dev/shm/mine /root/mine /run/mine
    on n2 sh -c '! ls /tmp/mine /dev/shm/mine /root/mine /run/mine' 2>err
    [ ! -e /tmp/mine ]
    [ "$(left n1 | sort)" = "n1: file /dev/shm/mine
n1: file /root/mine
n1: file /run/mine
n1: file /tmp/mine" ]
    on n1 rm /tmp/mine /dev/shm/mine /root/mine /run/mine
    cluster_down
}

test_hosts_show_what_is_left() {
    cluster_up 1
    on n1 sh -c 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & exit'
    left >log
    grep -q '^n1: process [0-9]*: sleep 1000' log
    one_line log
    on n1 sh -c 'kill $(pidof sleep)'
    # a name that is no UTF-8
    on n1 sh -c 'touch "$(printf "/tmp/\377")"'
    wait_for '[ "$(left)" = "$(printf "n1: file /tmp/\377")" ]'
    on n1 sh -c 'rm "$(printf "/tmp/\377")"'
    cluster_down
}

# A host that is gone has not left nothing.
test_hosts_that_have_ended() {
    local status=0
    cluster_up 1
    kill -KILL "$("$CLUSTER_PROG" pid "$CLUSTER" n1)"
    left >log 2>err || status=$?
    [ $status -ne 0 ]
    trap - EXIT
    "$CLUSTER_PROG" down "$CLUSTER"
}

# A process on a host belongs to a job of the test, and signals reach it.
test_hosts_pass_exit_codes_and_signals() {
    cluster_up 1
    expect_exit 7 on n1 sh -c 'exit 7'
    start_on n1 sleeping sleep 1000
    wait_for '[ -n "$(job_pids sleeping sleep)" ]'
    kill -TERM "$(the sleeping sleep)"
    finish sleeping 143
    cluster_down
}

test_hosts_end_with_their_caller() {
    need_root
    cluster_up 1
    cluster_down
    bash -c '"$1" hold "$2" 2 & "$1" ready "$2" && kill -KILL $$' \
        x "$CLUSTER_PROG" "$PWD/second" 2>err || :
    wait_for '! grep -q "[-]-top $PWD/second " < <(ps -eo args=)'
    "$CLUSTER_PROG" down "$PWD/second"
}

test_hosts_in_the_background() {
    cluster_up 1
    "$CLUSTER_PROG" up "$PWD/second" 2
    [ "$("$CLUSTER_PROG" exec "$PWD/second" login ssh n2 hostname)" = n2 ]
    "$CLUSTER_PROG" down "$PWD/second"
    [ ! -e second ]
    cluster_down
}

unreachable() {
    expect_exit 255 login ssh -o ConnectTimeout=1 "$1" true
}

test_hosts_links_and_packets() {
    cluster_up 2
    faulty link n1 down
    unreachable n1
    faulty link n1 up
    [ "$(login ssh n1 hostname)" = n1 ]
    faulty drop n1
    unreachable n1
    grep -q 'timed out' err
    [ "$(on n1 ping -c 1 -W 1 127.0.0.1 2>&1 | grep -c ' 0% ')" -eq 1 ] ||
        ! command -v ping
    faulty undrop n1
    [ "$(login ssh n1 hostname)" = n1 ]
    faulty drop n2 n1
    [ "$(login ssh n2 hostname)" = n2 ]
    expect_exit 124 on n1 timeout 1 bash -c ': </dev/tcp/10.66.0.2/22'
    faulty undrop n2 n1
    on n1 bash -c ': </dev/tcp/10.66.0.2/22'
    cluster_down
}

test_hosts_that_cannot_be_reached() {
    cluster_up 1
    expect_exit 255 login ssh nosuch true
    grep -q 'not resolve' err
    unreachable dead
    grep -q 'timed out' err
    faulty sshd n1 stop
    unreachable n1
    grep -q refused err
    faulty sshd n1 start 'PubkeyAuthentication no'
    unreachable n1
    grep -q 'Permission denied (password)' err
    cluster_down
}

test_hosts_with_a_new_host_key() {
    cluster_up 1
    faulty hostkey n1 ecdsa
    unreachable n1
    grep -q 'HOST IDENTIFICATION HAS CHANGED' err
    faulty known n1 >keys
    login tee /root/.ssh/known_hosts <keys >out
    [ "$(login ssh n1 hostname)" = n1 ]
    cluster_down
}

test_hosts_with_other_shells() {
    local shell i=0
    cluster_up 6 --shell bash,dash,sh,ash,bash,bash --noise 'echo hello'
    for shell in bash dash sh ash; do
        i=$((i + 1))
        [ "$(login ssh "n$i" 'echo ${0##*/}' | tail -n 1)" = $shell ]
    done
    [ "$(login ssh n1 true)" = hello ]
    cluster_down
    command -v zsh fish tcsh || skip "zsh, fish and tcsh are not installed"
    cluster_up 3 --shell zsh,fish,csh --noise 'echo hello'
    for i in 1 2 3; do
        [ "$(login ssh "n$i" true)" = hello ]
    done
    cluster_down
}

test_hosts_with_more_networks() {
    cluster_up 2 --docker --second-net --inner 1 --nics eth0,ens3
    on n1 ip -o addr >addr1
    on n2 ip -o addr >addr2
    grep -q 'docker0 .*172.17.0.1/16' addr1
    grep -q 'docker0 .*172.17.0.1/16' addr2
    grep -q 'eth1 .*10.67.0.1/24' addr1
    [ "$(ls /sys/class/net)" != "$(on n2 ls /sys/class/net)" ]
    on n2 test -e /sys/class/net/ens3 || on n2 test -e /sys/class/net/eth0
    [ "$(login ssh i1 hostname)" = i1 ]
    expect_exit 255 login ssh -o ProxyJump=none i1 true
    cluster_down
}

test_hosts_without_ipv4_or_names() {
    cluster_up 2 --ipv6 --slow-dns
    [ "$(login ssh n2 hostname)" = n2 ]
    [ "$(on n2 ip -4 -o addr | grep -vc ' lo ')" -eq 0 ]
    expect_exit 124 login timeout 1 ssh nosuch true
    cluster_down
}

test_hosts_file_systems() {
    cluster_up 1 --home 1m
    expect_exit 1 on n1 dd if=/dev/zero of=/root/full bs=1M count=2
    grep -q 'No space left' err
    on n1 rm /root/full
    on n1 mount -o remount,noexec /root
    on n1 cp /bin/true /root/prog
    expect_exit 126 on n1 /root/prog
    on n1 rm /root/prog
    cluster_down
}
