/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a process set carries out next, and carries it out.
 *
 * Every rank makes a proposal on its own: the operation that the plan predicts
 * (plan.h); else, of the queued requests, the one carried out longest ago; else
 * the one issued first.  Requests that the plan predicts to follow are added if
 * they are already queued and can be fused.  The rank starts its proposal on
 * the plane at once.  The headers of the data tell whether all ranks proposed
 * the same; if so, no message was spent on agreeing.
 *
 * If ranks fused different numbers of requests, they begin again with the
 * fewest (a cut).  If the requests still differ, they halve the number until
 * the one that differs is alone.  If ranks proposed different operations, they
 * negotiate (negotiate.h) and carry out what they agreed on.  If they agree on
 * nothing, they park until something new is issued here or a peer begins the
 * next operation.
 *
 * If the predicted operation is not issued yet, but others are, the controller
 * first waits for it a little (holds), as another thread may be about to issue
 * it.  Proposing something else is never wrong, only slower.
 *
 * A rank that has joined proposes its join, which makes the others negotiate
 * every operation.  It carries out what they agree on with inputs that are the
 * identity element of the reduction, or empty (join.h).
 *
 * Only the driver calls this.  The engine's lock protects the queue and
 * entry->pending.
 */
#ifndef HVD_CORE_CONTROLLER_H
#define HVD_CORE_CONTROLLER_H

#include "runtime/core/sched/negotiate.h"
#include "runtime/core/sched/plan.h"
#include "runtime/core/tune/tuner.h"
#include "runtime/plane/execute.h"
#include "runtime/trace/stats.h"

enum hvd__step {
    HVD__STEP_IDLE,   /* nothing is pending */
    HVD__STEP_DONE,   /* requests were completed; call again */
    HVD__STEP_BUSY,   /* waits for peers: pause, then call again */
    HVD__STEP_HOLD,   /* waits for the predicted request to be issued */
    HVD__STEP_PARKED, /* waits for anything new: pause, then call again */
};

/* Tensors longer than this gain nothing from fusion. */
enum { HVD__FUSION_PART_BYTES = 256 << 10 };

enum hvd__state {
    HVD__STATE_IDLE,
    HVD__STATE_RUN,    /* an operation has begun */
    HVD__STATE_SIZES,  /* ranks exchange the lengths of their tables */
    HVD__STATE_TABLES, /* ranks exchange the tables */
    HVD__STATE_TUNE,   /* ranks take new settings from rank 0 */
};

struct hvd__controller {
    struct hvd__engine *engine;
    struct hvd__plane *plane; /* borrowed */
    int n, me;
    int *ranks; /* [n]: the set's world ranks, ascending */
    /* The name of a rank's host, for messages; set after init.  NULL: all ranks
     * are on one host. */
    const char *(*host_of)(void *arg, uint32_t rank);
    void *host_arg;
    size_t fusion_bytes, fusion_part_bytes;
    struct hvd__tuner *tuner; /* sets both sizes; NULL: fixed; borrowed */

    struct hvd__plan plan;
    enum hvd__state state;
    struct hvd__execution execution;
    struct hvd__op *current;  /* the one begun: carrier, or a request's op */
    struct hvd__op carrier;   /* of fused requests, or a joined rank's */
    struct hvd__part *parts;  /* of carrier */
    struct hvd_request **run; /* the requests carried out as one operation */
    size_t run_count, run_cap, parts_cap;
    int run_was_agreed; /* run was agreed on: the records before agreed_at */
    int was_cut;        /* a cut: begin again with run, now shorter */
    /* run was cut before, so all ranks propose equally many */
    int is_shorter;
    uint64_t hold_ns;
    int last_was_learned;

    /* negotiation */
    struct hb_error err;
    struct hb_buf table;
    uint32_t records_max; /* limit of its requests; the same on all ranks */
    uint64_t table_len;
    uint64_t *lens;       /* [n] */
    size_t *got;          /* [n]: bytes received of each table; also
                             hvd__run_count */
    unsigned char *bytes; /* all tables */
    size_t bytes_cap;
    struct hvd__agreement agreed;
    size_t agreed_at;
    unsigned char *joined_before; /* [n] */
    _Atomic int parked;
    _Atomic uint64_t issued; /* requests queued so far */
    uint64_t parked_issued;  /* value of `issued` when it parked */

    /* for a joined rank: its part in the others' operations */
    struct hvd__stand_in *stand_in;

    struct hb_error broken; /* set: this rank cannot go on, and why */
    int set;                /* number of the process set; for traces */
    int timed;              /* the current operation is timed */
    uint64_t began_ns;      /* begin of a traced operation, else 0 */
    struct hvd__copies copies[HVD__COPY_WAYS]; /* of a traced operation */
    struct hvd__stats stats;
};

/* Initialises *c for a set of n world ranks, ascending, copied; this rank is
 * ranks[me].  Returns 0 or -HVD_ENOMEM. */
int hvd__controller_init(struct hvd__controller *c, struct hvd__engine *e,
                         const int *ranks, int n, int me);
void hvd__controller_fini(struct hvd__controller *c); /* idempotent */

/* Goes on as far as possible without waiting.  hold_limit_ns: how long it may
 * answer HVD__STEP_HOLD for one prediction. */
enum hvd__step hvd__controller_step(struct hvd__controller *c,
                                    uint64_t hold_limit_ns);

/* Carries out a blocking call's operation alone, without the queue:
 *
 *   free      whether the call may skip the queue
 *   start     begins it: 0 or negative
 *   progress  goes on: 0 call again, else the operation is over
 *   denied    after progress gave -HVD_EMISMATCH or HVD__CUT and the caller
 *             has queued req: treats req as a proposal that was refused */
static inline int hvd__controller_free(const struct hvd__controller *c)
{
    return c->state == HVD__STATE_IDLE && !c->was_cut &&
           c->agreed_at == c->agreed.count && !hvd__tuner_due(c->tuner) &&
           !atomic_load_explicit(&c->parked, memory_order_relaxed);
}
int hvd__controller_start(struct hvd__controller *c, struct hvd_request *req);
int hvd__controller_progress(struct hvd__controller *c,
                             struct hvd_request *req);
/* Finds, while parked, who waits for this rank's oldest request, as
 * hvd__tables_find. */
int hvd__controller_find(const struct hvd__controller *c, unsigned char *has,
                         struct hvd__descriptor *other);
void hvd__controller_denied(struct hvd__controller *c, struct hvd_request *req,
                            int rc);

/* Gives up the operation that has begun, if any.  The caller completes the
 * requests in the queue. */
void hvd__controller_abandon(struct hvd__controller *c);

#endif
