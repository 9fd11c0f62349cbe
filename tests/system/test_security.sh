# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What other users and broken peers see and can do.

# A job that waits for ./go, with its rendezvous address in ./where.
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
    # the one place is the user's own command line
    [ "$(grep -o 'OTHER_SECRET=swordfish' all_args | wc -l)" -le 1 ]
    end_waiting
}

# Logs get pasted into public issues.
test_verbose_output_holds_no_values() {
    SECRET_TOKEN=hunter2hunter2 expect_exit 0 "$HVDRUN" -np 2 --verbose \
        --log-level TRACE -x OTHER=swordfish true
    [ -s err ]
    absent 'hunter2\|swordfish' err
    [ ! -s out ]
}

# The job secret reaches a worker through its socket only.
test_secret_is_not_in_the_environment() {
    "$HVDRUN" -np 1 "$PROG/actor" environ env
    tr '\0' '\n' <env.0 | grep -Ei '^(HVD|HOROVOD)_[A-Z_]*(SECRET|KEY)' &&
        fail "a secret in the environment"
    # 64 hex digits or 44 of base64 would be 32 bytes
    tr '\0' '\n' <env.0 | grep '^HVD_' |
        grep -E '=([0-9a-f]{64}|[A-Za-z0-9+/]{43}=)$' &&
        fail "something like a secret in the environment"
    return 0
}

test_no_listening_ports() {
    local p inode
    start_waiting
    for p in $(job_pids job hvdrun) $(job_pids job hvd-agent); do
        for inode in $(ls -l "/proc/$p/fd" 2>/dev/null |
            sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do
            if grep -h " $inode " /proc/net/tcp /proc/net/tcp6 |
                awk '$4 == "0A"' | grep -q .; then
                fail "pid $p listens on a TCP port"
            fi
        done
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
    [ "$(cat got)" = refused ] ||
        grep -q answer got || fail "$(cat got)"
    # an answer may only be a refusal, far shorter than a WELCOME
    if grep -q answer got; then
        [ "$(sed 's/answer //' got)" -lt 200 ] || fail "$(cat got)"
    fi
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
    [ ! -s job.err ] || grep -vq 'rank' job.err
}

# A second process cannot take the place of a rank that is there.
test_impostor_of_a_rank() {
    start_waiting
    "$PROG/poke" "$where" hello >got
    end_waiting
}

# Garbage instead of hvdrun: the agent says so and ends.
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

# Instead of an agent, a program that talks nonsense, or nothing, or ends.
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

# What a rank prints cannot pass for a report of hvdrun.
test_ranks_cannot_forge_reports() {
    expect_exit 0 "$HVDRUN" -np 1 sh -c 'printf "x\rhvdrun: rank 1 died\n" >&2'
    absent '^hvdrun:' err
}
