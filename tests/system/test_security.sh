# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What other users and broken or hostile peers can see and do.

# Starts a job, with the hvdrun options $@, that waits for ./go; $where is its
# rendezvous address.
start_waiting() {
    start job env SECRET_TOKEN=hunter2hunter2 "$HVDRUN" -np 2 "$@" sh -c '
        "$PROG/coll" sum 100 3 && echo "$HVD_RENDEZVOUS" >where.$HVD_RANK.new
        mv where.$HVD_RANK.new where.$HVD_RANK
        while [ ! -e go ]; do sleep 0.05; done
        exec "$PROG/coll" topo'
    wait_for '[ -e where.0 ] && [ -e where.1 ]'
    where=$(cat where.0)
}

end_waiting() {
    touch go
    finish job 0
    grep -q 'rank 1/2' job.out
}

test_command_lines_show_nothing() {
    local p
    start_waiting -x OTHER_SECRET=swordfish
    for p in $(job_pids job hvd-agent); do
        tr '\0' ' ' <"/proc/$p/cmdline"
        echo
    done >agent_args
    [ -s agent_args ]
    absent 'hunter2\|swordfish\|coll\|topo' agent_args
    for p in /proc/[0-9]*; do
        tr '\0' ' ' <"$p/cmdline" 2>/dev/null || :
    done >all_args
    absent 'hunter2hunter2 *-np\|HVD_SECRET\|SECRET_KEY' all_args
    # it may show on the user's own command line, once
    [ "$(grep -o 'OTHER_SECRET=swordfish' all_args | wc -l)" -le 1 ]
    end_waiting
}

# Verbose output holds no values of variables, because logs get pasted into
# public issues.
test_verbose_output_holds_no_values() {
    SECRET_TOKEN=hunter2hunter2 expect_exit 0 "$HVDRUN" -np 2 --verbose \
        --log-level TRACE -x OTHER=swordfish true
    [ -s err ]
    absent 'hunter2\|swordfish' err
    [ ! -s out ]
}

# The job secret is not in the environment: a rank gets it only through its
# socket.
test_secret_is_not_in_the_environment() {
    "$HVDRUN" -np 1 "$PROG/actor" environ env
    tr '\0' '\n' <env.0 | grep -Ei '^(HVD|HOROVOD)_[A-Z_]*(SECRET|KEY)' &&
        fail "a secret in the environment"
    # 32 bytes would be 64 hex digits or 44 characters of base64
    tr '\0' '\n' <env.0 | grep '^HVD_' |
        grep -E '=([0-9a-f]{64}|[A-Za-z0-9+/]{43}=)$' &&
        fail "something like a secret in the environment"
    return 0
}

# The job secret is in memory once in each process that uses it.  No copy is
# left behind where it passed through, since others may read core files.
test_secret_is_not_left_in_memory() {
    local hvdrun
    sanitized && skip "a sanitizer keeps freed memory"
    start job env HVD_FORCE_TCP=1 "$HVDRUN" --grace 0 -np 2 sh -c '
        echo "$HVD_JOB_ID" >id.$HVD_RANK
        exec "$PROG/coll" sum 1000 2000000000'
    wait_for '[ -s id.0 ] && [ -s id.1 ]'
    hvdrun=$(job_pids job hvdrun)
    "$PROG/secret" "$(cat id.0)" "$hvdrun" "$hvdrun" >copies 2>why ||
        skip "cannot read memory: $(cat why)"
    wait_for 'copies_are_few "$hvdrun"' || fail "$(cat copies)"
    kill -TERM "$hvdrun"
    finish job 143
}

# Succeeds if the secret of the job of hvdrun $1 is in memory four times, once
# in hvdrun, the agent and each of two ranks, and nowhere in hex.
copies_are_few() {
    local pid
    for pid in "$1" $(job_pids job hvd-agent) $(job_pids job coll); do
        "$PROG/secret" "$(cat id.0)" "$1" "$pid" || return 1
    done >copies 2>why
    awk '{ raw += $1; hex += $2 } END { exit raw != 4 || hex > 0 }' copies
}

# hvdrun listens nowhere, the agent on 127.0.0.1 alone, for Horovod.
test_no_ports_for_other_hosts() {
    local p inode
    start_waiting
    for p in $(job_pids job hvdrun) $(job_pids job hvd-agent); do
        for inode in $(ls -l "/proc/$p/fd" 2>/dev/null |
            sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do
            if [ -n "$(awk -v inode="$inode" '$10 == inode &&
                $4 == "0A" && $2 !~ /^0100007F:/' /proc/net/tcp*)" ]; then
                fail "pid $p listens on a TCP port"
            fi
        done
    done
    for inode in $(ls -l "/proc/$(job_pids job hvdrun)/fd" |
        sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do
        ! grep -q " $inode " /proc/net/tcp || fail "hvdrun has a TCP socket"
    done
    end_waiting
}

test_other_users_are_refused() {
    local nobody
    need_root
    nobody=$(id -u nobody 2>/dev/null) || skip "no user nobody"
    chmod 755 "$PROG/poke" 2>/dev/null || :
    start_waiting
    cp "$PROG/poke" poke
    "$PROG/poke" -u "$nobody" "$where" hello >got
    [ "$(cat got)" = refused ] || fail "$(cat got)"
    end_waiting
}

test_garbage_does_not_disturb_the_job() {
    local what
    start_waiting
    for what in junk huge cut flood idle; do
        "$PROG/poke" "$where" $what >got
        grep -q 'refused\|answer' got || fail "$what: $(cat got)"
    done
    end_waiting
    absent 'rank' job.err
}

# A process of the same user that the job did not start, as if in another
# container, cannot take the place of a rank that has not connected yet.  A
# process that the rank has started can.
test_impostor_of_a_rank() {
    local who
    start job "$HVDRUN" -np 2 sh -c '
        echo "$HVD_RENDEZVOUS" >where.new
        [ $HVD_RANK = 1 ] || mv where.new where
        while [ ! -e go ]; do sleep 0.05; done
        [ $HVD_RANK = 1 ] || "$PROG/poke" "$HVD_RENDEZVOUS" hello >inside
        exec "$PROG/coll" topo'
    wait_for '[ -e where ]'
    for who in 1 2 3 4 5 6; do
        "$PROG/poke" "$(cat where)" hello >got
        grep -q 'answer' got || fail "$(cat got)"
    done
    end_waiting
    [ "$(cat inside)" = welcome ] || fail "$(cat inside)"
}

# An agent that gets garbage instead of hvdrun's frames fails and ends.
test_agent_fed_with_garbage() {
    local got=0
    head -c 100000 /dev/urandom >junk
    "$HVD_AGENT" <junk >out 2>err || got=$?
    [ $got -ne 0 ]
    got=0
    "$HVD_AGENT" </dev/null >out 2>err || got=$?
    printf 'hvD1\001\040\000\000\377\377\377\377' >huge
    got=0
    "$HVD_AGENT" <huge >out 2>err || got=$?
    [ $got -ne 0 ]
}

# hvdrun fails in time if the agent is a program that prints garbage or
# nothing, or ends.
test_bad_agents() {
    local kind
    printf '#!/bin/sh\nhead -c 200000 /dev/urandom; exec sleep 1000\n' >junk
    printf '#!/bin/sh\nexit 3\n' >quit
    printf '#!/bin/sh\necho "no such luck" >&2; exit 1\n' >moan
    printf '#!/bin/sh\nexec sleep 1000\n' >mute
    chmod +x junk quit moan mute
    for kind in junk quit moan mute; do
        start $kind "$HVDRUN" --agent "$PWD/$kind" --start-timeout 2 \
            --grace 1 -np 2 touch "$PWD/started"
    done
    for kind in junk quit moan mute; do
        finish $kind 125
        [ ! -s $kind.out ]
        [ -s $kind.err ]
        [ "$(wc -l <$kind.err)" -le 3 ] || fail "$kind: too many lines"
        [ ! -e started ]
    done
    grep -q 'no such luck' moan.err
}

# An agent that others can write to is neither run nor sent to a host.
test_an_agent_that_others_can_write() {
    mkdir open
    cp "$HVDRUN" "$HVD_AGENT" open
    chmod 755 open open/*
    expect_exit 0 open/hvdrun -np 1 touch started
    rm started
    chmod o+w open/hvd-agent
    expect_exit 2 open/hvdrun -np 1 touch started
    [ "$(wc -l <err)" -eq 1 ]
    grep -q 'the agent is not used: .*/open/hvd-agent can be written by' err
    expect_exit 2 open/hvdrun doctor -H localhost
    grep -q 'the agent is not used: ' err
    chmod o-w open/hvd-agent
    chmod o+w open
    expect_exit 2 open/hvdrun -np 1 touch started
    grep -q 'the agent is not used: .*/open can be written by others' err
    [ ! -e started ]
}

# survives WHAT EXIT ARG...: fails unless hvdrun ARG..., whose host does WHAT,
# ends by itself with exit code 125 or EXIT, needs little memory and prints few
# lines, of nothing but text.
survives() {
    local what=$1 code=$2 status=0
    shift 2
    (
        sanitized || ulimit -v 500000
        exec "$HVDRUN" "$@"
    ) >out 2>err || status=$?
    cat out err >all
    [ $status -eq 125 ] || [ $status -eq "$code" ] ||
        fail "$what $1: exit $status: $(head -c 1000 all)"
    [ "$(wc -l <all)" -le 1020 ] || fail "$what $1: too many lines"
    [ "$(LC_ALL=C tr -d '\11\12\40-\176' <all | wc -c)" -eq 0 ] ||
        fail "$what $1: control bytes: $(od -c all | head -20)"
    absent '^hvdrun: rank 7' all
    absent 'out of memory' all
    [ -s all ] || fail "$what $1: nothing was said"
}

# against WHAT EXIT ARG...: as survives, where the agent of the host does WHAT.
against() {
    printf '#!/bin/sh\nexec "%s" %s\n' "$PROG/evil_agent" "$1" >evil
    chmod +x evil
    survives "$@"
}

# hvdrun survives a shell that prints hostile bytes on stdout or stderr instead
# of starting the agent.
test_hostile_shells() {
    local says
    for says in 'printf "\nhvd:%s fail %b\n" "$m" "$evil"' \
        'printf "\nhvd:%s fail cpu %b\n" "$m" "$evil%s%n"' \
        'printf "%b\n" "$evil" >&2; exit 1' 'printf "%b\n" "$evil"; exit 1'; do
        {
            printf '#!/bin/bash\nevil="%s"\n' \
                '\033[2J\033]0;x\007\0233mtext\r\nhvdrun: rank 7 died\0342\0200\0256'
            echo 'read -r line; read -r m rest; m=${m#m=}'
            echo "$says"
        } >shell
        chmod +x shell
        survives "$says" 125 --rsh "$PWD/shell" --start-timeout 1 -H far true
    done
}

test_hostile_hosts_and_jobs() {
    local what
    for what in version huge json cut first bomb deep type twice spam log \
        quitting; do
        against $what 125 --agent "$PWD/evil" --start-timeout 1 --grace 0 \
            -np 1 true
    done
    against failed 3 --agent "$PWD/evil" --start-timeout 1 -np 1 true
    grep -q forged all
}

test_hostile_hosts_and_tools() {
    local what
    set -- --agent "$PWD/evil" --start-timeout 1 --grace 0
    for what in first deep bomb spam log failed; do
        against $what 125 clean "$@"
    done
    against moan 125 ps --agent "$PWD/evil" --start-timeout 1
    against answer 0 clean "$@"
    grep -q 'host .*: ended what was left of job ?\[2J' all
    grep -q 'host .*: removed ?\[2J.* forged (.* forged)' all
    against answer 0 kill "$@" 0123456789ab
    grep -q 'host .*: ended' all
    set -- --agent "$PWD/evil" --start-timeout 3
    against answer 0 ps "$@"
    grep -q '0123456789ab .* forged' all
    against answer 0 ps --json "$@"
    against answer 1 doctor "$@"
    against answer 1 doctor --json "$@"
}

# A rank's output cannot pass for a report of hvdrun: neither in a pipe, where
# a carriage return begins a tagged line, nor on a terminal, where the cursor
# stays on the rank's own line.
test_ranks_cannot_forge_reports() {
    cat >forge <<'EOF'
line='hvdrun: rank 1 died'
printf 'a\r%s\n' "$line" >&2
for move in '\033[1G\033[2K' '\033[1;1H' '\033E' '\033M' '\033c' '\b\b\b\b' \
    '\v' '\f' '\302\205' '\233G' '\302\233G' '\033]0;title\007' \
    '\033P\033[1G' '\033[?1049h' '\033[\0331G'; do
    printf "b$move%s\n" "$line" >&2
done
printf '\033[31mred\033[0m\tend\n' >&2
EOF
    expect_exit 0 "$HVDRUN" -np 1 sh ./forge
    absent '^hvdrun:' err
    "$PROG/pty" wait -- env NO_COLOR=1 "$HVDRUN" -np 1 sh ./forge >shown
    [ "$(grep -c 'hvdrun: rank 1 died' shown)" -eq 16 ]
    grep -q "$(printf 'red\033\\[0m\tend')" shown
    # nothing but text, tabs, line ends and colours
    sed "s/$(printf '\033')\[[0-9;:]*m//g" shown |
        LC_ALL=C tr -d '\11\12\15\40-\176' >rest
    [ ! -s rest ] || fail "$(od -c rest)"
    tr '\r' '\n' <shown >lines
    absent '^hvdrun:' lines
}
