# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The functions that every system test can use.  A test runs with `set -Eeuo
# pipefail` in an empty directory of its own: a command that fails, fails the
# test.
#
#   expect_exit N CMD...      runs CMD, stdout to ./out, stderr to ./err; fails
#                             the test if CMD does not exit with code N
#   check_refusal PATTERN     ./err is one line that matches PATTERN, ./out is
#                             empty and ./started does not exist
#   refused PATTERN ARG...    hvdrun ARG... exits with code 2, and the above
#   start NAME CMD...         runs CMD as job NAME in the background: its pid in
#                             $pid, its output in NAME.out and NAME.err
#   finish NAME [N]           waits for job NAME to end; its exit code is in
#                             $status and must be N
#   all_done RANKS STEPS      succeeds if, by job.out, exactly RANKS ranks of an
#                             elastic job are done, all after the same number of
#                             steps, which is at least STEPS
#   survivors NAME            prints the pids of job NAME that still run
#   gone NAME                 succeeds if no process of job NAME is left
#   alive PID                 succeeds if PID exists and is not a zombie
#   wait_for [-t S] CONDITION evaluates CONDITION until it succeeds, for at most
#                             S seconds ($WAIT_S); changes $!
#   stopwatch                 begins to measure time
#   in_time MS [MORE]         fails the test if more than MS milliseconds have
#                             passed since; MORE are allowed in addition where
#                             the machine was busy
#   var FILE NAME             prints the value of NAME in FILE, which
#                             `actor environ` wrote
#   absent PATTERN FILE       fails the test if FILE matches PATTERN
#   each_mpirun CMD...        runs CMD once for each installed MPI
#   each_mpi CMD...           the same for each MPI with a plug-in
#   mpi_launcher NP           sets the array launcher to a command's start
#   fail TEXT, skip REASON    end the test
#
# cluster.sh adds what tests on several hosts need.

HVDRUN=$BUILD/bin/hvdrun
HVD_AGENT=$BUILD/bin/hvd-agent
HVD_BENCH=$BUILD/bin/hvd-bench
EXAMPLES=$BUILD/examples
PROG=$BUILD/tests/prog
export HVDRUN HVD_AGENT HVD_BENCH EXAMPLES PROG

# The longest wait, in seconds, for something that must happen.  A test takes
# this long only when it fails.
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

# A prefix for the command of ranks that exit by themselves while the agent is
# ending them.  LeakSanitizer stops the process at exit with SIGSTOP, which the
# agent's SIGCONT would undo, so leak detection is off.
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

# Prints the microseconds in which a process has waited for a core, since boot.
waited_us() {
    sed -n 's/^some .*total=//p' /proc/pressure/cpu 2>/dev/null
}

stopwatch() {
    watch_ms=$(now_ms) watch_us=$(waited_us)
}

# The machine was busy if processes waited for a core in a quarter of the time,
# or if the kernel does not say.
in_time() {
    local took=$(($(now_ms) - watch_ms)) limit=$1 waited
    waited=$(waited_us)
    if [ -z "$waited" ] || [ $((waited - watch_us)) -ge $((took * 250)) ]; then
        limit=$((limit + ${2:-0}))
    fi
    sanitized || [ $took -le "$limit" ] || fail "took $took ms, not $limit"
}

one_line() {
    [ "$(wc -l <"$1")" -eq 1 ] || fail "$1 is not one line"
}

# Runs a command that would create ./started, and checks that it did not.
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

# Fails the test if FILE ($2) matches PATTERN ($1).  Under set -e, `! grep` and
# `a && b` would not end a test.
absent() {
    if grep -q -e "$1" "$2"; then
        fail "$2 holds '$1'"
    fi
}

wait_for() {
    local limit=$WAIT_S end pipe
    if [ "$1" = -t ]; then
        limit=$2
        shift 2
    fi
    end=$((SECONDS + limit))
    until eval "$1"; do
        [ $SECONDS -le "$end" ] || fail "not within $limit s: $1"
        # Waits for a pipe to which nobody writes, because starting sleep would
        # cost a millisecond.
        [ "${pipe:-}" ] || exec {pipe}<> <(:)
        read -rt 0.05 -u "$pipe" || :
    done
    [ ! "${pipe:-}" ] || exec {pipe}>&-
}

# Marks every process of the job with HVD_TEST_JOB in its environment, so that
# survivors finds it however it was started.
start() {
    local name=$1
    shift
    : >"$name.out" # else a test may read what an earlier job has written
    : >"$name.err"
    HVD_TEST_JOB=$HVD_TEST_TOKEN.$name "$PROG/actor" exec "$@" \
        >"$name.out" 2>"$name.err" &
    pid=$!
    echo "$pid" >"$name.pid"
}

finish() {
    status=0
    wait "$(<"$1.pid")" 2>/dev/null || status=$?
    [ $# -lt 2 ] || [ "$status" -eq "$2" ] ||
        fail "$1: exit $status instead of $2"
}

# Prints the pids of job NAME ($1).  Zombies are left out: their environment is
# empty.
survivors() {
    local f
    for f in $(grep -laF "HVD_TEST_JOB=$HVD_TEST_TOKEN.$1" \
        /proc/[0-9]*/environ 2>/dev/null || :); do
        f=${f#/proc/}
        echo "${f%/environ}"
    done
}

all_done() {
    [ "$(awk -v ranks="$1" -v least="$2" '
        $1 == "done" { count++; bad += $3 != ranks || $4 < least; steps[$4] }
        END { print count + 0, bad + 0, length(steps) }' job.out)" = "$1 0 1" ]
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

# Prints the pids of job NAME ($1) that run the program COMM ($2).
job_pids() {
    local p
    for p in $(survivors "$1"); do
        if [ "$(cat "/proc/$p/comm" 2>/dev/null)" = "$2" ]; then
            echo "$p"
        fi
    done
}

# rss_kib PID: prints the resident memory of PID in KiB.
rss_kib() {
    sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

var() {
    tr '\n\0' '\1\n' <"$1" | sed -n "s/^$2=//p"
}

# same FILE NAME VALUE: fails the test if variable NAME in FILE, which `actor
# environ` wrote, is not VALUE.
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

# Skips the test if the user nobody cannot run hvdrun, as in a build below a
# private directory.
need_nobody() {
    setpriv --reuid 65534 --clear-groups test -x "$HVDRUN" ||
        skip "another user cannot reach $HVDRUN"
}

# Makes a memory cgroup with a limit of $1 bytes and sets $group to its
# directory.  The caller moves processes into it by $group/cgroup.procs and
# removes it.
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

# Runs the command "$@" once for each MPI that is installed, with $mpi set to
# its name and HVD_MPIRUN to the mpirun that hvdrun --mpi calls.
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

# Runs the command "$@" as each_mpirun does, but only for an MPI for which this
# build has a plug-in; HVD_PLUGIN_DIR is its folder, so that libhvd finds it.
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

# Sets the array launcher to the start of a command line that runs $1 ranks
# with the MPI launcher of $mpi itself, without hvdrun.
mpi_launcher() {
    launcher=(mpiexec.mpich -n "$1")
    [ "$mpi" = openmpi ] || return 0
    launcher=(mpiexec.openmpi --oversubscribe --bind-to none -np "$1")
    [ "$(id -u)" -ne 0 ] || launcher+=(--allow-run-as-root)
}

# shellcheck source=tests/system/cluster.sh
. "$ROOT/tests/system/cluster.sh"
