# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Ranks use the networks over which their hosts reach each other.

# Runs a job with the hvdrun options $@: each rank's variables are written to
# env.RANK, and an allreduce must work.
job_env() {
    rm -f env.*
    expect_exit 0 login "$HVDRUN" --start-timeout 20 "$@" sh -c '
        "$PROG/actor" environ env && exec "$PROG/coll" sum 10000 3'
}

interface_is() { # RANK NAME
    local name
    for name in HOROVOD_GLOO_IFACE NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME; do
        case $(var "env.$1" $name) in
        "$2" | "=$2") ;;
        *) fail "rank $1: $name is '$(var "env.$1" $name)', not $2" ;;
        esac
    done
}

test_networks_one() {
    cluster_up 2
    job_env -H n1,n2
    interface_is 0 eth0
    interface_is 1 eth0
    same env.0 MASTER_ADDR 10.66.0.1
    same env.1 MASTER_ADDR 10.66.0.1
    [ "$(var env.0 MASTER_PORT)" = "$(var env.1 MASTER_PORT)" ]
    cluster_down
}

# Interfaces with different names work; docker0, which has the same address on
# every host, is not used.
test_networks_with_traps() {
    cluster_up 3 --docker --nics eth0,ens3,enp0s1
    job_env -H n1,n2,n3
    same env.0 MASTER_ADDR 10.66.0.1
    same env.2 MASTER_ADDR 10.66.0.1
    local rank
    for rank in 0 1 2; do
        interface_is $rank "$(cat cluster/n$((rank + 1))/nic)"
        tr '\0' '\n' <env.$rank >names
        absent '172\.17\.' names
        absent 'docker0' names
    done
    cluster_down
}

test_networks_chosen_by_the_user() {
    local choice
    cluster_up 2 --second-net --nics eth0,ens3,enp0s1
    for choice in eth1 10.67.0.0/24 fd67::/64 'nosuch0,eth1'; do
        job_env --network-interfaces $choice -H n1,n2
        case $choice in
        fd67*) same env.1 MASTER_ADDR fd67::1 ;;
        *) same env.1 MASTER_ADDR 10.67.0.1 ;;
        esac
        interface_is 0 eth1
    done
    expect_exit 125 login "$HVDRUN" --network-interfaces nosuch0 -H n1,n2 true
    tells 'nosuch0'
    one_line err
    refused 'network-interface' --network-interfaces 10.0.0.0/99 -H n1,n2
    cluster_down
}

# If the first network is filtered between the hosts, ranks use the second.
test_networks_that_do_not_connect() {
    cluster_up 2 --second-net
    faulty drop n1 n2
    job_env -H n1,n2
    same env.1 MASTER_ADDR 10.67.0.1
    interface_is 0 eth1
    cluster_down
}

test_networks_ipv6_only() {
    cluster_up 2 --ipv6
    job_env -H n1,n2
    same env.0 MASTER_ADDR fd66::1
    same env.1 MASTER_ADDR fd66::1
    interface_is 1 eth0
    cluster_down
}

# If two hosts cannot reach each other at all, the job fails at the start and
# the message names both.
test_networks_none() {
    local began=$SECONDS
    cluster_up 3
    faulty drop n1 n2
    expect_exit 125 login "$HVDRUN" --start-timeout 10 -H n1,n2,n3 \
        "$PROG/coll" sum 10 1
    [ $((SECONDS - began)) -le 30 ]
    tells 'n1.*n2|n2.*n1'
    cluster_down
}

# If connections are possible from one side only, the job fails, too, and the
# message names both hosts.
test_networks_one_way() {
    cluster_up 2
    on n2 iptables -w -I INPUT -s 10.66.0.1 -p tcp --syn -j DROP
    on n2 ip6tables -w -I INPUT -s fd66::1 -p tcp --syn -j DROP
    expect_exit 125 login "$HVDRUN" --start-timeout 10 -H n1,n2 \
        "$PROG/coll" sum 10 1
    tells 'n1.*n2|n2.*n1'
    cluster_down
}

# Ranks on this machine and on another host reach each other.
test_networks_with_this_host() {
    cluster_up 1
    job_env -H login,n1
    same env.1 MASTER_ADDR 10.66.0.250
    job_env -H n1,localhost
    same env.1 MASTER_ADDR 10.66.0.1
    cluster_down
}
