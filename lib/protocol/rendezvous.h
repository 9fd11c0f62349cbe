/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the job's rendezvous store and its replies, as they travel
 * from a worker to its agent and from agents to hvdrun.
 *
 * A value has a scope and a key, and a version, which grows with every
 * change in the store.  GET with `wait` is answered when there is a value
 * whose version exceeds `after`: 0 waits for the first, the last version
 * seen waits for a change (a watch), of which the end is one: HVD_ENOENT.  A
 * FENCE collects one value from each member and gives all of them to all; its
 * scope names it, and is free again when it is done.
 *
 * Between agents and hvdrun a FENCE carries the values of all local
 * members, and its reply those of all members, as records: u32 rank, u32
 * length, bytes; ranks ascend.  From a worker it is the plain value.
 *
 * Linked into libhvd: libc only.  Pure: encoders append to a buffer,
 * decoders borrow from a payload.
 */
#ifndef HVD_PROTOCOL_RENDEZVOUS_H
#define HVD_PROTOCOL_RENDEZVOUS_H

#include "lib/protocol/frame.h"

enum rdv_op {
    RDV_PUT = 1,
    RDV_GET = 2,
    RDV_DELETE = 3, /* an empty key: the whole scope */
    RDV_FENCE = 4,
    RDV_CANCEL = 5, /* of the request with this id; has no reply */
    /* An agent's, without reply: its member comes to no fence of the epoch
     * `after` and before; the value says why.  0: it is back. */
    RDV_LEFT = 6,
};

enum {
    RDV_NAME_BYTES = 256, /* a scope or key with its final 0 */
    RDV_VALUE_MAX = 1 << 20,
    RDV_MEMBERS_MAX = 65536,
    /* payload of a worker's request */
    RDV_REQUEST_MAX =
        RDV_VALUE_MAX + 4 * RDV_MEMBERS_MAX + 2 * RDV_NAME_BYTES + 64,
    /* of one member: so that those of a full host fit into a frame */
    RDV_FENCE_VALUE_MAX = 8 << 10,
};

struct rdv_request {
    uint32_t id; /* the requester's; the reply has it */
    enum rdv_op op;
    int wait;
    uint64_t after; /* of a fence: its epoch (worker.h), 0 for none */
    char scope[RDV_NAME_BYTES], key[RDV_NAME_BYTES];
    /* of a fence, ascending, big-endian; none: every rank of the job */
    const unsigned char *members;
    uint32_t member_count;
    const void *value;
    size_t len;
};

struct rdv_reply {
    uint32_t id;
    int status;       /* 0 or an enum hvd_status; then the value is a text */
    uint64_t version; /* with HVD_EPEER: the rank that will not come */
    const void *value;
    size_t len;
};

static inline uint32_t rdv_member(const struct rdv_request *m, uint32_t i)
{
    const unsigned char *p = m->members + 4 * (size_t)i;

    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

/* One frame of that type: 0, -HVD_ENOMEM, or -HVD_EINVAL for what the
 * decoder would refuse. */
int rdv_encode_request(struct hb_buf *out, uint8_t type,
                       const struct rdv_request *m);
int rdv_encode_reply(struct hb_buf *out, uint8_t type,
                     const struct rdv_reply *m);

/* 0 or -HVD_EPROTO.  Lengths must match exactly; names hold no 0; members
 * ascend.  value_max bounds the value: a fence of an agent may hold more
 * than RDV_VALUE_MAX. */
int rdv_decode_request(const void *p, size_t len, size_t value_max,
                       struct rdv_request *m);
int rdv_decode_reply(const void *p, size_t len, struct rdv_reply *m);

/* Records of fences. */
struct rdv_record {
    uint32_t rank;
    const void *value;
    uint32_t len;
};

int rdv_put_record(struct hb_buf *out, uint32_t rank, const void *value,
                   size_t len);
/* Takes the next one off the reader: 1, 0 at the end, -HVD_EPROTO. */
int rdv_next_record(struct hb_reader *r, struct rdv_record *out);

#endif
