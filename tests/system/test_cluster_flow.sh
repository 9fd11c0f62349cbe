# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Output and input between hosts: much output, slow readers, stdin, any byte.

# hvdrun prints every line of 16 ranks whole, in the order of each rank.
test_flow_many_lines() {
    local lines=20000 rank
    sanitized && lines=2000
    cluster_up 4
    login "$HVDRUN" -H 'n[1-4]:4' "$PROG/actor" lines $lines 100 >out 2>err
    [ ! -s err ] || fail "$(cat err)"
    [ "$(wc -l <out)" -eq $((lines * 16)) ]
    for rank in 0 5 15; do
        sed -n "s/^\[$rank\]<stdout>:$rank \([0-9]*\) .*/\1/p" out |
            diff -q - <(seq 0 $((lines - 1)))
    done
    ! grep -Evq '^\[[0-9]*\]<stdout>:[0-9]+ [0-9]+ [a-z]+$' out ||
        fail "torn: $(grep -Ev '^\[[0-9]*\]<stdout>:[0-9]+ [0-9]+ [a-z]+$' \
            out | head -n 2)"
    cluster_down
}

# When nobody reads hvdrun's output, the ranks block and the memory of hvdrun
# and its agents stays bounded.
test_flow_unread_output() {
    local rss
    sanitized && skip "sanitizers need more memory"
    cluster_up 2
    mkfifo pipe
    start_on login job sh -c 'exec "$@" >pipe' x "$HVDRUN" --grace 1 \
        -H n1:4,n2:4 "$PROG/actor" flood "$PWD/written" 10000
    exec 7<pipe
    wait_for '[ "$(count_files written.?)" -eq 8 ]'
    sleep 3
    cat written.* >before
    sleep 1
    cat written.* | diff before - || fail "ranks go on writing"
    rss=$(rss_kib "$(the job hvdrun)")
    [ "$rss" -le 81920 ] || fail "hvdrun: $rss KiB"
    for rss in $(on n2 ps -eo rss=,args= | awk '/hvd-agent/ { print $1 }'); do
        [ "$rss" -le 40960 ] || fail "agent: $rss KiB"
    done
    kill -TERM "$(the job hvdrun)"
    cat <&7 >rest
    finish job 143
    exec 7<&-
    cluster_down
}

# A reader that starts late still gets everything that the ranks wrote.
test_flow_slow_reader() {
    local mib=4
    sanitized && mib=1
    cluster_up 2
    mkfifo pipe
    start_on login job sh -c 'exec "$@" >pipe' x "$HVDRUN" --no-tag-output \
        -H n1:2,n2:2 "$PROG/actor" flood "$PWD/written" $mib
    exec 7<pipe
    sleep 1
    cat <&7 >out
    finish job 0
    exec 7<&-
    [ "$(wc -l <out)" -eq $((mib * 1024 * 4)) ]
    [ "$(grep -c '^3 ' out)" -eq $((mib * 1024)) ]
    cluster_down
}

# A rank that writes without pause does not hold back the output of other
# hosts.
test_flow_one_loud_host() {
    cluster_up 2
    start_on login job "$HVDRUN" --grace 1 -H n1,n2 sh -c '
        [ $HVD_RANK = 0 ] && exec yes; echo "soft voice"; touch said
        exec sleep 1000'
    wait_for 'grep -q "soft voice" job.out'
    kill -INT "$(the job hvdrun)"
    finish job 130
    cluster_down
}

test_flow_much_stderr() {
    cluster_up 1
    expect_exit 0 login "$HVDRUN" --no-tag-output -H n1 \
        sh -c 'seq 300000 >&2; seq 10'
    [ "$(wc -l <err)" -eq 300000 ]
    [ "$(wc -l <out)" -eq 10 ]
    cluster_down
}

test_flow_stdin_to_one_rank() {
    local launcher
    cluster_up 2
    head -c 20000000 /dev/urandom >data
    for launcher in ssh2 openssh; do
        rm -f got.*
        login "$HVDRUN" --launcher $launcher --stdin 1 -H n1,n2 \
            sh -c 'cat >got.$HVD_RANK' <data
        cmp data got.1
        [ ! -s got.0 ]
    done
    cluster_down
}

test_flow_stdin_to_all_ranks() {
    local rank
    cluster_up 2
    head -c 3000000 /dev/urandom >data
    login "$HVDRUN" --stdin all -H n1:2,n2:2 sh -c 'cat >got.$HVD_RANK' <data
    for rank in 0 1 2 3; do
        cmp data got.$rank
    done
    cluster_down
}

# hvdrun does not read stdin unless asked to, so a `while read` loop around it
# gets all its lines.
test_flow_stdin_is_left_alone() {
    local n=0
    cluster_up 1
    seq 5 >lines
    while read -r _; do
        login "$HVDRUN" -H n1 cat
        login "$HVDRUN" --launcher openssh -H n1 cat
        n=$((n + 1))
    done <lines
    [ $n -eq 5 ]
    cluster_down
}

test_flow_any_byte() {
    local launcher
    cluster_up 1
    head -c 5000000 /dev/urandom >data
    for launcher in ssh2 openssh; do
        login "$HVDRUN" --launcher $launcher --no-tag-output -H n1 \
            cat "$PWD/data" >out
        cmp data out
        login "$HVDRUN" --launcher $launcher --no-tag-output -H n1 \
            sh -c 'cat data >&2' 2>err
        cmp data err
    done
    cluster_down
}

# A last line without a line end is printed, and with one.
test_flow_last_line_without_an_end() {
    cluster_up 2
    expect_exit 0 login "$HVDRUN" -H n1,n2 printf 'one\ntwo'
    [ "$(sort out | tr '\n' ';')" = \
        '[0]<stdout>:one;[0]<stdout>:two;[1]<stdout>:one;[1]<stdout>:two;' ] ||
        fail "$(cat out)"
    cluster_down
}

test_flow_output_files() {
    cluster_up 2
    expect_exit 0 login "$HVDRUN" --output-filename files -H n1:5,n2:6 \
        sh -c 'echo out; echo err >&2'
    [ "$(cat files/rank.00/stdout)" = out ]
    [ "$(cat files/rank.10/stderr)" = err ]
    cluster_down
}

# When the reader of hvdrun's output goes away, the job ends on every host
# without further output.
test_flow_broken_pipe() {
    cluster_up 2
    start_on login job bash -c '"$@" | head -n 1; exit ${PIPESTATUS[0]}' x \
        "$HVDRUN" --grace 1 -H n1,n2 yes
    finish job
    [ "$status" -ne 0 ]
    [ "$(wc -l <job.out)" -eq 1 ]
    cluster_down
}
