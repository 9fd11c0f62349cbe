/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control messages about ranks that wait too long; as those of
 * control.h, which includes this file.
 *
 *     agent  -> STALLED       a rank waits, or does no more
 *     hvdrun -> STALL_ASK     where are your ranks? and, the second time, the
 *                             stacks of some
 *     agent  -> STALL_RANKS   where they are
 *     agent  -> STALL_STACK   one for each rank that was asked for
 *     hvdrun -> STALL_BLAME   as ABORT: who keeps them waiting, for ranks that
 *                             give up by themselves; "": nobody any more
 *     hvdrun -> STALL_END     as ABORT, when the job ends for it
 *
 * The rank of the last two is -1 when it is not known.
 *
 * Everything about a rank was said by the rank itself (status.h), but its
 * process's state.  All of it is binary: a host may have many ranks.
 */
#ifndef HVD_PROTOCOL_CONTROL_STALL_H
#define HVD_PROTOCOL_CONTROL_STALL_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/status.h"

#include <sys/types.h>

enum {
    CONTROL_STALL_MAX_MS = INT32_MAX,
    CONTROL_STACKS_MAX = 8,         /* ranks in one STALL_ASK */
    CONTROL_STACK_BYTES = 16 << 10, /* of one stack's text */
};

struct control_stalled {
    int rank;
    uint32_t waited_ms;               /* 0: not any more */
    uint32_t warning_ms, shutdown_ms; /* as struct worker_stalled's */
};

struct control_stall_ask {
    int id; /* comes back with the answers */
    /* None: STALL_RANKS of all; else their stacks. */
    int ranks[CONTROL_STACKS_MAX];
    int count;
};

/* An operation of a rank's, and how long ago it was issued. */
struct control_stall_op {
    int64_t age_ms;
    uint64_t key; /* of waits: the same on all ranks */
    enum status_kind kind;
    int set;
    enum status_where where;
    char name[STATUS_NAME_BYTES]; /* "" when it has none */
};

struct control_stall_rank {
    int rank;
    pid_t pid;
    int state;       /* letter of /proc/PID/stat; 0: has ended */
    int cpu_percent; /* of a core, just now; -1: not known */
    int known;       /* it has called hvd_init; what follows means something */
    int fresh;       /* the list is not older than the question */
    int inside;      /* the last call has not returned */
    int64_t calls;   /* 0: none, and no last */
    struct control_stall_op last;
    uint32_t sets; /* bit n: a member of process set n */
    int total;     /* operations it waits for; the oldest follow */
    struct control_stall_op *waits; /* STATUS_WAITS_MAX at most */
    int count;
    uint64_t launched[STATUS_SETS_MAX]; /* as status.h's */
};

struct control_stall_ranks {
    int id;
    struct control_stall_rank *ranks;
    int count;
};

struct control_stall_stack {
    int id, rank;
    int found;  /* text is a stack; else why there is none */
    char *text; /* lines */
};

int control_encode_stalled(struct hb_buf *out, const struct control_stalled *m);
int control_decode_stalled(const void *p, size_t len, struct control_stalled *m,
                           struct hb_error *err);

int control_encode_stall_ask(struct hb_buf *out,
                             const struct control_stall_ask *m);
int control_decode_stall_ask(const void *p, size_t len,
                             struct control_stall_ask *m, struct hb_error *err);

int control_encode_stall_ranks(struct hb_buf *out,
                               const struct control_stall_ranks *m);
int control_decode_stall_ranks(const void *p, size_t len,
                               struct control_stall_ranks *m,
                               struct hb_error *err);
void control_stall_ranks_fini(struct control_stall_ranks *m);

int control_encode_stall_stack(struct hb_buf *out,
                               const struct control_stall_stack *m);
int control_decode_stall_stack(const void *p, size_t len,
                               struct control_stall_stack *m,
                               struct hb_error *err);
void control_stall_stack_fini(struct control_stall_stack *m);

/* Encoded as control_encode_abort's, with another type. */
int control_encode_stall_blame(struct hb_buf *out, int rank, const char *text);
int control_encode_stall_end(struct hb_buf *out, int rank, const char *text);

#endif
