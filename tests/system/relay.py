#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Carries packets between two network interfaces, and changes what ranks say.

    relay.py RULE LOG ONE OTHER

ONE is the side of a host, OTHER the side of the network.  All packets pass
unchanged, except one message on each connection between ranks.  The file RULE,
which is read when ranks connect, says which one, and what changes:

    from|to NTH LEN PLACE OFFSET BYTES

The NTH message (from 1) from or to the host that has LEN bytes after its head
(0: any) is changed: BYTES, in hexadecimal, are combined by exclusive or with
those at OFFSET of PLACE:

    head    the message's head (runtime/plane/tcp/tcp_head.h)
    words   what its authentication code covers
    data    what follows that in the message
    after   what follows the message: data of an operation without a head

PLACE can also be `again`: the message is replaced by the one of the same length
that preceded it; or `nothing`.  The file LOG gets the line "ready", then one
when ranks connect, one when the message comes, and one for each packet that is
changed: TCP may send the same bytes twice.

It follows messages up to the first data without a head, and in order: a packet
that has overtaken another is dropped, and TCP sends it again.  It needs no
offloads to be turned off: the kernel hands over large packets and unfinished
checksums with a description (virtio_net_hdr), which is passed on with them.
"""

import select
import socket
import struct
import sys

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_RCVBUFFORCE = 33
ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 3, 0x0800, 0x86DD
VNET_BYTES, VNET_NEEDS_CSUM = 10, 1
FRAME_MAX = 1 << 17
BUFFER_BYTES = 16 << 20

CALL_MAGIC, HEAD_MAGIC = b"hvCC", b"hvDE"
CALL_BYTES, ANSWER_BYTES, FINISH_BYTES, HEAD_BYTES = 92, 68, 32, 40

rule_path, log_path = sys.argv[1:3]
log_file = open(log_path, "a", buffering=1)


def log(line):
    log_file.write(line + "\n")


class Rule:
    def __init__(self, text):
        words = text.split()
        self.side, self.place = words[0], words[3]
        self.nth, self.len = int(words[1]), int(words[2])
        self.offset, self.bytes = 0, b""
        if len(words) > 4:
            self.offset, self.bytes = int(words[4]), bytes.fromhex(words[5])


class Stream:
    """One direction of a TCP connection."""

    def __init__(self, side, first_seq):
        self.side = side
        self.first_seq = first_seq
        self.other = None  # the other direction
        self.rule = None  # set on connections between ranks
        self.next = None  # where the next head begins
        self.head = b""  # what has come of it
        self.count = 0  # messages of the rule's length
        self.before = None  # the last one of them
        self.edits = {}  # offset in the stream: what to combine with
        self.seen = 0  # bytes

    def begin_ranks(self):
        with open(rule_path) as f:
            self.rule = self.other.rule = Rule(f.read())
        self.next = CALL_BYTES + FINISH_BYTES
        self.other.next = ANSWER_BYTES
        log("ranks connect")

    def plan(self, at, message):
        """Notes the changes for the message at `at`.  `message` has the bytes
        of it that are in the packet."""
        rule = self.rule
        words, length = struct.unpack("!IQ", message[12:24])
        if self.side != rule.side or rule.len not in (0, length):
            return
        self.count += 1
        if self.count == rule.nth:
            place, change = 0, rule.bytes
            if rule.place == "words":
                place = HEAD_BYTES
            elif rule.place == "data":
                place = HEAD_BYTES + words
            elif rule.place == "after":
                place = HEAD_BYTES + length
            elif rule.place == "again":
                change = bytes(a ^ b for a, b in zip(message, self.before))
            for i, byte in enumerate(change):
                self.edits[at + place + rule.offset + i] = byte
            log(f"message {self.count} of {length} bytes: {rule.place}")
        self.before = message

    def follow(self, at, payload):
        """Finds the heads in a packet that was not seen before."""
        end = at + len(payload)
        if at == 0 and payload[:4] == CALL_MAGIC:
            self.begin_ranks()
        while self.next is not None and self.next < end:
            start = self.next - at  # negative if some of the head has come
            self.head += payload[start + len(self.head) : start + HEAD_BYTES]
            if len(self.head) < HEAD_BYTES:
                return
            if self.head[:4] != HEAD_MAGIC:
                self.next = None
                return
            length = struct.unpack("!Q", self.head[16:24])[0]
            body = payload[start + HEAD_BYTES :][:length]
            self.plan(self.next, self.head + body)
            self.next += HEAD_BYTES + length
            self.head = b""

    def change(self, at, payload):
        """Returns the payload as it goes on, also when it is sent again.  None:
        it has overtaken another, and is dropped, so that it is sent again."""
        new = self.seen - at
        if self.rule and new < 0:
            return None
        if 0 <= new < len(payload):
            self.follow(self.seen, payload[new:])
            self.seen = at + len(payload)
        out = bytearray(payload)
        for place, byte in self.edits.items():
            if at <= place < at + len(payload) and byte:
                out[place - at] ^= byte
        return bytes(out)


streams = {}


def stream_of(side, addresses, ports, seq, is_syn):
    key = (addresses, ports)
    if is_syn:
        half = len(addresses) // 2
        back = (addresses[half:] + addresses[:half], ports[2:] + ports[:2])
        s = streams[key] = Stream(side, seq + 1)
        s.other = streams.get(back)
        if s.other:
            s.other.other = s
    return streams.get(key)


def changed_checksum(tcp, old, new, at):
    """Returns the checksum of the segment `tcp` after its bytes from `at` on
    were `old` and became `new` (RFC 1624)."""
    total = 0xFFFF - struct.unpack("!H", tcp[16:18])[0]
    for i, (a, b) in enumerate(zip(old, new), at):
        total += (b - a) << (0 if i % 2 else 8)
    return struct.pack("!H", 0xFFFF - total % 0xFFFF)


def carry(side, packet):
    """Returns a packet, which begins with its virtio_net_hdr, as it goes on;
    None: not at all."""
    ip = VNET_BYTES + 14
    kind = struct.unpack("!H", packet[ip - 2 : ip])[0]
    if kind == ETH_P_IP and packet[ip + 9] == socket.IPPROTO_TCP:
        addresses = packet[ip + 12 : ip + 20]
        end = ip + struct.unpack("!H", packet[ip + 2 : ip + 4])[0]
        at = ip + (packet[ip] & 15) * 4
    elif kind == ETH_P_IPV6 and packet[ip + 6] == socket.IPPROTO_TCP:
        addresses = packet[ip + 8 : ip + 40]
        end = ip + 40 + struct.unpack("!H", packet[ip + 4 : ip + 6])[0]
        at = ip + 40
    else:
        return packet
    ports, seq = packet[at : at + 4], packet[at + 4 : at + 8]
    seq = struct.unpack("!I", seq)[0]
    stream = stream_of(side, addresses, ports, seq, packet[at + 13] & 2)
    data = at + (packet[at + 12] >> 4) * 4
    if stream is None or data == end:
        return packet
    old = packet[data:end]
    new = stream.change((seq - stream.first_seq) & 0xFFFFFFFF, old)
    if new is None:
        return None
    if new == old:
        return packet
    log(f"changed {sum(a != b for a, b in zip(old, new))} bytes")
    tcp = packet[at:data]
    if not packet[0] & VNET_NEEDS_CSUM:
        sum_ = changed_checksum(tcp, old, new, data - at)
        tcp = tcp[:16] + sum_ + tcp[18:]
    return packet[:at] + tcp + new + packet[end:]


def open_side(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    s.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    s.bind((name, ETH_P_ALL))
    return s


def main():
    one, other = open_side(sys.argv[3]), open_side(sys.argv[4])
    log("ready")
    while True:
        for s in select.select([one, other], [], [])[0]:
            side, to = ("from", other) if s is one else ("to", one)
            packet = carry(side, s.recv(FRAME_MAX))
            try:
                if packet:
                    to.send(packet)
            except OSError as e:
                log(f"lost a packet of {len(packet)} bytes: {e}")


if __name__ == "__main__":
    main()
