/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching headers by cache domain.  If a host has many ranks and its cores do
 * not all share one cache, each rank waits only for the ranks of its own
 * domain, and a leader for the other leaders, so that few cache lines cross
 * domains.
 *
 * A domain's leader, its first rank, waits for the headers of its members and
 * merges them.  The leaders wait for each other's merged headers; each then
 * releases the merge of all headers, for which its members wait.  A rank that
 * has acquired a release has seen all headers, and everything that their
 * writers did before.  Merged headers and releases are reused by parity, like
 * headers.
 *
 * Domains only speed up the news.  What counts is still whether all headers
 * have arrived: a rank whose leader has left, or that waits while any rank has
 * died, looks at the headers themselves, as on a host without domains.  So an
 * operation's fate does not depend on how far its leader got, and the error
 * names the rank whose header is missing.
 *
 * Only the arrival goes by domain.  Partial results per domain would round in
 * another order, so that the bits would depend on the domains, and would cost
 * another pass and wait per block.  The domain's shared cache already fetches
 * another rank's memory only once for all its readers.
 */
#include "runtime/plane/shm/shm_impl.h"

enum { FLAT_RANKS_MAX = 8 };

enum stage { STAGE_MEMBERS, STAGE_LEADERS, STAGE_HEADERS };

/* Returns whether merging by domains pays: for several of two ranks or more on
 * average, as a leader per rank would only add a hop. */
static int worth_it(const struct hvd__shm *p, const uint32_t *domains)
{
    int count = 0;

    if (!domains || p->n <= FLAT_RANKS_MAX)
        return 0;
    for (int r = 0; r < p->n; r++) {
        int first = 0;

        while (domains[first] != domains[r])
            first++;
        count += first == r;
    }
    return count > 1 && 2 * count <= p->n;
}

int shm_domains_init(struct hvd__shm *p, const uint32_t *domains)
{
    struct shm_domains *d = &p->domains;

    if (!worth_it(p, domains))
        return 0;
    d->late = -1;
    while (domains[d->leader] != domains[p->me])
        d->leader++;
    for (int r = 0; r < p->n; r++) {
        int leader = 0;

        while (domains[leader] != domains[r])
            leader++;
        if (leader == d->leader && r != leader)
            d->members[d->member_count++] = r;
        else if (leader == r && r != d->leader)
            d->leaders[d->leader_count++] = r;
    }
    return 1;
}

static struct shm_merged *merged(const struct hvd__shm *p, int leader)
{
    return &p->ranks[leader].merged[shm_parity(p)];
}

static struct shm_merged *released(const struct hvd__shm *p, int leader)
{
    return &p->ranks[leader].released[shm_parity(p)];
}

/* ---- Merging ------------------------------------------------------------- */

static void merge_one(struct shm_merged *m, uint64_t signature,
                      uint64_t first_signature, uint32_t entries)
{
    m->alike &= signature == m->signature;
    m->begin_alike &= first_signature == m->first_signature;
    if (entries < m->entries)
        m->entries = entries;
}

/* Begins a merge with this rank's header; seq, which publishes it, comes
 * later. */
static void merge_own(struct hvd__shm *p, struct shm_merged *m)
{
    const struct shm_line *own = shm_line(p, p->me);

    m->signature = own->signature;
    m->first_signature = own->first_signature;
    m->entries = own->entries;
    m->alike = m->begin_alike = 1;
    m->late = p->domains.late >= 0 ? p->domains.late : p->me;
}

static void merge_headers(struct hvd__shm *p, struct shm_merged *m,
                          const int *ranks, int count)
{
    merge_own(p, m);
    for (int i = 0; i < count; i++) {
        const struct shm_line *line = shm_line(p, ranks ? ranks[i] : i);

        merge_one(m, line->signature, line->first_signature, line->entries);
    }
}

/* Merges this domain's headers with those that the other leaders merged. */
static void merge_all(struct hvd__shm *p, struct shm_merged *m)
{
    const struct shm_domains *d = &p->domains;

    merge_headers(p, m, d->members, d->member_count);
    for (int i = 0; i < d->leader_count; i++) {
        const struct shm_merged *theirs = merged(p, d->leaders[i]);

        merge_one(m, theirs->signature, theirs->first_signature,
                  theirs->entries);
        m->alike &= theirs->alike;
        m->begin_alike &= theirs->begin_alike;
        if (d->late == d->leaders[i])
            m->late = theirs->late;
    }
}

/* ---- Waiting ------------------------------------------------------------- */

/* Returns like shm_reached_by for the headers of ranks[run.peer ..], or with
 * of_domains for the merged headers of these leaders. */
static int are_there(struct hvd__shm *p, const int *ranks, int count,
                     struct hb_error *err, int of_domains)
{
    for (int *i = &p->run.peer; *i < count; (*i)++) {
        int r = ranks[*i];
        const _Atomic uint64_t *word =
            of_domains ? &merged(p, r)->seq : &shm_line(p, r)->seq;
        int rc = shm_reached_by(p, r, word, p->seq, err);

        if (rc == 0)
            p->domains.late = r;
        if (rc != 1)
            return rc;
    }
    p->run.peer = 0;
    return 1;
}

static int lead(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_domains *d = &p->domains;
    int rc = 1;

    if (d->stage == STAGE_MEMBERS) {
        struct shm_merged *m = merged(p, p->me);

        rc = are_there(p, d->members, d->member_count, op->err, 0);
        if (rc != 1)
            return rc;
        merge_headers(p, m, d->members, d->member_count);
        shm_publish(p, &m->seq, p->seq);
        d->stage = STAGE_LEADERS;
    }
    rc = are_there(p, d->leaders, d->leader_count, op->err, 1);
    if (rc == 1)
        merge_all(p, released(p, p->me));
    return rc;
}

static int follow(struct hvd__shm *p, struct hvd__op *op)
{
    int leader = p->domains.leader;

    return shm_reached_by(p, leader, &released(p, leader)->seq, p->seq,
                          op->err);
}

/* Waits for every rank's header and merges them all: the fallback once a rank
 * is gone. */
static int look_at_all(struct hvd__shm *p, struct hvd__op *op)
{
    for (int *r = &p->run.peer; *r < p->n; (*r)++) {
        int rc = shm_reached(p, *r, &shm_line(p, *r)->seq, p->seq, op->err);

        if (rc == 0)
            p->domains.late = *r;
        if (rc != 1)
            return rc;
    }
    p->run.peer = 0;
    merge_headers(p, released(p, p->me), NULL, p->n);
    return 1;
}

/* Publishes as leader: the release and, if not done yet, the merged header. */
static void release(struct hvd__shm *p)
{
    struct shm_merged *m = merged(p, p->me);

    if (atomic_load_explicit(&m->seq, memory_order_relaxed) != p->seq) {
        merge_headers(p, m, NULL, p->n);
        shm_publish(p, &m->seq, p->seq);
    }
    shm_publish(p, &released(p, p->me)->seq, p->seq);
}

/* ---- Agreement ----------------------------------------------------------- */

static int conclude(struct hvd__shm *p, struct hvd__op *op,
                    const struct shm_merged *m)
{
    if (m->late != p->me)
        hvd__op_misses(op, p->group_ranks[m->late]);
    p->domains.stage = STAGE_MEMBERS;
    p->domains.late = -1;
    p->run.matched = 1;
    hvd__op_agreed(op);
    if (m->alike)
        return 1;
    if (!m->begin_alike)
        return hb_error_set(op->err, HVD_EMISMATCH,
                            "ranks have begun different operations");
    op->agreed_entries = m->entries;
    return HVD__CUT;
}

int shm_domains_match(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_domains *d = &p->domains;
    int leads = d->leader == p->me, rc = 0;

    if (d->stage != STAGE_HEADERS) {
        rc = leads ? lead(p, op) : follow(p, op);
        if (rc == SHM_GONE) {
            d->stage = STAGE_HEADERS;
            p->run.peer = 0;
        }
    }
    if (d->stage == STAGE_HEADERS)
        rc = look_at_all(p, op);
    if (rc != 1)
        return rc;
    if (leads)
        release(p);
    return conclude(p, op,
                    released(p, d->stage == STAGE_HEADERS ? p->me : d->leader));
}
