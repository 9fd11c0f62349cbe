# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# libhvd on several hosts that this machine plays.  Each host has its own
# agent, shared memory segment and connections; --rsh env takes the place of
# ssh.

# many HOSTS ARG...: runs hvdrun ARG... on HOSTS, all of which this machine
# plays.
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

test_multihost_culprit_takes_long_to_end() {
    local how rank
    for how in exit shutdown; do
        for rank in 0 3; do
            expect_exit 3 many x1:2,x2:2 "$PROG/coll" desert $how $rank 3
            grep -Eq "^hvdrun: rank $rank on host .* failed: exit code 3" err
        done
    done
}

test_multihost_init_after_a_death() {
    local ms line
    line='a peer died: hvd_init: rank 1 of this world has died; a static job'
    line="$line cannot start again: rank 1 \\(pid [0-9]+\\) on host x1: killed"
    for ms in 0 50; do
        expect_exit 137 many x1:2,x2:2 --grace 20 "${unchecked_leaks[@]}" \
            "$PROG/coll" reinit kill $ms
        [ "$(grep -Ec "^rank [023]: again: $line .*: after [0-9]{1,4} ms\$" \
            out)" -eq 9 ] || fail "not 9 times '$line': $(cat out)"
    done
}

# Collectives of every kind, dtype, op and process set give right results in
# random orders.
test_multihost_properties() {
    local hosts
    for hosts in x1,x2 x1:2,x2:2 x1:1,x2:3 x1:4,x2:1,x3:1 x1,x2,x3,x4; do
        expect_exit 0 many $hosts "$PROG/prop" 7 2 5
    done
}

# With HVD_FORCE_TCP, the ranks of one host use TCP as if each had its own
# host.
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

# lose HOSTS KIND HOW EXIT: rank 2 of 4 leaves in a collective KIND in way HOW.
# Fails the test unless the other ranks soon get an error that names rank 2 and
# its host, and hvdrun exits with EXIT.
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

# Prints the last number in file $2 on a line that matches $1.
last_number() {
    grep -i "$1" "$2" | tail -n 1 | grep -oE '[0-9]+\.[0-9]+' | tail -n 1
}

# With two ranks the result is the same as on one host, to the last bit, as two
# numbers have one sum.  With more, the order in which hosts are added may
# change the last digits.
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
