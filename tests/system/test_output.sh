# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun prints what ranks write: in whole lines, every byte, with nothing lost
# and in bounded memory.

# Prints file $1 without the tags of ranks.
untag() {
    LC_ALL=C sed 's/\[[0-9]*\]<std[a-z]*>://g' "$1"
}

test_tags_and_streams() {
    expect_exit 0 "$HVDRUN" -np 2 sh -c 'echo "out $HVD_RANK"
        echo "err $HVD_RANK" >&2'
    [ "$(sort out)" = '[0]<stdout>:out 0
[1]<stdout>:out 1' ]
    [ "$(sort err)" = '[0]<stderr>:err 0
[1]<stderr>:err 1' ]
}

test_no_tag_output() {
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output echo line
    [ "$(cat out)" = 'line
line' ]
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --tag-output echo line
    [ "$(cat out)" = '[0]<stdout>:line' ]
}

test_timestamp_comes_first() {
    expect_exit 0 "$HVDRUN" -np 2 -prefix-timestamp echo line
    [ "$(grep -Ec '^.*[0-9]{2}:[0-9]{2}:[0-9]{2}.*\[[01]\]<stdout>:line$' \
        out)" -eq 2 ]
    expect_exit 0 "$HVDRUN" -np 1 --prefix-output-with-timestamp echo line
    grep -Eq '[0-9]{2}:[0-9]{2}:[0-9]{2}.*\[0\]<stdout>:line$' out
}

test_no_final_newline_is_not_glued() {
    local _
    for _ in 1 2 3; do
        expect_exit 0 "$HVDRUN" -np 4 printf abc
        [ "$(sort out)" = '[0]<stdout>:abc
[1]<stdout>:abc
[2]<stdout>:abc
[3]<stdout>:abc' ]
    done
    expect_exit 3 "$HVDRUN" -np 1 sh -c 'printf last >&2; exit 3'
    grep -q '^\[0\]<stderr>:last$' err
}

# Each carriage return of a progress bar reaches the terminal.
test_carriage_returns_pass() {
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output printf '1%%\r2%%\r3%%\n'
    printf '1%%\r2%%\r3%%\n' | cmp - out
    expect_exit 0 "$HVDRUN" -np 2 printf '1%%\r2%%\r3%%\n'
    untag out | tr -d '\n' >flat
    printf '1%%\r2%%\r3%%1%%\r2%%\r3%%' | cmp - flat
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output printf 'dos\r\nlines\r\n'
    printf 'dos\r\nlines\r\n' | cmp - out
}

# A progress bar without newlines shows while the rank runs, not at its end.
test_progress_is_live() {
    start bar "$HVDRUN" -np 1 --no-tag-output sh -c 'printf "50%%\r"
        while [ ! -e go ]; do sleep 0.05; done; printf "100%%\n"'
    wait_for 'grep -q 50% bar.out'
    touch go
    finish bar 0
    grep -q 100% bar.out
}

test_lines_are_live() {
    start live "$HVDRUN" -np 2 sh -c 'echo early
        while [ ! -e go ]; do sleep 0.05; done'
    wait_for '[ "$(grep -c early live.out)" -eq 2 ]'
    touch go
    finish live 0
}

test_bytes_written_one_by_one() {
    # "grüße", a four-byte character, invalid UTF-8, NUL, escape
    local hex=6772c3bcc39f65f09f9880fffe80c30001021b5b6d0a
    expect_exit 0 "$HVDRUN" -np 1 "$PROG/actor" bytes $hex
    {
        printf '[0]<stdout>:gr\xc3\xbc\xc3\x9fe\xf0\x9f\x98\x80'
        printf '\xff\xfe\x80\xc3\x00\x01\x02\x1b[m\n'
    } | cmp - out
}

test_empty_lines_and_blanks() {
    expect_exit 0 "$HVDRUN" -np 1 printf '\n\n  \n\tx\n'
    printf '[0]<stdout>:\n[0]<stdout>:\n[0]<stdout>:  \n[0]<stdout>:\tx\n' |
        cmp - out
}

test_long_lines() {
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/actor" lines 3 1000000
    [ "$(wc -l <out)" -eq 6 ]
    [ "$(grep -Ec '^\[([01])\]<stdout>:\1 [0-2] [a-z]*$' out)" -eq 6 ]
    [ "$(untag out | wc -c)" -eq 6000000 ]
}

# A line of 100 MB without an end passes whole, though too long to be kept in
# memory.
test_endless_line() {
    local pid
    mkfifo pipe
    start endless sh -c 'exec "$HVDRUN" -np 1 --no-tag-output \
        head -c 100000000 /dev/zero >pipe'
    wc -c <pipe >bytes
    finish endless 0
    [ "$(cat bytes)" -eq 100000000 ]
}

test_many_long_unfinished_lines() {
    local np=64
    sanitized && np=8
    expect_exit 0 "$HVDRUN" -np $np sh -c 'head -c 1000000 /dev/zero |
        tr "\0" x; echo'
    [ "$(untag out | tr -d '\n' | wc -c)" -eq $((np * 1000000)) ]
    absent '[^x]\[' out
}

# Each line of 64 ranks is printed once, whole, in its rank's order.
test_many_ranks_many_lines() {
    local np=64 n=500
    sanitized && np=16
    full && n=10000
    expect_exit 0 "$HVDRUN" -np $np "$PROG/actor" lines $n 120
    [ "$(wc -l <out)" -eq $((np * n)) ]
    awk -v n=$n -F'[][ :>]' '
        { rank = $2; if ($5 != rank || $6 != next_line[rank]++ ||
              length($0) != 119 + length(rank) + 11) bad++ }
        END { for (r in next_line) if (next_line[r] != n) bad++; exit bad > 0 }
    ' out || fail "torn, lost or reordered lines"
}

test_output_right_before_the_end() {
    local _
    for _ in 1 2 3 4 5; do
        expect_exit 0 "$HVDRUN" -np 8 "$PROG/actor" lines 1000 80
        [ "$(wc -l <out)" -eq 8000 ]
    done
}

test_output_before_a_crash_is_kept() {
    expect_exit 139 "$HVDRUN" -np 1 sh -c \
        'echo first; echo second >&2; kill -SEGV $$'
    grep -q '^\[0\]<stdout>:first$' out
    grep -q '^\[0\]<stderr>:second$' err
}

# When nobody reads hvdrun's output, the ranks block and hvdrun and its agent
# do not grow.  When somebody reads again, everything arrives.
test_slow_reader() {
    local before=-1 now pid
    mkfifo pipe
    start slow sh -c 'exec "$HVDRUN" -np 2 --no-tag-output \
        "$PROG/actor" flood sent 64 >pipe'
    exec 7<pipe
    wait_for '[ -s sent.0 ] && [ -s sent.1 ]'
    while now=$(cat sent.0 sent.1 | awk '{n += $1} END {print n}') &&
        [ "$now" -ne "$before" ]; do
        before=$now
        sleep 0.5
    done
    [ "$now" -lt $((24 << 20)) ] || fail "$now bytes written, none read"
    for pid in $(job_pids slow hvdrun) $(job_pids slow hvd-agent); do
        sanitized || [ "$(rss_kib "$pid")" -lt 32768 ] ||
            fail "pid $pid holds $(rss_kib "$pid") KiB"
    done
    wc -l <&7 >lines
    exec 7<&-
    finish slow 0
    [ "$(cat lines)" -eq $((2 << 16)) ]
}

# A rank's death ends the job even while its output is stuck.
test_failure_with_a_stuck_reader() {
    mkfifo pipe
    start stuck sh -c 'exec "$HVDRUN" -np 2 --grace 1 sh -c "
        [ \$HVD_RANK = 1 ] && while [ ! -e die ]; do sleep 0.05; done && exit 7
        exec \"\$PROG/actor\" flood sent 64" >pipe'
    exec 7<pipe
    wait_for '[ -s sent.0 ]'
    touch die
    wait_for '[ -z "$(job_pids stuck actor)" ]'
    cat <&7 >/dev/null
    exec 7<&-
    finish stuck 7
    grep -q 'rank 1' stuck.err
}

test_reader_goes_away() {
    local got=0
    ("$HVDRUN" -np 2 yes || echo $? >status) | head -n 1 >first
    grep -q '<stdout>:y$' first
    [ -s status ] || fail "hvdrun succeeded"
}

test_closed_stdout() {
    local got=0
    "$HVDRUN" -np 1 true >&- 2>err
    "$HVDRUN" -np 2 true <&- >&- 2>&-
}

test_stdout_and_stderr_keep_apart() {
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/actor" lines 200 100
    [ ! -s err ]
}

test_output_filename_widths() {
    local np
    for np in 1 2 10 11 101; do
        "$HVDRUN" -np $np --output-filename out$np true
    done
    ls -d out*/rank.* | sort >dirs
    {
        for np in 1:1 2:1 10:1 11:2 101:3; do
            seq -f "out${np%:*}/rank.%0${np#*:}g" 0 $((${np%:*} - 1))
        done
    } | sort | diff - dirs
    [ -f out1/rank.0/stdout ]
    [ -f out1/rank.0/stderr ]
}

test_output_filename_content() {
    expect_exit 0 "$HVDRUN" -np 2 --output-filename a/b/logs sh -c '
        printf "out $HVD_RANK\n\377\0no end"; echo "err $HVD_RANK" >&2'
    local r
    for r in 0 1; do
        printf 'out %d\n\377\0no end' $r | cmp - a/b/logs/rank.$r/stdout
        echo "err $r" | cmp - a/b/logs/rank.$r/stderr
    done
    grep -aq '^\[1\]<stdout>:out 1$' out
}

test_output_filename_replaces_old_files() {
    expect_exit 0 "$HVDRUN" -np 1 --output-filename logs echo a longer line
    expect_exit 0 "$HVDRUN" -np 1 --output-filename logs echo short
    [ "$(cat logs/rank.0/stdout)" = short ]
}

# A full disk loses the output files, but the job goes on.  hvdrun reports the
# loss once and exits with 125.
test_disk_full() {
    need_root
    mkdir disk
    mount -n -t tmpfs -o size=64k tmpfs disk 2>/dev/null ||
        skip "cannot mount a small disk"
    expect_exit 125 "$HVDRUN" -np 2 --output-filename disk/logs \
        "$PROG/actor" lines 10000 100
    umount -n disk
    [ "$(wc -l <out)" -eq 20000 ]
    one_line err
    grep -qi 'no space left' err
}

test_stdout_on_a_full_device() {
    local got=0
    [ -c /dev/full ] || skip "no /dev/full"
    "$HVDRUN" -np 2 --grace 1 "$PROG/actor" lines 1000 100 \
        >/dev/full 2>err || got=$?
    [ "$got" -ne 0 ] || fail "a full device went unnoticed"
    grep -qi 'no space left' err || fail "the report does not say why"
}

test_colour_only_on_a_terminal() {
    expect_exit 0 "$HVDRUN" -np 1 echo plain
    absent $'\e' out
    "$PROG/pty" wait -- env TERM=xterm "$HVDRUN" -np 1 echo colour >screen
    grep -q $'\e\[' screen
    grep -qx '\[0\]<stdout>:colour' \
        < <(sed 's/\x1b\[[0-9;]*m//g; s/\r//' screen)
    "$PROG/pty" wait -- env TERM=xterm NO_COLOR=1 "$HVDRUN" -np 1 echo grey \
        >screen
    absent $'\e' screen
    "$PROG/pty" wait -- env TERM=dumb "$HVDRUN" -np 1 echo dumb >screen
    absent $'\e' screen
}
