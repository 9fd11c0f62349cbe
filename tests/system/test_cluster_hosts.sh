# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Host lists on real hosts: which host gets which rank, and that hvdrun
# recognises this machine in the list.

places() {
    expect_exit 0 login "$HVDRUN" --no-tag-output "$@" sh -c 'echo \
        "$HVD_RANK/$HVD_SIZE $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE" \
        "$HVD_CROSS_RANK/$HVD_CROSS_SIZE $(uname -n)"'
    sort -n out
}

expect_places() {
    local want=$1
    shift
    diff <(sed 's/^ *//; /^$/d' <<<"$want") <(places "$@") ||
        fail "see above: $*"
}

test_hosts_fill_in_order() {
    cluster_up 2
    expect_places '0/4 0/2 0/2 n1
        1/4 1/2 0/2 n1
        2/4 0/2 1/2 n2
        3/4 1/2 1/2 n2' -np 4 -H n1:2,n2:2
    expect_places '0/3 0/1 0/2 n1
        1/3 0/2 1/2 n2
        2/3 1/2 0/1 n2' -np 3 -H n1:1,n2:2
    expect_places '0/2 0/2 0/1 n1
        1/2 1/2 0/1 n1' -np 2 -H n1:2,n2:2
    cluster_down
}

test_hosts_in_turns() {
    cluster_up 2
    expect_places '0/4 0/2 0/2 n1
        1/4 0/2 1/2 n2
        2/4 1/2 0/2 n1
        3/4 1/2 1/2 n2' -np 4 -H n1:2,n2:2 --map-by node
    expect_places '0/2 0/1 0/2 n1
        1/2 0/1 1/2 n2' --npernode 1 -H n1:2,n2:2
    expect_exit 0 login "$HVDRUN" -np 6 --oversubscribe --no-tag-output \
        -H n1:2,n2:2 uname -n
    [ "$(grep -c n1 out)" -eq 3 ]
    refused 'slots' -np 5 -H n1:2,n2:2
    cluster_down
}

test_hosts_from_files() {
    local file
    cluster_up 3
    printf '%s\n' '# comment' '' 'n1 slots=2 max_slots=4' 'n2' \
        'n3 slots=1 # more' >openmpi
    printf 'n1:2\nn2\nn3:1\n' >mpich
    printf 'n1 slots=1\nn[2-3]\nn1\n' >merged
    printf 'n1\nn1\nn2\nn3\n' >pbs
    printf '10.66.0.1:2\n[fd66::2]:1\nalice@n3\n' >addresses
    for file in openmpi mpich merged pbs addresses; do
        expect_exit 0 login "$HVDRUN" --hostfile $file --no-tag-output uname -n
        [ "$(sort out | tr '\n' ' ')" = 'n1 n1 n2 n3 ' ] ||
            fail "$file: $(cat out)"
    done
    printf 'n1 slots=2\nn2 slots=two\n' >bad
    refused 'bad:2:[0-9]+: ' --hostfile bad
    cluster_down
}

# hvdrun starts ranks on this machine without ssh, by whatever name or address
# it is in the list.
test_hosts_this_one() {
    local name
    cluster_up 1
    login rm -r /root/.ssh
    for name in login localhost 127.0.0.1 10.66.0.250 '[fd66::250]' '[::1]'; do
        expect_exit 0 login "$HVDRUN" --no-tag-output -H "$name:2" uname -n
        [ "$(sort -u out)" = login ]
    done
    cluster_down
}

test_hosts_this_one_and_others() {
    cluster_up 2
    expect_places '0/4 0/1 0/3 login
        1/4 0/2 1/3 n1
        2/4 1/2 0/1 n1
        3/4 0/1 2/3 n2' -H login:1,n1:2,n2:1
    expect_places '0/2 0/1 0/2 n1
        1/2 0/1 1/2 login' -H n1:1,localhost:1
    cluster_down
}

# A host listed by name and again by address is one host.  Only the agents can
# tell.
test_hosts_by_two_names_are_one() {
    local show='echo $RANK $(uname -n) $LOCAL_RANK/$LOCAL_WORLD_SIZE'
    show+=' $HVD_CROSS_RANK/$HVD_CROSS_SIZE $NODE_RANK $HVD_HOSTNAME'
    cluster_up 2
    expect_exit 0 login "$HVDRUN" --no-tag-output -H n1,n2,n1 uname -n
    [ "$(sort out | tr '\n' ' ')" = 'n1 n1 n2 ' ]
    expect_exit 0 login "$HVDRUN" --no-tag-output --output-filename files \
        -H n1:2,10.66.0.2:1,10.66.0.1:1,n2:1 sh -c "$show"
    printf '%s\n' '0 n1 0/3 0/2 0 n1' '1 n1 1/3 0/2 0 n1' \
        '2 n1 2/3 0/1 0 n1' '3 n2 0/2 1/2 1 10.66.0.2' \
        '4 n2 1/2 1/2 1 10.66.0.2' | diff - <(sort out)
    [ "$(cat files/rank.4/stdout)" = '4 n2 1/2 1/2 1 10.66.0.2' ]
    # the same when this machine, which needs no ssh, is in the list
    expect_exit 0 login "$HVDRUN" --no-tag-output -H login:1,n1:1,10.66.0.1:1 \
        "$PROG/coll" topo
    printf '%s\n' 'rank 0/3 local 0/1 cross 0/2' \
        'rank 1/3 local 0/2 cross 1/2' 'rank 2/3 local 1/2 cross 0/1' |
        diff - <(sort out)
    expect_exit 0 login "$HVDRUN" --timeline t.json --stats \
        -H n1,10.66.0.1 "$PROG/coll" sum 10 10
    grep -q 'host 10.66.0.1: counted as host n1, which it is' err
    python3 -m json.tool t.json >/dev/null
    # The plan is made anew; the server of --http keeps the token.
    if [ -e "$BUILD/lib/hvd/status-http.so" ]; then
        HVD_HTTP_TOKEN=0123456789abcdef expect_exit 0 login "$HVDRUN" \
            --http 0 -H n1,10.66.0.1 true
        grep -q 'status at http://127.0.0.1:[0-9]*/$' err
        absent '?token=' err
    fi
    cluster_down
}

test_hosts_are_not_asked_for_a_dry_run() {
    cluster_up 1
    expect_exit 0 login "$HVDRUN" --dry-run -H n1:2,dead:1 true
    grep -q 'n1' out
    grep -q 'dead' out
    [ ! -s cluster/n1/sshd.log ] ||
        absent 'Connection from' cluster/n1/sshd.log
    cluster_down
}

test_hosts_names_in_the_environment() {
    cluster_up 2
    expect_exit 0 login "$HVDRUN" --no-tag-output -H n1,n2 \
        sh -c 'echo "$HVD_HOSTNAME $HOROVOD_HOSTNAME $NODE_RANK $GROUP_RANK"'
    [ "$(sort out | tr '\n' ';')" = 'n1 n1 0 0;n2 n2 1 1;' ] || fail "$(cat out)"
    cluster_down
}
