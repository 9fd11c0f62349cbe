/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists what an engine waits for, for the stall inspector (trace/stall.h).
 *
 * No stall inspector watches a world of MPI.  There the ranks report long waits
 * themselves, without sending messages: the plane knows which member has not
 * begun the operation in progress; and if the members have begun different
 * operations, the tables that they exchanged last tell what each waits for.
 */
#include "runtime/core/sched/engine_impl.h"

#include "lib/base/alloc.h"

#include <stdio.h>

static const uint64_t list_ns = 50 * 1000000; /* shorter waits are not listed */
static const uint64_t look_ns = 1000 * 1000000; /* longest time between looks */

static void add(struct hvd__stall_waits *w, const struct hvd_request *req,
                uint64_t index)
{
    const struct hvd__op *op = &req->op;

    w->waits[w->count++] = (struct hvd__stall_wait){
        .since_ns = req->stall_ns,
        .key = op->name[0] ? op->hashes.name : hvd__mix(1, index),
        .kind = op->kind,
        .name = op->name,
    };
}

/* Lists the oldest requests of the queue, and `alone`, which is not in it (or
 * NULL); under the lock, which keeps their names.  While the oldest one is a
 * join, the set does not wait for others. */
static void list(const struct hvd__engine *e, const struct hvd_request *alone,
                 const struct segment_status *s, struct hvd__stall_waits *w)
{
    const struct hvd_request *oldest = alone ? alone : e->head;
    uint64_t index = e->controller.plan.unnamed_done;

    w->set = e->stall.set;
    w->asked = atomic_load(&s->asked);
    w->pending = e->head ? atomic_load(&e->queued) : alone != NULL;
    w->since_ns = oldest && oldest->op.kind != HVD__JOIN ? oldest->stall_ns : 0;
    w->count = 0;
    if (alone)
        add(w, alone, index);
    for (const struct hvd_request *r = e->head;
         r && w->count < STATUS_WAITS_MAX; r = r->next)
        add(w, r, r->op.name[0] ? 0 : index++);
}

void hvd__stall_look(struct hvd__engine *e, const struct hvd_request *alone,
                     struct segment_status *s, uint64_t now_ns)
{
    uint64_t next_ns = now_ns + look_ns, since_ns, limit_ns;
    const struct hvd_request *oldest;
    struct hvd__stall_waits w;

    pthread_mutex_lock(&e->lock);
    oldest = alone ? alone : e->head;
    since_ns = oldest ? oldest->stall_ns : now_ns;
    /* The request may have been issued after the clock was read. */
    if (since_ns > now_ns)
        now_ns = since_ns;
    if (now_ns - since_ns < list_ns &&
        atomic_load(&s->asked) == atomic_load(&s->answered)) {
        e->stall.look_ns = since_ns + list_ns;
        pthread_mutex_unlock(&e->lock);
        return;
    }
    list(e, alone, s, &w);
    atomic_store_explicit(&e->stall.listed, 1, memory_order_relaxed);
    limit_ns = hvd__stall_publish(&w, s, now_ns);
    if (w.since_ns && limit_ns && w.since_ns + limit_ns > now_ns &&
        w.since_ns + limit_ns < next_ns)
        next_ns = w.since_ns + limit_ns;
    e->stall.look_ns = next_ns;
    pthread_mutex_unlock(&e->lock);
}

void hvd__stall_settle(struct hvd__engine *e)
{
    struct segment_status *s = hvd__stall_on();
    struct hvd__stall_waits w;

    atomic_store_explicit(&e->stall.listed, e->head != NULL,
                          memory_order_relaxed);
    if (!s)
        return;
    list(e, NULL, s, &w);
    hvd__stall_publish(&w, s, status_now_ns());
}

/* ---- In a world of MPI --------------------------------------------------- */

enum {
    OP_BYTES = 160,
    RANK_BYTES = HVD__NAME_BYTES + 32,
    RANKS_BYTES = 128,
};

/* What is known of a wait. */
struct finding {
    char what[OP_BYTES];                                 /* the operation */
    char whom[RANKS_BYTES + RANK_BYTES + OP_BYTES + 32]; /* it waits for them */
    int member;      /* that is missing, -1: all have begun something else */
    uint64_t number; /* of the operation, or of the negotiation */
    int reports;     /* this rank is the one to report it */
    int gives_up;    /* and to give up */
};

static void put_op(char *to, size_t size, enum hvd__kind kind, const char *name)
{
    if (kind == HVD__JOIN)
        snprintf(to, size, "an operation");
    else if (name[0])
        snprintf(to, size, "%s \"%.100s\"", collective_name(kind), name);
    else
        snprintf(to, size, "%s", collective_name(kind));
}

static void put_rank(char *to, size_t size, const struct hvd__controller *c,
                     int member)
{
    int rank = c->ranks[member];

    if (c->host_of)
        snprintf(to, size, "rank %d on host %s", rank,
                 c->host_of(c->host_arg, (uint32_t)rank));
    else
        snprintf(to, size, "rank %d", rank);
}

/* Returns the first member from `from` on whose `has` is `value`, or n. */
static int next_member(const unsigned char *has, int n, int from, int value)
{
    while (from < n && has[from] != value)
        from++;
    return from;
}

/* Writes the absent members as their world ranks: "ranks 1-3, 5", or as many of
 * them as fit. */
static void put_absent(char *to, size_t size, const struct hvd__controller *c,
                       const unsigned char *has)
{
    enum { ITEM_BYTES = 32 };
    size_t at = (size_t)snprintf(to, size, "ranks ");
    const char *comma = "";
    int r = next_member(has, c->n, 0, 0), last;

    for (; r < c->n; r = next_member(has, c->n, last + 1, 0)) {
        if (size - at < ITEM_BYTES) {
            snprintf(to + at, size - at, ", ...");
            return;
        }
        for (last = r; last + 1 < c->n && !has[last + 1] &&
                       c->ranks[last + 1] == c->ranks[last] + 1;)
            last++;
        at +=
            (size_t)snprintf(to + at, size - at, last > r ? "%s%d-%d" : "%s%d",
                             comma, c->ranks[r], c->ranks[last]);
        comma = ", ";
    }
}

/* Fills f where all members have begun something, but nothing in common: nobody
 * is to blame.  Returns 1, or 0 if this rank has joined. */
static int find_parked(const struct hvd__controller *c, struct finding *f)
{
    unsigned char *has = hb_calloc((size_t)c->n, 1);
    struct hvd__descriptor other;
    char first[RANK_BYTES], op[OP_BYTES], absent[RANKS_BYTES];
    int r, is_known = 0;

    if (!has || hvd__controller_find(c, has, &other) < 0)
        goto out;
    r = next_member(has, c->n, 0, 0);
    if (r == c->n)
        goto out;
    is_known = 1;
    f->member = -1;
    f->number = c->stats.negotiations;
    f->reports = next_member(has, c->n, 0, HVD__TABLES_PENDING) == c->me;
    f->gives_up = f->reports && next_member(has, c->n, 0, 0) > c->me;
    put_rank(first, sizeof(first), c, r);
    put_op(op, sizeof(op), (enum hvd__kind)other.kind, other.name);
    if (next_member(has, c->n, r + 1, 0) == c->n) {
        snprintf(f->whom, sizeof(f->whom), "%s, which waits in %s", first, op);
    } else {
        put_absent(absent, sizeof(absent), c, has);
        snprintf(f->whom, sizeof(f->whom), "%s; %s waits in %s", absent, first,
                 op);
    }
out:
    hb_free(has);
    return is_known;
}

/* Fills f where a member has not begun the operation in progress.  Returns 1,
 * or 0 if none is known. */
static int find_missing(struct hvd__engine *e, struct finding *f)
{
    const struct hvd__controller *c = &e->controller;
    char rank[RANK_BYTES];

    if (!e->plane->ops->missing)
        return 0;
    f->member = e->plane->ops->missing(e->plane, &f->number, &f->reports);
    if (f->member < 0 || f->member >= c->n)
        return 0;
    f->gives_up = f->reports;
    put_rank(rank, sizeof(rank), c, f->member);
    snprintf(f->whom, sizeof(f->whom), "%s, which has not begun it", rank);
    return 1;
}

/* Writes what the engine carries out, or the oldest request, to f->what. */
static void find_what(struct hvd__engine *e, const struct hvd_request *alone,
                      struct finding *f)
{
    const struct hvd__controller *c = &e->controller;
    const struct hvd_request *req = alone;

    pthread_mutex_lock(&e->lock);
    if (!req)
        req = c->run_count ? c->run[0] : e->head;
    if (req && req->op.kind == HVD__JOIN)
        snprintf(f->what, sizeof(f->what), "hvd_join");
    else
        put_op(f->what, sizeof(f->what), req ? req->op.kind : HVD__JOIN,
               req ? req->op.name : "");
    pthread_mutex_unlock(&e->lock);
}

/* Returns how long the wait in f has lasted.  It counts from the look at which
 * this rank has first seen it. */
static uint64_t waited(struct hvd__stall_watch *w, const struct finding *f,
                       uint64_t now_ns)
{
    if (!w->since_ns || w->whom != f->member || w->number != f->number) {
        w->whom = f->member;
        w->number = f->number;
        w->since_ns = now_ns;
        w->warned_ns = 0;
    }
    return now_ns - w->since_ns;
}

/* Warns of a wait, and again after twice the time, and so on. */
static void warn(struct hvd__stall_watch *w, const struct finding *f,
                 uint64_t waited_ns)
{
    w->warned_ns = waited_ns;
    if (f->reports)
        hb_log(&hvd__context.knobs.log, HB_LOG_WARNING,
               "%s has waited %.1f s for %s", f->what, (double)waited_ns / 1e9,
               f->whom);
}

static void give_up(struct hvd__engine *e, const struct finding *f)
{
    struct hb_error why = HB_ERROR_INIT;
    const struct hvd__controller *c = &e->controller;

    why.rank = f->member < 0 ? -1 : c->ranks[f->member];
    if (why.rank >= 0 && c->host_of)
        snprintf(why.host, sizeof(why.host), "%s",
                 c->host_of(c->host_arg, (uint32_t)why.rank));
    hb_error_set(&why, HVD_ETIMEOUT,
                 "%s waited longer than HVD_STALL_SHUTDOWN_TIME_SECONDS (%g s) "
                 "for %s",
                 f->what, hvd__context.stall_limits.shutdown_ms / 1e3, f->whom);
    if (e->plane->ops->give_up)
        e->plane->ops->give_up(e->plane, &why);
}

/* Returns the time of the next look: soon if no wait is known, or for a moment
 * only; else in a second, or when it has lasted for one of two times (0: none).
 */
static uint64_t next_look(const struct hvd__stall_watch *w, uint64_t now_ns,
                          const uint64_t ends_ns[2])
{
    uint64_t next_ns = now_ns + look_ns;

    if (!w->since_ns || now_ns - w->since_ns < look_ns)
        next_ns = now_ns + 2 * list_ns;
    for (int i = 0; i < 2; i++)
        if (w->since_ns && ends_ns[i] && w->since_ns + ends_ns[i] > now_ns &&
            w->since_ns + ends_ns[i] < next_ns)
            next_ns = w->since_ns + ends_ns[i];
    return next_ns;
}

void hvd__stall_look_alone(struct hvd__engine *e,
                           const struct hvd_request *alone, uint64_t now_ns)
{
    const struct hvd__stall_limits *l = &hvd__context.stall_limits;
    uint64_t limit_ns = l->shutdown_ms * UINT64_C(1000000), waited_ns = 0;
    uint64_t warning_ns = l->warning_ms * UINT64_C(1000000);
    struct hvd__stall_watch *w = &e->stall;
    struct finding f = {.member = -1};

    if (atomic_load(&e->controller.parked) ? find_parked(&e->controller, &f)
                                           : find_missing(e, &f))
        waited_ns = waited(w, &f, now_ns);
    else
        w->since_ns = 0;
    if (warning_ns && w->warned_ns)
        warning_ns = 2 * w->warned_ns;
    find_what(e, alone, &f);
    if (waited_ns && warning_ns && waited_ns >= warning_ns) {
        warn(w, &f, waited_ns);
        warning_ns = 2 * waited_ns;
    }
    if (waited_ns && limit_ns && waited_ns >= limit_ns && f.gives_up)
        give_up(e, &f);
    w->look_ns =
        next_look(w, now_ns, (const uint64_t[2]){warning_ns, limit_ns});
}
