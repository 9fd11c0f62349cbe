# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --timeline and --stats: one file and one table for all ranks,
# however they end, and nothing left behind.

# many HOSTS ARG...: hvdrun on hosts that this one plays
many() {
    local hosts=$1
    shift
    "$HVDRUN" -H "$hosts" --rsh 'env PLAYED={host}' "$@"
}

# events FILE NAME [RANK]: how many, in a file that must be valid
events() {
    python3 - "$@" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))
assert all(e.get("ts", 0) >= 0 and e.get("dur", 0) >= 0 for e in events)
print(sum(1 for e in events if e["name"] == sys.argv[2] and
          (len(sys.argv) < 4 or e["pid"] >> 17 == int(sys.argv[3]))))
END
}

nothing_left() {
    [ -z "$(find "$TMPDIR" -name 'hvd-timeline-*')" ] ||
        fail "timelines are left in $TMPDIR"
}

test_timeline_of_all_ranks() {
    local rank
    expect_exit 0 "$HVDRUN" -np 3 --timeline t.json --timeline-mark-cycles \
        "$PROG/coll" sum 1000 20
    for rank in 0 1 2; do
        [ "$(events t.json ALLREDUCE $rank)" -ge 20 ]
        [ "$(events t.json NEGOTIATE_ALLREDUCE $rank)" -ge 20 ]
    done
    [ "$(events t.json CYCLE_START)" -ge 60 ]
    [ "$(find . -name '*.json')" = ./t.json ]
    nothing_left
}

# Ranks on other hosts send theirs; all begin at about the same time.
test_timeline_of_several_hosts() {
    local rank
    expect_exit 0 many x1:2,x2 --timeline-filename t.json "$PROG/coll" \
        sum 1000 20
    for rank in 0 1 2; do
        [ "$(events t.json ALLREDUCE $rank)" -ge 20 ]
    done
    python3 - <<'END'
import json
ends = {}
for e in json.load(open("t.json")):
    if e["name"] == "ALLREDUCE":
        rank, end = e["pid"] >> 17, e["ts"] + e["dur"]
        ends.setdefault(rank, []).append((e["ts"], end))
# Nobody has ended the last one before all have begun it.
last = [max(v) for v in ends.values()]
assert min(end for _, end in last) > max(ts for ts, _ in last) - 20000, last
END
    nothing_left
}

# More than any queue holds.
test_timeline_that_is_long() {
    expect_exit 0 many x1,x2 --timeline t.json "$PROG/coll" sum 1 20000
    [ "$(events t.json ALLREDUCE)" -ge 40000 ]
    [ "$(stat -c %s t.json)" -gt 10000000 ]
    nothing_left
}

test_timeline_of_several_worlds() {
    expect_exit 0 "$HVDRUN" -np 2 --timeline t.json "$PROG/coll" again 3
    [ "$(events t.json ALLREDUCE 0)" -ge 3 ]
    [ "$(events t.json NEGOTIATE_ALLREDUCE 1)" -eq 3 ]
    nothing_left
}

test_timeline_of_killed_ranks() {
    start job "$HVDRUN" -np 3 --timeline t.json "$PROG/coll" spin allreduce f
    wait_for '[ -e f.0 ] && [ -e f.1 ] && [ -e f.2 ]'
    sleep 0.3
    kill -KILL "$(job_pids job coll | head -n 1)"
    finish job 137
    [ "$(events t.json ALLREDUCE 0)" -gt 0 ]
    [ "$(events t.json ALLREDUCE 1)" -gt 0 ]
    [ "$(events t.json ALLREDUCE 2)" -gt 0 ]
    nothing_left
}

# hvdrun itself: the file is valid, and its agents clean up.
test_timeline_of_a_killed_hvdrun() {
    start job "$HVDRUN" -np 2 --timeline t.json "$PROG/coll" spin allreduce f
    wait_for '[ -e f.0 ] && [ -e f.1 ]'
    kill -KILL "$pid"
    wait_for 'gone job'
    [ "$(events t.json hvdrun)" -eq 1 ]
    nothing_left
}

test_timeline_of_a_program_without_libhvd() {
    expect_exit 0 "$HVDRUN" -np 2 --timeline t.json true
    [ "$(events t.json hvdrun)" -eq 1 ]
    [ "$(events t.json ALLREDUCE)" -eq 0 ]
    [ ! -s err ]
    nothing_left
}

# There is nothing to be missing, or to be counted.
test_timeline_of_nothing() {
    expect_exit 127 "$HVDRUN" -np 2 --timeline t.json --stats ./none
    absent 'hvdrun: timeline' err
    absent statistics err
    [ "$(events t.json hvdrun)" -eq 1 ]
    nothing_left
}

test_timeline_that_cannot_be_written() {
    refused 'timeline: open none/t.json: No such file' -np 1 \
        --timeline none/t.json
    refused 'timeline: write /dev/full: No space left' -np 1 \
        --timeline /dev/full
    nothing_left
}

# What hvdrun cannot take stays where it is, and that is said.
test_timeline_disk_full() {
    local left
    need_root
    mkdir small
    mount -n -t tmpfs -o size=64k tmpfs small || skip "cannot mount"
    expect_exit 0 "$HVDRUN" -np 2 --timeline small/t.json "$PROG/coll" \
        sum 1 1000 || :
    [ "$(events small/t.json hvdrun)" -eq 1 ]
    umount -n small
    grep -q 'timeline small/t.json is not complete: No space left' err
    left=$(sed -n "s/.*the ranks' timelines are left in //p" err)
    [ "$(events "$left/trace.0.json" ALLREDUCE)" -ge 1000 ]
    rm -r "$left"
}

# Horovod writes into the file itself, and hvdrun leaves that alone.
test_timeline_of_a_horovod_program() {
    # shellcheck disable=SC2016 # for the rank
    expect_exit 0 "$HVDRUN" -np 1 --timeline t.json \
        sh -c 'echo "[{\"name\":\"horovod\"}]" >"$HOROVOD_TIMELINE"'
    [ "$(cat t.json)" = '[{"name":"horovod"}]' ]
    nothing_left
}

# Without hvdrun's option the variable is each rank's own business.
test_timeline_variable() {
    HVD_TIMELINE=$PWD/t.json expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" \
        sum 1 10
    [ "$(events t.0.json ALLREDUCE)" -ge 10 ]
    [ "$(events t.1.json ALLREDUCE)" -ge 10 ]
    rm t.0.json t.1.json
    expect_exit 0 "$HVDRUN" -np 2 --timeline DYNAMIC "$PROG/coll" sum 1 10
    [ -z "$(find . -name '*json')" ]
}

test_stats_table() {
    expect_exit 0 many x1:2,x2 --stats "$PROG/coll" sum 1000 20
    grep -q '^hvdrun: statistics of 3 ranks' err
    grep -Eq '^  allreduce +< 16 KiB +[0-9]+ ' err
    grep -q '^  operations: ' err
    # Several worlds are one table.
    expect_exit 0 "$HVDRUN" -np 2 --stats "$PROG/coll" again 3
    grep -Eq '^  allreduce +< 16 KiB +3 ' err
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" again 1
    absent statistics err
}
