/* SPDX-License-Identifier: Apache-2.0 */
/* Process sets that their members make alone; see set_members.h. */
#include "runtime/core/set/set_members.h"

#include "lib/base/alloc.h"
#include "runtime/core/set/outcome.h"
#include "runtime/core/set/set.h"
#include "runtime/core/set/world_set.h"
#include "runtime/core/world/agent_call.h"
#include "runtime/core/world/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_BYTES_MAX = 64, NO_PART = -1, NOT_FIRST = -2 };

/* The members, and where they meet. */
struct meeting {
    int *ranks;             /* [n]: world ranks, ascending */
    unsigned char *members; /* the same for the store: [4 * n] */
    int n, me;
    char scope[RDV_NAME_BYTES - 16];
    struct hvd__set_birth birth; /* number 0: the set is born now */
    uint64_t deadline_ns;
};

/* What each member tells the others first. */
struct card {
    uint32_t founded; /* what this rank would call the set */
    int32_t slot;     /* the part of the segment that the first member on a host
                         has claimed; or NO_PART, NOT_FIRST */
};

/* ---- Meeting ------------------------------------------------------------- */

/* Reads what the members have told, each at most `len` bytes and then zeros,
 * into all [n * len]. */
static int read_records(const struct meeting *m, const struct hb_buf *value,
                        size_t len, unsigned char *all, struct hb_error *err)
{
    struct rdv_record record;
    struct hb_reader r;
    int i = 0, rc;

    memset(all, 0, (size_t)m->n * len);
    hb_reader_init(&r, hb_buf_data(value), hb_buf_len(value));
    while ((rc = rdv_next_record(&r, &record)) > 0 && i < m->n) {
        if (record.rank != (uint32_t)m->ranks[i] || record.len > len)
            break;
        if (record.len)
            memcpy(all + (size_t)i * len, record.value, record.len);
        i++;
    }
    if (rc == 0 && i == m->n)
        return 0;
    return hb_error_set(err, HVD_EPROTO,
                        "what the members say of themselves is malformed");
}

/* Gathers `len` bytes of each member, by place, into all [n * len].  phase: a
 * word that tells this exchange from the others of the meeting. */
static int gather(const struct meeting *m, const char *phase, const void *own,
                  size_t len, void *all, struct hb_error *err)
{
    struct rdv_request fence = {.op = RDV_FENCE,
                                .after = hvd__world_epoch(),
                                .members = m->members,
                                .member_count = (uint32_t)m->n,
                                .value = own,
                                .len = len};
    struct hb_buf value = HB_BUF_INIT;
    int rc;

    if (m->n == 1) {
        memcpy(all, own, len);
        return 0;
    }
    while (fence.len > 0 && !((const unsigned char *)own)[fence.len - 1])
        fence.len--;
    snprintf(fence.scope, sizeof(fence.scope), "%s.%s", m->scope, phase);
    rc = hvd__agent_call(hvd__world_agent(), &fence, &value, m->deadline_ns,
                         err);
    if (rc == 0)
        rc = read_records(m, &value, len, all, err);
    hb_buf_free(&value);
    return rc;
}

/* Gathers as struct hvd__subset asks: `all` is by world rank. */
static int exchange(void *arg, const void *mine, size_t len, void *all,
                    struct hb_error *err)
{
    const struct meeting *m = arg;
    unsigned char *by_member = hb_calloc((size_t)m->n, len), *by_rank = all;
    int rc;

    if (!by_member)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d members", m->n);
    rc = gather(m, "places", mine, len, by_member, err);
    for (int i = 0; i < m->n && rc == 0 && all; i++)
        memcpy(by_rank + (size_t)m->ranks[i] * len, by_member + (size_t)i * len,
               len);
    hb_free(by_member);
    return rc;
}

/* Tells all members this rank's status, which err explains.  Returns 0 if all
 * are 0; else the first failure, as hvd__outcome_merge does. */
static int agree(const struct meeting *m, struct hb_error *err)
{
    struct hvd__outcome own, *all = hb_calloc((size_t)m->n, sizeof(*all));

    hvd__outcome_fill(&own, err);
    if (!all)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d members", m->n);
    gather(m, "made", &own, sizeof(own), all, err);
    hvd__outcome_merge(all, m->ranks, m->n, err);
    hb_free(all);
    return err->status;
}

/* ---- The members --------------------------------------------------------- */

static int by_value(const void *pa, const void *pb)
{
    int a = *(const int *)pa, b = *(const int *)pb;

    return (a > b) - (a < b);
}

static int check_tag(const char *tag, struct hb_error *err)
{
    size_t len = strnlen(tag, TAG_BYTES_MAX + 1);

    for (size_t i = 0; i < len; i++)
        if (tag[i] < ' ' || tag[i] > '~')
            len = 0;
    if (len >= 1 && len <= TAG_BYTES_MAX)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "tag: not 1 to %d printable bytes",
                        TAG_BYTES_MAX);
}

static int check_ranks(struct meeting *m, struct hb_error *err)
{
    int size = hvd__context.topology.size;

    m->me = -1;
    for (int i = 0; i < m->n; i++) {
        if (m->ranks[i] < 0 || m->ranks[i] >= size)
            return hb_error_set(err, HVD_EINVAL, "rank %d is not in 0..%d",
                                m->ranks[i], size - 1);
        if (i && m->ranks[i] == m->ranks[i - 1])
            return hb_error_set(err, HVD_EINVAL, "rank %d is named twice",
                                m->ranks[i]);
        if (m->ranks[i] == hvd__context.topology.rank)
            m->me = i;
    }
    if (m->me >= 0)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "rank %d, which is not among the ranks, calls it",
                        hvd__context.topology.rank);
}

static void meeting_fini(struct meeting *m)
{
    hb_free(m->ranks);
    hb_free(m->members);
}

/* Makes a meeting of those ranks, in any order; its scope is the caller's to
 * set.  On failure it holds nothing. */
static int meeting_init(struct meeting *m, const int *ranks, int n,
                        struct hb_error *err)
{
    int rc = hvd__world_deadline(&m->deadline_ns, err);

    m->n = n;
    m->ranks = hb_calloc((size_t)n, sizeof(*m->ranks));
    m->members = hb_calloc((size_t)n, 4);
    if (rc == 0 && (!m->ranks || !m->members))
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for %d members", n);
    if (rc == 0) {
        memcpy(m->ranks, ranks, (size_t)n * sizeof(*ranks));
        qsort(m->ranks, (size_t)n, sizeof(*m->ranks), by_value);
        rc = check_ranks(m, err);
    }
    for (int i = 0; i < n && rc == 0; i++)
        for (int k = 0; k < 4; k++)
            m->members[4 * i + k] =
                (unsigned char)((uint32_t)m->ranks[i] >> (24 - 8 * k));
    if (rc == 0 && n > 1 && hvd__world_is_launched())
        rc = hb_error_set(err, HVD_EUNSUPPORTED,
                          "members cannot make a set alone under an MPI "
                          "launcher; use hvd_process_set_add, or hvdrun");
    if (rc < 0)
        meeting_fini(m);
    return rc;
}

/* Sets where the members of a set meet once they have agreed on its number. */
static void meet_again(struct meeting *m, uint32_t founded)
{
    snprintf(m->scope, sizeof(m->scope), "set.%d#%u", m->ranks[0], founded);
}

/* ---- Adding -------------------------------------------------------------- */

/* Makes s on this rank, and publishes it if all members could. */
static int make(struct hvd__set *s, struct meeting *m, const struct card *cards,
                struct hb_error *err)
{
    const struct hvd__founding f = {
        .ranks = m->ranks,
        .n = m->n,
        .me = m->me,
        .slot = cards[hvd__world_first(m->ranks, m->n)].slot,
        .founded = cards[0].founded,
        .deadline_ns = m->deadline_ns,
        .exchange = exchange,
        .arg = m,
    };
    int rc;

    meet_again(m, f.founded);
    if (!m->birth.number)
        m->birth = (struct hvd__set_birth){
            .generation = atomic_load(&hvd__context.generation),
            .rank = (uint32_t)m->ranks[0],
            .number = f.founded};
    s->n = m->n;
    s->me = m->me;
    s->birth = m->birth;
    rc = hvd__set_connect_members(s, &f, err);
    if (rc == 0 && hvd__set_open(s, m->ranks, m->n, m->me) < 0)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for a process set");
    if (agree(m, err) == 0) {
        hvd__set_publish(s);
        return 0;
    }
    if (rc == 0)
        hvd__engine_close(&s->engine, err);
    hvd__set_disconnect(s);
    return err->status;
}

/* Checks what the members told.  Returns 0, or -HVD_EINVAL on all alike if a
 * host has no free part. */
static int check_cards(const struct meeting *m, const struct card *cards,
                       struct hb_error *err)
{
    const struct card *first = &cards[hvd__world_first(m->ranks, m->n)];

    for (int i = 0; i < m->n; i++)
        if (cards[i].slot == NO_PART)
            return hb_error_set(err, HVD_EINVAL,
                                "there are too many process sets on the host "
                                "of rank %d",
                                m->ranks[i]);
    if (first->slot >= 1 && first->slot < HVD_PROCESS_SETS_MAX &&
        cards[0].founded)
        return 0;
    return hb_error_set(err, HVD_EPROTO,
                        "what the members say of themselves is malformed");
}

/* Makes s after the members have met.  If they do not meet, or not all can make
 * the set, the part of the segment stays claimed until hvd_shutdown, as a
 * member may come later and use it. */
static int meet_and_make(struct hvd__set *s, struct meeting *m,
                         uint32_t founded, struct hb_error *err)
{
    struct card own = {founded, NOT_FIRST};
    struct card *cards = hb_calloc((size_t)m->n, sizeof(*cards));
    int is_first = hvd__world_is_first(m->ranks, m->n), rc;

    if (!cards)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d members", m->n);
    if (is_first)
        own.slot =
            hvd__set_claim(s, HVD_PROCESS_SETS_MAX - 1, 1) ? s->slot : NO_PART;
    rc = gather(m, "cards", &own, sizeof(own), cards, err);
    if (rc == 0)
        rc = check_cards(m, cards, err);
    if (rc == -HVD_EINVAL)
        hvd__set_unclaim(s); /* no member uses it */
    if (rc == 0)
        rc = make(s, m, cards, err);
    hb_free(cards);
    return rc;
}

/* Adds the reason why the members did not meet. */
static int explain(const char *tag, struct hb_error *err)
{
    if (err->status == -HVD_ETIMEOUT)
        hb_error_context(err,
                         "not all members have called it with tag \"%s\" and "
                         "the same ranks",
                         tag);
    if (err->status == -HVD_EMISMATCH)
        hb_error_context(err, "tag \"%s\" with other ranks on another rank",
                         tag);
    return err->status;
}

static int add(struct meeting *m, const char *tag, int *set,
               struct hb_error *err)
{
    struct hvd__set *s;
    uint32_t founded;
    int rc = hvd__sets_reserve(&s, &founded, err);

    if (rc < 0)
        return rc;
    snprintf(m->scope, sizeof(m->scope), "set.%d.%s", m->ranks[0], tag);
    rc = meet_and_make(s, m, founded, err);
    if (rc == 0)
        *set = s->id;
    hvd__sets_changed(s);
    return rc < 0 ? explain(tag, err) : 0;
}

int hvd__set_add_members(const int *ranks, size_t count, const char *tag,
                         int *set, struct hb_error *err)
{
    struct meeting m = {0};
    int rc = 0;

    if (!hvd__alive())
        rc = hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    else if (!ranks || !tag || !set)
        rc = hb_error_set(err, HVD_EINVAL, "ranks, tag or set is NULL");
    else if (count < 1 || count > (size_t)hvd__context.topology.size)
        rc = hb_error_set(err, HVD_EINVAL, "count is not in 1..%d",
                          hvd__context.topology.size);
    if (rc == 0)
        rc = check_tag(tag, err);
    if (rc == 0)
        rc = meeting_init(&m, ranks, (int)count, err);
    if (rc == 0) {
        rc = add(&m, tag, set, err);
        meeting_fini(&m);
    }
    return rc < 0 ? hb_error_context(err, "hvd_process_set_add_members") : 0;
}

int hvd__set_remake_members(int id, const int *ranks, int n,
                            const struct hvd__set_birth *birth,
                            struct hb_error *err)
{
    struct meeting m = {0};
    struct hvd__set *s;
    uint32_t founded;
    int rc = meeting_init(&m, ranks, n, err);

    if (rc < 0)
        return rc;
    m.birth = *birth;
    snprintf(m.scope, sizeof(m.scope), "kept.%u.%u.%u", birth->generation,
             birth->rank, birth->number);
    rc = hvd__sets_take(id, &s, &founded, err);
    if (rc == 0) {
        rc = meet_and_make(s, &m, founded, err);
        hvd__sets_changed(s);
    }
    meeting_fini(&m);
    return rc < 0 ? hb_error_context(err, "process set %d", id) : 0;
}

/* ---- Removing ------------------------------------------------------------ */

/* Cancels what some members have launched and others have not, as
 * hvd__set_remove does; the exchange also waits until all members have halted.
 */
static int cancel_launched(struct hvd__set *s, const struct meeting *m,
                           const struct hb_error *why, struct hb_error *err)
{
    const struct hvd__launch_ops *l = s->plane->ops->launches;
    uint64_t own = l ? l->count(s->plane) : UINT64_MAX, least = own;
    uint64_t *all = hb_calloc((size_t)m->n, sizeof(*all));
    int rc =
        all ? gather(m, "halted", &own, sizeof(own), all, err)
            : hb_error_set(err, HVD_ENOMEM, "no memory for %d members", m->n);

    for (int i = 0; i < m->n && rc == 0; i++)
        least = all[i] < least ? all[i] : least;
    if (l && own > least)
        l->cancel(s->plane, why);
    hb_free(all);
    return rc;
}

static int remove_set(struct hvd__set *s, const struct meeting *m,
                      struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    unsigned char nothing = 0, *all;
    int rc;

    hb_error_set(&why, HVD_ENOSET, "process set %d was removed", s->id);
    hvd__engine_halt(&s->engine, &why);
    rc = cancel_launched(s, m, &why, err);
    hvd__set_stop(s, &why);
    hvd__set_collect_stats(s);
    hvd__set_disconnect(s);
    all = hb_calloc((size_t)m->n, 1);
    if (!all)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for %d members", m->n);
    if (rc == 0)
        rc = gather(m, "freed", &nothing, 1, all, err);
    hb_free(all);
    if (rc == 0)
        hvd__set_unclaim(s);
    return rc;
}

int hvd__set_remove_members(int set, struct hb_error *err)
{
    struct meeting m = {0};
    struct hvd__set *s;
    int rc = hvd__sets_mark(set, &s, err);

    if (rc == 0) {
        rc = meeting_init(&m, s->ranks, s->n, err);
        if (rc == 0) {
            meet_again(&m, s->founded);
            rc = remove_set(s, &m, err);
            meeting_fini(&m);
        }
        hvd__sets_changed(s);
    }
    return rc < 0 ? hb_error_context(err, "hvd_process_set_remove") : 0;
}
