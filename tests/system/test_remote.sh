# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Other hosts without ssh: --rsh templates whose shells are local, and scripts
# named ssh.  test_cluster_*.sh has what a real sshd adds.

# Makes a home directory for the test, with a space in its path, sets HOME to
# it, and cache to the agents' cache there.
new_home() {
    HOME=$PWD/"home $1"
    mkdir -p "$HOME"
    export HOME
    unset XDG_CACHE_HOME
    cache=$HOME/.cache/hvd
}

# Prints an --rsh command for host n1 that runs ./by.sh.  As root the host has
# its own mounts: an empty /tmp with only the directory of this test, and no
# other place to write to.
host_script() {
    cat >host.sh <<X
exec 9<"$PWD"
for d in /var/tmp /dev/shm; do mount -n -t tmpfs -o ro none \$d; done
mount -n -t tmpfs -o mode=1777 none /tmp
mkdir -p "$PWD"
mount -n -c --bind /proc/self/fd/9 "$PWD"
exec 9<&-
cd "$PWD"
. ./by.sh
X
    if [ "$(id -u)" -eq 0 ]; then
        echo "unshare -m --propagation private sh '$PWD/host.sh'"
    else
        echo "sh '$PWD/by.sh'"
    fi
}

# reach SHELL-COMMANDS [ARG...]: runs hvdrun ARG... with one rank on host n1,
# whose login shell SHELL-COMMANDS play.
reach() {
    printf '%s\n' "$1" >by.sh
    shift
    "$HVDRUN" --rsh "$(host_script)" -H n1 -np 1 "$@"
}

reaches() {
    expect_exit 0 reach "$1" sh -c 'echo here'
    [ "$(cat out)" = '[0]<stdout>:here' ] || fail "no output"
}

# unreached PATTERN SHELL-COMMANDS [ARG...]: fails unless hvdrun cannot reach
# that host, starts nothing, and says PATTERN in one line.
unreached() {
    local pattern=$1 by=$2
    shift 2
    expect_exit 125 reach "$by" "$@" touch "$PWD/started"
    one_line err
    grep -Eq -- "host n1: .*$pattern" err || fail "stderr does not match"
    [ ! -e started ] || fail "something was started"
}

agents_kept() {
    [ "$(find "$1" -mindepth 1 | wc -l)" -eq 1 ] || fail "not one file in $1"
    [ "$(stat -c %a "$1" "$1"/hvd-agent-* | sort -u)" = 700 ] || fail modes
}

test_every_shell() {
    local shell n=0
    for shell in 'dash' 'bash --posix' 'bash' 'busybox ash' 'busybox sh' \
        'mksh' 'ksh' 'yash' 'zsh --emulate sh'; do
        command -v "${shell%% *}" >/dev/null || continue
        new_home "$shell"
        reaches "exec $shell"
        agents_kept "$cache"
        reaches "exec $shell"
        agents_kept "$cache"
        n=$((n + 1))
    done
    [ $n -ge 2 ]
}

test_places_by_environment() {
    new_home a
    reaches "XDG_CACHE_HOME='$PWD/x dg' exec sh"
    agents_kept "$PWD/x dg/hvd"
    [ ! -e "$cache" ]
    reaches 'XDG_CACHE_HOME=rel/ative exec sh'
    agents_kept "$cache"
    [ ! -e "$HOME/rel" ] && [ ! -e rel ]
}

# The agent's files are private whatever the umask of the login shell is, which
# the ranks get.
test_umask() {
    local mask
    for mask in 0000 0027 0777; do
        new_home $mask
        expect_exit 0 reach "umask $mask; exec sh" sh -c umask
        [ "$(cat out)" = "[0]<stdout>:$mask" ] || fail "$mask: $(cat out)"
        agents_kept "$cache"
    done
}

# A rank runs in --wdir whatever the current directory of the login shell is.
test_working_directory_of_the_shell() {
    new_home a
    mkdir sub
    expect_exit 0 reach "cd '$PWD/sub'; exec sh" --wdir "$PWD" pwd
    [ "$(cat out)" = "[0]<stdout>:$PWD" ]
}

test_noise_is_not_shown() {
    new_home a
    reaches 'echo Welcome to n1; printf no-newline; echo oops >&2; exec sh'
    [ ! -s err ]
}

test_altered_file_is_replaced() {
    local f
    new_home a
    reaches 'exec sh'
    f=$(echo "$cache"/hvd-agent-*)
    truncate -s 1000 "$f"
    reaches 'exec sh'
    cmp "$f" "$HVD_AGENT"
    chmod 600 "$f"
    reaches 'exec sh'
    agents_kept "$cache"
    ln -sf /bin/true "$f"
    reaches 'exec sh'
    [ ! -L "$f" ]
}

versions() {
    (cd "$cache" && printf '%s\n' hvd-agent-? 2>/dev/null) | tr -d '\n'
}

# A cached agent of the right size but with wrong bytes is replaced.
test_damaged_file_is_replaced() {
    local f damage
    new_home a
    reaches 'exec sh'
    f=$(echo "$cache"/hvd-agent-*)
    for damage in 'if=/dev/zero bs=1' 'if=/dev/urandom bs=1 seek=200000'; do
        # shellcheck disable=SC2086 # two words
        dd of="$f" count=4000 conv=notrunc $damage 2>/dev/null
        [ "$(stat -c %s "$f")" = "$(stat -Lc %s "$HVD_AGENT")" ]
        reaches 'exec sh'
        cmp "$f" "$HVD_AGENT"
        agents_kept "$cache"
    done
}

# Cached agents used in the last 30 days stay, as other hosts may use them, but
# no more than 16.
test_old_versions_are_pruned() {
    local i ours
    new_home a
    mkdir -p "$cache"
    for i in 1 2 3 4 5 6; do
        echo >"$cache/hvd-agent-$i"
        touch -d "$((8 * i)) days ago" "$cache/hvd-agent-$i"
    done
    touch -d '3 days ago' "$cache/.push-stale"
    touch "$cache/.push-new" "$cache/other"
    reaches 'exec sh'
    [ "$(versions)" = hvd-agent-1hvd-agent-2hvd-agent-3 ] || fail "$(versions)"
    [ -e "$cache/.push-new" ] && [ -e "$cache/other" ]
    [ ! -e "$cache/.push-stale" ]
    ours=$(echo "$cache"/hvd-agent-??*)
    touch -d '19 days ago' "$ours"
    reaches 'exec sh'
    [ "$ours" -nt "$cache/hvd-agent-1" ]
    for i in $(seq 20); do
        echo >"$cache/hvd-agent-new$i"
    done
    rm "$ours"
    reaches 'exec sh'
    [ "$(find "$cache" -name 'hvd-agent-*' | wc -l)" -eq 16 ]
    [ -e "$ours" ]
}

# A cached agent that is old but runs is kept.  The cache was open to others,
# so the agent is sent again; the old file has the same bytes, so it is what
# runs.
test_an_old_agent_that_runs_is_not_pruned() {
    new_home a
    reaches 'exec sh'
    touch -d '40 days ago' "$cache"/hvd-agent-*
    chmod 755 "$cache"
    reaches 'exec sh'
    agents_kept "$cache"
}

# Jobs and hosts that share a home can send the agent at the same time.
test_concurrent_pushes() {
    local i rsh
    new_home a
    echo 'exec sh' >by.sh
    rsh=$(host_script)
    for i in 1 2 3; do
        start "job$i" "$HVDRUN" --rsh "$rsh" -np 6 \
            -H 'n[1-6]' true
    done
    for i in 1 2 3; do
        finish "job$i" 0
    done
    agents_kept "$cache"
    cmp "$cache"/hvd-agent-* "$HVD_AGENT"
}

test_wrong_cpu_and_system() {
    new_home a
    mkdir bin
    printf '#!/bin/sh\necho Linux ppc64le\n' >bin/uname
    chmod +x bin/uname
    unreached 'CPU type is ppc64le' "PATH='$PWD/bin':\$PATH exec sh"
    printf '#!/bin/sh\necho FreeBSD amd64\n' >bin/uname
    unreached 'it runs FreeBSD amd64' "PATH='$PWD/bin':\$PATH exec sh"
    [ ! -e "$cache" ]
}

test_agent_option() {
    new_home a
    mkdir 'my bin'
    cp "$HVD_AGENT" "my bin/it's"
    expect_exit 0 reach 'exec sh' --agent "$PWD/my bin/it's" true
    expect_exit 0 reach "cp '$PWD/my bin/it'\''s' \"\$HOME/agent\"; exec sh" \
        --agent '~'/agent true
    expect_exit 0 reach "PATH='$HOME':\$PATH; exec sh" --agent agent true
    [ ! -e "$cache" ]
    unreached '/no/where: there is no such file' 'exec sh' --agent /no/where
    chmod 600 "$HOME/agent"
    unreached 'agent: may not be executed' 'exec sh' --agent "$HOME/agent"
}

test_what_is_no_shell() {
    new_home a
    unreached 'not available' 'echo This account is not available; exit 1'
    unreached 'gone wrong' 'echo gone wrong >&2; exit 1'
    unreached 'more than 64 KiB' 'exec yes'
    unreached 'more than 64 KiB' 'exec yes >&2'
    unreached 'more than 64 KiB' 'exec cat /dev/zero'
    expect_exit 125 "$HVDRUN" --rsh '/no/such --' -H n1 -np 1 true
    one_line err
    grep -q 'cannot start /no/such' err
}

test_terminal_is_named() {
    command -v script >/dev/null || skip 'script is not installed'
    new_home a
    unreached 'must not make one' \
        "exec script -qec 'stty -echo raw; exec sh' /dev/null"
}

test_drops_are_tried_again() {
    new_home a
    mkdir bin
    cat >bin/ssh <<'X'
#!/bin/sh
if [ "$1" = -G ]; then
    for host; do :; done
    printf 'hostname %s\nport 22\nuser me\n' "$host"
    exit
fi
echo x >>"$HOME/tries"
if [ "$(wc -l <"$HOME/tries")" -le 9 ]; then
    echo 'kex_exchange_identification: Connection closed by remote host' >&2
    exit 255
fi
exec sh
X
    chmod +x bin/ssh
    PATH=$PWD/bin:$PATH expect_exit 0 "$HVDRUN" --launcher openssh \
        -H 'n[1-6]' -np 6 true
    # hvdrun says that all hosts are this machine.
    ! grep -v 'warning: host n[2-6]: counted as host n1, which it is$' err
    [ "$(wc -l <"$HOME/tries")" -gt 6 ]
}

# Ctrl-C ends hvdrun while hosts do not answer, and leaves no process of
# theirs.
test_interrupted_while_connecting() {
    new_home a
    echo 'trap "" TERM INT; touch connecting; sleep 1000; :' >by.sh
    start job "$HVDRUN" --rsh "sh '$PWD/by.sh'" -H n1,n2 -np 2 true
    wait_for '[ -e connecting ]'
    kill -INT "$(job_pids job hvdrun)"
    finish job
    [ "$status" -eq 130 ] || fail "exit $status"
    wait_for 'gone job'
}

test_killed_while_connecting() {
    new_home a
    echo 'touch connecting; exec cat' >by.sh
    start job "$HVDRUN" --rsh "sh '$PWD/by.sh'" -H n1,n2 -np 2 true
    wait_for '[ -e connecting ]'
    kill -KILL "$(job_pids job hvdrun)"
    finish job
    wait_for 'gone job'
}

test_start_timeout() {
    new_home a
    expect_exit 125 reach 'exec sleep 1000' --start-timeout 1 true
    grep -q 'n1' err
}

# ---- Hosts where the agent finds no easy place ----

# Starts a rank on a host where the shell commands $1 ran first, and prints the
# path of the agent's file.
place() {
    expect_exit 0 reach "unset TMPDIR; $1; exec sh" sh -c \
        'readlink /proc/$PPID/exe'
    cat out
}

test_places_that_cannot_be_used() {
    need_root
    local home
    new_home a
    for home in 'mount -n -t tmpfs -o size=64k none "$HOME"' \
        'mount -n -t tmpfs -o ro none "$HOME"' \
        'mount -n -t tmpfs -o noexec none "$HOME"' \
        'mkdir "$HOME/.cache"; ln -s / "$HOME/.cache/hvd"' \
        'unset HOME; mount -n --bind /dev/null /bin/pwd' \
        'unset HOME' 'export HOME=relative' 'export HOME=/dev/null'; do
        place "$home"
        grep -q ':/tmp/hvd-0/hvd-agent-' out
        rm -rf "$HOME/.cache"
    done
}

# hvdrun loads no plug-in from a directory that others can write to.
test_plugin_of_somebody_else() {
    mkdir -p x/bin x/lib/hvd
    cp "$(readlink -f "$HVDRUN")" x/bin/hvdrun
    cp "$HVD_AGENT" x/bin/hvd-agent
    echo >x/lib/hvd/transport-ssh2.so
    chmod 777 x/lib/hvd
    expect_exit 125 x/bin/hvdrun --launcher ssh2 -H n1 true
    grep -q "libssh2 cannot be used: .*hvd can be written by others" err
    chmod 755 x/lib/hvd
    expect_exit 125 x/bin/hvdrun --launcher ssh2 -H n1 true
    grep -q 'libssh2 cannot be used: .*ssh2.so: ' err
}

# The agent is safe if somebody swaps a directory in /tmp for a link, and back,
# while the shell enters it.
test_swapped_tmp() {
    need_root
    new_home a
    cat >swap.sh <<'X'
mkdir -m 700 /tmp/o
cd() {
    [ "$1" != "$SWAPPED" ] || {
        rm -rf "$1"
        ln -s o "$1"
    }
    command cd "$@" || return
    [ "$1" != "$SWAPPED" ] || {
        rm "$1"
        mkdir -m 700 "$1"
    }
}
export -f cd
exec bash
X
    place "export XDG_CACHE_HOME=/tmp SWAPPED=/tmp/hvd
        unset HOME; exec bash '$PWD/swap.sh'"
    grep -q ':/tmp/hvd-0/hvd-agent-[^ ]*$' out
    place "export SWAPPED=/tmp/hvd-0; unset HOME; exec bash '$PWD/swap.sh'"
    grep -q ':/tmp/hvd-[A-Za-z0-9]\{6\}/hvd-agent-.* (deleted)' out
}

test_squatted_tmp() {
    need_root
    local squat
    new_home a
    for squat in 'ln -s /root /tmp/hvd-0' \
        'mkdir /tmp/hvd-0; echo >/tmp/hvd-0/x; chmod 777 /tmp/hvd-0' \
        'mkdir -m 700 /tmp/hvd-0; chown 65534 /tmp/hvd-0' \
        'echo >/tmp/hvd-0' 'ln -s nowhere /tmp/hvd-0' \
        'mkdir -m 700 /tmp/o; ln -s o /tmp/hvd-0'; do
        place "unset HOME; $squat"
        # the agent ran from a new directory, and has removed that and itself
        grep -q ':/tmp/hvd-[A-Za-z0-9]\{6\}/hvd-agent-.* (deleted)' out
    done
}

# An agent that removes its file also removes the directory.
test_nothing_is_left_of_a_temporary_one() {
    need_root
    new_home a
    expect_exit 0 reach 'unset HOME TMPDIR; echo >/tmp/hvd-0; exec sh' \
        sh -c 'ls -d /tmp/hvd*'
    [ "$(cat out)" = '[0]<stdout>:/tmp/hvd-0' ]
}

test_no_place_at_all() {
    need_root
    new_home a
    unreached '/\.cache/hvd: no program can be run there \(noexec\); ' \
        'mount -n -t tmpfs -o noexec none "$HOME"; unset TMPDIR
        mount -n -o remount,ro /tmp; exec sh'
    unreached '/\.cache/hvd: No space left on device; /tmp/hvd-0: Read-only' \
        'mount -n -t tmpfs -o size=64k none "$HOME"; unset TMPDIR
        mount -n -o remount,ro /tmp; exec sh'
}

# An agent that arrives damaged is tried in other directories, but not for
# ever.
test_damaged_on_the_way() {
    need_root
    new_home a
    mkdir bin
    printf '#!/bin/sh\n/usr/bin/head "$@" | tr a b\n' >bin/head
    chmod +x bin/head
    unreached 'no directory takes' "PATH='$PWD/bin':\$PATH; exec sh"
    [ -z "$(find "$HOME" -name '*hvd*')" ]
}
