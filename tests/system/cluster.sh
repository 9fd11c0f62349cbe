# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What tests on several hosts can use.  `cluster` says what a host is.
#
#   cluster_up N [OPTION]...    starts N hosts, or skips the test where that is
#                               not possible; OPTIONs are those of `cluster`
#   cluster_down                ends the hosts; fails if a job left anything
#   on HOST CMD...              runs CMD on HOST, in this directory
#   as_alice HOST CMD...        the same, as user alice
#   login CMD...                runs CMD on the login node
#   faulty COMMAND HOST ARG...  causes a fault by a command of `cluster`: link,
#                               drop, sshd ...
#   start_on HOST NAME CMD...   as `start`, on HOST; send signals to the pid
#                               that `the` prints
#   the NAME COMM               prints the pid, on this machine, of the only
#                               process of job NAME that runs COMM
#   resume NAME                 continues the hvdrun of job NAME after a stop
#   left [HOST]                 prints what a job left on HOST, or on any host
#   ours [FILE]                 prints the lines of FILE (err) that ranks did
#                               not write
#   tells PATTERN [FILE]        fails unless a line of `ours` matches PATTERN,
#                               ignoring case
#   agents HOST                 prints the pids of the agents on HOST, guardians
#                               first
#   sessions HOST               prints the pids of the connections of its sshd
#   kill_on HOST SIGNAL PIDS    sends SIGNAL to PIDS, one or more words of pids
#   kill_agents HOST            kills agents and guardians on HOST all at once
#   kill_job_and_agents NAME HOST  kills the hvdrun of job NAME with them
#   ssh_config LINE...          writes ~/.ssh/config of the login node
#   listening HOST              prints the TCP ports that HOST listens on
#                               except that of its sshd
#
# The hosts end with the test, even if it fails or is killed.

CLUSTER_PROG=$ROOT/tests/system/cluster

cluster_up() {
    local tool
    need_root
    for tool in sshd ssh-keygen ip iptables nsenter; do
        command -v "$tool" >/dev/null || skip "$tool is not installed"
    done
    unshare --mount --net --uts --ipc --pid --fork true 2>/dev/null ||
        skip "namespaces cannot be made here"
    CLUSTER=$PWD/cluster
    "$CLUSTER_PROG" hold "$CLUSTER" "$@" &
    disown
    trap '"$CLUSTER_PROG" down "$CLUSTER"' EXIT
    "$CLUSTER_PROG" ready "$CLUSTER"
}

cluster_down() {
    nothing_left
    trap - EXIT
    "$CLUSTER_PROG" down "$CLUSTER"
}

on() {
    "$CLUSTER_PROG" exec "$CLUSTER" "$@"
}

as_alice() {
    "$CLUSTER_PROG" exec -u alice "$CLUSTER" "$@"
}

login() {
    on login "$@"
}

faulty() {
    "$CLUSTER_PROG" "$1" "$CLUSTER" "${@:2}"
}

start_on() {
    start "$2" "$CLUSTER_PROG" exec "$CLUSTER" "$1" "${@:3}"
}

the() {
    local found
    found=$(job_pids "$1" "$2")
    [ "$(wc -w <<<"$found")" -eq 1 ] ||
        fail "no single process $2 of $1: '$found'"
    echo "$found"
}

# Continues the hvdrun of job NAME ($1) and the nsenter around it, which stops
# when its child does.
resume() {
    local pid
    for pid in $(job_pids "$1" nsenter) $(job_pids "$1" hvdrun); do
        kill -CONT "$pid" 2>/dev/null || : # it went on, and ended
    done
}

# shellcheck disable=SC2120 # the host may be left out
left() {
    "$CLUSTER_PROG" leftovers "$CLUSTER" "$@"
}

# Fails if a job left anything on a host.  Waits first, because some processes
# need a moment to end: the sshd of a dead client, an agent that has just lost
# its connection.
nothing_left() {
    local end=$((SECONDS + WAIT_S)) now=x
    while [ -n "$now" ]; do
        now=$(left)
        [ $SECONDS -le $end ] || fail "left on the hosts: $now"
    done
}

# Prints what hvdrun itself wrote.  The lines of ranks begin with a tag.
ours() {
    grep -av '^\[' "${1:-err}" || :
}

tells() {
    grep -aEqi -- "$1" < <(ours "${2:-err}") ||
        fail "no message matches '$1': $(ours "${2:-err}" | head -n 20)"
}

agents() {
    on "$1" ps -eo pid=,ppid=,args= | awk '
        $3 ~ /(^|\/)hvd-agent/ { pid[$1] = $2 }
        END {
            for (p in pid) if (!(pid[p] in pid)) print p
            for (p in pid) if (pid[p] in pid) print p
        }'
}

sessions() {
    on "$1" sh -c 'ps -eo pid=,comm=,args= | grep "sshd: [^/]" |
        awk "{ print \$1 }"'
}

# Sends signal $2 to the pids in $3 and on; pids that are gone are ignored.
kill_on() {
    local words
    read -rd "" -a words <<<"${*:3}" || :
    [ "${#words[@]}" -gt 0 ] || fail "nothing to kill on $1"
    on "$1" kill "-$2" "${words[@]}" 2>/dev/null || :
}

# Kills the agents and guardians of host $1.  Stops them first, because one
# acts when it sees the other die.
kill_agents() {
    kill_on "$1" STOP "$(agents "$1")"
    kill_on "$1" KILL "$(agents "$1")"
}

# Kills hvdrun of job NAME ($1) and the agents of HOST ($2).  Stops hvdrun
# before the agents die, because it would connect to HOST again and end what
# they left.
kill_job_and_agents() {
    local hvdrun
    hvdrun=$(the "$1" hvdrun)
    kill -STOP "$hvdrun"
    kill_agents "$2"
    kill_on "$2" KILL "$(sessions "$2")"
    kill -KILL "$hvdrun"
    resume "$1"
    finish "$1" 137
}

ssh_config() {
    printf '%s\n' "$@" | login sh -c 'cat >/root/.ssh/config'
}

listening() {
    on "$1" cat /proc/net/tcp /proc/net/tcp6 | awk '
        $4 == "0A" { sub(".*:", "", $2); print $2 }' | sort -u |
        while read -r port; do
            [ "$port" = 0016 ] || echo "$((16#$port))"
        done
}

# Kills a rank of MPI_PROGRAM on n2 in each phase: those on n1 end too, wherever
# they wait for it.
kill_mpi_ranks_on_n2() { # WIREUP
    local where
    for where in init middle finalize; do
        rm -f pid.*
        start_on login job "$HVDRUN" -H n1:2,n2:2 --wireup "$1" \
            "$MPI_PROGRAM" pause $where
        wait_for '[ -e pid.0 ] && [ -e pid.1 ] && [ -e pid.2 ] && [ -e pid.3 ]'
        on n2 kill -KILL "$(cat pid.3)"
        finish job 137
        tells 'rank 3 .*SIGKILL' job.err
    done
    expect_exit 7 login "$HVDRUN" -H n1:2,n2:2 --wireup "$1" \
        "$MPI_PROGRAM" abort 7
    tells 'rank 1 .*MPI_Abort'
}
