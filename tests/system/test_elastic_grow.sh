# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Elastic jobs that get ranks and hosts while they run: --max-np, discovery,
# --watch, --spares.  Each rank checks all its sums (prog/elastic_steps.c).

# discover HOST...: makes ./d print these hosts, one a line.
discover() {
    printf '%s\n' "$@" >hosts.new
    mv hosts.new hosts
    [ -e d ] || { printf '#!/bin/sh\ncat hosts\n' >d && chmod +x d; }
}

# start_steps STEPS OPTION...: starts a job with discovery, and waits until its
# ranks work.
start_steps() {
    start job "$HVDRUN" --discovery-interval 0.1 --grace 1 --no-tag-output \
        "${@:2}" "$PROG/elastic_steps" "$1" 1000 "fp${flags:-}"
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
}

ranks() {
    job_pids job elastic_steps | sort -n
}

# finished RANKS STEPS: fails unless the job ends well, with that many ranks
# that have done all steps.
finished() {
    finish job 0
    [ "$(grep -c "^done [0-9]* $1 $2\$" job.out)" -eq "$1" ] ||
        fail "not $1 ranks finished: $(cat job.out job.err)"
    gone job
}

test_slots_of_this_host() {
    start_steps 800 -np 2 --max-np 4
    finished 4 800
    grep -q '^hvdrun: host .*: starts 2 ranks, to join at the next commit$' job.err
}

test_discovered_slots() {
    discover localhost:2
    start_steps 2500 -np 2 --min-np 2 --max-np 4 --host-discovery-script ./d
    sleep 0.3
    absent starts job.err
    discover '# one more' '' localhost:3
    wait_for 'grep -q "2 -> 3 ranks (generation 2)" job.err'
    discover localhost:9
    wait_for 'grep -q "3 -> 4 ranks (generation 3)" job.err'
    finished 4 2500
}

# A host is named with fewer slots, and with more again.
test_slots_that_go() {
    discover localhost:4
    start_steps 4000 -np 4 --min-np 2 --max-np 4 --host-discovery-script ./d
    discover localhost:3
    wait_for 'grep -q "4 -> 3 ranks (generation 2)" job.err'
    grep -qx 'hvdrun: host localhost has 3 slots now: 1 rank leaves at the next commit' job.err
    discover localhost:1 # --min-np 2
    wait_for 'grep -q "3 -> 2 ranks (generation 3)" job.err'
    discover localhost:4
    wait_for 'grep -q "[23] -> 4 ranks" job.err'
    finished 4 4000
    absent lost job.err
}

# Nobody waits for a rank that is slow to start, and one that has not come in
# time is ended.
test_slow_newcomers() {
    discover localhost:1
    # shellcheck disable=SC2016 # the ranks' shell expands it
    start job "$HVDRUN" --discovery-interval 0.1 --grace 1 --no-tag-output \
        -np 1 --max-np 2 --host-discovery-script ./d sh -c \
        '[ "$HVD_RANK" = 0 ] || sleep 1000; exec "$@"' - \
        "$PROG/elastic_steps" 1000 1000 fp
    wait_for 'grep -q "^working" job.out'
    discover localhost:2
    wait_for 'grep -q "starts 1 rank" job.err'
    finished 1 1000
}

# The first answer decides whether the job can start.
test_discovery_fails_at_first() {
    local d="$HVDRUN -np 1 --host-discovery-script"
    expect_exit 2 $d 'echo oh no >&2; exit 3' true
    grep -qx "hvdrun: error: --host-discovery-script 'echo oh no >&2; exit 3': exit code 3: oh no" err
    expect_exit 2 $d 'echo "<html>"' true
    grep -q "its output:1:" err
    expect_exit 2 $d ./none true
    grep -q 'exit code 127' err
    expect_exit 2 $d 'yes localhost' true
    grep -q 'it printed more than 1 MiB' err
    expect_exit 2 $d 'kill -9 $$' true
    grep -q 'killed by signal 9' err
    expect_exit 2 "$HVDRUN" --elastic-timeout 0.5 -np 3 \
        --host-discovery-script 'echo localhost:2' true
    grep -q 'has found 2 of 3 slots within 0.5 s (--elastic-timeout)' err
}

# The job starts when there are enough slots; a signal ends the wait.
test_waits_for_slots() {
    discover '# none yet'
    start job "$HVDRUN" --discovery-interval 0.1 --no-tag-output -np 2 \
        --host-discovery-script ./d echo hello
    sleep 0.3
    discover localhost:2
    finish job 0
    [ "$(grep -c hello job.out)" -eq 2 ]
    discover '# none'
    start job "$HVDRUN" -np 2 --host-discovery-script ./d true
    sleep 0.3
    kill -TERM "$pid"
    finish job 143
}

# Later, the last good answer stays, with one warning until the next.
test_discovery_fails_later() {
    discover localhost:2
    start_steps 2500 -np 2 --max-np 3 --host-discovery-script ./d
    discover localhost:2 a:b:c
    wait_for 'grep -q "^hvdrun: warning: --host-discovery-script: .*the hosts found before" job.err'
    sleep 0.5
    [ "$(grep -c warning job.err)" -eq 1 ]
    discover localhost:3
    wait_for 'grep -q "2 -> 3 ranks" job.err'
    finished 3 2500
}

# A rank that fails is replaced after a pause, by a rank of the same host.
test_failed_ranks_are_replaced() {
    discover localhost:3
    start_steps 4000 -np 3 --min-np 2 --blacklist-cooldown-range 1 2 \
        --host-discovery-script ./d
    kill -KILL "$(ranks | tail -n 1)"
    wait_for 'grep -q "3 -> 2 ranks (generation 2)" job.err'
    grep -q '^hvdrun: host localhost gets no new ranks for [12] s$' job.err
    wait_for 'grep -q "2 -> 3 ranks (generation 3)" job.err'
    finished 3 4000
}

# Ranks wait while there are fewer than --min-np.
test_waits_for_hosts() {
    discover localhost:2
    start_steps 4000 -np 2 --min-np 2 --blacklist-cooldown-range 1 1 \
        --host-discovery-script ./d
    kill -KILL "$(ranks | head -n 1)"
    wait_for 'grep -q "^hvdrun: 1 rank, --min-np is 2: waiting for hosts (up to 600 s)" job.err'
    wait_for 'grep -q "2 -> 2 ranks (generation 2), stopped for" job.err'
    finished 2 4000
}

test_waits_in_vain() {
    discover localhost:2
    start_steps 100000 -np 2 --min-np 2 --elastic-timeout 1 \
        --blacklist-cooldown-range 60 60 --host-discovery-script ./d
    kill -KILL "$(ranks | head -n 1)"
    finish job 124
    grep -q 'have waited in hvd_sync for 1 s (--elastic-timeout); not there: hosts for more than 1 rank$' job.err
    gone job
}

test_watched_hostfile() {
    echo localhost slots=2 >hosts
    start_steps 2000 -np 2 --max-np 3 --hostfile hosts --watch
    echo localhost slots=3 >hosts.new
    mv hosts.new hosts
    wait_for 'grep -q "2 -> 3 ranks (generation 2)" job.err'
    finished 3 2000
}

# A spare takes over at once; at the end those that are left are ended.
test_spares() {
    start_steps 3000 -np 2 --spares 2
    wait_for 'grep -q "starts 2 spare ranks$" job.err'
    sleep 0.5
    absent -- '-> 3 ranks' job.err
    kill -KILL "$(ranks | head -n 1)"
    wait_for 'grep -q "2 -> 2 ranks (generation 2), stopped for [0-9.]* ms" job.err'
    finished 2 3000
}

# Ranks beyond a multiple wait until there are more.
test_multiples() {
    local flags=o
    discover localhost:4
    start_steps 4000 -np 4 --min-np 2 --max-np 4 --np-multiple 2 \
        --blacklist-cooldown-range 1 1 --host-discovery-script ./d
    kill -KILL "$(ranks | sed -n 2p)"
    wait_for 'grep -q "4 -> 2 ranks (generation 2)" job.err'
    wait_for 'grep -q "2 -> 4 ranks (generation 3)" job.err'
    finished 4 4000
}

# An answer without any host changes nothing, but the ranks are not started
# again.
test_no_host_is_listed() {
    discover localhost:2
    start_steps 3000 -np 2 --min-np 1 --restart-failed 3 \
        --host-discovery-script ./d
    discover '# none'
    wait_for 'grep -q "^hvdrun: no host is listed any more: the ranks stay where they are$" job.err'
    kill -KILL "$(ranks | tail -n 1)"
    wait_for 'grep -q "2 -> 1 ranks (generation 2)" job.err'
    finished 1 3000
    absent 'starts' job.err
}

# Another name of a host is no other host.
test_another_name() {
    discover localhost:2
    start_steps 3000 -np 2 --max-np 3 --host-discovery-script ./d
    discover 127.0.0.1:3
    wait_for 'grep -q "2 -> 3 ranks (generation 2)" job.err'
    finished 3 3000
    absent goes job.err
}

# start_played STEPS OPTION...: as start_steps, on hosts that this machine plays.
start_played() {
    start_steps "$1" --rsh 'env PLAYED={host}' --host-discovery-script ./d \
        "${@:2}"
}

# Slots that a host has no more are replaced on another.
test_slots_that_move() {
    discover a:3
    start_played 4000 -np 3 --min-np 3 --max-np 3
    discover a:1 b:2
    wait_for 'grep -q "3 -> 3 ranks (generation 2)" job.err'
    grep -qx 'hvdrun: host a has 1 slot now: 2 ranks leave at the next commit' job.err
    finished 3 4000
    absent lost job.err
}

# The ranks of a host that is not listed any more leave at a commit.  If it is
# listed again, it gets ranks again, also if some have failed there.
test_withdrawn_hosts() {
    discover a:2 b:2
    start_played 5000 -np 4 --min-np 2 --blacklist-cooldown-range 1 1
    discover a:2
    wait_for 'grep -q "4 -> 2 ranks (generation 2)" job.err'
    grep -qx 'hvdrun: host b goes (no longer listed): its 2 ranks leave at the next commit' job.err
    discover a:2 b:2
    wait_for 'grep -q -- "-> 4 ranks" job.err'
    kill -KILL "$(ranks | tail -n 1)"
    wait_for 'grep -q "4 -> 3 ranks" job.err'
    discover a:2
    wait_for 'grep -q "[34] -> 2 ranks" job.err'
    : >job.err
    discover a:2 b:2
    wait_for 'grep -q -- "-> 4 ranks" job.err'
    finished 4 5000
    absent lost job.err
}

# Other hosts replace it, also all hosts at once, though all ranks are needed.
test_replaced_hosts() {
    discover a:2 b:2
    start_played 4000 -np 4 --min-np 4
    discover a:2 c:2
    wait_for 'grep -q "4 -> 4 ranks (generation 2)" job.err'
    discover d:2 e:2
    wait_for 'grep -q "host [ac] goes .*: its 2 ranks leave" job.err'
    wait_for '[ "$(grep -c "goes (no longer listed)" job.err)" -eq 3 ]'
    wait_for 'grep -q "4 -> 4 ranks (generation 4)" job.err'
    finished 4 4000
    absent lost job.err
}

# Another host replaces the only one, though no more ranks may work.
test_the_only_host_is_replaced() {
    discover a:2
    start_played 1000000 -np 2
    discover b:2
    wait_for 'grep -q "host a goes (no longer listed): its 2 ranks leave" job.err'
    wait_for '[ "$(ranks | wc -l)" -eq 2 ]'
    # Rank 0 of another job would begin with step 0.
    [ "$(grep -c '^working' job.out)" -eq 1 ] || fail "$(cat job.err)"
    absent spare job.err
    kill -INT "$pid"
    finish job 130
    gone job
}

test_withdrawn_from_a_hostfile() {
    printf 'a slots=1\nb slots=1\n' >hosts
    start_steps 3000 -np 2 --min-np 1 --hostfile hosts --watch \
        --rsh 'env PLAYED={host}'
    echo 'b slots=1' >hosts.new
    mv hosts.new hosts
    wait_for 'grep -q "host a goes (no longer listed): its 1 rank leaves" job.err'
    finished 1 3000
}

# A job that ends while ranks are being started for it ends well.
test_end_while_ranks_start() {
    local i
    for ((i = 0; i < 20; i++)); do
        expect_exit 0 "$HVDRUN" -np 1 --min-np 1 --max-np 4 true
    done
}
