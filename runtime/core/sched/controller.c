/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what comes next, and carries it out; see controller.h. */
#include "runtime/core/sched/controller_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "runtime/core/sched/engine.h"
#include "runtime/core/sched/join.h"
#include "runtime/core/sched/record.h"
#include "runtime/core/sched/run.h"

#include <string.h>

enum {
    FUSED_BYTES_MAX = 128 << 20, /* of one fused operation */
    RUN_MIN = 64,
};

/* Signature of the tuner's operation. */
static const uint64_t tuning_signature = 0x70e1e55e771e5ull;

static void lock(struct hvd__controller *c)
{
    pthread_mutex_lock(&c->engine->lock);
}

static void unlock(struct hvd__controller *c)
{
    pthread_mutex_unlock(&c->engine->lock);
}

/* ---- Completing --------------------------------------------------------- */

static void count_up(struct hvd__controller *c)
{
    hvd__stats_count(&c->stats.operations, 1);
    if (c->run_count > 1)
        hvd__stats_count(&c->stats.fused, c->run_count);
    if (c->last_was_learned)
        hvd__stats_count(&c->stats.learned, 1);
    else
        hvd__stats_count(&c->stats.guessed, 1);
}

/* Tells the plan and the tuner that a request was carried out. */
static inline void remember(struct hvd__controller *c, struct hvd__entry *e,
                            uint64_t signature, const struct hvd__op *op)
{
    hvd__plan_done(&c->plan, e, signature);
    hvd__tuner_count(c->tuner, e, e != &c->plan.unnamed, op);
}

/* Completes all requests of the run with the outcome rc. */
static void complete_run(struct hvd__controller *c, int rc)
{
    struct hb_error *err = c->current->err;

    for (size_t i = 0; i < c->run_count; i++) {
        struct hvd_request *req = c->run[i];

        if (rc < 0 && &req->err != err)
            req->err = *err;
    }
    hvd__record_done(c, c->current, c->run, c->run_count);
    if (c->current->device.launch)
        hvd__engine_launched(c->engine, c->run, c->run_count, c->current);
    hvd__engine_complete(c->engine, c->run, c->run_count, rc < 0 ? rc : 0);
    c->run_count = 0;
}

/* Gives up because of c->err, and tells the peers that this rank leaves. */
static void break_down(struct hvd__controller *c)
{
    c->broken = c->err;
    c->plane->ops->leave(c->plane);
}

static enum hvd__step fail_all(struct hvd__controller *c)
{
    c->state = HVD__STATE_IDLE;
    c->run_count = 0;
    c->was_cut = 0;
    hvd__agreement_fini(&c->agreed);
    c->agreed_at = 0;
    hvd__engine_fail_all(c->engine, &c->broken);
    return HVD__STEP_DONE;
}

/* ---- Joining ------------------------------------------------------------ */

/* Ends a join of all ranks.  Those that had not joined at the last negotiation
 * are the last ones; of these the highest is reported. */
static void tell_last(struct hvd__controller *c, struct hvd_request *req)
{
    int last = c->n - 1;

    for (int r = 0; r < c->n; r++)
        if (!c->joined_before[r])
            last = r;
    if (req->last_rank)
        *req->last_rank = c->ranks[last];
    memset(c->joined_before, 0, (size_t)c->n);
    hvd__agreement_fini(&c->agreed);
    c->agreed_at = 0;
}

/* ---- Carrying out what was agreed on ------------------------------------- */

static int begin_stand_in(struct hvd__controller *c,
                          const struct hvd__record *rec)
{
    struct hvd__entry *e;
    int rc;

    lock(c);
    e = hvd__plan_entry(&c->plan, rec->d.name, rec->d.name_hash);
    unlock(c);
    if (!e)
        return hb_error_set(&c->err, HVD_ENOMEM, "no memory for a name");
    hb_error_clear(&c->err);
    rc = hvd__stand_in_make(&c->stand_in, rec, c->n, &c->err);
    if (rc < 0)
        return rc;
    c->stand_in->entry = e;
    c->carrier = c->stand_in->op;
    c->carrier.err = &c->err;
    hvd__run_sign(c, &c->carrier, rec->signature);
    return hvd__run_start(c, &c->carrier, c->stand_in->members,
                          c->stand_in->member_count);
}

static int joined_here(const struct hvd__controller *c)
{
    return c->agreed.is_joined && c->agreed.is_joined[c->me];
}

/* Gives up if rc is -HVD_ENOMEM: the peers wait for this rank's part, which it
 * cannot give.  Its next operation would be paired with the one it leaves
 * out. */
static int check_memory(struct hvd__controller *c, int rc,
                        const struct hb_error *err)
{
    if (rc == -HVD_ENOMEM) {
        c->err = *err;
        break_down(c);
    }
    return rc;
}

/* Begins the run, or completes it with the failure to begin. */
static void begin_or_fail(struct hvd__controller *c)
{
    int rc = hvd__run_begin(c);

    if (check_memory(c, rc, c->current->err) < 0) {
        c->state = HVD__STATE_IDLE;
        complete_run(c, rc);
    }
}

/* Counts a record that failed by agreement, so that later requests without a
 * name keep their numbers. */
static void skip(struct hvd__controller *c, const struct hvd__record *rec)
{
    if (!rec->d.name[0])
        c->plan.unnamed_done++;
}

/* Begins the next agreed record, or fails its request as agreed.  Returns 0, or
 * negative with c->err set when this rank cannot go on. */
static int begin_agreed(struct hvd__controller *c)
{
    const struct hvd__record *rec = &c->agreed.records[c->agreed_at];

    c->last_was_learned = 0;
    c->run_count = 0;
    c->is_shorter = 0;
    if (joined_here(c)) {
        c->agreed_at++;
        if (!rec->err.status)
            return begin_stand_in(c, rec);
        skip(c, rec);
        return 0;
    }
    lock(c);
    hvd__run_collect_agreed(c);
    unlock(c);
    if (c->run_count == 0)
        return hb_error_set(&c->err, HVD_EPROTO,
                            "an operation was agreed on that is not here");
    if (!rec->err.status) {
        begin_or_fail(c);
        return 0;
    }
    skip(c, rec);
    c->run[0]->err = rec->err;
    c->current = &c->run[0]->op;
    complete_run(c, rec->err.status);
    return 0;
}

/* ---- Proposing ----------------------------------------------------------- */

enum proposal { NOTHING, HOLD, PROPOSED };

/* Returns the queued request whose name was carried out longest ago, since all
 * ranks know that alike; else the one issued first; or NULL. */
static struct hvd_request *next_best(struct hvd__controller *c)
{
    struct hvd_request *best = NULL;

    for (struct hvd_request *r = c->engine->head; r; r = r->next)
        if (r->entry->done_at && r->entry->pending == r &&
            (!best || r->entry->done_at < best->entry->done_at))
            best = r;
    return best ? best : c->engine->head;
}

/* Makes the run of this rank's proposal; under the lock. */
static enum proposal choose(struct hvd__controller *c, uint64_t hold_limit_ns)
{
    struct hvd__entry *e = hvd__plan_next(&c->plan);
    struct hvd_request *req = e ? e->pending : NULL;

    c->last_was_learned = req != NULL;
    if (!req && e && c->engine->head) {
        uint64_t now = hb_now_ns();

        if (!c->hold_ns)
            c->hold_ns = now;
        if (now - c->hold_ns < hold_limit_ns)
            return HOLD;
    }
    c->hold_ns = 0;
    c->is_shorter = 0;
    if (!req)
        req = next_best(c);
    return req && hvd__run_collect(c, req) ? PROPOSED : NOTHING;
}

/* Asks a parked controller whether to go on: 1 if something was issued or a
 * peer has begun, 0, or negative with c->err set. */
static int leaves_park(struct hvd__controller *c)
{
    int rc;

    if (atomic_load(&c->issued) != c->parked_issued) {
        atomic_store(&c->parked, 0);
        return 1;
    }
    rc = c->plane->ops->began(c->plane, &c->err);
    if (rc)
        atomic_store(&c->parked, 0);
    return rc;
}

/* ---- Tuning -------------------------------------------------------------- */

static void take_tuning(struct hvd__controller *c)
{
    c->fusion_bytes = (size_t)c->tuner->now.fusion_bytes;
    c->fusion_part_bytes = (size_t)c->tuner->now.fusion_part_bytes;
}

/* Begins the tuner's operation, once a request is queued, before that one. */
static enum hvd__step begin_tuning(struct hvd__controller *c)
{
    int rc;

    lock(c);
    rc = c->engine->head != NULL;
    unlock(c);
    if (!rc)
        return HVD__STEP_IDLE;
    c->run_count = 0;
    hvd__controller_gather(c, hvd__tuner_offer(c->tuner), HVD__TUNER_BYTES,
                           tuning_signature);
    c->carrier.recvbuf = c->tuner->all;
    c->carrier.recvcap = (size_t)c->n * HVD__TUNER_BYTES;
    rc = hvd__run_start(c, &c->carrier, NULL, 0);
    c->state = HVD__STATE_TUNE;
    if (rc >= 0)
        return HVD__STEP_DONE;
    break_down(c);
    return fail_all(c);
}

/* Sets c->err: the ranks' internal operations differ, so their histories have
 * diverged, which cannot be repaired. */
static int out_of_step(struct hvd__controller *c)
{
    hb_error_clear(&c->err);
    return hb_error_set(&c->err, HVD_EPROTO,
                        "ranks differ on what they have carried out");
}

/* Ends the tuner's operation.  Returns 0, or negative with c->err set when this
 * rank cannot go on. */
static int tuning_over(struct hvd__controller *c, int rc)
{
    if (rc == 1)
        hvd__tuner_agreed(c->tuner);
    else if (rc == -HVD_EMISMATCH)
        hvd__tuner_denied(c->tuner);
    else
        return rc == HVD__CUT ? out_of_step(c) : rc;
    take_tuning(c);
    c->state = HVD__STATE_IDLE;
    hb_error_clear(&c->err);
    return rc == 1 ? 0 : hvd__controller_begin_sizes(c);
}

/* Begins the next operation.  HVD__STEP_DONE: one has begun, or requests were
 * completed. */
static enum hvd__step next_operation(struct hvd__controller *c,
                                     uint64_t hold_limit_ns)
{
    enum proposal p;
    int rc;

    if (c->was_cut) {
        c->was_cut = 0;
        c->is_shorter = 1;
        begin_or_fail(c);
        return HVD__STEP_DONE;
    }
    if (hvd__tuner_due(c->tuner))
        return begin_tuning(c);
    if (c->agreed_at < c->agreed.count) {
        rc = begin_agreed(c);
        if (rc >= 0)
            return HVD__STEP_DONE;
        break_down(c);
        return fail_all(c);
    }
    if (atomic_load_explicit(&c->parked, memory_order_relaxed)) {
        rc = leaves_park(c);
        if (rc == 0)
            return HVD__STEP_PARKED;
        hold_limit_ns = 0;
        if (rc < 0) {
            c->broken = c->err;
            return fail_all(c);
        }
    }
    lock(c);
    p = choose(c, hold_limit_ns);
    unlock(c);
    if (p != PROPOSED)
        return p == HOLD ? HVD__STEP_HOLD : HVD__STEP_IDLE;
    begin_or_fail(c);
    return HVD__STEP_DONE;
}

/* ---- Going on ------------------------------------------------------------ */

/* Returns whether an operation with outcome rc was carried out, at least on the
 * other ranks. */
static int carried_out(const struct hvd__op *op, int rc)
{
    return rc == 1 || hvd__op_alone(op, rc);
}

/* Ends the run's operation with outcome rc. */
static enum hvd__step run_over(struct hvd__controller *c, int rc)
{
    struct hvd_request *first = c->run_count ? c->run[0] : NULL;

    c->state = HVD__STATE_IDLE;
    if (carried_out(c->current, rc)) {
        count_up(c);
        for (size_t i = 0; i < c->run_count; i++)
            remember(c, c->run[i]->entry, c->run[i]->signature, &c->run[i]->op);
        if (!first)
            remember(c, c->stand_in->entry, c->stand_in->signature,
                     &c->stand_in->op);
        hvd__stall_carried_out(hvd__stall_on(), c->engine->stall.set,
                               c->plan.done);
        if (first && first->op.kind == HVD__JOIN)
            tell_last(c, first);
    }
    if (first) {
        complete_run(c, rc);
    } else if (!carried_out(c->current, rc)) {
        c->broken = c->err;
        return fail_all(c);
    }
    return HVD__STEP_DONE;
}

/* Begins a negotiation after the ranks have proposed different operations. */
static enum hvd__step negotiate(struct hvd__controller *c)
{
    int rc;

    /* An empty run is a stand-in, which only carries out what was agreed on. */
    hb_error_clear(c->current->err);
    hb_error_clear(&c->err);
    if (c->run_count == 0)
        rc = hb_error_set(&c->err, HVD_EPROTO,
                          "ranks differ on what they agreed on");
    else
        rc = 0;
    c->run_count = 0;
    if (rc == 0)
        rc = hvd__controller_begin_sizes(c);
    if (rc >= 0)
        return HVD__STEP_DONE;
    break_down(c);
    return fail_all(c);
}

/* Gives up because ranks disagree in a way that the protocol excludes. */
static enum hvd__step give_up(struct hvd__controller *c, const char *why)
{
    hb_error_clear(c->current->err);
    hb_error_clear(&c->err);
    hb_error_set(&c->err, HVD_EPROTO, "%s", why);
    break_down(c);
    return fail_all(c);
}

/* Shortens the run to as many operations as every rank has.  After a first cut
 * all ranks propose equally many operations.  If they are cut again, the
 * operations differ, so each rank takes half of them: what differs is soon
 * alone and named. */
static enum hvd__step cut(struct hvd__controller *c)
{
    uint32_t fewest = c->current->agreed_entries;

    if (fewest == 0 || fewest > c->run_count)
        return give_up(c,
                       "ranks differ on how many operations they have fused");
    if (c->is_shorter && fewest > 1)
        fewest /= 2;
    hvd__run_shorten(c, fewest);
    hb_error_clear(c->current->err);
    hvd__stats_count(&c->stats.cuts, 1);
    c->was_cut = 1;
    c->state = HVD__STATE_IDLE;
    return HVD__STEP_DONE;
}

/* Ends the current operation with outcome rc, by the state that it belongs
 * to. */
static enum hvd__step operation_over(struct hvd__controller *c, int rc)
{
    if (c->state == HVD__STATE_RUN && rc == HVD__CUT)
        return cut(c);
    if (c->state == HVD__STATE_RUN)
        return rc == -HVD_EMISMATCH ? negotiate(c) : run_over(c, rc);
    if (c->state == HVD__STATE_TUNE)
        rc = tuning_over(c, rc);
    else if (rc == 1)
        rc = c->state == HVD__STATE_SIZES ? hvd__controller_begin_tables(c)
                                          : hvd__controller_conclude(c);
    else if (rc == -HVD_EMISMATCH || rc == HVD__CUT)
        rc = out_of_step(c);
    if (rc >= 0)
        return HVD__STEP_DONE;
    break_down(c);
    return fail_all(c);
}

enum hvd__step hvd__controller_step(struct hvd__controller *c,
                                    uint64_t hold_limit_ns)
{
    int rc;

    if (c->broken.status) {
        lock(c);
        rc = c->engine->head != NULL;
        unlock(c);
        return rc ? fail_all(c) : HVD__STEP_IDLE;
    }
    if (c->state == HVD__STATE_IDLE)
        return next_operation(c, hold_limit_ns);
    rc = hvd__execute_progress(&c->execution);
    return rc == 0 ? HVD__STEP_BUSY : operation_over(c, rc);
}

/* ---- A blocking call alone ---------------------------------------------- */

int hvd__controller_start(struct hvd__controller *c, struct hvd_request *req)
{
    if (c->broken.status) {
        req->err = c->broken;
        return req->err.status;
    }
    hvd__run_sign(c, &req->op, req->signature);
    hvd__run_count(c, &req->op);
    hvd__record_begin_one(c, req);
    return check_memory(
        c, hvd__execute_begin(&c->execution, c->plane, &req->op, NULL, 0),
        &req->err);
}

int hvd__controller_progress(struct hvd__controller *c, struct hvd_request *req)
{
    int rc = hvd__execute_progress(&c->execution);

    if (carried_out(&req->op, rc)) {
        struct hvd__entry *e = hvd__plan_next(&c->plan);

        hvd__stats_count(&c->stats.operations, 1);
        if (e == &c->plan.unnamed)
            hvd__stats_count(&c->stats.learned, 1);
        else
            hvd__stats_count(&c->stats.guessed, 1);
        remember(c, &c->plan.unnamed, req->signature, &req->op);
        hvd__stall_carried_out(hvd__stall_on(), c->engine->stall.set,
                               c->plan.done);
        hvd__record_done_one(c, req);
    }
    return rc;
}

void hvd__controller_denied(struct hvd__controller *c, struct hvd_request *req,
                            int rc)
{
    hb_error_clear(&req->err);
    c->current = &req->op;
    c->run[0] = req;
    c->run_count = 1;
    c->run_was_agreed = 0;
    c->is_shorter = 0;
    c->state = HVD__STATE_RUN;
    c->last_was_learned = 0;
    operation_over(c, rc);
}

/* ---- Life --------------------------------------------------------------- */

int hvd__controller_init(struct hvd__controller *c, struct hvd__engine *e,
                         const int *ranks, int n, int me)
{
    memset(c, 0, sizeof(*c));
    c->engine = e;
    c->n = n;
    c->me = me;
    c->execution.n = n;
    c->execution.me = me;
    c->records_max = HVD__TABLE_RECORDS;
    c->fusion_bytes = FUSED_BYTES_MAX;
    c->fusion_part_bytes = HVD__FUSION_PART_BYTES;
    hvd__plan_init(&c->plan);
    c->ranks = hb_calloc((size_t)n, sizeof(*c->ranks));
    c->lens = hb_calloc((size_t)n, sizeof(*c->lens));
    c->got = hb_calloc((size_t)n, sizeof(*c->got));
    c->run = hb_calloc(RUN_MIN, sizeof(struct hvd_request *));
    c->run_cap = RUN_MIN;
    c->joined_before = hb_calloc((size_t)n, 1);
    if (c->ranks && c->lens && c->got && c->run && c->joined_before) {
        memcpy(c->ranks, ranks, (size_t)n * sizeof(*c->ranks));
        hvd__stats_init(&c->stats, c->ranks, n);
        return 0;
    }
    hvd__controller_fini(c);
    return -HVD_ENOMEM;
}

void hvd__controller_abandon(struct hvd__controller *c)
{
    if (c->plane && c->plane->ops->abandon)
        c->plane->ops->abandon(c->plane);
    c->state = HVD__STATE_IDLE;
    c->run_count = 0;
    c->was_cut = 0;
}

void hvd__controller_fini(struct hvd__controller *c)
{
    hvd__plan_fini(&c->plan);
    hvd__execute_fini(&c->execution);
    hvd__stand_in_free(c->stand_in);
    hvd__agreement_fini(&c->agreed);
    hb_buf_free(&c->table);
    hb_free((void *)c->run);
    hb_free(c->parts);
    hb_free(c->ranks);
    hb_free(c->lens);
    hb_free(c->got);
    hb_free(c->bytes);
    hb_free(c->joined_before);
    memset(c, 0, sizeof(*c));
}
