# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Elastic jobs on several hosts: the job goes on after the loss of a rank, an
# agent or a whole host.  Each rank checks all its sums (prog/elastic_steps.c).

STEPS=1000 # at least; then a job ends when the test has made a file "end"

# start_steps [OPTION]...: starts 6 ranks on three hosts, and waits until all of
# them work.
start_steps() {
    cluster_up 3
    start_on login job "$HVDRUN" --heartbeat 2 --grace 1 --no-tag-output \
        --min-np 2 -H n1:2,n2:2,n3:2 "$@" \
        "$PROG/elastic_steps" $STEPS 5000 ptef
    wait_for 'grep -q "^working" job.out'
}

# finished RANKS: fails unless the job ends well, with that many ranks that have
# done all steps.
finished() {
    : >end
    finish job 0
    all_done "$1" $STEPS || fail "not $1 ranks finished: $(cat job.out job.err)"
    tells "finished with $1 of 6 ranks" job.err
}

# Prints the pids of the ranks on a host.
ranks_on() {
    on "$1" ps -eo pid=,args= | awk '/[p]rog\/elastic_s/ { print $1 }'
}

test_elastic_hosts_ranks() {
    start_steps
    kill_on n2 KILL "$(ranks_on n2 | head -n 1)"
    wait_for 'grep -q "6 -> 5 ranks (generation 2)" job.err'
    kill_on n1 KILL "$(ranks_on n1 | head -n 1)" # rank 0
    wait_for 'grep -q "5 -> 4 ranks (generation 3)" job.err'
    # Both ranks of a host, so that one host has no member any more.
    kill_on n3 KILL "$(ranks_on n3)"
    wait_for 'grep -q -- "-> 2 ranks" job.err'
    finished 2
    tells 'rank [23] on host n2 .*SIGKILL' job.err
    cluster_down
}

test_elastic_hosts_agent() {
    start_steps
    kill_agents n2
    wait_for 'grep -q "6 -> 4 ranks" job.err'
    finished 4
    tells 'host n2: .*its 2 ranks are gone' job.err
    cluster_down
}

# A host that falls silent is lost when its heartbeats stay away.
test_elastic_hosts_link() {
    start_steps
    faulty link n3 down
    wait_for -t 20 'grep -q "6 -> 4 ranks" job.err'
    finished 4
    tells 'host n3: .*its 2 ranks are gone' job.err
    faulty link n3 up
    cluster_down
}

# The operator frees a host; its agent ends with its ranks.
test_elastic_hosts_drain() {
    start_steps
    on login "$HVDRUN" drain --within 60 n2 >drained
    grep -Eqx 'host n2: job [0-9a-f]{12} leaves at its next commit' drained
    wait_for 'grep -q "6 -> 4 ranks (generation 2)" job.err'
    tells 'host n2 goes in 60 s .hvdrun drain.: its 2 ranks leave' job.err
    : >end
    finish job 0
    all_done 4 $STEPS || fail "not 4 ranks finished: $(cat job.out job.err)"
    cluster_down
}

# A rank is started again on its own host, also if it was the only one there.
test_elastic_hosts_restart() {
    start_steps --restart-failed 1
    kill_on n2 KILL "$(ranks_on n2)"
    wait_for 'grep -q "ranks (generation 2)" job.err'
    # shellcheck disable=SC2016 # wait_for evaluates it
    wait_for '[ "$(ranks_on n2 | wc -l)" -eq 2 ]'
    wait_for 'grep -q -- "-> 6 ranks" job.err'
    : >end
    finish job 0
    all_done 6 $STEPS || fail "not 6 ranks finished: $(cat job.out job.err)"
    cluster_down
}

# discover HOST...: makes the discovery script print these hosts.
discover() {
    printf '%s\n' "$@" >hosts.new
    mv hosts.new hosts
}

# start_growing OPTION...: starts a job on the hosts that `discover` has named,
# and waits until its ranks work.
start_growing() {
    start_on login job "$HVDRUN" --heartbeat 2 --grace 1 --no-tag-output \
        --discovery-interval 0.2 --blacklist-cooldown-range 1 2 \
        --host-discovery-script "cat $PWD/hosts" "$@" \
        "$PROG/elastic_steps" $STEPS 5000 ptef
    wait_for 'grep -q "^working" job.out'
}

# grown RANKS: fails unless the job ends well, with that many ranks.
grown() {
    : >end
    finish job 0
    all_done "$1" $STEPS || fail "not $1 ranks finished: $(cat job.out job.err)"
    cluster_down
}

# Two hosts come one after the other, the first job had one only; one that
# cannot be reached disturbs nobody.
test_elastic_hosts_come() {
    cluster_up 3
    discover n1:2
    start_growing -np 2 --max-np 5
    discover n1:2 nowhere:2 n2:2
    wait_for 'grep -q "2 -> [34] ranks" job.err && grep -q -- "-> 4 ranks" job.err'
    tells 'host nowhere cannot be added: .*next attempt in [12] s' job.err
    discover n1:2 n2:2 n3:2
    wait_for 'grep -q "4 -> 5 ranks" job.err'
    grown 5
}

# Three hosts come at once: their ranks reach one another, too.
test_elastic_hosts_come_together() {
    cluster_up 4
    discover n1:1
    start_growing -np 1 --max-np 4
    discover n1:1 n2:1 n3:1 n4:1
    wait_for 'grep -q -- "-> 4 ranks" job.err'
    grown 4
    absent 'cannot be added' job.err
}

# One that cannot reach another is given up, and not those that come with it.
test_elastic_hosts_come_without_a_route() {
    cluster_up 4
    discover n1:1
    faulty drop n3 n1
    start_growing -np 1 --max-np 4
    discover n1:1 n2:1 n3:1 n4:1
    wait_for 'grep -q -- "-> 3 ranks" job.err && grep -q "n3 cannot be" job.err'
    tells 'host n3 cannot be added: host n[13] cannot connect to host n[13]' job.err
    absent 'host n[24] cannot be added' job.err
    discover n1:1 n2:1 n4:1
    faulty undrop n3 n1
    grown 3
}

# A host whose agent dies comes back; meanwhile the others go on.
test_elastic_hosts_come_back() {
    cluster_up 2
    discover n1:2 n2:2
    start_growing -np 4 --min-np 2
    kill_agents n2
    wait_for 'grep -q "4 -> 2 ranks (generation 2)" job.err'
    tells 'host n2 gets no new ranks for [12] s' job.err
    wait_for 'grep -q "host n2: starts 2 ranks" job.err'
    wait_for 'grep -q -- "-> 4 ranks" job.err'
    grown 4
}

# Below --min-np the ranks wait until a host comes.
test_elastic_hosts_are_awaited() {
    cluster_up 3
    discover n1:2 n2:2
    start_growing -np 4 --min-np 4
    discover n1:2
    kill_agents n2
    wait_for 'grep -q "2 ranks, --min-np is 4: waiting for hosts" job.err'
    sleep 1
    discover n1:2 n3:2
    wait_for 'grep -q -- "-> 4 ranks (generation 2), stopped for" job.err'
    grown 4
}

# A spare on another host takes over: as many ranks as before.
test_elastic_hosts_spares() {
    cluster_up 3
    discover n1:1 n2:1 n3:1
    start_growing -np 2 --spares 1
    wait_for 'grep -q "host n3: starts 1 spare rank" job.err'
    sleep 1
    kill_on n2 KILL "$(ranks_on n2)"
    wait_for 'grep -q "2 -> 2 ranks (generation 2), stopped for [0-9.]* ms" job.err'
    grown 2
}

# A host that comes and goes again before it could be added changes nothing.
test_elastic_hosts_flap() {
    cluster_up 2
    discover n1:2
    faulty link n2 down
    start_growing -np 2 --max-np 4
    discover n1:2 n2:2
    sleep 1
    discover n1:2
    sleep 1
    grown 2
    absent 'generation 2' job.err
}

# start_shards: starts two ranks on each of three hosts, whose shards
# prog/elastic_shards checks, and waits until all have committed.
start_shards() {
    cluster_up 3
    start_on login job "$HVDRUN" --heartbeat 2 --grace 1 --no-tag-output \
        --min-np 1 -H n1:2,n2:2,n3:2 "$PROG/elastic_shards" 2000:3 100000 fp
    wait_for 'grep -q "^working" job.out'
}

# A lost host's shards are on another one: after its agent has died, and, when
# new copies have been made, after the other's link has gone.
test_elastic_hosts_shards() {
    start_shards
    kill_agents n2
    wait_for 'grep -q "6 -> 4 ranks" job.err'
    wait_for 'grep -qx "working 4" job.out'
    faulty link n3 down
    wait_for -t 20 'grep -q "4 -> 2 ranks" job.err'
    finish job 0
    all_done 2 2000 || fail "not 2 ranks finished: $(cat job.out job.err)"
    faulty link n3 up
    cluster_down
}

# Two of three hosts at once, of which one keeps the other's shards.  The ranks
# of n3 are stopped, so that no new copies are made between the deaths.
test_elastic_hosts_shards_lost() {
    start_shards
    kill_on n3 STOP "$(ranks_on n3)"
    kill_agents n2
    kill_agents n3
    finish job 3
    grep -q '^lost hvd_sync: the shard of what was rank [0-5] is lost' job.out ||
        fail "$(cat job.out job.err)"
    cluster_down
}

# A host that hvdrun and its agent no longer hear of each other, while its ranks
# still reach the others: both sides give it up.
test_elastic_hosts_cut_off() {
    start_steps
    faulty drop n2 login
    wait_for -t 20 'grep -q "6 -> 4 ranks" job.err'
    finished 4
    tells 'host n2: .*its 2 ranks are gone' job.err
    faulty undrop n2 login
    cluster_down
}

# Lost packets cost time only, also while a generation begins.
test_elastic_hosts_lossy() {
    local STEPS=500
    start_steps
    on n2 iptables -w -I INPUT -m statistic --mode random --probability 0.01 \
        -j DROP || skip "iptables cannot drop at random here"
    kill_on n1 KILL "$(ranks_on n1 | head -n 1)"
    wait_for 'grep -q "6 -> 5 ranks (generation 2)" job.err'
    finished 5
    cluster_down
}

# Two hosts that no longer reach each other, while hvdrun reaches both: one of
# them is given up and named, and the others are one world.
test_elastic_hosts_apart() {
    start_steps
    faulty drop n2 n3
    wait_for 'grep -q "6 -> 4 ranks (generation 2)" job.err'
    finished 4
    tells 'host n3: its ranks and those on host n2 do not reach each other' \
        job.err
    faulty undrop n2 n3
    cluster_down
}

# The host that reaches neither of the others stays, as the job needs its ranks.
test_elastic_hosts_apart_and_one_needed() {
    start_steps -H n1:4,n2:1,n3:1 --min-np 4
    faulty drop n1 n2
    faulty drop n1 n3
    wait_for 'grep -q -- "-> 4 ranks (generation [23])" job.err'
    finished 4
    for host in n2 n3; do
        tells "host $host: its ranks and those on host n1 do not reach" job.err
    done
    faulty undrop n1 n2
    faulty undrop n1 n3
    cluster_down
}

# Makes the hosts $1 and $2 refuse each other's TCP packets, as a router does.
refuse() {
    on "$1" iptables -w -I INPUT -p tcp -s "10.66.0.${2#n}" -j REJECT \
        --reject-with icmp-host-unreachable
    on "$2" iptables -w -I INPUT -p tcp -s "10.66.0.${1#n}" -j REJECT \
        --reject-with icmp-host-unreachable
}

# The same where the ranks connect, because a rank elsewhere has died meanwhile.
test_elastic_hosts_apart_in_sync() {
    start_steps
    kill_on n1 STOP "$(ranks_on n1 | head -n 1)" # nobody goes on
    faulty drop n2 n3
    kill_on n1 KILL "$(ranks_on n1 | head -n 1)"
    wait_for 'grep -q -- "-> 3 ranks" job.err'
    finished 3
    tells 'host n3: its ranks and those on host n2 do not reach each other' \
        job.err
    faulty undrop n2 n3
    cluster_down
}

# The kernel says at once that there is no route, while the ranks connect: the job
# does not wait for the heartbeat.
test_elastic_hosts_without_a_route() {
    local STEPS=300
    cluster_up 3
    start_on login job "$HVDRUN" --heartbeat 60 --grace 1 --no-tag-output \
        --min-np 2 -H n1:2,n2:2,n3:2 sh -c 'echo >up.$HVD_RANK
            while [ ! -e go ]; do sleep 0.05; done; exec "$@"' sh \
        "$PROG/elastic_steps" $STEPS 5000 ptef
    wait_for '[ "$(count_files up.?)" -eq 6 ]'
    refuse n2 n3
    touch go
    finished 4
    tells 'host n3: its ranks and those on host n2 do not reach each other' \
        job.err
    cluster_down
}
