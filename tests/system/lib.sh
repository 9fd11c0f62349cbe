# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What every system test can use.  A test runs with `set -Eeuo pipefail`
# in an empty directory of its own: a command that fails, fails the test.
#
#   expect_exit N CMD...      runs it; stdout to ./out, stderr to ./err
#   refused PATTERN ARG...    hvdrun exits 2, one line, nothing started
#   start NAME CMD...         in the background; $pid; NAME.out, NAME.err
#   finish NAME [N]           waits for its end; $status; expects exit N
#   survivors NAME            pids of what is left of it
#   wait_for [-t S] CONDITION polls, bounded
#   var FILE NAME             a value out of what `actor environ` wrote
#   absent PATTERN FILE
#   each_mpirun CMD..., each_mpi CMD..., mpi_launcher NP
#   fail TEXT, skip REASON
#
# cluster.sh adds what tests on several hosts need.

HVDRUN=$BUILD/bin/hvdrun
HVD_AGENT=$BUILD/bin/hvd-agent
HVD_BENCH=$BUILD/bin/hvd-bench
EXAMPLES=$BUILD/examples
PROG=$BUILD/tests/prog
export HVDRUN HVD_AGENT HVD_BENCH EXAMPLES PROG

# Longest wait for something that must happen; only failures take it.
WAIT_S=${HVD_TEST_WAIT:-30}

fail() {
    echo "failed: $*" >&2
    exit 1
}

skip() {
    echo "$*" >"$TEST_META/skip"
    exit 77
}

need_root() {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
}

sanitized() {
    [ -n "${HVD_TEST_SAN:-}" ]
}

# Before the program of ranks that end by themselves while they are being
# ended: an agent's SIGCONT takes away the SIGSTOP that LeakSanitizer waits
# for at exit.
# shellcheck disable=SC2034 # the suites use it
unchecked_leaks=(env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0")

full() {
    [ "${HVD_TEST_FULL:-0}" = 1 ]
}

now_ms() {
    local t=$EPOCHREALTIME
    echo $((${t%.*} * 1000 + 10#${t#*.} / 1000))
}

expect_exit() {
    local want=$1 got=0
    shift
    "$@" >out 2>err || got=$?
    [ "$got" -eq "$want" ] || fail "exit $got instead of $want: $*"
}

one_line() {
    [ "$(wc -l <"$1")" -eq 1 ] || fail "$1 is not one line"
}

# The command touches a file: it must not appear.
refused() {
    local pattern=$1
    shift
    expect_exit 2 "$HVDRUN" "$@" touch "$PWD/started"
    check_refusal "$pattern"
}

check_refusal() {
    one_line err
    grep -Eq -- "$1" err || fail "stderr does not match '$1'"
    [ ! -s out ] || fail "stdout is not empty"
    [ ! -e started ] || fail "something was started"
}

# `! grep` and `a && b` do not end a test under set -e; this does.
absent() {
    if grep -q -e "$1" "$2"; then
        fail "$2 holds '$1'"
    fi
}

wait_for() {
    local limit=$WAIT_S end
    if [ "$1" = -t ]; then
        limit=$2
        shift 2
    fi
    end=$((SECONDS + limit))
    until eval "$1"; do
        [ $SECONDS -le "$end" ] || fail "not within $limit s: $1"
        sleep 0.05
    done
}

# HVD_TEST_JOB marks what belongs to this command, however it is started.
start() {
    local name=$1
    shift
    HVD_TEST_JOB=$HVD_TEST_TOKEN.$name "$PROG/actor" exec "$@" \
        >"$name.out" 2>"$name.err" &
    pid=$!
    echo "$pid" >"$name.pid"
}

finish() {
    status=0
    wait "$(cat "$1.pid")" 2>/dev/null || status=$?
    [ $# -lt 2 ] || [ "$status" -eq "$2" ] ||
        fail "$1: exit $status instead of $2"
}

# Zombies have no environment left, so they do not count.
survivors() {
    local f
    for f in $(grep -laF "HVD_TEST_JOB=$HVD_TEST_TOKEN.$1" \
        /proc/[0-9]*/environ 2>/dev/null || :); do
        f=${f#/proc/}
        echo "${f%/environ}"
    done
}

gone() {
    [ -z "$(survivors "$1")" ]
}

alive() {
    local state
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' \
        "/proc/$1/status" 2>/dev/null) || return 1
    [ -n "$state" ] && [ "$state" != Z ]
}

# Processes of job NAME that run the program COMM.
job_pids() {
    local p
    for p in $(survivors "$1"); do
        if [ "$(cat "/proc/$p/comm" 2>/dev/null)" = "$2" ]; then
            echo "$p"
        fi
    done
}

# rss_kib PID
rss_kib() {
    sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

var() {
    tr '\n\0' '\1\n' <"$1" | sed -n "s/^$2=//p"
}

# same FILE NAME VALUE
same() {
    [ "$(var "$1" "$2")" = "$3" ] ||
        fail "$1: $2 is '$(var "$1" "$2")', not '$3'"
}

count_files() {
    local n=0 f
    for f in "$@"; do
        [ ! -e "$f" ] || n=$((n + 1))
    done
    echo "$n"
}

# Needs nobody to be able to run hvdrun: a build below a private directory
# cannot be used by another user.
need_nobody() {
    setpriv --reuid 65534 --clear-groups test -x "$HVDRUN" ||
        skip "another user cannot reach $HVDRUN"
}

# A memory cgroup, $group, of so many bytes; its processes go in
# $group/cgroup.procs, and the test removes it.
memory_group() {
    local own
    need_root
    if [ -w /sys/fs/cgroup/cgroup.procs ] &&
        grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
        own=$(sed -n 's/^0:://p' /proc/self/cgroup)
        group=/sys/fs/cgroup${own%/}/hvd-test-$$
        mkdir "$group" 2>/dev/null || skip "cannot make a memory cgroup"
        [ -e "$group/memory.max" ] || {
            rmdir "$group"
            skip "the memory controller is not delegated"
        }
        echo "$1" >"$group/memory.max"
        echo 0 >"$group/memory.swap.max" 2>/dev/null || :
    elif [ -d /sys/fs/cgroup/memory ]; then
        own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
        group=/sys/fs/cgroup/memory${own%/}/hvd-test-$$
        mkdir "$group" 2>/dev/null || skip "cannot make a memory cgroup"
        echo "$1" >"$group/memory.limit_in_bytes"
    else
        skip "no memory cgroup"
    fi
}

# Runs it with every MPI that is installed: its name in $mpi, and what hvdrun
# --mpi calls.
each_mpirun() {
    local found=
    for mpi in openmpi mpich; do
        export HVD_MPIRUN=mpirun.openmpi
        [ $mpi = openmpi ] || HVD_MPIRUN=mpiexec.hydra
        command -v $HVD_MPIRUN >/dev/null || continue
        found=1
        "$@"
    done
    [ "$found" ] || skip "no mpirun is installed"
}

# Only those that have a plug-in, too, which libhvd then finds.
each_mpi() {
    with_plugin=
    each_mpirun if_plugin "$@"
    [ "$with_plugin" ] || skip "this build has no libhvd-mpi.so"
}

if_plugin() {
    export HVD_PLUGIN_DIR=$BUILD/tests/$mpi
    [ -e "$HVD_PLUGIN_DIR/libhvd-mpi.so" ] || return 0
    with_plugin=1
    "$@"
}

# The start of a command for that MPI's own launcher, into the array
# launcher.
mpi_launcher() {
    launcher=(mpiexec.mpich -n "$1")
    [ "$mpi" = openmpi ] || return 0
    launcher=(mpiexec.openmpi --oversubscribe --bind-to none -np "$1")
    [ "$(id -u)" -ne 0 ] || launcher+=(--allow-run-as-root)
}

# shellcheck source=tests/system/cluster.sh
. "$ROOT/tests/system/cluster.sh"
