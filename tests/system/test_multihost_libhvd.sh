# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# libhvd on several hosts that this one plays: each has an agent, a segment
# and connections of its own, and `--rsh env` instead of ssh.

# many HOSTS ARG...: hvdrun on them
many() {
    local hosts=$1
    shift
    "$HVDRUN" -H "$hosts" --rsh 'env PLAYED={host}' --no-tag-output "$@"
}

test_multihost_topology() {
    expect_exit 0 many x1:2,x2:3,x3:1 "$PROG/coll" topo
    sort out | diff - <(
        cat <<'END'
rank 0/6 local 0/2 cross 0/3
rank 1/6 local 1/2 cross 0/2
rank 2/6 local 0/3 cross 1/3
rank 3/6 local 1/3 cross 1/2
rank 4/6 local 2/3 cross 0/1
rank 5/6 local 0/1 cross 2/3
END
    )
}

test_multihost_allreduce() {
    local hosts
    for hosts in x1,x2 x1:2,x2:2 x1:1,x2:3 x1:3,x2:2,x3:1 x1,x2,x3,x4; do
        expect_exit 0 many $hosts "$PROG/coll" sum 0 2
        expect_exit 0 many $hosts "$PROG/coll" sum 1 100
        expect_exit 0 many $hosts "$PROG/coll" sum 4096 5
        expect_exit 0 many $hosts "$PROG/coll" sum 1000003 2
    done
    expect_exit 0 many x1:2,x2:2,x3:2 --map-by node "$PROG/coll" sum 20011 5
}

# Every kind, dtype, op and process set, in random orders.
test_multihost_properties() {
    local hosts
    for hosts in x1,x2 x1:2,x2:2 x1:1,x2:3 x1:4,x2:1,x3:1 x1,x2,x3,x4; do
        expect_exit 0 many $hosts "$PROG/prop" 7 2 5
    done
}

# One host, and every rank as if it had its own.
test_multihost_forced_tcp() {
    local n what
    export HVD_FORCE_TCP=1
    expect_exit 0 "$HVDRUN" -np 3 --no-tag-output "$PROG/coll" topo
    sort out | diff - <(
        cat <<'END'
rank 0/3 local 0/3 cross 0/1
rank 1/3 local 1/3 cross 0/1
rank 2/3 local 2/3 cross 0/1
END
    )
    for n in 1 2 3 5; do
        expect_exit 0 "$HVDRUN" -np $n "$PROG/coll" sum 0 2
        expect_exit 0 "$HVDRUN" -np $n "$PROG/coll" sum 1000003 2
        expect_exit 0 "$HVDRUN" -np $n "$PROG/coll" again 3
        expect_exit 0 "$HVDRUN" -np $n "$PROG/prop" 5 2 4
    done
    for what in allreduce broadcast allgather alltoall reducescatter; do
        expect_exit 0 "$HVDRUN" -np 2 --no-tag-output "$HVD_BENCH" $what \
            --sizes 8,100000,1M --iters 3
        grep -q ', plane tcp' out
    done
    expect_exit 1 many x1,x2 "$PROG/coll" sum 1 1
    grep -q 'HVD_FORCE_TCP is for jobs on one host' err
}

test_multihost_forced_tcp_rank_killed() {
    local kind
    export HVD_FORCE_TCP=1
    for kind in allreduce small broadcast allgather barrier async; do
        rm -f when
        expect_exit 137 "$HVDRUN" -np 4 --no-tag-output --grace 20 \
            "$PROG/coll" lose $kind kill 2 20 when
        [ "$(grep -c '^rank [013]: .*rank 2' out)" -eq 3 ] ||
            fail "$kind: $(cat out)"
    done
}

test_multihost_init_again() {
    expect_exit 0 many x1:2,x2 "$PROG/coll" again 5
    expect_exit 0 many x1,x2 sh -c '"$PROG/coll" sum 100 5 &&
        exec "$PROG/coll" again 2'
}

test_multihost_bench() {
    local hosts what
    for hosts in x1,x2,x3 x1:2,x2:1; do
        for what in allreduce broadcast allgather alltoall reducescatter; do
            expect_exit 0 many $hosts "$HVD_BENCH" $what \
                --sizes 8,4K,100000,1M --iters 3
        done
        expect_exit 0 many $hosts "$HVD_BENCH" allreduce --dtype bfloat16 \
            --op average --sizes 8,1M --iters 2 --in-place
        expect_exit 0 many $hosts "$HVD_BENCH" barrier --iters 3
    done
}

test_multihost_bench_names_the_plane() {
    expect_exit 0 many x1,x2 "$HVD_BENCH" barrier --iters 1
    grep -q ', plane tcp' out
    expect_exit 0 many x1:2,x2 "$HVD_BENCH" barrier --iters 1 --json
    grep -q '"plane":"hier"' out
    expect_exit 1 many x1:2,x2 "$HVD_BENCH" barrier --iters 1 --plane shm
    grep -q -- '--plane shm: 3 ranks placed like this use hier' err
    expect_exit 0 "$HVDRUN" -np 2 "$HVD_BENCH" barrier --iters 1 --plane shm
    grep -q ', plane shm' out
}

test_multihost_mismatch() {
    local what lines
    for what in count dtype op root scale kind; do
        expect_exit 0 many x1:2,x2 "$PROG/coll" mismatch $what
        lines=$(sed -n 's/^rank [012]: [^:]*: //p' out | sort -u)
        [ "$(wc -l <<<"$lines")" -eq 1 ] || fail "$what: $(cat out)"
        grep -q 'rank 0 on host x1 has .* on host x[12] has' <<<"$lines" ||
            fail "$what: $lines"
    done
}

# lose HOSTS KIND HOW EXIT: rank 2 of 4 is lost inside a collective; the
# other three name it and its host, soon.
lose() {
    local hosts=$1 kind=$2 how=$3 code=$4 ms
    rm -f when
    expect_exit "$code" many "$hosts" --grace 20 \
        "${unchecked_leaks[@]}" "$PROG/coll" lose "$kind" "$how" 2 20 when
    [ "$(grep -c '^rank [013]: .*rank 2.* host x2' out)" -eq 3 ] ||
        fail "$kind, $how: $(cat out)"
    for ms in $(sed -n 's/.*: after \([0-9]*\) ms$/\1/p' out); do
        [ "$ms" -le 1000 ] || fail "$kind, $how: told after $ms ms"
    done
}

test_multihost_rank_killed() {
    local kind
    for kind in allreduce small broadcast allgather barrier async; do
        lose x1:2,x2:2 $kind kill 137
        lose x1,x2:3 $kind kill 137
    done
}

test_multihost_rank_leaves() {
    lose x1:2,x2:2 allreduce 5 5
    lose x1:2,x2:2 small 0 0
    lose x1,x2:3 small shutdown 0
}

test_multihost_idle_costs_nothing() {
    sanitized && skip "sanitizers have threads of their own"
    expect_exit 0 many x1,x2 "$PROG/coll" idle 3 15
}

# The last number on a line that matches.
last_number() {
    grep -i "$1" "$2" | tail -n 1 | grep -oE '[0-9]+\.[0-9]+' | tail -n 1
}

# Two addends have one order: the same as on one host, to the last bit.
# With more, only the order in which hosts are added differs.
test_multihost_examples() {
    local example what one two
    sanitized && skip "too slow with sanitizers"
    while read -r example what; do
        "$HVDRUN" -np 2 --no-tag-output "$EXAMPLES/$example" >one
        many x1,x2 "$EXAMPLES/$example" >two
        diff <(results one) <(results two) ||
            fail "$example: another result on two hosts"
        "$HVDRUN" -np 4 --no-tag-output "$EXAMPLES/$example" >one
        many x1:3,x2 "$EXAMPLES/$example" >two
        one=$(last_number "$what" one)
        two=$(last_number "$what" two)
        awk "BEGIN { d = ($one - $two) / $one; exit !(d * d <= 1e-4) }" ||
            fail "$example: $two on two hosts, $one on one"
    done <<'TABLE'
train_digits accuracy
anomaly_autoencoder auc
TABLE
}

results() {
    grep -oE '(loss|accuracy|AUC)[^0-9]*[0-9.]+' "$1"
}
