# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --timeline and --stats make one file and one table for all ranks,
# however they end, and leave nothing behind.

# many HOSTS ARG...: runs hvdrun ARG... on HOSTS, all of which this machine
# plays.
many() {
    local hosts=$1
    shift
    "$HVDRUN" -H "$hosts" --rsh 'env PLAYED={host}' "$@"
}

# events FILE NAME [RANK]: prints how many events called NAME, of RANK or of
# all ranks, are in FILE, which must be valid.
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

# copies FILE...: fails unless each FILE, the trace of one or more ranks, says
# of each fused allreduce when its data was copied: each tensor, or all that have
# no name, once into the buffer and once out of it, the first before the second,
# and both while the plane was at work on that batch, and on no other.
copies() {
    python3 - "$@" <<'END'
import json, sys
NEAR = 0.002 # of rounding

def rank(e):
    return e["pid"] >> 17

def inside(e, o):
    return (rank(e) == rank(o) and o["ts"] <= e["ts"] + NEAR and
            e["ts"] + e["dur"] <= o["ts"] + o["dur"] + NEAR)

def named(events, name):
    return [e for e in events if e["name"] == name]

def check_batch(o, requests, ins, outs):
    lanes = sorted(e["pid"] for e in ins)
    assert lanes and len(set(lanes)) == len(lanes), (o, ins)
    assert lanes == sorted(e["pid"] for e in outs), (o, ins, outs)
    assert len(requests) == o["args"]["fused"], (o, requests)
    assert set(lanes) == set(e["pid"] for e in requests), (o, ins, requests)
    for i in ins:
        out = next(e for e in outs if e["pid"] == i["pid"])
        assert i["args"]["fused"] == out["args"]["fused"] == len(requests), i
        assert i["ts"] <= out["ts"], (i, out)
        assert i["ts"] + i["dur"] <= out["ts"] + out["dur"] + NEAR, (i, out)

for file in sys.argv[1:]:
    events = json.load(open(file))
    names = {e["pid"]: e["args"]["name"] for e in named(events, "process_name")}
    ways = [named(events, "MEMCPY_%s_FUSION_BUFFER" % w) for w in ("IN", "OUT")]
    for tid, way in zip((16, 17), ways):
        for e in way:
            assert e["tid"] == tid, e
            assert 0 < e["args"]["busy_us"] <= e["dur"] + NEAR, e
    # An operation is on the lane of its plane, its requests on their own.
    reduced = named(events, "ALLREDUCE")
    on_plane = [names[e["pid"]].split()[-1] == e["args"]["plane"]
                for e in reduced]
    operations = [e for e, yes in zip(reduced, on_plane) if yes]
    requests = [e for e, yes in zip(reduced, on_plane) if not yes]
    for e in ways[0] + ways[1]:
        at = [o for o in operations if inside(e, o)]
        assert len(at) == 1 and at[0]["args"]["fused"] == e["args"]["fused"], e
    fused = [o for o in operations if o["args"]["fused"] > 1]
    assert fused, file
    for o in fused:
        check_batch(o, [e for e in requests if inside(e, o)],
                    *([e for e in way if inside(e, o)] for way in ways))
END
}

test_timeline_of_copies() {
    expect_exit 0 "$HVDRUN" -np 2 --timeline shm.json "$PROG/coll" burst 20
    copies shm.json
    grep -q '"MEMCPY_IN_FUSION_BUFFER".*"bytes":1048576,' shm.json
    HVD_FORCE_TCP=1 expect_exit 0 "$HVDRUN" -np 2 --timeline tcp.json \
        "$PROG/coll" burst 20
    copies tcp.json
    expect_exit 0 many x1:2,x2 --timeline hosts.json "$PROG/coll" burst 20
    copies hosts.json
}

copies_over_mpi() { # MPI leaves memory behind
    expect_exit 0 "${unchecked_leaks[@]}" HVD_CPU_PLANE=mpi \
        HVD_TIMELINE="$mpi.json" "$HVDRUN" --mpi -np 2 "$PROG/coll" burst 20
    copies "$mpi.0.json" "$mpi.1.json"
    grep -q '"MEMCPY_IN.*"plane":"mpi"' "$mpi.0.json"
}

test_timeline_of_copies_over_mpi() {
    each_mpi copies_over_mpi
}

# Ranks on other hosts send their timelines, and the clocks of all hosts are
# adjusted to each other.
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

# A timeline that is larger than any queue arrives complete, each event once,
# whether it was sent while the ranks ran or at the end.
test_timeline_that_is_long() {
    expect_exit 0 many x1,x2 --timeline t.json "$PROG/coll" sum 1 20000
    [ "$(events t.json ALLREDUCE)" -ge 40000 ]
    [ "$(stat -c %s t.json)" -gt 10000000 ]
    [ ! -s err ] || fail "$(cat err)"
    python3 - <<'END'
import json
spans = [(e["pid"], e["ts"], e["name"]) for e in json.load(open("t.json"))
         if e["name"] == "ALLREDUCE"]
assert len(spans) == len(set(spans)), len(spans) - len(set(spans))
END
    nothing_left
}

test_timeline_of_several_worlds() {
    expect_exit 0 "$HVDRUN" -np 2 --timeline t.json "$PROG/coll" again 3
    [ "$(events t.json ALLREDUCE 0)" -ge 3 ]
    [ "$(events t.json NEGOTIATE_ALLREDUCE 1)" -eq 3 ]
    nothing_left
}

# The second program of a rank adds to the timeline of the first.
test_timeline_of_several_programs() {
    # shellcheck disable=SC2016 # for the rank
    expect_exit 0 "$HVDRUN" -np 2 --timeline t.json \
        sh -c '"$@" && "$@"' sh "$PROG/coll" sum 1 10
    [ "$(events t.json ALLREDUCE 0)" -eq 40 ]
    [ "$(events t.json ALLREDUCE 1)" -eq 40 ]
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

# After hvdrun is killed, the file holds what the ranks did until a moment
# before, and the agents clean up.
test_timeline_of_a_killed_hvdrun() {
    start job "$HVDRUN" -np 2 --timeline t.json "$PROG/coll" spin allreduce f
    wait_for '[ "$(events t.json ALLREDUCE 0)" -gt 0 ] &&
        [ "$(events t.json ALLREDUCE 1)" -gt 0 ]'
    kill -KILL "$pid"
    wait_for 'gone job'
    [ "$(events t.json hvdrun)" -eq 1 ]
    [ "$(events t.json ALLREDUCE 0)" -gt 0 ]
    [ "$(events t.json ALLREDUCE 1)" -gt 0 ]
    wait_for '[ -z "$(find "$TMPDIR" -name "hvd-timeline-*")" ]'
}

# After an agent is killed, its guardian removes the temporary files.
test_timeline_of_a_killed_agent() {
    start job "$HVDRUN" -np 2 --timeline t.json "$PROG/coll" spin allreduce f
    wait_for '[ -e f.0 ] && [ -e f.1 ]'
    [ -n "$(find "$TMPDIR" -name 'hvd-timeline-*')" ]
    kill -KILL "$(job_pids job hvd-agent | tail -n 1)"
    finish job 125
    grep -q 'timeline t.json is not complete: not all came from host' job.err
    nothing_left
}

# `hvdrun clean` removes a timeline directory that nobody is left to remove,
# but not that of a running job, and looks in its own TMPDIR, whatever that of
# the ranks is.
test_timeline_cleaned() {
    local old=$TMPDIR/hvd-timeline-0123456789abcdef-3
    start job "$HVDRUN" -np 2 --timeline t.json -x TMPDIR=/nowhere \
        "$PROG/coll" spin allreduce f
    wait_for '[ -e f.0 ] && [ -e f.1 ]'
    mkdir -m 700 "$old" "$old.not"
    touch "$old/trace.17.json"
    touch -d '2 minutes ago' "$TMPDIR"/hvd-timeline-*
    "$HVDRUN" clean -H localhost --dry-run >out
    grep -q "would remove $old (timelines" out
    [ -e "$old/trace.17.json" ]
    "$HVDRUN" clean -H localhost >out
    grep -q "removed $old (timelines" out
    [ ! -e "$old" ]
    [ "$(grep -c hvd-timeline out)" -eq 1 ] || fail "$(cat out)"
    kill -TERM "$pid"
    finish job 143
    [ "$(events t.json ALLREDUCE 0)" -gt 0 ]
    rmdir "$old.not"
    nothing_left
}

test_timeline_of_a_program_without_libhvd() {
    expect_exit 0 "$HVDRUN" -np 2 --timeline t.json true
    [ "$(events t.json hvdrun)" -eq 1 ]
    [ "$(events t.json ALLREDUCE)" -eq 0 ]
    [ ! -s err ]
    nothing_left
}

# If no rank could be started, the timeline is still complete, and no
# statistics are printed.
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

# When the disk is full, the ranks' timelines stay where they are, and hvdrun
# says where.
test_timeline_disk_full() {
    local left
    need_root
    mkdir small
    mount -n -t tmpfs -o size=64k tmpfs small || skip "cannot mount"
    expect_exit 0 "$HVDRUN" -np 2 --timeline small/t.json "$PROG/coll" \
        sum 1 1000
    [ "$(events small/t.json hvdrun)" -eq 1 ]
    umount -n small
    grep -q 'timeline small/t.json is not complete: No space left' err
    left=$(sed -n "s/.*the ranks' timelines are left in //p" err)
    [ "$(events "$left/trace.0.json" ALLREDUCE)" -ge 1000 ]
    rm -r "$left"
}

# A file that Horovod itself writes is left alone.
test_timeline_of_a_horovod_program() {
    # shellcheck disable=SC2016 # for the rank
    expect_exit 0 "$HVDRUN" -np 1 --timeline t.json \
        sh -c 'echo "[{\"name\":\"horovod\"}]" >"$HOROVOD_TIMELINE"'
    [ "$(cat t.json)" = '[{"name":"horovod"}]' ]
    nothing_left
}

# Without hvdrun's option, each rank writes the file that HVD_TIMELINE names.
test_timeline_variable() {
    HVD_TIMELINE=$PWD/t.json expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" \
        sum 1 10
    [ "$(events t.0.json ALLREDUCE)" -ge 10 ]
    [ "$(events t.1.json ALLREDUCE)" -ge 10 ]
    rm t.0.json t.1.json
    expect_exit 0 "$HVDRUN" -np 2 --timeline DYNAMIC "$PROG/coll" sum 1 10
    [ -z "$(find . -name '*json')" ]
}

# HOROVOD_TIMELINE means what it does in Horovod: one file, of rank 0.
test_timeline_variable_of_horovod() {
    HOROVOD_TIMELINE=$PWD/h.json expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" \
        again 3
    [ "$(events h.json NEGOTIATE_ALLREDUCE)" -eq 3 ]
    [ "$(events h.json NEGOTIATE_ALLREDUCE 0)" -eq 3 ]
    [ "$(find . -name '*json')" = ./h.json ]
    rm h.json
    HOROVOD_TIMELINE=DYNAMIC expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" sum 1 9
    [ -z "$(find . -name '*json')" ]
    HOROVOD_TIMELINE=$PWD/h.json HVD_TIMELINE=$PWD/t.json \
        expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" sum 1 10
    [ "$(find . -name '*json' | sort | tr '\n' ' ')" = './t.0.json ./t.1.json ' ]
}

test_stats_table() {
    expect_exit 0 many x1:2,x2 --stats "$PROG/coll" sum 1000 20
    grep -q '^hvdrun: statistics of 3 ranks' err
    grep -Eq '^  allreduce +< 16 KiB +[0-9]+ ' err
    grep -q '^  operations: ' err
    # A rank that initialises several times has its statistics in one table.
    expect_exit 0 "$HVDRUN" -np 2 --stats "$PROG/coll" again 3
    grep -Eq '^  allreduce +< 16 KiB +3 ' err
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" again 1
    absent statistics err
}
