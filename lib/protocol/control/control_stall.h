/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages about ranks that wait too long; included by control.h, and
 * with its rules.
 *
 *     agent  -> STALLED       a rank waits, or has stopped waiting
 *     agent  -> LATE          a rank has waited too long in hvd_init
 *     agent  -> NO_ANSWER     a rank gets no answer from the host of another
 *     hvdrun -> STALL_ASK     where are your ranks? then: the stacks of some
 *     agent  -> STALL_RANKS   where they are
 *     agent  -> STALL_STACK   one for each rank that was asked for
 *     hvdrun -> STALL_BLAME   as ABORT: the rank that keeps them waiting, for
 *                             ranks that give up by themselves; "": none
 *     hvdrun -> STALL_END     as ABORT, when the job ends for it
 *
 * The rank of the last two is -1 if it is not known.
 *
 * All facts about a rank come from the rank itself (status.h), except its
 * process's state.  All messages are binary: a host may have many ranks.
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
    uint32_t waited_ms;               /* 0: it has stopped waiting */
    uint32_t warning_ms, shutdown_ms; /* see struct worker_stalled */
};

struct control_late {
    int rank;
    uint32_t waited_ms;
};

struct control_no_answer {
    int rank, peer; /* peer: whose host does not answer */
};

struct control_stall_ask {
    int id; /* repeated in the answers */
    /* Empty: STALL_RANKS of all ranks; else the stacks of these. */
    int ranks[CONTROL_STACKS_MAX];
    int count;
};

/* An operation of a rank; age_ms: since it was issued. */
struct control_stall_op {
    int64_t age_ms;
    uint64_t key; /* in waits: equal on all ranks */
    enum status_kind kind;
    int set;
    enum status_where where;
    char name[STATUS_NAME_BYTES]; /* "": unnamed */
};

struct control_stall_rank {
    int rank;
    pid_t pid;
    int state;       /* letter of /proc/PID/stat; 0: ended */
    int cpu_percent; /* of a core, at present; -1: unknown */
    int in_init;     /* after hvd_init and before hvd_shutdown */
    int known;       /* all ranks of its host have joined; the rest is valid */
    int fresh;       /* the list is not older than the question */
    int inside;      /* the last call has not returned */
    int64_t calls;   /* 0: none, and `last` is not valid */
    struct control_stall_op last;
    /* bit n % 64 of word n / 64: member of process set n */
    uint64_t sets[STATUS_SETS_WORDS];
    int total; /* operations it waits for; waits has the oldest */
    struct control_stall_op *waits; /* at most STATUS_WAITS_MAX */
    int count;
    /* see status.h */
    uint64_t launched[STATUS_SETS_MAX], carried_out[STATUS_SETS_MAX];
};

struct control_stall_ranks {
    int id;
    struct control_stall_rank *ranks;
    int count;
};

struct control_stall_stack {
    int id, rank;
    int found;  /* text is a stack; 0: it says why there is none */
    char *text; /* lines */
};

int control_encode_stalled(struct hb_buf *out, const struct control_stalled *m);
int control_decode_stalled(const void *p, size_t len, struct control_stalled *m,
                           struct hb_error *err);

int control_encode_late(struct hb_buf *out, const struct control_late *m);
int control_decode_late(const void *p, size_t len, struct control_late *m,
                        struct hb_error *err);

int control_encode_no_answer(struct hb_buf *out,
                             const struct control_no_answer *m);
int control_decode_no_answer(const void *p, size_t len,
                             struct control_no_answer *m, struct hb_error *err);

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

/* Encodes as control_encode_abort, with another type. */
int control_encode_stall_blame(struct hb_buf *out, int rank, const char *text);
int control_encode_stall_end(struct hb_buf *out, int rank, const char *text);

#endif
