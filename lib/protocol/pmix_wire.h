/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between an agent and hvd-pmix, the process that serves PMIx to
 * the ranks of the agent's host, over a pair of sockets.
 *
 *     agent    -> SETUP                     who the ranks are
 *     hvd-pmix -> READY or FAILED           what the ranks' environment needs
 *     hvd-pmix -> CONNECTED, FINALIZED      a rank begins and ends MPI
 *     hvd-pmix -> FENCE                     all local ranks are in the fence
 *     agent    -> FENCE_DONE                what all hosts gave
 *     hvd-pmix -> WANT                      a local rank needs another's data
 *     agent    -> WANTED                    that data
 *     agent    -> ASK                       another host needs a rank's data
 *     hvd-pmix -> ANSWER                    that data
 *     agent    -> LOST                      a rank died: no fence can succeed
 *     hvd-pmix -> ABORT, SPAWN              a rank calls MPI_Abort; asks for
 *                                           more ranks, which was refused
 *
 * When the agent closes its socket, hvd-pmix ends.  Data are opaque bytes of
 * PMIx.  Pure: encoders append to a buffer, decoders check every length and
 * range.
 */
#ifndef HVD_PROTOCOL_PMIX_WIRE_H
#define HVD_PROTOCOL_PMIX_WIRE_H

#include "lib/base/strv.h"
#include "lib/protocol/frame.h"

enum pmix_wire_type {
    /* to hvd-pmix */
    PMIX_WIRE_SETUP = 1,
    PMIX_WIRE_FENCE_DONE = 2, /* id, status, data */
    PMIX_WIRE_WANTED = 3,     /* rank, status, data */
    PMIX_WIRE_ASK = 4,        /* rank */
    PMIX_WIRE_LOST = 5,       /* rank */
    /* to the agent */
    PMIX_WIRE_READY = 32,
    PMIX_WIRE_FAILED = 33,    /* text */
    PMIX_WIRE_CONNECTED = 34, /* rank */
    PMIX_WIRE_FINALIZED = 35, /* rank */
    PMIX_WIRE_FENCE = 36,     /* id, status, data */
    PMIX_WIRE_WANT = 37,      /* rank */
    PMIX_WIRE_ANSWER = 38,    /* rank, status, data */
    PMIX_WIRE_ABORT = 39,     /* rank, exit status, text */
    PMIX_WIRE_SPAWN = 40,     /* rank */
};

enum pmix_wire_status {
    PMIX_WIRE_OK = 0,
    PMIX_WIRE_PEER_LOST = 1, /* a rank died or disconnected */
    PMIX_WIRE_NO_DATA = 2,   /* that rank has none */
};

enum {
    PMIX_WIRE_RANKS_MAX = 65536, /* of a job, and hosts */
    PMIX_WIRE_LOCAL_MAX = 1024,
    PMIX_WIRE_NAME_MAX = 256,    /* bytes of a name with its final 0 */
    PMIX_WIRE_PATH_MAX = 4096,   /* of a path */
    PMIX_WIRE_TEXT_MAX = 512,    /* of a text for people */
    PMIX_WIRE_ENV_MAX = 64,      /* variables of a rank */
    PMIX_WIRE_ENV_BYTES = 4096,  /* of one */
    PMIX_WIRE_DATA_MAX = 4 << 20 /* bytes in one message */
};

struct pmix_setup {
    char nspace[PMIX_WIRE_NAME_MAX];  /* the job's name */
    char library[PMIX_WIRE_PATH_MAX]; /* of PMIx: a path, or a file's name */
    char dir[PMIX_WIRE_PATH_MAX];     /* for files of PMIx and MPI */
    uint32_t size, host_index, uid, gid;
    struct hb_strv hosts; /* names, all different, by index of the host */
    uint32_t *host_of;    /* by rank: the index of its host */
};

/* All messages but SETUP and READY. */
struct pmix_wire_item {
    uint32_t id; /* a rank, or the number of a fence */
    int32_t status;
    const void *data; /* borrowed */
    size_t len;
};

/* What READY says of a local rank. */
struct pmix_rank_env {
    uint32_t rank;
    struct hb_strv env; /* NAME=VALUE */
};

struct pmix_ready {
    struct pmix_rank_env *ranks;
    uint32_t count;
};

/* Appends one frame, as each encoder does: 0, -HVD_ENOMEM, or -HVD_EINVAL for
 * what the decoder would refuse.  Decoders return 0, -HVD_EPROTO or
 * -HVD_ENOMEM; on failure *m is empty. */
int pmix_wire_encode_setup(struct hb_buf *out, const struct pmix_setup *m);
int pmix_wire_decode_setup(const void *p, size_t len, struct pmix_setup *m);
void pmix_setup_fini(struct pmix_setup *m);

int pmix_wire_encode_ready(struct hb_buf *out, const struct pmix_ready *m);
int pmix_wire_decode_ready(const void *p, size_t len, struct pmix_ready *m);
void pmix_ready_fini(struct pmix_ready *m);

int pmix_wire_encode(struct hb_buf *out, enum pmix_wire_type type,
                     const struct pmix_wire_item *m);
/* Decodes a message of the type, which may be any number. */
int pmix_wire_decode(uint8_t type, const void *p, size_t len,
                     struct pmix_wire_item *m);

#endif
