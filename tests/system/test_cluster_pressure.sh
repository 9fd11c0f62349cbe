# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Hosts that are slow, busy, silent or unknown, and many connections at once.

# fails_within SECONDS PATTERN ARG...: fails the test unless hvdrun ARG...
# fails within SECONDS, starts nothing, and says PATTERN.
fails_within() {
    local limit=$1 pattern=$2 began
    shift 2
    began=$(now_ms)
    expect_exit 125 login "$HVDRUN" "$@" touch "$PWD/started"
    began=$(($(now_ms) - began))
    [ $began -le $((limit * 1000)) ] || fail "took $began ms: $(cat err)"
    tells "$pattern"
    [ ! -e started ] || fail "something was started"
}

test_pressure_twelve_hosts() {
    cluster_up 12
    expect_exit 0 login "$HVDRUN" --no-tag-output -H 'n[1-12]' uname -n
    [ "$(sort -u out | wc -l)" -eq 12 ]
    expect_exit 0 login "$HVDRUN" --max-startups 1 --no-tag-output \
        -H 'n[1-12]' uname -n
    [ "$(sort -u out | wc -l)" -eq 12 ]
    cluster_down
}

# hvdrun tries again when sshd drops a connection, as it does at random while
# many clients have not logged in yet.
test_pressure_drops_are_tried_again() {
    local i launcher
    cluster_up 1 --maxstartups 1:80:3
    for launcher in ssh2 openssh; do
        for i in 1 2 3 4 5; do
            start_on login "$launcher$i" "$HVDRUN" --launcher $launcher \
                --start-timeout 60 --no-tag-output -H n1 uname -n
        done
    done
    for launcher in ssh2 openssh; do
        for i in 1 2 3 4 5; do
            finish "$launcher$i" 0
            [ "$(cat "$launcher$i.out")" = n1 ]
        done
    done
    cluster_down
}

# hvdrun reaches twelve hosts through one jump host, which sees all
# connections.
test_pressure_on_a_jump_host() {
    cluster_up 1 --inner 12
    expect_exit 0 login "$HVDRUN" --start-timeout 60 --no-tag-output \
        -H 'i[1-12]' uname -n
    [ "$(sort -u out | wc -l)" -eq 12 ]
    faulty sshd n1 stop
    faulty sshd n1 start 'MaxStartups 4:50:9'
    expect_exit 0 login "$HVDRUN" --start-timeout 60 --no-tag-output \
        -H 'i[1-12]' uname -n
    [ "$(sort -u out | wc -l)" -eq 12 ]
    cluster_down
}

test_pressure_dead_host() {
    local launcher
    cluster_up 1
    for launcher in ssh2 openssh; do
        fails_within 12 'host dead: ' --launcher $launcher \
            --start-timeout 3 -H n1,dead
        ours >log
        absent 'host n1' log
    done
    cluster_down
}

test_pressure_host_that_cuts_out() {
    cluster_up 2
    faulty drop n2
    fails_within 12 'host n2: ' --start-timeout 3 -H n1,n2
    faulty undrop n2
    faulty link n2 down
    fails_within 12 'host n2: ' --start-timeout 3 -H n1,n2
    cluster_down
}

test_pressure_table_at_the_time_out() {
    cluster_up 3
    faulty drop n3
    fails_within 12 'hosts n3, dead: ' --start-timeout 3 -H 'n[1-3],dead'
    cluster_down
}

test_pressure_unresolvable_host() {
    local launcher
    cluster_up 1
    for launcher in ssh2 openssh; do
        fails_within 6 'host nosuch: .*(resolve|not known|unknown)' \
            --launcher $launcher -H n1,nosuch
        one_line err
    done
    cluster_down
}

test_pressure_slow_names() {
    cluster_up 1 --slow-dns
    fails_within 12 'host nosuch: ' --start-timeout 3 -H n1,nosuch
    expect_exit 0 login "$HVDRUN" -H n1 true
    cluster_down
}

test_pressure_closed_port() {
    local launcher
    cluster_up 2
    faulty sshd n2 stop
    for launcher in ssh2 openssh; do
        fails_within 6 'host n2: .*refused' --launcher $launcher -H n1,n2
        one_line err
    done
    faulty sshd n2 start
    cluster_down
}

# hvdrun reports every host that it cannot reach, not only the first.
test_pressure_several_failures() {
    cluster_up 3
    faulty sshd n2 stop
    login sh -c 'sed -i /^n3,/d /root/.ssh/known_hosts'
    fails_within 10 'host n2: .*refused' -H n1,n2,n3,nosuch
    tells 'host n3: .*host key'
    tells 'host nosuch: '
    [ "$(ours | wc -l)" -le 5 ]
    faulty sshd n2 start
    cluster_down
}

# hvdrun fails in time if the server at the ssh port says nothing, or is no ssh
# server.
test_pressure_not_an_ssh_server() {
    command -v busybox || skip "busybox is not installed"
    cluster_up 2
    faulty sshd n2 stop
    on n2 sh -c 'busybox nc -ll -p 22 -e sleep 1000 >/dev/null 2>&1 \
        </dev/null & :'
    wait_for 'login bash -c ": </dev/tcp/n2/22" 2>/dev/null'
    fails_within 12 'host n2: ' --launcher ssh2 --start-timeout 3 -H n1,n2
    on n2 sh -c 'kill $(pidof busybox sleep)'
    wait_for 'on n2 sh -c "! pidof busybox sleep"'
    on n2 sh -c 'busybox nc -ll -p 22 -e seq 100000 >/dev/null 2>&1 \
        </dev/null & :'
    wait_for 'login bash -c ": </dev/tcp/n2/22" 2>/dev/null'
    fails_within 12 'host n2: ' --launcher ssh2 --start-timeout 3 -H n1,n2
    on n2 sh -c 'kill $(pidof busybox)'
    cluster_down
}

test_pressure_progress_on_a_terminal() {
    local status=0
    cluster_up 2
    login "$PROG/pty" 'expect:2/3' 'expect:dead' 'send:\003' wait -- \
        "$HVDRUN" --start-timeout 60 -H n1,n2,dead true >out || status=$?
    [ "$status" -eq 130 ] || fail "exit $status"
    tr '\r' '\n' <out >lines
    grep -q 'ssh 2/3.*waiting for.*dead' lines
    cluster_down
}

# hvdrun prints no progress when stderr is not a terminal.
test_pressure_no_progress_in_a_pipe() {
    cluster_up 1
    expect_exit 0 login "$HVDRUN" -H n1 true
    [ ! -s err ]
    cluster_down
}

# hvdrun tries a key that is refused once only: repeated failures could lock
# the user out.
test_pressure_few_attempts_with_a_wrong_key() {
    local launcher
    cluster_up 1
    login ssh-keygen -q -t ed25519 -N '' -f /root/wrong
    ssh_config 'IdentitiesOnly yes' 'IdentityFile ~/wrong'
    for launcher in ssh2 openssh; do
        : >cluster/n1/sshd.log
        fails_within 10 'host n1: ' --launcher $launcher -H n1:4
        [ "$(grep -c 'Connection from' cluster/n1/sshd.log)" -eq 1 ]
    done
    cluster_down
}

test_pressure_many_stand_ins() {
    local n=128 rss
    ! full || n=512
    sanitized && n=32
    cluster_up 1
    start_on login many "$HVDRUN" -H "x[001-$n]" --rsh 'env X={host}' \
        --no-tag-output --start-timeout 100 sh -c '
            echo "$HVD_RANK of $HVD_SIZE on $X"
            while [ ! -e go ]; do sleep 1; done'
    wait_for -t 100 '[ "$(wc -l <many.out)" -eq $n ]'
    [ "$(sort -u many.out | wc -l)" -eq $n ]
    rss=$(rss_kib "$(the many hvdrun)")
    sanitized || [ "$rss" -le 102400 ] || fail "$rss KiB"
    touch go
    finish many 0
    cluster_down
}
