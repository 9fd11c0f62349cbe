/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's half of the stall inspector; see stall.h.
 *
 * There is one list for all process sets of this rank, while each set has a
 * driver of its own.  So `lock` protects the list, `late_count`, and the
 * writing of both.  It may be taken while an engine's lock is held, never the
 * other way round.
 */
#include "runtime/trace/stall.h"

#include "lib/base/env.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/worker.h"

#include <pthread.h>

_Static_assert((int)STATUS_SETS_MAX == (int)HVD_PROCESS_SETS_MAX,
               "process sets in the segment");

enum {
    DEFAULT_WARNING_S = 60,
};

struct entry {
    uint64_t since_ns, key;
    enum hvd__kind kind;
    enum status_where where;
    int set;
    char name[STATUS_NAME_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void (*say)(void *arg, const void *frame, size_t len);
    void *say_arg;
    uint32_t warning_ms, shutdown_ms;
    uint64_t limit_ns; /* wait after which the agent is told; 0: never */
    const struct segment_head *head;
    struct entry entries[STATUS_WAITS_MAX];
    int count;
    uint32_t pending[STATUS_SETS_MAX];    /* of each set: pending requests,
                                             listed or not */
    struct entry device[STATUS_SETS_MAX]; /* since_ns 0: no wait */
    /* Which sets wait too long, and at STATUS_SETS_MAX + n whether set n does
     * on its device; and how many of these do. */
    unsigned char is_late[2 * STATUS_SETS_MAX];
    int late_count;
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

int hvd__stall_limits(struct hvd__stall_limits *l, struct hb_error *err)
{
    int off = 0;
    int rc = hb_knob_bool("STALL_CHECK_DISABLE", &off, err);

    if (rc == 0)
        rc = read_seconds("STALL_CHECK_TIME_SECONDS", DEFAULT_WARNING_S,
                          &l->warning_ms, err);
    if (rc == 0)
        rc = read_seconds("STALL_SHUTDOWN_TIME_SECONDS", 0, &l->shutdown_ms,
                          err);
    if (rc < 0 || off)
        *l = (struct hvd__stall_limits){0};
    return rc;
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
    stall.say(stall.say_arg, frame, sizeof(frame));
}

/* Sets or clears is_late[index], and tells the agent of the first one set and
 * of the last one cleared.  since_ns: since when others keep the set
 * waiting (0: they do not), worth a report after warning_ms. */
static void update_late(int index, uint64_t since_ns, uint64_t now_ns,
                        uint32_t warning_ms)
{
    int before = stall.late_count;
    uint64_t limit_ns = warning_ms * UINT64_C(1000000);
    int late;

    if (!stall.limit_ns)
        return;
    if (!limit_ns || limit_ns > stall.limit_ns)
        limit_ns = stall.limit_ns;
    late = since_ns && now_ns > since_ns && now_ns - since_ns >= limit_ns;
    stall.late_count += late - stall.is_late[index];
    stall.is_late[index] = (unsigned char)late;
    if (late && !before)
        tell(now_ns - since_ns, warning_ms);
    else if (before && !stall.late_count)
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

static void add(int set, const struct hvd__stall_wait *w)
{
    struct entry *e = &stall.entries[stall.count++];

    *e = (struct entry){.since_ns = w->since_ns,
                        .key = w->key,
                        .kind = w->kind,
                        .where = STATUS_IN_QUEUE,
                        .set = set};
    memcpy(e->name, w->name, strnlen(w->name, sizeof(e->name) - 1));
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

uint64_t hvd__stall_publish(const struct hvd__stall_waits *w,
                            struct segment_status *s, uint64_t now_ns)
{
    uint64_t limit_ns;

    pthread_mutex_lock(&lock);
    forget_set(w->set);
    for (int i = 0; i < w->count && stall.count < STATUS_WAITS_MAX; i++)
        add(w->set, &w->waits[i]);
    stall.pending[w->set] = w->pending;
    publish(s);
    /* Another set's driver may have answered a later question already. */
    if ((int32_t)(w->asked - atomic_load(&s->answered)) > 0)
        atomic_store(&s->answered, w->asked);
    update_late(w->set, w->since_ns, now_ns, stall.warning_ms);
    limit_ns = stall.limit_ns;
    pthread_mutex_unlock(&lock);
    return limit_ns;
}

/* ---- Devices ------------------------------------------------------------- */

/* Copies `w` to the list.  Returns whether it differs from what was listed. */
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

/* Reports a device's wait as late as other waits, but before the plane gives
 * up.  While the set's own work keeps the device busy, it does not wait for
 * others. */
static void update_device(int set, const struct hvd__gpu_wait *w)
{
    uint32_t warning_ms = stall.warning_ms;

    if (!warning_ms || w->limit_ms < warning_ms)
        warning_ms = w->limit_ms;
    update_late(STATUS_SETS_MAX + set, w->is_reached ? w->since_ns : 0,
                hb_now_ns(), warning_ms);
}

void hvd__stall_device(struct segment_status *s, int set,
                       const struct hvd__gpu_wait *w)
{
    struct entry *e;
    uint32_t asked;

    if (!s || set < 0)
        return;
    e = &stall.device[set];
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
        update_late(STATUS_SETS_MAX + set, 0, 0, stall.warning_ms);
    pthread_mutex_unlock(&lock);
}

_Atomic uint64_t *hvd__stall_launched(struct segment_status *s, int set)
{
    return s && set >= 0 ? &s->launched[set] : NULL;
}

int hvd__stall_culprit(uint64_t since_ns, struct hb_error *err)
{
    char text[SEGMENT_TEXT_MAX];
    int rank, rc = -1;

    pthread_mutex_lock(&lock);
    if (stall.late_count)
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
    struct hvd__stall_limits l = {0};
    int rc = hvd__stall_limits(&l, err);
    uint32_t limit_ms = l.warning_ms;

    if (rc < 0)
        return rc;
    /* hvdrun needs some time to find out who is missing. */
    if (!limit_ms || (l.shutdown_ms && l.shutdown_ms < limit_ms))
        limit_ms = l.shutdown_ms - l.shutdown_ms / 4;
    stall.warning_ms = l.warning_ms;
    stall.shutdown_ms = l.shutdown_ms;
    stall.limit_ns = (uint64_t)limit_ms * 1000000;
    stall.say = config->say;
    stall.say_arg = config->say_arg;
    stall.head = config->head;
    return 0;
}

void hvd__stall_close(void)
{
    pthread_mutex_lock(&lock);
    memset(&stall, 0, sizeof(stall));
    pthread_mutex_unlock(&lock);
}

void hvd__stall_member(struct segment_status *s, int set, int is)
{
    uint64_t bit;

    if (set < 0)
        return;
    bit = (uint64_t)1 << set % 64;
    if (s)
        status_put(&s->carried_out[set], 0);
    if (s && is)
        atomic_fetch_or(&s->sets[set / 64], bit);
    else if (s)
        atomic_fetch_and(&s->sets[set / 64], ~bit);
}
