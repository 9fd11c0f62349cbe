# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Somebody on the wire between two hosts changes what ranks tell each other.
# relay.py, on the cable of n2, says what it can change; the formats of what is
# changed here are in tcp_head.h and hier_impl.h.

start_relay() {
    command -v python3 >/dev/null || skip "python3 is not installed"
    cluster_up 2
    : >relay.log
    faulty relay n2 python3 "$ROOT/tests/system/relay.py" \
        "$PWD/rule" "$PWD/relay.log" 2>relay.err &
    disown
    wait_for 'grep -qx ready relay.log'
}

# job CODE RULE HOW COUNT: runs `coll trust HOW COUNT` with a rank on each host
# while the relay follows RULE.  Fails unless hvdrun exits with CODE in time.
job() {
    local began
    echo "$2" >rule
    : >relay.log
    began=$(now_ms)
    expect_exit "$1" login "$HVDRUN" --grace 4 --no-tag-output -H n1,n2 \
        "$PROG/coll" trust "$3" "$4" 100
    began=$(($(now_ms) - began))
    [ $began -le 10000 ] || fail "$2: $began ms"
    [ "$(grep -c '^rank [01]: ' out)" -eq 2 ] || fail "$2: $(cat out)"
}

# Fails unless the relay has changed N ($1) bytes.
changed() {
    [ "$(grep '^changed' relay.log | sort -u)" = "changed $1 bytes" ] ||
        fail "$(cat rule relay.log)"
}

# caught N PATTERN RULE [HOW]: runs a job in which RULE changes N bytes.  The
# rank that gets them must fail with HVD_EPROTO and a message that matches
# PATTERN, and the other one, too, must fail; neither has a wrong result.
caught() {
    local who=0
    [[ $3 == from* ]] || who=1
    job 1 "$3" "${4:-whole}" 100
    changed "$1"
    grep -Eq "^rank $who: a peer broke the protocol, 0 wrong: .*$2" out ||
        fail "$3: $(cat out)"
    grep -Eq "^rank $((1 - who)): (a peer|shut down).*, 0 wrong: ." out ||
        fail "$3: $(cat out)"
}

forged='was changed on its way \(wrong authentication code\)$'
from_n2="rank 1 on host n2: a message $forged"
from_n1="rank 0 on host n1: a message $forged"

test_wire_unchanged() {
    start_relay
    job 0 'from 30 432 nothing' whole 100
    grep -qx 'message 30 of 432 bytes: nothing' relay.log
    job 0 'from 1 48 nothing' halves 100
    grep -qx 'message 1 of 48 bytes: nothing' relay.log
    job 0 'to 1 32 nothing' whole 300007
    absent 'changed\|lost' relay.log
    cluster_down
}

# Every field of a head, both codes included, and a head and words that were
# right in the message before.
test_wire_changed_heads() {
    local at
    start_relay
    for at in 0 7 11 15 16 23 24 39; do
        caught 1 "$from_n2" "from 30 432 head $at 01"
    done
    caught 1 "$from_n1" 'to 30 432 head 16 7f'
    job 1 'to 30 432 again' whole 100
    grep -Eq "^rank 1: a peer broke the protocol, 0 wrong: $from_n1" out
    grep -q '^changed' relay.log
    # while hvd_init measures the network
    caught 1 "hvd_init: $from_n2" 'from 3 8 head 3 01'
    caught 1 "hvd_init: $from_n1" 'to 1 262144 head 23 01'
    cluster_down
}

# What is agreed on: signatures, entries, outcome, the last rank; and, where
# ranks exchange tables, their lengths and what is in them.
test_wire_changed_words() {
    local at
    start_relay
    for at in 0 15 19 23 31; do
        caught 1 "$from_n2" "from 30 432 words $at 01"
    done
    caught 2 "$from_n1" 'to 30 432 words 16 0000000100000001'
    caught 1 "$from_n2" 'from 1 48 words 39 08' halves
    caught 1 "$from_n2" 'from 1 48 words 47 80' halves
    caught 1 "$from_n1" 'to 1 48 after 96 01' halves
    caught 1 "hvd_init: $from_n1" 'to 1 16 words 0 7f'
    cluster_down
}

# Without authentication codes, what makes no sense is still an error: no crash,
# no endless wait.
test_wire_without_codes() {
    local what
    start_relay
    export HVD_TCP_MAC=0
    job 0 'from 30 432 nothing' whole 100
    # magic, kind, number, words, length: huge, too short
    for what in '3 01' '7 03' '11 01' '12 7f' '16 7f' '23 10'; do
        caught 1 'rank 1 on host n2: its message is ' \
            "from 30 432 head $what"
    done
    # of no entries, then with the outcome that the run is to be cut to that
    caught 1 'rank 1 on host n2: its message is ' \
        'from 30 432 words 19 01'
    caught 2 'rank 1 on host n2: its message is ' \
        'from 30 432 words 16 0000000100000001'
    caught 2 'rank 0 on host n1: its message is ' \
        'to 3 432 words 16 0000000200000001' halves
    # another operation than the other rank's, which is one of its own
    caught 1 'ranks differ on what they have carried out' \
        'from 30 432 words 0 01'
    # counts of an allgather: none, a huge one
    for what in '39 08' '32 7f'; do
        caught 1 'rank 1 on host n2: its message is ' \
            "from 1 48 words $what" halves
    done
    caught 1 'rank 1 announces a table of 922337203685477[0-9]* bytes' \
        'from 1 48 words 47 80' halves
    caught 1 'hvd_init: rank 0 on host n1: its message is ' \
        'to 1 262144 head 16 7f'
    cluster_down
}

# Tensor data has no code: whoever changes it is not noticed.
test_wire_changed_data() {
    start_relay
    job 0 'from 30 432 data 3 80' whole 100
    changed 1
    grep -qx 'rank 0: success, 1 wrong: ' out || fail "$(cat out)"
    grep -qx 'rank 1: success, 0 wrong: ' out || fail "$(cat out)"
    # in the ring, which passes a part on when it is reduced
    job 0 'to 1 32 after 1003 80' whole 300007
    changed 1
    grep -qx 'rank 1: success, 1 wrong: ' out || fail "$(cat out)"
    cluster_down
}
