# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Elastic jobs on several hosts: the job goes on after the loss of a rank, an
# agent or a whole host.  Each rank checks all its sums (prog/elastic_steps.c).

STEPS=3000

# Starts 6 ranks on three hosts, and waits until all of them work.
start_steps() {
    cluster_up 3
    start_on login job "$HVDRUN" --heartbeat 2 --grace 1 --no-tag-output \
        --min-np 2 -H n1:2,n2:2,n3:2 "$@" \
        "$PROG/elastic_steps" $STEPS 5000 ptf
    wait_for 'grep -q "^working" job.out'
}

# finished RANKS: fails unless the job ends well, with that many ranks that have
# done all steps.
finished() {
    finish job 0
    [ "$(grep -c "^done [0-9]* $1 $STEPS\$" job.out)" -eq "$1" ] ||
        fail "not $1 ranks finished: $(cat job.out job.err)"
    tells "finished with $1 of 6 ranks" job.err
}

# Prints the pids of the ranks on a host.
ranks_on() {
    on "$1" ps -eo pid=,args= | awk '/[p]rog\/elastic_steps/ { print $1 }'
}

test_elastic_hosts_ranks() {
    start_steps
    kill_on n2 KILL "$(ranks_on n2 | head -n 1)"
    wait_for 'grep -q "6 -> 5 ranks (generation 2)" job.err'
    kill_on n1 KILL "$(ranks_on n1 | head -n 1)" # rank 0
    wait_for 'grep -q "5 -> 4 ranks (generation 3)" job.err'
    # Both ranks of a host, so that one host has no member any more.
    kill_on n3 KILL "$(ranks_on n3)"
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
