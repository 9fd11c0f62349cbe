/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the job's rendezvous store and its replies, between workers and
 * agents and between agents and hvdrun.
 *
 * A value has a scope, a key and a version, which grows with every change in
 * the store.  GET with `wait` is answered as soon as there is a version above
 * `after`: 0 waits for the first value; the last version seen waits for a
 * change (a watch).  Deletion counts as a change: HVD_ENOENT.  A FENCE collects
 * one value from each member and gives all of them to all; its scope names it,
 * and may be used again when it is done.
 *
 * Between agents and hvdrun a FENCE carries the values of all local members,
 * and its reply those of all members, as records: u32 rank, u32 length, bytes;
 * ranks ascend.  From a worker it carries the plain value.
 *
 * Linked into libhvd: libc only.  Pure: encoders append to a buffer, decoders
 * borrow from a payload.
 */
#ifndef HVD_PROTOCOL_RENDEZVOUS_H
#define HVD_PROTOCOL_RENDEZVOUS_H

#include "lib/protocol/frame.h"

enum rdv_op {
    RDV_PUT = 1,
    RDV_GET = 2,
    RDV_DELETE = 3, /* an empty key: all of the scope */
    RDV_FENCE = 4,
    RDV_CANCEL = 5, /* cancels the request with this id; no reply */
    /* From an agent, without reply: its member comes to no fence of the epoch
     * `after` or before, and the value says why.  `after` 0: it is back. */
    RDV_LEFT = 6,
    RDV_END_ROUND = 7, /* deletes all of the scope if it has this key */
};

enum {
    RDV_NAME_BYTES = 256, /* a scope or key with its final 0 */
    RDV_VALUE_MAX = 1 << 20,
    RDV_MEMBERS_MAX = 65536,
    /* payload bytes of a worker's request */
    RDV_REQUEST_MAX =
        RDV_VALUE_MAX + 4 * RDV_MEMBERS_MAX + 2 * RDV_NAME_BYTES + 64,
    /* bytes of one member, so that a full host's values fit into a frame */
    RDV_FENCE_VALUE_MAX = 8 << 10,
};

struct rdv_request {
    uint32_t id; /* chosen by the requester, repeated in the reply */
    enum rdv_op op;
    int wait;
    uint64_t after; /* for a fence: its epoch (worker.h), or 0 */
    char scope[RDV_NAME_BYTES], key[RDV_NAME_BYTES];
    /* for a fence: ascending, big-endian; none: all ranks of the job */
    const unsigned char *members;
    uint32_t member_count;
    const void *value;
    size_t len;
};

struct rdv_reply {
    uint32_t id;
    int status;       /* 0 or an enum hvd_status, with a text as the value */
    uint64_t version; /* with HVD_EPEER: the absent rank */
    const void *value;
    size_t len;
};

static inline uint32_t rdv_member(const struct rdv_request *m, uint32_t i)
{
    const unsigned char *p = m->members + 4 * (size_t)i;

    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

/* Appends one frame of that type: 0, -HVD_ENOMEM, or -HVD_EINVAL for a message
 * that the decoder would refuse. */
int rdv_encode_request(struct hb_buf *out, uint8_t type,
                       const struct rdv_request *m);
int rdv_encode_reply(struct hb_buf *out, uint8_t type,
                     const struct rdv_reply *m);

/* Decodes a payload: 0 or -HVD_EPROTO.  Lengths must match exactly; names hold
 * no 0; members ascend.  value_max is the longest value accepted: an agent's
 * fence may exceed RDV_VALUE_MAX. */
int rdv_decode_request(const void *p, size_t len, size_t value_max,
                       struct rdv_request *m);
int rdv_decode_reply(const void *p, size_t len, struct rdv_reply *m);

/* A record of a fence. */
struct rdv_record {
    uint32_t rank;
    const void *value;
    uint32_t len;
};

int rdv_put_record(struct hb_buf *out, uint32_t rank, const void *value,
                   size_t len);
/* Takes the next record off the reader: 1, 0 at the end, -HVD_EPROTO. */
int rdv_next_record(struct hb_reader *r, struct rdv_record *out);

#endif
