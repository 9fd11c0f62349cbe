# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Tests on several hosts (see `cluster` for what a host is, and lib.sh).
#
#   cluster_up N [OPTION]...    skips the test where that is not possible
#   cluster_down                fails if anything of a job is left on a host
#   on HOST CMD...              runs CMD there, in this directory
#   as_alice HOST CMD...        the same, as another user
#   login CMD...                on the login node
#   faulty COMMAND HOST ARG...  a fault of `cluster`: link, drop, sshd ...
#   start_on HOST NAME CMD...   as `start`; signals go to what `the` tells
#   the NAME COMM               pid, as seen here, of NAME's process COMM
#   resume NAME                 SIGCONT to NAME's hvdrun, which was stopped
#   left [HOST]                 prints what a job left
#   ours                        err without what ranks wrote
#   tells PATTERN               one line of `ours` matches, if case differs
#   agents HOST                 its agents' pids there, guardians first
#   sessions HOST               pids of its sshd's connections
#   kill_on HOST SIGNAL PIDS    pids in one or more words
#   ssh_config LINE...          the login node's ~/.ssh/config
#   listening HOST              its TCP ports but sshd's
#
# A test that fails, or is killed, leaves no host: the hosts end with it.

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

# nsenter stops when its child does.
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

# What ends by itself may take a moment: a dead client's sshd, an agent
# that has just lost its connection.
nothing_left() {
    local end=$((SECONDS + WAIT_S)) now=x
    while [ -n "$now" ]; do
        now=$(left)
        [ $SECONDS -le $end ] || fail "left on the hosts: $now"
    done
}

# What hvdrun itself said: lines of ranks begin with a tag.
ours() {
    grep -av '^\[' "${1:-err}" || :
}

tells() {
    ours "${2:-err}" | grep -aEqi -- "$1" ||
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

# One that is gone already is not missed.
kill_on() {
    local words
    read -rd "" -a words <<<"${*:3}" || :
    [ "${#words[@]}" -gt 0 ] || fail "nothing to kill on $1"
    on "$1" kill "-$2" "${words[@]}" 2>/dev/null || :
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
