# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# How the agent gets to a host, and the file systems and files that can be in
# its way.

CACHE=/root/.cache/hvd

runs() {
    expect_exit 0 login "$HVDRUN" --no-tag-output "$@" uname -n
}

fails() {
    local pattern=$1
    shift
    expect_exit 125 login "$HVDRUN" "$@" touch "$PWD/started"
    tells "$pattern"
    [ ! -e started ] || fail "something was started"
}

cached() {
    on "$1" sh -c "stat -c '%n %i %s' $CACHE/hvd-agent-*"
}

# Remounts, with option $1, every file system of n2 that could take the agent.
everywhere() {
    local dir
    for dir in /root /tmp /var/tmp /dev/shm; do
        on n2 mount -o "remount,$1" $dir
    done
}

test_push_once() {
    cluster_up 2
    runs -H n1,n2
    [ "$(cached n1 | wc -l)" -eq 1 ]
    [ "$(on n1 stat -c %a $CACHE)" = 700 ]
    [ "$(on n1 sh -c "stat -c %a $CACHE/hvd-agent-*")" = 700 ]
    [ "$(on n1 ls -A $CACHE | wc -l)" -eq 1 ]
    cached n1 >before
    runs -H n1,n2
    cached n1 | diff before -
    cluster_down
}

test_push_by_other_launchers() {
    cluster_up 2
    runs --launcher openssh -H n1
    runs --rsh 'ssh -q {host}' -H n2
    cached n1 >one
    cached n2 >two
    runs --launcher ssh2 -H n1,n2
    cached n1 | diff one -
    cached n2 | diff two -
    cluster_down
}

test_push_by_many_jobs_at_once() {
    local i
    cluster_up 2
    for i in 1 2 3 4 5 6; do
        start_on login "job$i" "$HVDRUN" --no-tag-output -H n1,n2 uname -n
    done
    for i in 1 2 3 4 5 6; do
        finish "job$i" 0
        [ "$(sort "job$i.out" | tr '\n' ' ')" = 'n1 n2 ' ]
    done
    [ "$(on n1 ls -A $CACHE | wc -l)" -eq 1 ]
    cluster_down
}

test_push_of_a_damaged_copy() {
    local how
    cluster_up 1
    runs -H n1
    for how in 'truncate -s 1000' 'truncate -s 0' 'chmod 600' \
        'sh -c "head -c 4000000 /dev/urandom >\$1" x'; do
        on n1 sh -c "$how \$(echo $CACHE/hvd-agent-*)"
        runs -H n1
        [ "$(cat out)" = n1 ]
    done
    cluster_down
}

# A copy of the agent that was cut off before it got its final name does no
# harm and is removed.
test_push_interrupted() {
    cluster_up 1
    on n1 mkdir -p -m 700 $CACHE
    on n1 sh -c "cd $CACHE; echo half >.push-0123456789abcdef
        touch -d '30 days ago' .push-0123456789abcdef"
    runs -H n1
    runs -H n1
    [ "$(on n1 ls -A $CACHE | wc -l)" -eq 1 ]
    cluster_down
}

test_push_where_the_cache_is() {
    cluster_up 1
    faulty sshd n1 stop
    faulty sshd n1 start 'SetEnv XDG_CACHE_HOME=/tmp/cache'
    runs -H n1
    on n1 sh -c 'ls /tmp/cache/hvd/hvd-agent-*'
    on n1 test ! -e $CACHE
    on n1 rm -r /tmp/cache
    cluster_down
}

# Fails unless the job left nothing in /tmp but a private cache, and removes
# that.
tmp_is_clean() {
    [ "$(on n1 sh -c 'ls -A /tmp | grep -c hvd')" -le 1 ]
    on n1 sh -c 'for d in /tmp/*hvd*; do [ -d $d ] || continue
        [ $(stat -c %a:%u $d) = 700:0 ] || exit 1; done; rm -rf /tmp/*hvd*'
}

test_push_into_a_home_that_is_no_good() {
    local how
    cluster_up 1
    for how in noexec ro 'size=40k'; do
        on n1 mount -o "remount,$how" /root
        runs -H n1
        [ "$(cat out)" = n1 ]
        on n1 mount -o remount,exec,rw,size=64m /root
        on n1 sh -c "[ ! -e $CACHE ] || [ -z \"\$(ls -A $CACHE)\" ]"
        tmp_is_clean
    done
    on n1 sh -c 'rm -rf /root/.cache/hvd; echo file >/root/.cache/hvd'
    runs -H n1
    on n1 rm /root/.cache/hvd
    tmp_is_clean
    sed 's,root:/root:,root:/tmp/nowhere:,' cluster/n1/passwd >passwd
    cat passwd >cluster/n1/passwd # the same file: it is mounted there
    faulty sshd n1 stop
    faulty sshd n1 start 'AuthorizedKeysFile /root/.ssh/authorized_keys' \
        'StrictModes no'
    runs -H n1
    on n1 test ! -e /tmp/nowhere
    tmp_is_clean
    cluster_down
}

test_push_when_nothing_may_be_executed() {
    cluster_up 2
    everywhere noexec
    fails 'host n2: .*noexec' -H n1,n2
    one_line err
    cluster_down
}

test_push_when_every_disk_is_full() {
    cluster_up 2
    everywhere size=40k
    fails 'host n2: .*(full|no space)' -H n1,n2
    one_line err
    cluster_down
}

test_push_to_another_kind_of_processor() {
    cluster_up 2
    cp "$(command -v uname)" real_uname
    printf '#!/bin/sh\n"%s/real_uname" "$@" | sed s/%s/riscv64/\n' \
        "$PWD" "$(uname -m)" >other_uname
    chmod +x other_uname
    on n2 mount -n --bind "$PWD/other_uname" /usr/bin/uname
    fails 'host n2: .*riscv64' -H n1,n2
    one_line err
    cluster_down
}

test_push_prunes_old_versions() {
    local i
    cluster_up 1
    on n1 mkdir -p -m 700 $CACHE
    for i in $(seq 30); do
        on n1 touch -d "$((100 - i)) days ago" "$CACHE/hvd-agent-$i"
    done
    runs -H n1
    [ "$(on n1 ls -A $CACHE | wc -l)" -eq 1 ]
    cluster_down
}

test_push_is_not_needed_with_an_installed_agent() {
    cluster_up 2
    runs --agent "$HVD_AGENT" -H n1,n2
    [ "$(sort out | tr '\n' ' ')" = 'n1 n2 ' ]
    on n1 test ! -e $CACHE
    on n1 mkdir '/tmp/my $(agent)'
    on n1 cp "$HVD_AGENT" '/tmp/my $(agent)/'"it's"
    runs --agent '/tmp/my $(agent)/'"it's" -H n1
    on n1 rm -r '/tmp/my $(agent)'
    fails 'host n1: .*/nowhere/agent' --agent /nowhere/agent -H n1
    one_line err
    cluster_down
}

# Files and links that another user made first, at every name that can be
# guessed, are neither used nor changed.
test_push_with_a_squatter() {
    local name
    cluster_up 1
    as_alice n1 sh -c 'for n in hvd hvd-0 hvd-root; do
        mkdir -m 777 /tmp/$n && cp /bin/false /tmp/$n/hvd-agent; done'
    on n1 mount -o remount,ro /root
    runs -H n1
    [ "$(cat out)" = n1 ]
    for name in hvd hvd-0 hvd-root; do
        [ "$(on n1 ls -A /tmp/$name)" = hvd-agent ]
        on n1 rm -r /tmp/$name
    done
    on n1 mkdir -m 755 /tmp/target
    as_alice n1 ln -s /tmp/target /tmp/hvd-0
    runs -H n1
    [ -z "$(on n1 ls -A /tmp/target)" ]
    on n1 rm -r /tmp/hvd-0 /tmp/target
    on n1 mount -o remount,rw /root
    cluster_down
}

# A cache that others can write to is not used.
test_push_with_an_open_cache() {
    cluster_up 1
    runs -H n1
    on n1 chmod 777 $CACHE
    on n1 sh -c "f=\$(echo $CACHE/hvd-agent-*); rm \$f
        printf '#!/bin/sh\ntouch $PWD/trapped\n' >\$f; chmod 777 \$f
        chown alice \$f"
    runs -H n1
    [ "$(cat out)" = n1 ]
    [ ! -e trapped ]
    on n1 sh -c 'rm -rf /tmp/*hvd*'
    cluster_down
}

test_push_says_what_the_shell_said() {
    cluster_up 1 --noise 'echo the module system is broken; exit 3'
    fails 'host n1: ' -H n1
    grep -q 'the module system is broken' err
    cluster_down
}
