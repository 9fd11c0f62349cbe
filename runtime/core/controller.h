/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process set carries out next, and carrying it out.
 *
 * Every rank proposes by itself: what the plan foresees (plan.h), or else
 * what was issued first, together with what is foreseen to follow and is
 * already there and can be fused.  The proposal is started on the plane at
 * once; if all ranks proposed the same, the headers of the data say so, and
 * nothing was spent on agreeing.  If they fused differently many, they begin
 * again with the fewest (a cut).  If they proposed different things, they
 * negotiate (negotiate.h) and then carry out what they agreed on.  When that
 * is nothing, they park: until something new is issued here or a peer begins
 * the next operation.
 *
 * What is foreseen and not yet issued is waited for a little, if somebody
 * here could still issue it; to propose something else is never wrong, only
 * slower.
 *
 * A rank that has joined proposes that, which makes the others negotiate
 * every operation; what they agree on, it carries out with contributions
 * that change nothing.
 *
 * The driver alone calls this.  The queue and entry->pending belong to the
 * engine's lock.
 */
#ifndef HVD_CORE_CONTROLLER_H
#define HVD_CORE_CONTROLLER_H

#include "runtime/core/execute.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/plan.h"
#include "runtime/core/tuner.h"
#include "runtime/trace/stats.h"

enum hvd__step {
    HVD__STEP_IDLE,   /* nothing is pending */
    HVD__STEP_DONE,   /* requests were completed; call again */
    HVD__STEP_BUSY,   /* waits for peers: pause, then call again */
    HVD__STEP_HOLD,   /* waits for what is foreseen to be issued */
    HVD__STEP_PARKED, /* waits for anything new: pause, then call again */
};

/* Of one tensor that is fused: what is longer gains nothing by company. */
enum { HVD__FUSION_PART_BYTES = 256 << 10 };

enum hvd__state {
    HVD__STATE_IDLE,
    HVD__STATE_RUN,    /* the operation is begun */
    HVD__STATE_SIZES,  /* ranks tell how long their tables are */
    HVD__STATE_TABLES, /* and give them */
    HVD__STATE_TUNE,   /* rank 0 tells what to use from here on */
};

struct hvd__controller {
    struct hvd__engine *engine;
    struct hvd__plane *plane; /* borrowed */
    int n, me;
    int *ranks; /* [n]: of the world, ascending */
    /* For messages, set after init; NULL: all ranks are on one host. */
    const char *(*host_of)(void *arg, uint32_t rank);
    void *host_arg;
    size_t fusion_bytes, fusion_part_bytes;
    struct hvd__tuner *tuner; /* NULL: they stay; borrowed */

    struct hvd__plan plan;
    enum hvd__state state;
    struct hvd__execution execution;
    struct hvd__op *current;  /* begun: carrier, or a request's own */
    struct hvd__op carrier;   /* of fused requests, or of a joined rank */
    struct hvd__part *parts;  /* of carrier */
    struct hvd_request **run; /* what is carried out */
    size_t run_count, run_cap, parts_cap;
    int run_was_agreed; /* it is what comes before agreed_at */
    int was_cut;        /* begin again with the first run_count of run */
    uint64_t hold_ns;
    int last_was_learned;

    /* negotiation */
    struct hb_error err;
    struct hb_buf table;
    uint32_t records_max; /* of it; grows alike on all ranks */
    uint64_t table_len;
    uint64_t *lens;       /* [n] */
    unsigned char *bytes; /* all tables */
    size_t bytes_cap;
    struct hvd__agreement agreed;
    size_t agreed_at;
    unsigned char *joined_before; /* [n] */
    _Atomic int parked;
    _Atomic uint64_t issued; /* requests that were queued, ever */
    uint64_t parked_issued;  /* of those, when it parked */

    /* a joined rank's */
    struct hvd__stand_in *stand_in;

    struct hb_error broken; /* this rank cannot go on */
    int set;                /* number of the process set; for traces */
    int timed;              /* the operation is */
    uint64_t began_ns;      /* the operation, when it is traced; else 0 */
    struct hvd__stats stats;
};

/* ranks: n of the world, ascending, copied.  0, -HVD_ENOMEM. */
int hvd__controller_init(struct hvd__controller *c, struct hvd__engine *e,
                         const int *ranks, int n, int me);
void hvd__controller_fini(struct hvd__controller *c); /* idempotent */

/* Goes on as far as possible without waiting.  hold_limit_ns: how long to
 * hold. */
enum hvd__step hvd__controller_step(struct hvd__controller *c,
                                    uint64_t hold_limit_ns);

/* A blocking call's operation alone, with nothing queued: whether it may
 * skip the queue; then started, 0 or negative; and progressed, until not 0.
 * After -HVD_EMISMATCH and HVD__CUT it has to be queued after all, and then
 * denied with that. */
static inline int hvd__controller_free(const struct hvd__controller *c)
{
    return c->state == HVD__STATE_IDLE && !c->was_cut &&
           c->agreed_at == c->agreed.count && !hvd__tuner_due(c->tuner) &&
           !atomic_load_explicit(&c->parked, memory_order_relaxed);
}
int hvd__controller_start(struct hvd__controller *c, struct hvd_request *req);
int hvd__controller_progress(struct hvd__controller *c,
                             struct hvd_request *req);
void hvd__controller_denied(struct hvd__controller *c, struct hvd_request *req,
                            int rc);

/* Gives up whatever is begun; the queue is the caller's. */
void hvd__controller_abandon(struct hvd__controller *c);

#endif
