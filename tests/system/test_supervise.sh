# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Failure and the end of jobs: hvdrun names the right rank, exits with the
# right code, and leaves no process, whichever process dies and however.

# Starts job $1 with the hvdrun options that follow.  Each of its four ranks
# has children that ignore signals, hold stdout, or have left session and
# process group.
start_trees() {
    local name=$1
    shift
    start "$name" "$HVDRUN" -np 4 "$@" "$PROG/actor" tree "$PWD/up"
    wait_for '[ "$(count_files up.?)" -eq 4 ]'
    [ "$(job_pids "$name" actor | wc -l)" -eq 20 ] ||
        fail "$(job_pids "$name" actor | wc -l) processes instead of 20"
}

test_exit_code_and_report() {
    expect_exit 7 "$HVDRUN" -np 4 --grace 2 sh -c '
        [ $HVD_RANK = 2 ] || exec sleep 1000
        echo "the last words" >&2; echo $$ >pid; exit 7'
    absent '<stdout>' out
    grep -v '^\[' err >report
    grep -q 'rank 2' report
    grep -q "$(cat pid)" report
    grep -Eq '(exit|code|status)[a-z ]* 7' report
    grep -q 'the last words' report
    grep -Eq "localhost|$(hostname)" report
    [ "$(wc -l <report)" -le 12 ]
}

test_success_is_silent() {
    expect_exit 0 "$HVDRUN" -np 4 true
    [ ! -s out ]
    [ ! -s err ]
}

test_every_exit_code() {
    local code
    for code in 1 2 42 77 124 125 126 127 128 255; do
        expect_exit $code "$HVDRUN" -np 2 sh -c "exit $code"
    done
}

test_signal_deaths() {
    local sig
    for sig in SEGV:139 ABRT:134 KILL:137 TERM:143 PIPE:141 INT:130; do
        expect_exit ${sig#*:} "$HVDRUN" -np 2 --grace 2 sh -c '
            ulimit -c 0; [ $HVD_RANK = 1 ] && kill -'${sig%:*}' $$
            exec sleep 1000'
        grep -q '^[^[].*rank 1' err
        grep -Eqi "^[^[].*(SIG${sig%:*}|signal $((${sig#*:} - 128)))" err
    done
}

# The rank that failed first is named, even if a grandchild still holds its
# stdout when another rank dies.
test_first_failure_is_the_culprit() {
    expect_exit 7 "$HVDRUN" -np 3 --grace 3 sh -c '
        case $HVD_RANK in
        0) sleep 1000 & exit 7 ;;
        1) trap "exit 9" TERM; while :; do sleep 0.05; done ;;
        2) exec sleep 1000 ;;
        esac'
    grep -q '^[^[].*rank 0' err
}

# A background child that holds stdout delays neither the detection of a rank's
# end nor the end of the job.
test_grandchild_does_not_delay_the_end() {
    expect_exit 0 "$HVDRUN" -np 2 sh -c 'sleep 1000 & echo done'
    [ "$(grep -c 'done' out)" -eq 2 ]
}

test_daemons_are_ended_with_the_job() {
    start_job_of_daemons() {
        start daemons "$HVDRUN" -np 2 --grace 1 sh -c '
            setsid sh -c "sleep 1000 & sleep 1000 &" >/dev/null 2>&1 </dev/null
            exit 0'
    }
    start_job_of_daemons
    finish daemons 0
    wait_for 'gone daemons'
}

test_ranks_end_at_different_times() {
    start some "$HVDRUN" -np 3 sh -c '
        [ $HVD_RANK = 0 ] && exit 0
        while [ ! -e go ]; do sleep 0.05; done; echo late'
    wait_for '[ "$(job_pids some sh | wc -l)" -le 2 ]'
    touch go
    finish some 0
    [ "$(grep -c late some.out)" -eq 2 ]
}

end_by_signal() {
    local sig=$1 code=$2 t
    start_trees tree --grace 1
    stopwatch
    t=$(now_ms)
    kill "-$sig" "$pid"
    finish tree "$code"
    wait_for 'gone tree'
    t=$(($(now_ms) - t))
    in_time 2000 4000
    [ $t -ge 900 ] || fail "no grace: ended after $t ms"
}

test_sigterm() {
    end_by_signal TERM 143
}

test_sigint() {
    end_by_signal INT 130
}

test_sighup() {
    end_by_signal HUP 129
}

test_sigterm_lets_ranks_finish() {
    start nice "$HVDRUN" -np 2 --grace 20 sh -c '
        trap "echo saved; exit 0" TERM; touch up.$HVD_RANK
        while :; do sleep 0.05; done'
    wait_for '[ -e up.0 ] && [ -e up.1 ]'
    kill -TERM "$pid"
    finish nice 143
    grep -Eq "^hvdrun: SIGTERM from pid $$ \(bash\): ending the job" nice.err
    [ "$(grep -c saved nice.out)" -eq 2 ]
}

test_second_sigint_kills_at_once() {
    local t
    start_trees tree --grace 100
    t=$SECONDS
    kill -INT "$pid"
    wait_for '[ -s tree.err ] || kill -INT "$pid"'
    sleep 0.2
    kill -INT "$pid" 2>/dev/null || :
    finish tree 130
    wait_for -t 10 'gone tree'
    [ $((SECONDS - t)) -le 15 ]
}

test_sigkill_of_hvdrun() {
    start_trees tree --grace 1
    kill -KILL "$pid"
    finish tree 137
    wait_for -t 10 'gone tree'
}

# When agent and guardian are killed at once, hvdrun inherits and ends the
# processes that they leave.
test_sigkill_of_agent_and_guardian() {
    start_trees tree
    # shellcheck disable=SC2046
    kill -KILL $(job_pids tree hvd-agent)
    finish tree
    [ "$status" -ne 0 ]
    wait_for -t 10 'gone tree'
    grep -qi 'agent' tree.err
}

# Prints the pid of job tree's agent, then that of its guardian, which is the
# agent's parent.
agent_and_guardian() {
    local p parent pids
    pids=$(job_pids tree hvd-agent)
    for p in $pids; do
        parent=$(awk '/^PPid:/{print $2}' "/proc/$p/status")
        if grep -qx "$parent" <<<"$pids"; then
            echo "$p $parent"
        fi
    done
}

test_sigkill_of_the_agent_alone() {
    start_trees tree --grace 1
    # shellcheck disable=SC2046
    set -- $(agent_and_guardian)
    [ $# -eq 2 ] || fail "no agent under a guardian: $*"
    kill -KILL "$1"
    finish tree
    [ "$status" -ne 0 ]
    wait_for -t 10 'gone tree'
    grep -qi 'agent' tree.err
}

test_sigkill_of_the_guardian_alone() {
    start_trees tree --grace 1
    # shellcheck disable=SC2046
    set -- $(agent_and_guardian)
    [ $# -eq 2 ] || fail "no agent under a guardian: $*"
    kill -KILL "$2"
    finish tree 125
    wait_for -t 10 'gone tree'
    grep -q "guardian (pid $2) was killed" tree.err
    absent 'rank . on host' tree.err
}

# SIGTERM to the agent ends the job, and no rank is blamed.
test_sigterm_of_the_agent() {
    start_trees tree --grace 1
    # shellcheck disable=SC2046
    set -- $(agent_and_guardian)
    kill -TERM "$1"
    finish tree 125
    wait_for -t 10 'gone tree'
    grep -q 'the agent got SIGTERM' tree.err
    absent 'rank . on host' tree.err
}

# hvdrun does not end children that it has from the shell that exec'ed it.
test_foreign_children_are_spared() {
    start tree sh -c 'sleep 1000 & echo $! >other; exec "$HVDRUN" -np 1 sh -c "
        touch up; exec sleep 1000"'
    wait_for '[ -e up ]'
    # shellcheck disable=SC2046
    kill -KILL $(job_pids tree hvd-agent)
    finish tree 125
    alive "$(cat other)"
    kill -KILL "$(cat other)"
}

test_sigkill_of_hvdrun_and_agent() {
    start_trees tree --grace 1
    # shellcheck disable=SC2046
    set -- $(agent_and_guardian)
    [ $# -eq 2 ] || fail "no agent under a guardian: $*"
    kill -KILL "$pid" "$1"
    finish tree 137
    wait_for -t 10 'gone tree'
}

test_stopped_agent_and_guardian_then_sigkill_of_hvdrun() {
    start_trees tree --grace 1
    # shellcheck disable=SC2046
    set -- $(agent_and_guardian)
    [ $# -eq 2 ] || fail "no agent under a guardian: $*"
    kill -STOP "$1" "$2"
    kill -KILL "$pid"
    finish tree 137
    wait_for -t 20 'gone tree'
}

test_failure_ends_stubborn_trees() {
    expect_exit 5 env HVD_TEST_JOB="$HVD_TEST_TOKEN.stubborn" \
        "$HVDRUN" -np 3 --grace 1 sh -c '
        [ $HVD_RANK = 0 ] || exec "$PROG/actor" tree up
        while [ ! -e up.1 ] || [ ! -e up.2 ]; do sleep 0.05; done; exit 5'
    wait_for -t 10 'gone stubborn'
}

# Stopped ranks, which cannot act on SIGTERM, are ended by SIGKILL.
test_stopped_ranks_are_ended() {
    start stopped "$HVDRUN" -np 2 --grace 1 sh -c '
        touch up.$HVD_RANK; kill -STOP $$; sleep 1000'
    wait_for '[ -e up.0 ] && [ -e up.1 ]'
    kill -TERM "$pid"
    finish stopped 143
    wait_for -t 10 'gone stopped'
}

# Processes that go on forking while they are being killed all end.
test_moving_targets_are_ended() {
    local end
    for end in TERM KILL; do
        rm -f up.*
        start chase "$HVDRUN" -np 2 --grace 1 "$PROG/actor" chase "$PWD/up"
        wait_for '[ "$(count_files up.?)" -eq 2 ]'
        kill -$end "$pid"
        finish chase
        wait_for -t 10 'gone chase'
        sleep 0.2
        gone chase || fail "some came back"
    done
}

# Orphans of a running job are reaped and do not pile up as zombies.
test_orphans_are_reaped() {
    start orphans "$HVDRUN" -np 1 sh -c '
        for i in $(seq 100); do (setsid sleep 0.01 &); done
        touch up; while [ ! -e go ]; do sleep 0.05; done'
    wait_for '[ -e up ]'
    wait_for '[ -z "$(ps -eo stat=,ppid= | awk "/^Z/ {print \$2}" |
        grep -xF "$(job_pids orphans hvd-agent)")" ]'
    touch go
    finish orphans 0
}

test_sigkill_during_start() {
    local i
    for i in 0 1 2 3 4 5 6 7 8 9; do
        start early "$HVDRUN" -np 16 --grace 1 "$PROG/actor" tree "$PWD/up"
        # at an arbitrary moment of the start, on purpose
        sleep "0.00$i"
        kill -KILL "$pid"
        finish early 137
        wait_for -t 10 'gone early'
    done
}

# When nobody reads the output, SIGTERM ends the ranks all the same, and a
# second one ends hvdrun.
test_sigterm_with_a_stuck_reader() {
    mkfifo pipe
    exec 7<>pipe
    start stuck sh -c 'exec "$HVDRUN" -np 2 --grace 1 yes >pipe'
    wait_for '[ "$(job_pids stuck yes | wc -l)" -eq 2 ]'
    kill -TERM "$pid"
    wait_for -t 10 '[ -z "$(job_pids stuck yes)$(job_pids stuck hvd-agent)" ]'
    kill -TERM "$pid" 2>/dev/null || :
    finish stuck 143
    exec 7>&-
}

# hvdrun works if its caller has blocked all signals and ignores SIGCHLD.
test_blocked_signals_at_start() {
    start blocked perl -e 'use POSIX ":signal_h";
        my $all = POSIX::SigSet->new; $all->fillset;
        sigprocmask(SIG_BLOCK, $all); $SIG{CHLD} = "IGNORE";
        exec @ARGV' "$HVDRUN" -np 1 sh -c '
        grep SigBlk /proc/self/status; touch up; exec sleep 1000'
    wait_for '[ -e up ]'
    kill -TERM "$pid"
    finish blocked 143
    grep -q 'SigBlk:.0*$' blocked.out
}

test_timeout() {
    expect_exit 124 "$HVDRUN" -np 2 --timeout 1 --grace 1 sleep 1000
    grep -Eqi 'time-?out|timed out|time limit' err
    expect_exit 0 "$HVDRUN" -np 2 --timeout 100 true
    expect_exit 124 "$HVDRUN" -np 2 --timeout 500ms --grace 1 sh -c \
        'trap "" TERM; while :; do sleep 0.1; done'
}

test_killed_from_outside() {
    start victim "$HVDRUN" -np 2 --grace 2 sh -c '
        echo $$ >pid.$HVD_RANK.new; mv pid.$HVD_RANK.new pid.$HVD_RANK
        exec sleep 1000'
    wait_for '[ -e pid.0 ] && [ -e pid.1 ]'
    kill -KILL "$(cat pid.1)"
    finish victim 137
    grep -q '^[^[].*rank 1' victim.err
    grep -Eq '^[^[].*(SIGKILL|signal 9)' victim.err
}

test_terminated_from_outside() {
    expect_exit 143 "$HVDRUN" -np 2 --grace 2 sh -c '
        [ $HVD_RANK = 0 ] && exec sleep 1000; kill $$'
    grep -q 'rank 1 .*(SIGTERM): not sent by hvdrun$' err
}

test_limit_on_cpu_time() {
    local soft
    for soft in -S ''; do
        expect_exit "$([ -n "$soft" ] && echo 152 || echo 137)" \
            "$HVDRUN" -np 1 sh -c "ulimit -c 0; ulimit $soft -t 1; while :; do :; done"
        grep -q 'its limit on CPU time' err
    done
}

test_out_of_memory() {
    local group
    sanitized && skip "sanitizers need more memory"
    memory_group $((96 << 20))
    start oom sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
        "$HVDRUN" -np 2 --grace 1 sh -c '
        [ $HVD_RANK = 1 ] && exec "$PROG/actor" eat 512; exec sleep 1000'
    finish oom
    wait_for 'rmdir "$group" 2>/dev/null'
    [ "$status" -eq 137 ] || fail "exit $status"
    grep -q '^[^[].*rank 1' oom.err
    grep -qi '^[^[].*memory' oom.err || fail "does not say why"
}

test_rank_on_a_full_disk() {
    need_root
    mkdir disk
    mount -n -t tmpfs -o size=64k tmpfs disk 2>/dev/null ||
        skip "cannot mount a small disk"
    expect_exit 1 "$HVDRUN" -np 2 --grace 1 --wdir disk sh -c '
        [ $HVD_RANK = 1 ] || exec sleep 1000
        head -c 1000000 /dev/zero >model || exit 1'
    umount -n disk
    grep -Eqi '^[^[].*rank 1 .*(disk|no space|full)' err ||
        fail "the report does not name the disk"
}

test_signals_are_passed_on() {
    start usr "$HVDRUN" -np 2 sh -c '
        trap "echo got usr1" USR1; trap "echo got usr2; exit 0" USR2
        touch up.$HVD_RANK; while :; do sleep 0.05; done'
    wait_for '[ -e up.0 ] && [ -e up.1 ]'
    kill -USR1 "$pid"
    wait_for '[ "$(grep -c "got usr1" usr.out)" -eq 2 ]'
    kill -USR2 "$pid"
    finish usr 0
    [ "$(grep -c "got usr2" usr.out)" -eq 2 ]
}

# Under nohup, hvdrun and its job outlive their terminal.
test_ignored_hangup_stays_ignored() {
    start nohup sh -c 'trap "" HUP; exec "$HVDRUN" -np 1 sh -c "
        touch up; while [ ! -e go ]; do sleep 0.05; done; echo survived"'
    wait_for '[ -e up ]'
    kill -HUP "$pid"
    touch go
    finish nohup 0
    grep -q survived nohup.out
}

test_ctrl_c_during_start() {
    local i
    for i in 1 2 3 4 5 6 7 8; do
        start early "$HVDRUN" -np 16 --grace 1 sleep 1000
        # until then the shell's background job ignores SIGINT
        until [ "/proc/$pid/exe" -ef "$HVDRUN" ]; do :; done
        # at an arbitrary moment of the start, on purpose
        sleep "0.0$i"
        kill -INT "$pid" 2>/dev/null
        finish early 130
        wait_for -t 10 'gone early'
    done
}

# Ranks that end at once are not lost.  Open MPI 4.1.4 hangs in such jobs.
test_many_short_jobs() {
    local i np=64 times=100
    ! full || times=500
    sanitized && times=5
    for ((i = 0; i < times; i++)); do
        "$HVDRUN" -np $np true
    done
}

test_very_many_ranks() {
    local np=500
    sanitized && np=100
    expect_exit 0 "$HVDRUN" -np $np --no-tag-output sh -c 'echo "$HVD_RANK"'
    sort -n out | cmp - <(seq 0 $((np - 1)))
}

test_many_short_failures() {
    local i times=20 got
    for ((i = 0; i < times; i++)); do
        got=0
        "$HVDRUN" -np 16 --grace 2 false 2>err || got=$?
        [ $got -eq 1 ] || fail "exit $got"
    done
}

# 64 ranks work with a limit of 256 descriptors.
test_few_descriptors() {
    (
        ulimit -n 256
        "$HVDRUN" -np 64 true
    )
}

# With too few descriptors hvdrun works, or fails with an error before any rank
# runs.
test_too_few_descriptors() {
    local got=0
    (
        ulimit -n 64
        exec "$HVDRUN" -np 64 true >out 2>err
    ) || got=$?
    [ $got -eq 0 ] || {
        [ $got -eq 125 ]
        grep -qi 'descriptors\|open files' err
        [ "$(wc -l <err)" -le 2 ]
    }
}

test_jobs_side_by_side() {
    local i
    for i in 1 2 3 4 5 6; do
        start side$i "$HVDRUN" -np 4 "$PROG/actor" lines 100 50
    done
    for i in 1 2 3 4 5 6; do
        finish side$i 0
        [ "$(wc -l <side$i.out)" -eq 400 ]
    done
}
