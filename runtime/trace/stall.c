/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's half of the stall inspector; see stall.h.
 *
 * The list of what this rank waits for is one for all its process sets,
 * while each set has a driver of its own: `lock` protects the list, what was
 * told, and the writing of both.  It is taken under an engine's lock, never
 * the other way round.
 */
#include "runtime/trace/stall.h"

#include "lib/base/clock.h"
#include "lib/base/env.h"
#include "runtime/core/agent_client.h"
#include "runtime/core/engine.h"

#include <pthread.h>

/* The report names what was listed by the rank: protocol and core must
 * mean the same. */
_Static_assert((int)STATUS_ALLREDUCE == (int)HVD__ALLREDUCE &&
                   (int)STATUS_BROADCAST == (int)HVD__BROADCAST &&
                   (int)STATUS_ALLGATHER == (int)HVD__ALLGATHER &&
                   (int)STATUS_BARRIER == (int)HVD__BARRIER &&
                   (int)STATUS_ALLTOALL == (int)HVD__ALLTOALL &&
                   (int)STATUS_REDUCESCATTER == (int)HVD__REDUCESCATTER &&
                   (int)STATUS_JOIN == (int)HVD__JOIN,
               "kinds of operations in the segment");
_Static_assert((int)STATUS_SETS_MAX == (int)HVD_PROCESS_SETS_MAX,
               "process sets in the segment");

enum {
    DEFAULT_WARNING_S = 60,
    LIST_MS = 50,   /* who waits for less is not worth a line */
    LOOK_MS = 1000, /* from one look to the next, at most */
};

struct entry {
    uint64_t since_ns, key;
    enum hvd__kind kind;
    enum status_where where;
    int set;
    char name[STATUS_NAME_BYTES];
};

struct segment_status *_Atomic hvd__stall_status;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct hvd__agent *agent;
    uint32_t warning_ms, shutdown_ms;
    uint64_t limit_ns; /* after which the agent is told; 0: never */
    const struct segment_head *head;
    struct entry entries[STATUS_WAITS_MAX];
    int count;
    uint32_t pending[STATUS_SETS_MAX];    /* of each set, listed or not */
    struct entry device[STATUS_SETS_MAX]; /* since_ns 0: nothing */
    uint64_t told; /* bit n: set n waits too long; 32 + n: on its device */
} stall;

/* ---- Knobs ----------------------------------------------------------- */

static int read_seconds(const char *name, double fallback, uint32_t *ms,
                        struct hb_error *err)
{
    const char *text = hb_knob(name);
    double s = fallback;
    int rc = 0;

    if (text)
        rc = hb_parse_double(text, 0, INT32_MAX / 1000, &s, err);
    if (rc < 0)
        return hb_error_context(err, "HVD_%s", name);
    *ms = (uint32_t)(s * 1000);
    return 0;
}

static int read_knobs(struct hb_error *err)
{
    uint32_t limit_ms;
    int off = 0;
    int rc = hb_knob_bool("STALL_CHECK_DISABLE", &off, err);

    if (rc == 0)
        rc = read_seconds("STALL_CHECK_TIME_SECONDS", DEFAULT_WARNING_S,
                          &stall.warning_ms, err);
    if (rc == 0)
        rc = read_seconds("STALL_SHUTDOWN_TIME_SECONDS", 0, &stall.shutdown_ms,
                          err);
    if (rc < 0)
        return rc;
    limit_ms = stall.warning_ms;
    if (!limit_ms || (stall.shutdown_ms && stall.shutdown_ms < limit_ms))
        limit_ms = stall.shutdown_ms;
    stall.limit_ns = off ? 0 : (uint64_t)limit_ms * 1000000;
    return 0;
}

/* ---- What is told ---------------------------------------------------- */

static void tell(uint64_t waited_ns, uint32_t warning_ms)
{
    uint64_t ms = waited_ns / 1000000;
    const struct worker_stalled m = {
        .waited_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX,
        .warning_ms = warning_ms,
        .shutdown_ms = stall.shutdown_ms,
    };
    unsigned char frame[WORKER_STALLED_BYTES];

    worker_write_stalled(frame, &m);
    hvd__agent_say(stall.agent, frame, sizeof(frame));
}

/* One of told's bits: others keep it waiting since then (0: they do not),
 * which is worth a report after warning_ms. */
static void update_told(int index, uint64_t since_ns, uint64_t now_ns,
                        uint32_t warning_ms)
{
    uint64_t bit = (uint64_t)1 << index, before = stall.told;
    uint64_t limit_ns = warning_ms * UINT64_C(1000000);
    int late;

    if (!stall.limit_ns)
        return;
    if (!limit_ns || limit_ns > stall.limit_ns)
        limit_ns = stall.limit_ns;
    late = since_ns && now_ns > since_ns && now_ns - since_ns >= limit_ns;
    stall.told = late ? before | bit : before & ~bit;
    if (late && !before)
        tell(now_ns - since_ns, warning_ms);
    else if (before && !stall.told)
        tell(0, warning_ms);
}

/* ---- The list ---------------------------------------------------------- */

static void forget_set(int set)
{
    int kept = 0;

    for (int i = 0; i < stall.count; i++)
        if (stall.entries[i].set != set)
            stall.entries[kept++] = stall.entries[i];
    stall.count = kept;
    stall.pending[set] = 0;
}

static void add(int set, const struct hvd_request *req, uint64_t index)
{
    const struct hvd__op *op = &req->op;
    struct entry *e = &stall.entries[stall.count];

    stall.pending[set]++;
    if (stall.count == STATUS_WAITS_MAX)
        return;
    stall.count++;
    e->since_ns = req->stall_ns;
    e->key = op->name[0] ? op->name_hash : hvd__mix(1, index);
    e->kind = op->kind;
    e->where = STATUS_IN_QUEUE;
    e->set = set;
    memcpy(e->name, op->name, strnlen(op->name, sizeof(e->name) - 1) + 1);
    e->name[sizeof(e->name) - 1] = '\0';
}

/* The oldest ones of the queue, or the one that is not in it. */
static void add_all(struct hvd__engine *e, const struct hvd_request *alone)
{
    uint64_t index = e->controller.plan.unnamed_done;
    int set = e->stall.set, listed = 0;

    if (alone)
        add(set, alone, index);
    for (const struct hvd_request *r = e->head; r && listed < STATUS_WAITS_MAX;
         r = r->next, listed++)
        add(set, r, r->op.name[0] ? 0 : index++);
    if (listed)
        stall.pending[set] = atomic_load(&e->queued);
}

static void put(struct segment_status *s, uint32_t *listed,
                const struct entry *e)
{
    struct status_op *op;

    if (*listed == STATUS_WAITS_MAX)
        return;
    op = &s->waits[(*listed)++];
    status_put(&op->when_ns, e->since_ns);
    status_put(&op->key, e->key);
    atomic_store_explicit(&op->where, e->where, memory_order_release);
    status_put_op(op, e->kind, (uint32_t)e->set, e->name);
}

static void publish(struct segment_status *s)
{
    uint64_t n = atomic_load_explicit(&s->waits_done, memory_order_relaxed) + 1;
    uint32_t total = 0, listed = 0;

    status_put(&s->waits_begun, n);
    for (int i = 0; i < STATUS_SETS_MAX; i++) {
        total += stall.pending[i] + (stall.device[i].since_ns != 0);
        if (stall.device[i].since_ns)
            put(s, &listed, &stall.device[i]);
    }
    for (int i = 0; i < stall.count; i++)
        put(s, &listed, &stall.entries[i]);
    atomic_store(&s->listed, listed);
    atomic_store(&s->total, total);
    status_put(&s->waits_done, n);
}

/* Both locks are held. */
static void list(struct hvd__engine *e, const struct hvd_request *alone,
                 struct segment_status *s)
{
    uint32_t asked = atomic_load(&s->asked);

    forget_set(e->stall.set);
    add_all(e, alone);
    publish(s);
    atomic_store(&s->answered, asked);
}

/* Since when others keep it waiting; 0: they do not. */
static uint64_t waits_since(const struct hvd_request *oldest)
{
    return oldest && oldest->op.kind != HVD__JOIN ? oldest->stall_ns : 0;
}

void hvd__stall_look(struct hvd__engine *e, const struct hvd_request *alone,
                     struct segment_status *s, uint64_t now_ns)
{
    const struct hvd_request *oldest;
    uint64_t since_ns, next_ns = now_ns + (uint64_t)LOOK_MS * 1000000;

    pthread_mutex_lock(&e->lock);
    oldest = alone ? alone : e->head;
    since_ns = oldest ? oldest->stall_ns : now_ns;
    /* It may have been issued after the clock was read. */
    if (since_ns > now_ns)
        now_ns = since_ns;
    if (now_ns - since_ns < (uint64_t)LIST_MS * 1000000 &&
        atomic_load(&s->asked) == atomic_load(&s->answered)) {
        e->stall.look_ns = since_ns + (uint64_t)LIST_MS * 1000000;
        pthread_mutex_unlock(&e->lock);
        return;
    }
    pthread_mutex_lock(&lock);
    list(e, alone, s);
    atomic_store_explicit(&e->stall.listed, 1, memory_order_relaxed);
    since_ns = waits_since(oldest);
    update_told(e->stall.set, since_ns, now_ns, stall.warning_ms);
    if (since_ns && stall.limit_ns && since_ns + stall.limit_ns > now_ns &&
        since_ns + stall.limit_ns < next_ns)
        next_ns = since_ns + stall.limit_ns;
    e->stall.look_ns = next_ns;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&e->lock);
}

void hvd__stall_settle(struct hvd__engine *e)
{
    struct segment_status *s = hvd__stall_on();

    atomic_store_explicit(&e->stall.listed, e->head != NULL,
                          memory_order_relaxed);
    if (!s)
        return;
    pthread_mutex_lock(&lock);
    list(e, NULL, s);
    update_told(e->stall.set, waits_since(e->head), status_now_ns(),
                stall.warning_ms);
    pthread_mutex_unlock(&lock);
}

/* ---- Devices ------------------------------------------------------------- */

/* Whether that differs from what is listed. */
static int note_device(struct entry *e, int set, const struct hvd__gpu_wait *w)
{
    enum status_where where =
        w->is_reached ? STATUS_ON_DEVICE : STATUS_NOT_REACHED;

    if (e->since_ns == w->since_ns && e->key == w->number && e->where == where)
        return 0;
    *e = (struct entry){.since_ns = w->since_ns,
                        .key = w->number,
                        .kind = w->kind,
                        .where = where,
                        .set = set};
    memcpy(e->name, w->name, strnlen(w->name, sizeof(e->name) - 1));
    return 1;
}

/* It is told as late as other waits, but before the plane gives up.  While
 * its own work is what keeps it waiting, it does not wait for others. */
static void update_device(int set, const struct hvd__gpu_wait *w)
{
    uint32_t warning_ms = stall.warning_ms;

    if (!warning_ms || w->limit_ms < warning_ms)
        warning_ms = w->limit_ms;
    update_told(STATUS_SETS_MAX + set, w->is_reached ? w->since_ns : 0,
                hb_now_ns(), warning_ms);
}

void hvd__stall_device(int set, const struct hvd__gpu_wait *w)
{
    struct segment_status *s = hvd__stall_on();
    struct entry *e = &stall.device[set];
    uint32_t asked;

    if (!s)
        return;
    pthread_mutex_lock(&lock);
    asked = atomic_load(&s->asked);
    if (w && (note_device(e, set, w) || asked != atomic_load(&s->answered))) {
        publish(s);
        atomic_store(&s->answered, asked);
    } else if (!w && e->since_ns) {
        e->since_ns = 0;
        publish(s);
    }
    if (w)
        update_device(set, w);
    else
        update_told(STATUS_SETS_MAX + set, 0, 0, stall.warning_ms);
    pthread_mutex_unlock(&lock);
}

_Atomic uint64_t *hvd__stall_launched(int set)
{
    struct segment_status *s = hvd__stall_on();

    return s ? &s->launched[set] : NULL;
}

int hvd__stall_culprit(uint64_t since_ns, struct hb_error *err)
{
    char text[SEGMENT_TEXT_MAX];
    int rank, rc = -1;

    pthread_mutex_lock(&lock);
    if (stall.told)
        rc = segment_blamed(stall.head, &rank, text) >= since_ns;
    pthread_mutex_unlock(&lock);
    if (rc == 1) {
        hb_error_set(err, HVD_ETIMEOUT, "%s", text);
        err->rank = rank;
    }
    return rc;
}

/* ---- Life ---------------------------------------------------------------- */

int hvd__stall_open(const struct hvd__stall_config *config,
                    struct hb_error *err)
{
    int rc = read_knobs(err);

    if (rc < 0)
        return rc;
    stall.agent = config->agent;
    stall.head = config->head;
    atomic_store(&hvd__stall_status, config->status);
    return 0;
}

void hvd__stall_close(void)
{
    atomic_store(&hvd__stall_status, NULL);
    pthread_mutex_lock(&lock);
    memset(&stall, 0, sizeof(stall));
    pthread_mutex_unlock(&lock);
}

void hvd__stall_member(int set, int is)
{
    struct segment_status *s = hvd__stall_on();
    uint32_t bit = (uint32_t)1 << set;

    if (s && is)
        atomic_fetch_or(&s->sets, bit);
    else if (s)
        atomic_fetch_and(&s->sets, ~bit);
}
