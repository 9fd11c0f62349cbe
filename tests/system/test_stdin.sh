# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Which ranks read hvdrun's stdin.

test_default_leaves_stdin_alone() {
    local line n=0
    seq 5 >lines
    while read -r line; do
        "$HVDRUN" -np 2 cat >got
        [ ! -s got ]
        n=$((n + 1))
        [ "$line" -eq $n ]
    done <lines
    [ $n -eq 5 ]
    (
        "$HVDRUN" -np 2 --stdin none cat
        cat
    ) <lines >got
    cmp lines got
}

test_one_rank() {
    head -c 300000 /dev/urandom >data
    "$HVDRUN" -np 3 --stdin 1 sh -c 'cat >got.$HVD_RANK' <data
    cmp data got.1
    [ ! -s got.0 ]
    [ ! -s got.2 ]
}

test_all_ranks() {
    local r
    head -c 300000 /dev/urandom >data
    "$HVDRUN" -np 3 --stdin all sh -c 'cat >got.$HVD_RANK' <data
    for r in 0 1 2; do
        cmp data got.$r
    done
}

test_large() {
    head -c 20000000 /dev/urandom >data
    "$HVDRUN" -np 2 --stdin all sh -c 'cat >got.$HVD_RANK' <data
    cmp data got.0
    cmp data got.1
    "$HVDRUN" -np 1 --stdin 0 --no-tag-output cat <data >got
    cmp data got
}

test_empty_and_closed() {
    "$HVDRUN" -np 1 --stdin 0 --no-tag-output cat </dev/null >got
    [ ! -s got ]
    "$HVDRUN" -np 1 --stdin 0 --no-tag-output cat <&- >got
    [ ! -s got ]
}

# The job ends even if nobody closes the pipe at its stdin.
test_unread_stdin_holds_nothing_up() {
    mkfifo pipe
    exec 7<>pipe
    "$HVDRUN" -np 2 --stdin 0 true <pipe
    "$HVDRUN" -np 2 --stdin all true <pipe
    exec 7>&-
}

test_ranks_that_do_not_read_do_not_starve_the_others() {
    head -c 3000000 /dev/urandom >data
    "$HVDRUN" -np 2 --stdin all sh -c '[ $HVD_RANK = 0 ] && exit 0
        cat >got.1' <data
    cmp data got.1
}

test_interactive() {
    mkfifo pipe
    start talk sh -c 'exec "$HVDRUN" -np 1 --stdin 0 --no-tag-output cat <pipe'
    exec 7>pipe
    echo one >&7
    wait_for 'grep -q one talk.out'
    echo two >&7
    wait_for 'grep -q two talk.out'
    exec 7>&-
    finish talk 0
}

test_slow_rank_bounds_memory() {
    local p
    mkfifo pipe
    start slow sh -c 'exec "$HVDRUN" -np 1 --stdin 0 sh -c "
        touch up; while [ ! -e go ]; do sleep 0.05; done; wc -c" <pipe'
    exec 7>pipe
    wait_for '[ -e up ]'
    head -c 50000000 /dev/zero >&7 &
    local feeder=$!
    exec 7>&-
    wait_for '[ "$(sed -n "s/^rchar: //p" /proc/$(job_pids slow hvdrun)/io)" -gt 300000 ]'
    sleep 0.5
    for p in $(job_pids slow hvdrun) $(job_pids slow hvd-agent); do
        sanitized || [ "$(rss_kib "$p")" -lt 32768 ] ||
            fail "pid $p holds $(rss_kib "$p") KiB"
    done
    touch go
    wait $feeder
    finish slow 0
    grep -q 50000000 slow.out
}
