# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sharded memory of elastic jobs: whichever ranks are killed, leave or join, and
# whenever, each byte is that of one commit, the same for all; or the ranks say
# which shard is lost.  prog/elastic_shards.c checks all values.
#
# HVD_TEST_ELASTIC_JOBS=300 makes a storm of that many jobs (with
# HVD_TEST_LIMIT above its time).

# start_shards HOSTS STEPS[:GENERATION] COUNT FLAGS [OPTION]...: starts a job on
# hosts that this machine plays, and waits until its ranks have committed.
start_shards() {
    rm -f job.out job.err
    start job "$HVDRUN" -H "$1" --rsh 'env PLAYED={host}' --min-np 1 \
        --no-tag-output "${@:5}" "$PROG/elastic_shards" "$2" "$3" "f$4"
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
}

ranks() {
    job_pids job elastic_shards
}

# rank_pids RANK...: prints the pids of ranks, by their first numbers.
rank_pids() {
    local p r
    for r in "$@"; do
        for p in $(ranks); do
            if grep -szqx "HVD_RANK=$r" "/proc/$p/environ"; then
                echo "$p"
            fi
        done
    done
}

# finished RANKS STEPS: fails unless the job ends well, with that many ranks
# that have done all steps, and as many as the others.
finished() {
    finish job 0
    all_done "$1" "$2" || fail "not $1 ranks finished: $(cat job.out job.err)"
}

# Shards of one page, and of some MiB, whose copies take most of the time.
test_a_rank_is_killed() {
    local victim count
    for count in 1000 1000000; do
        for victim in 0 3; do
            start_shards a:2,b:2 150:2 $count p
            kill -KILL "$(rank_pids $victim)"
            finished 3 150
        done
    done
}

test_on_one_host() {
    start_shards localhost:3 500:2 100000 p
    kill -KILL "$(rank_pids 1)"
    finished 2 500
    start_shards localhost:3 500:2 100000 p -x HVD_FORCE_TCP=1
    kill -KILL "$(rank_pids 2)"
    finished 2 500
}

test_a_host_is_killed() {
    start_shards a:2,b:2,c:2 400:2 200000 p
    rank_pids 2 3 | xargs kill -KILL
    finished 4 400
}

# A rank and the one that keeps its copy: all say so, and name them.
test_a_pair_is_killed() {
    start_shards a:2,b:2 100000 10000 p
    rank_pids 1 3 | xargs kill -KILL
    finish job 3
    [ "$(grep -c '^lost hvd_sync: the shard of what was rank [13] is lost: both it and rank [13], which kept a copy, have ended' job.out)" -eq 2 ] ||
        fail "$(cat job.out job.err)"
    gone job
}

# As above, but one after the other, when new copies have been made.
test_one_after_the_other() {
    start_shards a:2,b:2 2000:3 10000 p
    kill -KILL "$(rank_pids 1)"
    wait_for 'grep -q "4 -> 3 ranks (generation 2)" job.err'
    wait_for 'grep -qx "working 3" job.out'
    kill -KILL "$(rank_pids 3)"
    wait_for 'grep -q "3 -> 2 ranks (generation 3)" job.err'
    finished 2 2000
}

# A rank that is started again gets the shard of its number.
test_restarts() {
    start_shards a:1,b:2 3000:3 10000 p --restart-failed 1
    kill -KILL "$(rank_pids 0)"
    wait_for 'grep -q "3 -> 2 ranks" job.err'
    wait_for 'grep -q "2 -> 3 ranks" job.err'
    finished 3 3000
}

test_a_spare_takes_over() {
    start_shards localhost:4 2000:2 10000 p -np 3 --spares 1
    wait_for '[ "$(ranks | wc -l)" -eq 4 ]'
    sleep 0.5
    kill -KILL "$(rank_pids 1)"
    wait_for 'grep -q "3 -> 3 ranks (generation 2)" job.err'
    finished 3 2000
}

# Ranks that are left out would take their shards with them.
test_np_multiple() {
    start job "$HVDRUN" -np 2 --min-np 2 --np-multiple 2 --no-tag-output \
        "$PROG/elastic_shards" 10 1000 fp
    finish job 1
    grep -q 'HVD_STATE_SHARDED would be lost with ranks that --np-multiple 2 leaves out' job.err
    "$HVDRUN" -np 2 --min-np 2 --np-multiple 1 --no-tag-output \
        "$PROG/elastic_shards" 10 1000 fp >one.out
}

# Two hosts that keep each other's shards leave together: these go to the ranks
# that stay, and no step is done again.
test_hosts_leave_together() {
    start_shards a:2,b:2,c:1,d:1 2000:2 30000 p --preempt-file going
    printf 'a 30\nb 30\n' >going.new
    mv going.new going
    wait_for '[ "$(grep -c "^removed [0-3] " job.out)" -eq 4 ]'
    [ "$(grep '^removed' job.out | cut -d' ' -f3 | sort -u | wc -l)" -eq 1 ]
    wait_for 'grep -q "6 -> 2 ranks (generation 2)" job.err'
    finished 2 2000
    absent 'killed' job.err
}

# The last rank that stays has all shards.
test_all_but_one_leave() {
    start_shards a:1,b:2,c:1 2000:2 30000 p --preempt-file going
    printf 'a 30\nb 30\n' >going.new
    mv going.new going
    wait_for 'grep -q "4 -> 1 ranks\? (generation 2)" job.err'
    finished 1 2000
}

# Kills of one or two ranks at random instants.  A job ends well, or says that
# a pair was lost.
test_storm() {
    local i victims
    for ((i = 0; i < ${HVD_TEST_ELASTIC_JOBS:-6}; i++)); do
        RANDOM=$i
        case $((i % 3)) in
        0) start_shards localhost:5 300 100000 p ;;
        1) start_shards a:2,b:2,c:2 300 50000 p ;;
        2) start_shards a:3,b:1 300 2000000 '' ;;
        esac
        for _ in 1 2; do
            sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
            read -rd "" -a victims <<<"$(ranks)" || :
            [ ${#victims[@]} -gt 0 ] || break
            kill -KILL "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null || :
        done
        finish job
        if [ "$status" -eq 0 ]; then
            grep -q '^done [0-9]* [0-9]* 300$' job.out
        else
            grep -q '^lost hvd_sync: the shard of what was rank' job.out
        fi || fail "storm $i: exit $status: $(cat job.out job.err)"
        absent '^elastic_shards: rank' job.err
        gone job || fail "storm $i: something is left"
    done
}
