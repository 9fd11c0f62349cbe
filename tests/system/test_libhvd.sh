# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# libhvd under hvdrun: worlds, errors, death in the middle, leftovers.

host_pattern="(localhost|$(hostname))"

test_world_of_one() {
    expect_exit 0 "$PROG/coll" topo
    [ "$(cat out)" = 'rank 0/1 local 0/1 cross 0/1' ]
    expect_exit 0 "$PROG/coll" sum 1000 3
    expect_exit 0 "$PROG/coll" again 3
}

test_topology() {
    expect_exit 0 "$HVDRUN" -np 3 --no-tag-output "$PROG/coll" topo
    sort out >sorted
    printf 'rank %d/3 local %d/3 cross 0/1\n' 0 0 1 1 2 2 | diff - sorted
}

test_allreduce_at_many_sizes() {
    local np
    for np in 1 2 3 4 8; do
        "$HVDRUN" -np $np "$PROG/coll" sum 0 2
        "$HVDRUN" -np $np "$PROG/coll" sum 1 200
        "$HVDRUN" -np $np "$PROG/coll" sum 1000003 2
    done
}

test_64_ranks() {
    local np=64
    sanitized && np=16
    "$HVDRUN" -np $np "$PROG/coll" sum 1 20
    "$HVDRUN" -np $np "$PROG/coll" sum 100000 2
}

test_init_again_after_shutdown() {
    "$HVDRUN" -np 3 "$PROG/coll" again 5
}

# A rank may be a script that runs several programs.
test_programs_one_after_another() {
    local i
    for i in 1 2 3; do
        expect_exit 0 "$HVDRUN" -np 3 sh -c '"$PROG/coll" sum 100 5 &&
            "$PROG/coll" again 2 && exec "$PROG/coll" topo'
        [ "$(grep -c 'rank ./3' out)" -eq 3 ]
    done
}

# Or a program that becomes another one.
test_exec_of_another_program() {
    "$HVDRUN" -np 3 "$PROG/coll" exec 3
}

# Only one of two at a time can be the rank.
test_two_programs_of_one_rank_at_once() {
    expect_exit 1 "$HVDRUN" -np 2 --grace 5 sh -c '
        "$PROG/coll" spin small "up$HVD_RANK" &
        while [ ! -e "up$HVD_RANK.$HVD_RANK" ]; do sleep 0.05; done
        exec "$PROG/coll" topo'
    grep -q 'rank [01] is taken by pid' err
}

test_two_jobs_do_not_meet() {
    start one "$HVDRUN" -np 2 "$PROG/coll" sum 1000 50
    start two "$HVDRUN" -np 3 "$PROG/coll" sum 1000 50
    finish one 0
    finish two 0
}

test_libhvd_in_a_nested_job() {
    "$HVDRUN" -np 2 "$HVDRUN" -np 2 "$PROG/coll" sum 1000 5
}

# lose KIND HOW EXIT: rank 2 of 4 leaves inside a collective; the other
# three name it, soon, and can shut down.
lose() {
    local kind=$1 how=$2 code=$3 ms
    rm -f when
    expect_exit "$code" "$HVDRUN" -np 4 --no-tag-output --grace 20 \
        "${unchecked_leaks[@]}" "$PROG/coll" lose "$kind" "$how" 2 20 when
    [ "$(grep -Ec '^rank [013]: .*rank 2' out)" -eq 3 ] ||
        fail "$kind, $how: not every rank names rank 2: $(cat out)"
    [ "$(grep -Ec "^rank [013]: .*$host_pattern" out)" -eq 3 ] ||
        fail "$kind, $how: not every rank names the host: $(cat out)"
    for ms in $(sed -n 's/.*: after \([0-9]*\) ms$/\1/p' out); do
        [ "$ms" -le 1000 ] || fail "$kind, $how: told after $ms ms"
    done
}

test_rank_killed_inside_each_collective() {
    local kind
    for kind in allreduce small broadcast allgather barrier async; do
        lose $kind kill 137
    done
}

test_rank_killed_inside_each_collective_over_tcp() {
    local kind
    export HVD_FORCE_TCP=1
    for kind in allreduce small broadcast allgather barrier async; do
        lose $kind kill 137
    done
}

# On a machine that is not busy; so one of a few tries must do.
test_death_is_told_within_100_ms() {
    local worst
    for _ in 1 2 3 4 5; do
        lose allreduce kill 137
        worst=$(sed -n 's/.*: after \([0-9]*\) ms$/\1/p' out |
            sort -n | tail -n 1)
        [ "$worst" -gt 100 ] || return 0
    done
    fail "told after $worst ms, and no sooner in five tries"
}

test_rank_crashes_inside_a_collective() {
    sanitized && skip "sanitizers catch the signal"
    ulimit -c 0
    lose allreduce segv 139
}

test_rank_exits_inside_a_collective() {
    lose allreduce 5 5
}

# A rank that ends early with success still ends the others' waiting.
test_rank_leaves_with_success() {
    lose allreduce 0 0
    lose allreduce shutdown 0
}

test_mismatches_are_named() {
    local what
    # value of rank 0, value of rank 1
    while read -r what one two; do
        expect_exit 0 "$HVDRUN" -np 3 --no-tag-output "$PROG/coll" \
            mismatch "$what"
        [ "$(grep -c '^rank [012]: .*rank' out)" -eq 3 ] ||
            fail "$what: $(cat out)"
        [ "$(grep -Eci "$one.*$two|$two.*$one" out)" -eq 3 ] ||
            fail "$what: both values are not named: $(cat out)"
    done <<'TABLE'
count 16 32
dtype float32 int32
op sum max
root 0 1
scale 0\.5 1
kind allgather barrier
TABLE
}

test_exit_without_shutdown() {
    "$HVDRUN" -np 3 "$PROG/coll" quit 0
    expect_exit 3 "$HVDRUN" -np 3 "$PROG/coll" quit 3
}

test_idle_costs_nothing() {
    sanitized && skip "sanitizers have threads of their own"
    # 0.5 % of a core is 15 ms in 3 s
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" idle 3 15
}

test_waiting_sleeps() {
    local us
    sanitized && skip "sanitizers slow the loop"
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output "$PROG/coll" wait 2
    us=$(sed -n 's/^rank 0: waiting cost \([0-9]*\) us$/\1/p' out)
    [ "$us" -lt 1000000 ] || fail "waiting for 2 s cost $us us"
}

# Jobs with a rank killed in the middle of collectives, over and over.
# The runner then looks for leftovers.
test_crash_loop() {
    local i times=200 victim p
    sanitized && times=5
    for ((i = 0; i < times; i++)); do
        rm -f up.*
        start loop$i "$HVDRUN" -np 4 --grace 1 "$PROG/coll" spin allreduce up
        wait_for '[ "$(count_files up.?)" -eq 4 ]'
        for p in $(job_pids loop$i coll); do
            if grep -qaz "^HVD_RANK=$((i % 4))\$" "/proc/$p/environ"; then
                victim=$p
            fi
        done
        kill -KILL "$victim"
        finish loop$i 137
        grep -q "rank $((i % 4))" loop$i.err
        rm -f loop$i.*
    done
}

test_hvdrun_killed_inside_collectives() {
    local i
    for i in 1 2 3 4 5; do
        rm -f up.*
        start gone$i "$HVDRUN" -np 4 --grace 1 "$PROG/coll" spin small up
        wait_for '[ "$(count_files up.?)" -eq 4 ]'
        kill -KILL "$pid"
        finish gone$i 137
        wait_for -t 10 "gone gone$i"
    done
}

test_library_needs_only_libc() {
    readelf -d "$BUILD/lib/libhvd.so" |
        sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p' >needed
    sanitized && skip "sanitizers add libraries"
    absent 'uv\|jansson\|ssh\|yaml' needed
    grep -vE '^(libc|libpthread|librt|libm|ld-linux.*)\.so' needed >others || :
    [ ! -s others ] || fail "needs $(cat others)"
}

test_library_exports_only_its_own_names() {
    nm -D --defined-only "$BUILD/lib/libhvd.so" | awk '{print $3}' |
        grep -vE '^hvd_|^HVD|^$' >strange || :
    sanitized || [ ! -s strange ] || fail "exports $(head -n 3 strange)"
    nm -D --defined-only "$BUILD/lib/libhvd.so" | grep -q ' hvd_init'
}
