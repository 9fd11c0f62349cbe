# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Elastic jobs (--min-np), of programs that do not use libhvd: the job goes on
# while enough ranks are left, and says which it has lost.

# Rank 1 kills itself; the others end later.
one_dies='
    if [ "$HVD_RANK" = 1 ]; then echo "the last words" >&2; kill -9 $$; fi
    while [ ! -e go ]; do sleep 0.05; done; echo done'

test_the_others_finish() {
    start job "$HVDRUN" -np 3 --min-np 2 sh -c "$one_dies"
    # The user learns of the death when it happens.
    wait_for 'grep -q "the last words" job.err &&
        grep -q "^hvdrun: rank 1 on host .* killed by signal 9" job.err'
    touch go
    finish job 0
    grep -Eq '^hvdrun: rank 1 on host [^ ]+ \(pid [0-9]+\): killed by signal 9 \(SIGKILL\)' job.err
    grep -A1 "^hvdrun: last lines of rank 1's stderr:" job.err |
        grep -qx '  the last words'
    grep -Eq '^hvdrun: finished with 2 of 3 ranks; lost: rank 1 \(killed by signal 9 \(SIGKILL\)' job.err
    [ "$(grep -c '^hvdrun: ' job.err)" -eq 3 ]
    [ "$(sort job.out)" = $'[0]<stdout>:done\n[2]<stdout>:done' ]
}

test_too_few_are_left() {
    expect_exit 137 "$HVDRUN" -np 3 --min-np 3 --grace 2 sh -c "$one_dies"
    grep -q '^hvdrun: 2 ranks are left, fewer than --min-np 3: the job ends' err
    grep -q '^hvdrun: rank 1 on host .* failed: killed by signal 9' err
    grep -q '^hvdrun: ended the other 2 ranks; exit code 137$' err
    absent 'done' out
}

# The first of several failures is the cause of the end.
test_the_first_failure_is_the_cause() {
    expect_exit 10 "$HVDRUN" -np 4 --min-np 2 --grace 2 sh -c '
        case $HVD_RANK in 0) ;; 1) sleep 0.5 ;; 2) sleep 1 ;; *) sleep 1000 ;; esac
        exit "1$HVD_RANK"'
    grep -q '^hvdrun: rank 0 on host .* exit code 10$' err
    grep -q '^hvdrun: rank 1 on host .* exit code 11$' err
    grep -q '^hvdrun: rank 0 on host .* failed: exit code 10$' err
    grep -q '^hvdrun: rank 1 failed too: exit code 11; rank 2 failed too' err
}

# A rank that fails when the others have finished is one of those lost.
test_failure_after_success() {
    expect_exit 0 "$HVDRUN" -np 2 --min-np 1 sh -c '
        [ "$HVD_RANK" = 0 ] || { sleep 0.5; exit 3; }'
    grep -q '^hvdrun: finished with 1 of 2 ranks; lost: rank 1 (exit code 3)$' err
    expect_exit 3 "$HVDRUN" -np 2 --min-np 1 sh -c 'exit 3'
}

test_nothing_is_said_if_none_fails() {
    expect_exit 0 "$HVDRUN" -np 3 --min-np 1 true
    [ ! -s err ]
}

test_a_signal_ends_it() {
    start job "$HVDRUN" -np 3 --min-np 1 --grace 1 sh -c "$one_dies"
    wait_for 'grep -q "^hvdrun: rank 1 on host" job.err'
    kill -TERM "$pid"
    finish job 143
    gone job
}

test_what_is_refused() {
    refused '--min-np: 0 is out of range' -np 3 --min-np 0
    refused '--min-np 9: the job has only 3 ranks' -np 3 --min-np 9
    refused '--min-np 9: the job has only 4 ranks' -H localhost:4 --min-np 9
    refused '--max-np 2: the job has 3 ranks already' -np 3 --max-np 2
    refused '--min-np cannot be used with --mpi' -np 3 --min-np 2 --mpi
    refused '--min-np .* --wireup: an MPI program' -np 3 --min-np 2 --wireup pmix
    refused '--min-np .* --timeline-filename' -np 3 --min-np 2 --timeline t
    refused '--host-discovery-script: it excludes -H' -H a:3 --min-np 2 \
        --host-discovery-script ./hosts
    refused '--watch: give a --hostfile' -np 3 --watch
}

# Starts a job of three ranks that do steps together, and sets rank0, rank1 and
# rank2 to their pids.
start_three() {
    start job "$HVDRUN" -np 3 --min-np 1 --grace 1 --no-tag-output "$@" \
        "$PROG/elastic_steps" 1000000 100 fp
    wait_for 'grep -q "^working" job.out'
    # shellcheck disable=SC2046 # the agent starts the ranks in order
    set -- $(job_pids job elastic_steps | sort -n)
    rank0=$1 rank1=$2 rank2=$3
}

# A rank that is stopped does not become ready when another has died.
test_elastic_timeout() {
    start_three --elastic-timeout 1
    kill -STOP "$rank1"
    kill -KILL "$rank2"
    finish job 124
    grep -Eq "^hvdrun: ranks have waited in hvd_sync for 1 s \(--elastic-timeout\); not there: rank 1 on host [^ ]+ \(pid $rank1\)$" job.err
    alive "$rank0" && fail 'rank 0 is left'
    gone job
}

test_reset_limit() {
    start_three --reset-limit 1
    kill -KILL "$rank0"
    wait_for 'grep -q "^hvdrun: 3 -> 2 ranks (generation 2), stopped for" job.err'
    kill -KILL "$rank1"
    finish job 1
    grep -q '^hvdrun: the job ends, because --reset-limit 1 allows no generation 3: rank 1 on host' job.err
    alive "$rank2" && fail 'rank 2 is left'
    gone job
}
