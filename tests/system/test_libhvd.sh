# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# libhvd under hvdrun: topology, errors, ranks that die or leave, and nothing
# left behind.

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

# A rank may be a script that runs several programs one after another.
test_programs_one_after_another() {
    local i
    for i in 1 2 3; do
        expect_exit 0 "$HVDRUN" -np 3 sh -c '"$PROG/coll" sum 100 5 &&
            "$PROG/coll" again 2 && exec "$PROG/coll" topo'
        [ "$(grep -c 'rank ./3' out)" -eq 3 ]
    done
}

# A rank may exec another program.
test_exec_of_another_program() {
    "$HVDRUN" -np 3 "$PROG/coll" exec 3
}

# If two programs of one rank run at once, only one of them can be the rank;
# the other gets an error.
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

# lose KIND HOW EXIT: rank 2 of 4 leaves in a collective KIND in way HOW.
# Fails the test unless the other ranks soon get an error that names rank 2 and
# its host, and hvdrun exits with EXIT.
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

# Prints how many milliseconds this machine takes now to tell a process that
# its child has died.
death_probe_ms() {
    local t
    t=$(now_ms)
    sh -c 'kill -KILL $$' 2>/dev/null || :
    echo $(($(now_ms) - t))
}

# Prints the median of the five numbers $@.
median_of_5() {
    printf '%s\n' "$@" | sort -n | sed -n 3p
}

# Ranks learn of a death within 100 ms, plus what a busy machine takes for as
# many steps: those of the agent and of three ranks that share its processors.
test_death_is_told_within_100_ms() {
    local told=() probes=() limit
    for _ in 1 2 3 4 5; do
        probes+=("$(death_probe_ms)")
        lose allreduce kill 137
        told+=("$(sed -n 's/.*: after \([0-9]*\) ms$/\1/p' out |
            sort -n | tail -n 1)")
    done
    limit=$((100 + 10 * $(median_of_5 "${probes[@]}")))
    [ "$(median_of_5 "${told[@]}")" -le $limit ] ||
        fail "told after ${told[*]} ms; the limit is $limit ms"
}

test_rank_crashes_inside_a_collective() {
    sanitized && skip "sanitizers catch the signal"
    ulimit -c 0
    lose allreduce segv 139
}

test_rank_exits_inside_a_collective() {
    lose allreduce 5 5
}

# hvdrun names the rank that left, even if its process takes longer to end than
# those of the ranks that fail because of it.
test_culprit_takes_long_to_end() {
    local how rank
    for how in exit shutdown _exit; do
        for rank in 0 2; do
            expect_exit 3 "$HVDRUN" -np 3 "$PROG/coll" desert $how $rank 3
            grep -Eq "^hvdrun: rank $rank on host .* failed: exit code 3" err
        done
    done
    HVD_FORCE_TCP=1 expect_exit 3 "$HVDRUN" -np 3 "$PROG/coll" desert exit 1 3
    grep -Eq '^hvdrun: rank 1 on host .* failed: exit code 3' err
}

# reinit_names VERB RANKS: fails unless all three calls of hvd_init by each of
# RANKS, a set of digits, failed with the message that rank 1 has VERB.
reinit_names() {
    local verb=$1 ranks=$2 line want
    line='again: a peer died: hvd_init: rank 1 of this world has'
    line="$line $verb; a static job cannot start again: rank 1 "
    line="$line(\\(pid [0-9]+\\) )?on host [^:]*: .*: after [0-9]{1,4} ms"
    want=$((3 * ${#ranks}))
    [ "$(grep -Ec "^rank [$ranks]: $line\$" out)" -eq "$want" ] ||
        fail "not $want times '$line': $(cat out)"
}

# After a death, hvd_init fails at once, however late it is called, and accuses
# no other rank.
test_init_after_a_death() {
    local ms
    for ms in 0 50; do
        expect_exit 137 "$HVDRUN" -np 3 --no-tag-output --grace 20 \
            "${unchecked_leaks[@]}" "$PROG/coll" reinit kill $ms
        reinit_names died 02
        HVD_FORCE_TCP=1 expect_exit 137 "$HVDRUN" -np 3 --no-tag-output \
            --grace 20 "${unchecked_leaks[@]}" "$PROG/coll" reinit kill $ms
        reinit_names died 02
    done
    expect_exit 3 "$HVDRUN" -np 3 --no-tag-output --grace 20 \
        "${unchecked_leaks[@]}" "$PROG/coll" reinit 3 50
    reinit_names died 02
    # Only rank 0 is checked: without a failure, a rank may end before the
    # other one begins.
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output "$PROG/coll" reinit shutdown 0
    reinit_names ended 0
}

# Makes ./no-debugger, a directory for PATH that holds no debugger: debuggers
# take seconds on a busy machine.
no_debugger() {
    mkdir -p no-debugger
    ln -sf "$(command -v sh)" "$(command -v sleep)" "$(command -v timeout)" \
        "$(command -v env)" no-debugger
}

# starts_late SCRIPT PATTERN HVDRUN-ARG...: rank 1 runs SCRIPT and so comes
# late to hvd_init, or never.  Fails unless the other ranks say PATTERN and
# hvdrun says what rank 1 does.
starts_late() {
    local script=$1 want=$2
    shift 2
    no_debugger
    expect_exit 124 "$HVDRUN" --start-timeout 1 --grace 1 \
        -x PATH="$PWD/no-debugger" "$@" sh -c "
        [ \$HVD_RANK != 1 ] || { $script; }
        exec \"\$PROG/coll\" topo"
    grep -Eq "hvd_init: rank 1 \(pid [0-9]+\) on host [^ ]* $want" err ||
        fail "a rank does not say '$want'"
    grep -Eq '^hvdrun: ranks waited in hvd_init for 1' err
    grep -Eq "^  rank 1 on host [^ ]* \(pid [0-9]+\) (sleeps|is stopped)" err
    absent 'rank [023] on host' err
}

test_ranks_that_do_not_come_are_named() {
    starts_late 'exec sleep 1000' 'has not called hvd_init; it sleeps' -np 2
    starts_late 'kill -STOP $$' \
        'has not called hvd_init; it is stopped by a signal' -np 3
    starts_late 'exec sleep 1000' 'has not called hvd_init; it sleeps' \
        -H x1,x2 --rsh 'env PLAYED={host}'
}

# A rank that is stopped inside hvd_init is reported, while others wait there
# too and when no other is left.
test_rank_stopped_inside_hvd_init() {
    no_debugger
    expect_exit 124 "$HVDRUN" -np 3 --start-timeout 1 --grace 1 \
        -x PATH="$PWD/no-debugger" sh -c '
        case $HVD_RANK in
        0) exec "$PROG/coll" topo ;;
        1) exec timeout --foreground -s STOP 0.4 "$PROG/coll" topo ;;
        2) exec sleep 1000 ;;
        esac'
    grep -Eq 'hvd_init: rank 1 \(pid .* is in hvd_init; it is stopped.*; rank 2 \(pid .* has not called hvd_init; it sleeps' err
    expect_exit 124 "$HVDRUN" -np 2 --start-timeout 2 --grace 1 \
        -x PATH="$PWD/no-debugger" sh -c '
        [ $HVD_RANK = 1 ] || { sleep 0.8; exec "$PROG/coll" topo; }
        exec timeout --foreground -s STOP 0.4 "$PROG/coll" topo'
    grep -Eq '^  rank 1 on host .* \(pid .*\) is stopped by a signal' err
    grep -Eq '^hvdrun: the ranks that are left were stopped in hvd_init' err
}

# hvdrun names the rank that failed, and the rank that had left with success
# before.
test_culprit_leaves_with_success() {
    expect_exit 1 "$HVDRUN" -np 3 "$PROG/coll" desert exit 1 0
    grep -Eq '^hvdrun: rank [02] on host .* failed: exit code 1' err
    grep -Eq '^hvdrun: rank 1 on host .* had left the others before that' err
}

# A rank that exits early with success ends the others' waiting.
test_rank_leaves_with_success() {
    lose allreduce 0 0
    lose allreduce shutdown 0
}

test_mismatches_are_named() {
    local what field one two one_has two_has
    # columns: mismatch, field, value of rank 0, value of rank 1
    while read -r what field one two; do
        expect_exit 0 "$HVDRUN" -np 3 --no-tag-output "$PROG/coll" \
            mismatch "$what"
        one_has="rank [02][^,]* has $field $one"
        two_has="rank 1[^,]* has $field $two"
        [ "$(grep -Eci "^rank [012]: .*: .*($one_has, $two_has|$two_has, $one_has)\$" \
            out)" -eq 3 ] ||
            fail "$what: both values are not named: $(cat out)"
    done <<'TABLE'
count count 16 32
dtype dtype float32 int32
op op sum max
root root 0 1
scale prescale 1 0\.5
kind kind allgather barrier
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

# A rank that waits sleeps until it is woken.  It may spin for some
# milliseconds at first, and check a few times a second that the others live.
# CPU time and sleeps are counted for its own process, so a busy machine does
# not matter.
test_waiting_sleeps() {
    local cost
    sanitized && skip "sanitizers slow the loop"
    for tcp in 0 1; do
        HVD_FORCE_TCP=$tcp expect_exit 0 "$HVDRUN" -np 2 --no-tag-output \
            "$PROG/coll" wait 2
        cost=$(sed -n 's/^rank 0: waiting cost \(.*\) sleeps$/\1/p' out)
        [ "${cost%% us*}" -lt 50000 ] || fail "2 s cost $cost sleeps"
        [ "${cost##* }" -lt 100 ] || fail "2 s cost $cost sleeps"
    done
}

# Jobs of which a rank is killed in the middle of collectives leave nothing,
# which the test runner checks at the end.
test_crash_loop() {
    local i times=50 victim p
    ! full || times=200
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
    grep -q ' hvd_init' < <(nm -D --defined-only "$BUILD/lib/libhvd.so")
}

# More ranks than processors of most hosts, each collective, also with several
# cache domains.  hvd-bench checks the results.
test_many_ranks() {
    local kind n=100
    ! sanitized || n=66
    for kind in allreduce broadcast allgather alltoall reducescatter barrier; do
        expect_exit 0 "$HVDRUN" -np $n "$HVD_BENCH" $kind --sizes 8,4K \
            --iters 1 --warmup 0
        grep -q " $n ranks, plane shm" out
    done
    sanitized || {
        expect_exit 1 "$HVDRUN" -np 513 --grace 1 "$PROG/coll" sum 1 1
        grep -q '513 ranks on host .*: shared memory serves at most 512' err
    }
    HVD_DOMAINS=$(seq -s, 0 0.1 $((n / 10))) # ten ranks each
    HVD_DOMAINS=${HVD_DOMAINS//.[0-9]/} expect_exit 0 "$HVDRUN" -np $n \
        "$HVD_BENCH" allreduce --sizes 8,4K --iters 1 --warmup 0
}
