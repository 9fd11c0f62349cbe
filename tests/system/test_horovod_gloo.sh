# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What a real Horovod needs of hvdrun: its rendezvous over HTTP, and variables.
# The ranks are stand-ins, tests/system/prog/horovod_rank.c, which repeat the
# bytes that ranks of Horovod 0.28.1 were seen to send; Horovod itself is in no
# package.  HVD_TEST_HOROVOD names a Python that has it, with PyTorch and Gloo:
# then the last tests run it, too.

RANK=$PROG/horovod_rank

# two_hosts EXIT CMD...: runs CMD on four ranks of two hosts, which are shells
# on this machine, and fails unless hvdrun exits with EXIT.
two_hosts() {
    mkdir -p home
    expect_exit "$1" env HOME="$PWD/home" "$HVDRUN" -np 4 -H ha:2,hb:2 \
        --rsh 'env -u {host}' --no-tag-output "${@:2}"
}

test_init() {
    expect_exit 0 "$HVDRUN" -np 1 "$RANK"
    expect_exit 0 "$HVDRUN" -np 4 --no-tag-output "$RANK"
    [ "$(sort out | tr '\n' ' ')" = "ok 0 ok 1 ok 2 ok 3 " ]
    [ ! -s err ] || fail "$(cat err)"
    two_hosts 0 "$RANK"
    [ "$(sort out | tr '\n' ' ')" = "ok 0 ok 1 ok 2 ok 3 " ]
}

# A rank that is late with its DELETE must not take the next round's keys away,
# nor may others find this round's.
test_init_again() {
    local rounds=10
    ! full || rounds=60
    expect_exit 0 "$HVDRUN" -np 4 "$RANK" rounds "$rounds"
    expect_exit 0 "$HVDRUN" -np 3 "$RANK" rounds 3 slow 2 30
    expect_exit 0 "$HVDRUN" -np 3 "$RANK" rounds 3 slow 0 30
    two_hosts 0 "$RANK" rounds 3 slow 3 30
}

test_a_rank_dies_in_init() {
    two_hosts 137 "$RANK" rounds 2 die 2
    grep -q 'rank 2 .*SIGKILL' err
}

test_variables() {
    # shellcheck disable=SC2016
    local names='$HOROVOD_GLOO_RENDEZVOUS_ADDR $HOROVOD_CONTROLLER'
    # shellcheck disable=SC2016
    names+=' $HOROVOD_CPU_OPERATIONS $HOROVOD_GLOO_IFACE'
    # shellcheck disable=SC2016
    names+=' $HOROVOD_GLOO_RENDEZVOUS_PORT'
    expect_exit 0 env HOROVOD_GLOO_RENDEZVOUS_ADDR=stale "$HVDRUN" -np 1 \
        --no-tag-output sh -c "echo $names"
    grep -qx '127.0.0.1 gloo gloo lo [1-9][0-9]*' out || fail "$(cat out)"
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output -x HOROVOD_CONTROLLER=mpi \
        -x HOROVOD_GLOO_IFACE=eth7 sh -c "echo $names"
    grep -qx '127.0.0.1 mpi gloo eth7 [1-9][0-9]*' out || fail "$(cat out)"
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output \
        -x HOROVOD_GLOO_RENDEZVOUS_ADDR=there \
        -x HOROVOD_GLOO_RENDEZVOUS_PORT=1 sh -c "echo $names"
    grep -qx 'there lo 1' out || fail "$(cat out)"
}

# The scripts of ranks below begin with this.  ask TEXT: sends the bytes and
# prints the reply on one line.
# shellcheck disable=SC2016
talk='dial() {
    exec 3<>"/dev/tcp/127.0.0.1/$HOROVOD_GLOO_RENDEZVOUS_PORT"
}
ask() {
    dial
    printf "$1" >&3
    tr "\r\n" "~~" <&3
    exec 3>&-
    echo
}
'

test_replies() {
    # shellcheck disable=SC2016
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output bash -c "$talk"'
        ask "GET /s/rank_0 HTTP/1.1\r\n\r\n"
        ask "PUT /s/rank_0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
        ask "GET /s/rank_0 HTTP/1.1\r\n\r\n"
        ask "GET /s/0 HTTP/1.1\r\n\r\n"
        ask "POST /s/k HTTP/1.1\r\n\r\n"
        ask "GET /s HTTP/1.1\r\n\r\n"
        ask "GET /rank_and_size/h:0 HTTP/1.1\r\n\r\n"
        ask "PUT /worker_addresses/h:0 HTTP/1.1\r\nContent-Length: 0\r\n\r\n"'
    sed -i 's/^HTTP\/1.1 \([0-9]*\).*~Content-Length: \([0-9]*\)~~.*~~~~/\1 \2 /' out
    diff - out <<'END' || fail "see above"
404 0 
200 0 
200 3 abc
404 0 
501 0 
400 0 
404 0 
404 0 
END
}

# A connection that says nothing, or half of a request, is closed, and keeps
# nobody else waiting.
test_a_slow_client() {
    # shellcheck disable=SC2016
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output bash -c "$talk"'
        dial
        exec 4<&3
        dial
        printf "PUT /s/k HTTP/1.1\r\nContent-Length: 5\r\n\r\nab" >&3
        exec 5<&3
        ask "GET /s/rank_0 HTTP/1.1\r\n\r\n"
        cat <&5
        cat <&4
        echo over'
    grep -q '^HTTP/1.1 404 ' out
    [ "$(tail -n 1 out)" = over ] && [ "$(wc -l <out)" = 2 ] || fail "$(cat out)"
}

# Another user is refused, also one whose socket no longer has an owner, which
# the kernel then reports as root's.
test_another_user() {
    need_root
    # shellcheck disable=SC2016
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output bash -c "$talk"'
        export -f dial ask
        setpriv --reuid 65534 --clear-groups bash -c "
            ask \"PUT /s/rank_0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\" ||:
            for i in {1..20}; do
                dial
                printf \"PUT /s/rank_0 HTTP/1.1\r\nContent-Length: 0\r\n\r\n\" >&3
                exec 3>&-
            done"
        ask "GET /s/rank_0 HTTP/1.1\r\n\r\n"'
    [ "$(grep -c '^HTTP' out)" = 1 ] && grep -q '^HTTP/1.1 404 ' out ||
        fail "$(cat out)"
    [ "$(grep -c 'refused a connection of user 65534; it serves user 0' err)" = 1 ]
}

need_horovod() {
    [ -n "${HVD_TEST_HOROVOD:-}" ] || skip "HVD_TEST_HOROVOD is not set"
    cat >hello.py <<'END'
import sys
import horovod.torch as hvd
import torch

for i in range(int(sys.argv[1])):
    pair = hvd.ProcessSet([0, 3])
    hvd.init(process_sets=[pair])
    rank, size = hvd.rank(), hvd.size()
    x = torch.full((1000,), float(rank + i))
    got = hvd.allreduce(x, op=hvd.Sum, name="all")
    assert torch.all(got == size * (size - 1) / 2 + size * i), got
    if pair.included():
        got = hvd.allreduce(x, op=hvd.Sum, name="pair", process_set=pair)
        assert torch.all(got == 3 + 2 * i), got
    hvd.barrier()
    hvd.shutdown()
print("ok", rank)
END
}

test_horovod_itself() {
    need_horovod
    expect_exit 0 "$HVDRUN" -np 4 --no-tag-output "$HVD_TEST_HOROVOD" hello.py 3
    [ "$(grep -c '^ok' out)" = 4 ]
    two_hosts 0 "$HVD_TEST_HOROVOD" hello.py 3
    [ "$(grep -c '^ok' out)" = 4 ]
}
