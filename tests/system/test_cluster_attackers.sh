# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun and libhvd withstand hostile hosts in the list and other users on good
# hosts.

# Fails unless hvdrun ARG... ($@) with the hostile host n2 ends in time, names
# n2, and prints neither much nor control bytes.
survives() {
    local began=$SECONDS status=0
    login bash -c 'ulimit -v 4000000; exec "$@"' x \
        "$HVDRUN" --start-timeout 3 --grace 1 "$@" -H n1,n2 \
        sh -c 'touch started; exec sleep 1000' >out 2>err || status=$?
    [ "$status" -eq 125 ] || fail "exit $status: $(head -c 2000 err)"
    [ $((SECONDS - began)) -le 20 ] || fail "took $((SECONDS - began)) s"
    tells 'host n2: '
    [ "$(wc -c <err)" -le 20000 ] || fail "$(wc -c <err) bytes of messages"
    [ "$(tr -d '\11\12\40-\176\200-\377' <err | wc -c)" -eq 0 ] ||
        fail "control bytes on the terminal"
    iconv -f UTF-8 -t UTF-8 err >/dev/null || fail "raw bytes on the terminal"
}

not_started() {
    [ ! -e started ] || fail "something was started"
}

# Kills what still runs on n2: hvdrun cannot end the processes of a host that
# does not obey.
end_of_n2() {
    local left
    left=$(left n2 | sed -n 's/^n2: process \([0-9]*\):.*/\1/p')
    [ -z "$left" ] || kill_on n2 KILL "$left"
}

# Makes the sshd of n2 run the command $1 instead of a shell.
n2_is() {
    faulty sshd n2 stop
    cp cluster/n2/sshd_config config
    faulty sshd n2 start "ForceCommand $1"
}

n2_is_good_again() {
    faulty sshd n2 stop
    cp config cluster/n2/sshd_config
    faulty sshd n2 start
}

test_attackers_instead_of_a_shell() {
    local what launcher
    sanitized && skip "needs a limit on address space"
    cluster_up 2
    for what in 'cat /dev/zero' 'cat /dev/urandom' yes 'sleep 1000' true \
        cat 'cat >/dev/null' 'yes >&2' 'head -c 100 /dev/urandom' \
        'printf \\\\033[2J; exit 5' 'echo Welcome; exec cat'; do
        n2_is "$what"
        for launcher in ssh2 openssh; do
            case $launcher:$what in
            ssh2:* | *:cat\ /dev/zero | *:sleep*)
                survives --launcher $launcher
                not_started
                ;;
            esac
        done
        end_of_n2
        n2_is_good_again
    done
    expect_exit 0 login "$HVDRUN" -H n1,n2 true
    cluster_down
}

# hvdrun survives an agent that is some other program on n2.
test_attackers_instead_of_an_agent() {
    local what
    sanitized && skip "needs a limit on address space"
    cluster_up 2
    for what in 'cat /dev/zero' 'cat /dev/urandom' yes 'sleep 1000' true cat \
        'exit 3' 'echo too old >&2; exit 1'; do
        printf '#!/bin/sh\n[ "$(uname -n)" = n1 ] && exec "%s" "$@"\n%s\n' \
            "$HVD_AGENT" "$what" >agent
        chmod +x agent
        survives --agent "$PWD/agent"
        end_of_n2
        not_started
    done
    cluster_down
}

# hvdrun survives an agent on n2 that sends malformed frames of every kind.
test_attackers_frames() {
    local what
    sanitized && skip "needs a limit on address space"
    cluster_up 2
    for what in version huge json cut type foreign flood twice mute; do
        printf '#!/bin/sh\n[ "$(uname -n)" = n1 ] && exec "%s" "$@"\n%s\n' \
            "$HVD_AGENT" "exec \"$PROG/evil_agent\" $what" >agent
        chmod +x agent
        survives --agent "$PWD/agent"
        end_of_n2
    done
    cluster_down
}

# ---- Another user on a host ----------------------------------------------

start_waiting() {
    start_on login job "$HVDRUN" --grace 1 -H n1:2,n2 sh -c '
        "$PROG/coll" sum 100 3 && echo "$HVD_RENDEZVOUS" >where.$HVD_RANK.new
        mv where.$HVD_RANK.new where.$HVD_RANK
        while [ ! -e go ]; do sleep 0.05; done; exec "$PROG/coll" topo'
    wait_for '[ "$(count_files where.?)" -eq 3 ]'
}

end_waiting() {
    touch go
    finish job 0
    [ "$(grep -c 'rank ./3' job.out)" -eq 3 ]
}

test_attackers_other_user_on_the_socket() {
    local what
    cluster_up 2
    start_waiting
    for what in hello junk huge flood idle; do
        on n1 "$PROG/poke" -u 2001 "$(cat where.0)" $what >answer
        [ "$(cat answer)" = refused ] || fail "$what: $(cat answer)"
    done
    end_waiting
    cluster_down
}

test_attackers_other_user_sees_nothing() {
    local pid
    cluster_up 2
    start_waiting
    for pid in $(agents n1); do
        as_alice n1 cat "/proc/$pid/environ" >seen 2>&1 || :
        absent 'HVD_\|SECRET' seen
        as_alice n1 ls "/proc/$pid/fd" >seen 2>&1 || :
        grep -q 'denied' seen
    done
    as_alice n1 sh -c 'ls -R /root /tmp/*hvd* /run/*hvd*' >seen 2>&1 || :
    absent 'sock$\|hvd-agent-' seen
    # Nor can alice open a shared memory segment of the job.
    as_alice n1 sh -c 'ls /dev/shm' >seen 2>&1
    absent 'hvd' seen
    end_waiting
    cluster_down
}

test_attackers_other_user_cannot_signal() {
    local pid pids
    cluster_up 2
    start_waiting
    pids=$(agents n1)
    [ -n "$pids" ]
    for pid in $pids; do
        on n1 kill -0 "$pid"
        if as_alice n1 kill -TERM "$pid" 2>kill.err; then
            fail "another user could signal pid $pid"
        fi
        grep -q 'not permitted' kill.err
    done
    end_waiting
    cluster_down
}

# Jobs of two users run on one host at the same time without interference.
test_attackers_two_users_of_one_host() {
    need_nobody
    cluster_up 1
    start_on login one "$HVDRUN" -H n1:2 "$PROG/coll" sum 1000 300
    expect_exit 0 login "$HVDRUN" -H alice@n1:2 --no-tag-output \
        sh -c '"$PROG/coll" sum 1000 30 && id -un'
    [ "$(sort -u out)" = alice ]
    finish one 0
    [ "$(on n1 stat -c %U /home/alice/.cache/hvd)" = alice ]
    cluster_down
}
