# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Reaching hosts: launchers, ssh configuration, keys and host keys.

# Runs a job with the hvdrun options $@ and prints the user and host of each
# rank, in the order of ranks.
who() {
    expect_exit 0 login "$HVDRUN" --no-tag-output "$@" \
        sh -c 'echo "$HVD_RANK $(id -un)@$(uname -n)"'
    sort -n out
}

expect_who() {
    local want=$1
    shift
    [ "$(who "$@" | tr '\n' ' ')" = "$want " ] ||
        fail "not '$want': $(cat out)"
}

# fails PATTERN ARG...: fails the test unless hvdrun ARG... fails soon, before
# any rank runs, and says PATTERN.
fails() {
    local pattern=$1 began=$SECONDS
    shift
    expect_exit 125 login "$HVDRUN" "$@" touch "$PWD/started"
    [ $((SECONDS - began)) -le 20 ] || fail "took $((SECONDS - began)) s"
    tells "$pattern"
    [ ! -e started ] || fail "something was started"
}

both_launchers() {
    local launcher
    for launcher in ssh2 openssh; do
        "$1" --launcher $launcher
    done
}

test_reach_two_hosts() {
    cluster_up 2
    expect_who '0 root@n1 1 root@n1 2 root@n2 3 root@n2' -np 4 -H n1:2,n2:2
    [ ! -s err ] || fail "not silent: $(cat err)"
    cluster_down
}

test_reach_by_every_launcher() {
    local launcher
    cluster_up 2
    for launcher in auto ssh2 openssh; do
        expect_who '0 root@n1 1 root@n2' --launcher $launcher -H n1,n2
    done
    expect_who '0 root@n1 1 root@n2' --rsh 'ssh -o BatchMode=yes {host}' \
        -H n1,n2
    expect_who '0 root@n1 1 root@n2' --launcher rsh --rsh 'ssh -q' -H n1,n2
    cluster_down
}

test_reach_fails_as_the_command_of_rsh_says() {
    cluster_up 1
    fails 'host n1: .*nowhere' --rsh '/nowhere/kubectl exec {host}' -H n1
    fails 'host n1: .*no such pod' -H n1 \
        --rsh 'sh -c "echo no such pod >&2; exit 3" {host}'
    cluster_down
}

test_reach_as_configured() {
    cluster_up 1
    faulty sshd n1 stop
    faulty sshd n1 start 'Port 2222'
    login ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/other
    login cat /root/.ssh/other.pub >other
    on n1 sh -c 'cat >/home/alice/.ssh/authorized_keys' <other
    login sh -c 'sed "s/^[^ ]*/[10.66.0.1]:2222/" /root/.ssh/known_hosts \
        >/root/hosts && rm /root/.ssh/known_hosts'
    ssh_config 'Host cat*' 'HostName 10.66.0.1' 'Port 2222' 'User alice' \
        'IdentityFile ~/.ssh/other' 'IdentitiesOnly yes' \
        'UserKnownHostsFile ~/hosts'
    as_configured() {
        expect_who '0 alice@n1' "$@" -H cat1
    }
    both_launchers as_configured
    login sh -c 'mv /root/.ssh/config /root/its_config'
    with_file() {
        expect_who '0 alice@n1' "$@" --ssh-config /root/its_config -H cat2
        # shellcheck disable=SC2088 # for hvdrun to expand
        expect_who '0 alice@n1' "$@" --ssh-config '~/its_config' -H cat2
    }
    both_launchers with_file
    with_options() {
        # shellcheck disable=SC2088
        expect_who '0 alice@n1' "$@" -p 2222 -i '~/.ssh/other' \
            --ssh-user alice --ssh-known-hosts '~/hosts' -H 10.66.0.1
    }
    both_launchers with_options
    cluster_down
}

test_reach_users_and_ports_of_the_host_list() {
    cluster_up 2
    faulty sshd n2 stop
    faulty sshd n2 start 'Port 2222'
    login sh -c 'sed -n "s/^n2,[^ ]*/[n2]:2222/p" /root/.ssh/known_hosts \
        >>/root/.ssh/known_hosts'
    printf 'n1 user=alice slots=2\nn2 port=2222\n' >hosts
    host_list() {
        expect_who '0 alice@n1 1 alice@n1 2 root@n2' "$@" --hostfile hosts
        expect_who '0 alice@n1' "$@" -H alice@n1
    }
    both_launchers host_list
    cluster_down
}

test_reach_through_a_jump_host() {
    cluster_up 1 --inner 2
    jump() {
        expect_who '0 root@n1 1 root@i1 2 root@i2' "$@" -H n1,i1,i2
    }
    both_launchers jump
    ssh_config 'Host i*' 'ProxyCommand ssh -q -W %h:%p n1'
    both_launchers jump
    ssh_config 'Host i*' 'ProxyCommand sh -c "echo no way >&2; exit 1"'
    fails 'host i1: ' -H i1
    cluster_down
}

test_reach_over_ipv6() {
    cluster_up 2 --ipv6
    ipv6() {
        expect_who '0 root@n1 1 root@n2' "$@" -H n1,n2
        expect_who '0 root@n1 1 root@n2' "$@" -H '[fd66::1]:1,[fd66::2]:1'
    }
    both_launchers ipv6
    cluster_down
}

test_reach_without_an_ssh_program() {
    cluster_up 1
    expect_exit 0 login env PATH=/nowhere "$HVDRUN" --launcher ssh2 -H n1 \
        --no-tag-output /bin/uname -n
    [ "$(cat out)" = n1 ]
    cluster_down
}

# ---- Authentication -------------------------------------------------------

test_reach_keys_of_the_agent() {
    cluster_up 2
    with_agent() {
        # shellcheck disable=SC2016 # read there
        expect_exit 0 login ssh-agent sh -c '
            ssh-add -q /root/key && exec "$@"' x "$HVDRUN" "$@" \
            --no-tag-output -H n1,n2 uname -n
        [ "$(sort out | tr '\n' ' ')" = 'n1 n2 ' ]
    }
    login mv /root/.ssh/id_ed25519 /root/key
    login rm /root/.ssh/id_ed25519.pub
    both_launchers with_agent
    cluster_down
}

# Keys of all kinds work without a message, even RSA, which some versions of
# libssh2 cannot use.
test_reach_kinds_of_keys() {
    local type
    cluster_up 1
    login rm /root/.ssh/id_ed25519 /root/.ssh/id_ed25519.pub
    for type in ecdsa rsa ed25519; do
        login ssh-keygen -q -t $type -N '' -f /root/.ssh/id_$type
        login cat /root/.ssh/id_$type.pub >pub
        on n1 sh -c 'cat >/root/.ssh/authorized_keys' <pub
        expect_who '0 root@n1' -H n1
        [ ! -s err ] || fail "$type: $(cat err)"
        login sh -c 'rm /root/.ssh/id_*'
    done
    cluster_down
}

test_reach_asks_for_a_passphrase_once() {
    cluster_up 2
    login ssh-keygen -q -p -N 'open sesame' -f /root/.ssh/id_ed25519
    login "$PROG/pty" 'expect:assphrase' 'send:open sesame\n' wait -- \
        env -u CI "$HVDRUN" --launcher ssh2 --no-tag-output -H n1,n2 uname -n >out
    sed 's/.*\x1b\[K//' out >text
    grep -q '^n1' text
    grep -q '^n2' text
    [ "$(grep -ci 'passphrase' out)" -eq 1 ]
    absent 'open sesame' out
    # nor again when two names turn out to be one host
    login "$PROG/pty" 'expect:assphrase' 'send:open sesame\n' wait -- \
        env -u CI "$HVDRUN" --launcher ssh2 --no-tag-output \
        -H n1,n2,10.66.0.1 uname -n >out
    grep -q 'host 10.66.0.1: counted as host n1, which it is' out
    [ "$(grep -ci 'enter passphrase' out)" -eq 1 ]
    # with CI set, hvdrun does not ask for the passphrase even at a terminal
    login env CI=true "$PROG/pty" wait -- "$HVDRUN" --launcher ssh2 \
        -H n1,n2 uname -n >out || true
    grep -q 'needs its passphrase, and nobody gave it' out
    # without a terminal there is nobody to ask
    unasked() {
        fails 'host n1: .*(key|passphrase|permission denied)' "$@" -H n1
    }
    both_launchers unasked
    cluster_down
}

test_reach_wrong_key() {
    cluster_up 2
    login ssh-keygen -q -t ed25519 -N '' -f /root/wrong
    wrong_key() {
        ssh_config 'IdentitiesOnly yes' 'IdentityFile ~/wrong'
        fails 'hosts? n[12]' "$@" -H n1:2,n2:2
        tells '(key|permission denied)'
        [ "$(ours | wc -l)" -le 4 ]
    }
    both_launchers wrong_key
    wrong_key --launcher ssh2
    tells 'ssh-copy-id'
    cluster_down
}

test_reach_one_host_wants_a_password() {
    cluster_up 2
    faulty sshd n2 stop
    faulty sshd n2 start 'PubkeyAuthentication no' 'PasswordAuthentication yes'
    wants_password() {
        fails 'host n2: .*(key|password)' "$@" -H n1,n2
        ours >log
        absent 'host n1' log
    }
    both_launchers wants_password
    cluster_down
}

test_reach_no_such_user() {
    cluster_up 1
    no_user() {
        fails 'host n1: ' "$@" -H nosuchuser@n1
    }
    both_launchers no_user
    cluster_down
}

# ---- Host keys --------------------------------------------------------------

fingerprint() {
    ssh-keygen -lf "cluster/$1/key.pub" | cut -d' ' -f2
}

test_reach_unknown_host_key() {
    cluster_up 2
    login sh -c 'sed -i /^n1,/d /root/.ssh/known_hosts'
    unknown() {
        fails 'host n1: .*host key' "$@" -H n1,n2
    }
    both_launchers unknown
    unknown --launcher ssh2
    tells "$(fingerprint n1 | sed 's,[+],.,g')"
    tells 'ssh-keyscan|ssh n1|known_hosts'
    one_line err
    cluster_down
}

test_reach_changed_host_key() {
    cluster_up 1
    faulty hostkey n1 ed25519
    changed() {
        fails 'host n1: .*(changed|verification)' "$@" -H n1
    }
    both_launchers changed
    changed --launcher ssh2
    tells "$(fingerprint n1 | sed 's,[+],.,g')"
    tells 'ssh-keygen .*-R'
    one_line err
    ssh_config 'StrictHostKeyChecking accept-new'
    both_launchers changed
    faulty hostkey n1 ecdsa # not a new host, although of another type
    both_launchers changed
    cluster_down
}

test_reach_revoked_host_key() {
    cluster_up 1
    faulty known n1 | sed 's/^[^ ]*/@revoked */' >revoked
    login sh -c 'cat >>/root/.ssh/known_hosts' <revoked
    revoked() {
        fails 'host n1: .*(revoked|verification)' "$@" -H n1
    }
    both_launchers revoked
    # with this option, ssh(1) would connect all the same, only without
    # passwords
    ssh_config 'StrictHostKeyChecking no'
    revoked --launcher ssh2
    cluster_down
}

test_reach_accepts_new_keys_as_configured() {
    local launcher
    cluster_up 1
    for launcher in ssh2 openssh; do
        login rm /root/.ssh/known_hosts
        ssh_config 'StrictHostKeyChecking accept-new'
        expect_who '0 root@n1' --launcher $launcher -H n1
        login grep -q "$(cut -d' ' -f2 cluster/n1/key.pub)" \
            /root/.ssh/known_hosts
        ssh_config 'StrictHostKeyChecking yes'
        expect_who '0 root@n1' --launcher $launcher -H n1
    done
    cluster_down
}

test_reach_known_hosts_files() {
    cluster_up 1
    faulty known n1 >known
    finds() {
        expect_who '0 root@n1' --launcher ssh2 -H n1
    }
    login sh -c 'cat >/root/.ssh/known_hosts' <known
    login ssh-keygen -q -H -f /root/.ssh/known_hosts 2>/dev/null
    finds
    sed 's/^[^ ]*/*,!n2/' known | login sh -c 'cat >/root/.ssh/known_hosts'
    finds
    sed 's/^[^ ]*/*,!n1/' known | login sh -c 'cat >/root/.ssh/known_hosts'
    fails 'host n1: .*host key' --launcher ssh2 -H n1
    login sh -c 'cat >/root/everywhere; rm /root/.ssh/known_hosts' <known
    ssh_config 'GlobalKnownHostsFile /root/everywhere'
    finds
    ssh_config 'UserKnownHostsFile /nowhere ~/everywhere'
    finds
    cluster_down
}

# A host with several keys is asked for the kind that known_hosts has.
test_reach_orders_the_host_key_kinds() {
    local type
    cluster_up 1
    for type in ecdsa rsa; do
        ssh-keygen -q -t $type -N '' -f $type
    done
    faulty sshd n1 stop
    faulty sshd n1 start "HostKey $PWD/ecdsa" "HostKey $PWD/rsa"
    expect_who '0 root@n1' --launcher ssh2 -H n1
    for type in ecdsa rsa; do
        echo "n1 $(cut -d' ' -f1,2 $type.pub)" |
            login sh -c 'cat >/root/.ssh/known_hosts'
        expect_who '0 root@n1' -H n1
    done
    cluster_down
}

# libssh2 cannot check host certificates: hvdrun uses the ssh program for that
# host, and says so in one line at log level INFO.
test_reach_host_certificates() {
    cluster_up 1
    ssh-keygen -q -t ed25519 -N '' -f authority
    cp cluster/n1/key.pub cert.pub
    ssh-keygen -q -s authority -I n1 -h -n n1 cert.pub
    faulty sshd n1 stop
    faulty sshd n1 start "HostCertificate $PWD/cert-cert.pub"
    echo "@cert-authority n* $(cut -d' ' -f1,2 authority.pub)" |
        login sh -c 'cat >/root/.ssh/known_hosts'
    expect_who '0 root@n1' -H n1
    [ ! -s err ]
    expect_who '0 root@n1' --log-level INFO -H n1
    tells 'n1.*(openssh|ssh program|ssh\(1\))'
    fails 'host n1: ' --launcher ssh2 -H n1
    cluster_down
}

test_reach_refuses_silly_options() {
    need_root
    refused 'launcher' --launcher telnet -H n1
    refused 'rsh' --launcher rsh -H n1
    refused '-p: ' -p 0 -H n1
    refused '-p: ' -p 65536 -H n1
    refused 'max-startups' --max-startups 0 -H n1
    refused 'heartbeat' --heartbeat -1 -H n1
}
