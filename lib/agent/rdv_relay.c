/* SPDX-License-Identifier: Apache-2.0 */
/* The relay of rendezvous.h. */
#include "lib/agent/rdv_relay.h"

#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

/* A request sent to hvdrun and not yet answered; id is the relay's. */
struct relay_pending {
    struct relay_pending *next;
    uint32_t id, worker_id;
    int slot;
    size_t bytes;
    struct relay_fence *fence; /* or NULL */
    relay_own_cb own;          /* of the agent itself; NULL: of workers */
    void *own_arg;
};

/* The local members of one fence. */
struct relay_fence {
    struct relay_fence *next;
    char scope[RDV_NAME_BYTES];
    unsigned char *members; /* as in the request */
    uint32_t member_count;
    uint64_t epoch;
    int expected, arrived;
    struct relay_member {
        int is_member, has, waits;
        uint32_t worker_id;
        struct hb_buf value;
    } * slots;
};

/* Says that a rank comes to no fence of `epoch` or before. */
struct relay_absence {
    uint64_t epoch;
    uint32_t since; /* order of the absences */
    char *why;      /* NULL: it is not absent */
};

void relay_init(struct relay *r, const struct relay_config *config)
{
    memset(r, 0, sizeof(*r));
    r->config = *config;
    r->bytes =
        hb_xcalloc((size_t)config->job->rank_count + 1, sizeof(*r->bytes));
    r->absences =
        hb_xcalloc((size_t)config->job->rank_count + 1, sizeof(*r->absences));
    r->counts =
        hb_xcalloc((size_t)config->job->rank_count + 1, sizeof(*r->counts));
}

static void fence_free(struct relay *r, struct relay_fence *f)
{
    struct relay_fence **at = &r->fences;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    r->fence_count--;
    for (int i = 0; i < r->config.job->rank_count; i++)
        hb_buf_free(&f->slots[i].value);
    hb_free(f->slots);
    hb_free(f->members);
    hb_free(f);
}

static void pending_free(struct relay *r, struct relay_pending **at)
{
    struct relay_pending *p = *at;

    *at = p->next;
    r->own_count -= p->own != NULL;
    if (p->slot >= 0) {
        r->counts[p->slot]--;
        r->bytes[p->slot] -= p->bytes;
    }
    hb_free(p);
}

void relay_fini(struct relay *r)
{
    while (r->pending)
        pending_free(r, &r->pending);
    while (r->fences)
        fence_free(r, r->fences);
    for (int i = 0; r->absences && i < r->config.job->rank_count; i++)
        hb_free(r->absences[i].why);
    hb_free(r->absences);
    hb_free(r->counts);
    hb_free(r->bytes);
    r->absences = NULL;
    r->counts = NULL;
}

/* Sends a request to hvdrun.  slot -1: a fence, for all that wait in it. */
static void ask(struct relay *r, int slot, uint32_t worker_id,
                struct relay_fence *fence, const struct rdv_request *m)
{
    struct relay_pending *p = hb_xcalloc(1, sizeof(*p));
    struct rdv_request up = *m;

    if (++r->last_id == 0) /* 0 is no id */
        r->last_id = 1;
    p->id = up.id = r->last_id;
    p->worker_id = worker_id;
    p->slot = slot;
    p->fence = fence;
    p->next = r->pending;
    r->pending = p;
    if (slot >= 0) {
        p->bytes = m->len;
        r->counts[slot]++;
        r->bytes[slot] += m->len;
    }
    r->config.ask(r->config.arg, &up);
}

static void refuse(struct relay *r, int slot, uint32_t id, int status,
                   const char *text)
{
    struct rdv_reply m = {
        .id = id, .status = status, .value = text, .len = strlen(text)};

    r->config.reply(r->config.arg, slot, &m);
}

/* ---- Fences ---- */

static int is_member(const struct rdv_request *m, uint32_t rank)
{
    if (m->member_count == 0)
        return 1;
    for (uint32_t i = 0; i < m->member_count; i++)
        if (rdv_member(m, i) == rank)
            return 1;
    return 0;
}

static struct relay_fence *fence_find(struct relay *r, const char *scope)
{
    struct relay_fence *f = r->fences;

    while (f && strcmp(f->scope, scope) != 0)
        f = f->next;
    return f;
}

static struct relay_fence *fence_new(struct relay *r,
                                     const struct rdv_request *m)
{
    const struct control_launch *job = r->config.job;
    struct relay_fence *f = hb_xcalloc(1, sizeof(*f));

    memcpy(f->scope, m->scope, sizeof(f->scope));
    f->member_count = m->member_count;
    f->epoch = m->after;
    f->members = hb_xmalloc(4 * (size_t)m->member_count + 1);
    if (m->member_count)
        memcpy(f->members, m->members, 4 * (size_t)m->member_count);
    f->slots = hb_xcalloc((size_t)job->rank_count, sizeof(*f->slots));
    for (int i = 0; i < job->rank_count; i++) {
        f->slots[i].is_member = is_member(m, (uint32_t)job->ranks[i].rank);
        f->expected += f->slots[i].is_member;
    }
    r->fence_count++;
    f->next = r->fences;
    r->fences = f;
    return f;
}

/* Gives the ranks in a fence's records libhvd's numbers.  Records of ranks that
 * are no members any more are left out: their fence fails anyway. */
static void number_records(const struct relay *r, struct rdv_reply *m,
                           struct hb_buf *records)
{
    struct rdv_record record;
    struct hb_reader reader;

    hb_reader_init(&reader, m->value, m->len);
    while (rdv_next_record(&reader, &record) > 0) {
        int rank = members_world_rank(r->config.members, (int)record.rank);

        if (rank >= 0)
            hb_must(rdv_put_record(records, (uint32_t)rank, record.value,
                                   record.len));
    }
    m->value = hb_buf_data(records);
    m->len = hb_buf_len(records);
}

/* Gives the absent rank libhvd's number; UINT32_MAX: it is no member. */
static void number_absent(const struct relay *r, struct rdv_reply *m)
{
    int rank = m->version < INT32_MAX
                   ? members_world_rank(r->config.members, (int)m->version)
                   : -1;

    m->version = rank < 0 ? UINT32_MAX : (uint64_t)rank;
}

static void fence_answer(struct relay *r, struct relay_fence *f,
                         const struct rdv_reply *m)
{
    struct hb_buf records = HB_BUF_INIT;
    struct rdv_reply down = *m;

    if (r->config.members && m->status == 0)
        number_records(r, &down, &records);
    else if (r->config.members && m->status == HVD_EPEER)
        number_absent(r, &down);
    for (int i = 0; i < r->config.job->rank_count; i++)
        if (f->slots[i].waits) {
            f->slots[i].waits = 0;
            down.id = f->slots[i].worker_id;
            r->config.reply(r->config.arg, i, &down);
        }
    hb_buf_free(&records);
    fence_free(r, f);
}

static int same_members(const struct relay_fence *f,
                        const struct rdv_request *m)
{
    return f->epoch == m->after && f->member_count == m->member_count &&
           (m->member_count == 0 ||
            memcmp(f->members, m->members, 4 * (size_t)m->member_count) == 0);
}

/* Sends one request for all local members, which have all come. */
static void fence_ask(struct relay *r, struct relay_fence *f)
{
    const struct control_launch *job = r->config.job;
    struct hb_buf records = HB_BUF_INIT;
    struct rdv_request m = {.op = RDV_FENCE,
                            .after = f->epoch,
                            .members = f->members,
                            .member_count = f->member_count};

    for (int i = 0; i < job->rank_count; i++)
        if (f->slots[i].is_member)
            hb_must(rdv_put_record(&records, (uint32_t)job->ranks[i].rank,
                                   hb_buf_data(&f->slots[i].value),
                                   hb_buf_len(&f->slots[i].value)));
    memcpy(m.scope, f->scope, sizeof(m.scope));
    m.value = hb_buf_data(&records);
    m.len = hb_buf_len(&records);
    ask(r, -1, 0, f, &m);
    hb_buf_free(&records);
}

static int is_absent(const struct relay *r, const struct relay_fence *f, int i)
{
    const struct relay_absence *a = &r->absences[i];

    return f->slots[i].is_member && !f->slots[i].has && a->why &&
           (a->epoch == RELAY_ALL_EPOCHS || (f->epoch && f->epoch <= a->epoch));
}

/* Fails the fence if a local member will not come.  Names the one that has been
 * gone longest, because others may have left in consequence. */
static void fail_if_doomed(struct relay *r, struct relay_fence *f)
{
    struct rdv_reply m = {.status = HVD_EPEER};
    int first = -1;

    for (int i = 0; i < r->config.job->rank_count; i++)
        if (is_absent(r, f, i) &&
            (first < 0 || r->absences[i].since < r->absences[first].since))
            first = i;
    if (first < 0)
        return;
    m.version = (uint64_t)r->config.job->ranks[first].rank;
    m.value = r->absences[first].why;
    m.len = strlen(r->absences[first].why);
    fence_answer(r, f, &m);
}

/* Replaces libhvd's numbers of a fence's members by ranks of the plan: heap in
 * *members; of all members of the generation if the request names none.
 * Returns 0, or -HVD_EINVAL for a number that no member has. */
static int plan_members(const struct relay *r, struct rdv_request *m,
                        unsigned char **members)
{
    const struct members *all = r->config.members;
    uint32_t count = m->member_count;

    if (count == 0)
        count = (uint32_t)all->now.count;
    *members = hb_xmalloc(4 * (size_t)count + 1);
    for (uint32_t i = 0; i < count; i++) {
        int rank =
            members_plan_rank(all, m->member_count ? rdv_member(m, i) : i);

        if (rank < 0)
            return -HVD_EINVAL;
        for (int k = 0; k < 4; k++)
            (*members)[4 * (size_t)i + (size_t)k] =
                (unsigned char)((uint32_t)rank >> (24 - 8 * k));
    }
    m->members = *members;
    m->member_count = count;
    return 0;
}

static void fence_request(struct relay *r, int slot,
                          const struct rdv_request *m)
{
    struct relay_fence *f = fence_find(r, m->scope);
    const char *trouble = NULL;
    int status = HVD_EINVAL;

    if (m->len > RDV_FENCE_VALUE_MAX)
        trouble = "a value for a fence is too long";
    else if (f && !same_members(f, m)) {
        trouble = "ranks differ in the members or the epoch of a fence";
        status = HVD_EMISMATCH;
    } else if (!is_member(m, (uint32_t)r->config.job->ranks[slot].rank)) {
        trouble = "this rank is no member of the fence";
        status = HVD_ENOTMEMBER;
    } else if (f && f->slots[slot].has) {
        trouble = "this rank is in the fence already";
        status = HVD_EDUPNAME;
    } else if (!f && r->fence_count >= RELAY_FENCES_MAX) {
        trouble = "too many fences are under way";
        status = HVD_ENOMEM;
    }
    if (trouble) {
        refuse(r, slot, m->id, status, trouble);
        return;
    }
    if (!f)
        f = fence_new(r, m);
    f->slots[slot].has = f->slots[slot].waits = 1;
    f->slots[slot].worker_id = m->id;
    if (m->len)
        hb_must(hb_buf_append(&f->slots[slot].value, m->value, m->len));
    if (++f->arrived == f->expected)
        fence_ask(r, f);
    else
        fail_if_doomed(r, f);
}

/* Handles a fence of a worker whose numbers of ranks are libhvd's. */
static void fence_request_numbered(struct relay *r, int slot,
                                   const struct rdv_request *m)
{
    struct rdv_request plan = *m;
    unsigned char *members = NULL;

    if (plan_members(r, &plan, &members) < 0)
        refuse(r, slot, m->id, HVD_EINVAL,
               "a member of the fence is no rank of this world");
    else
        fence_request(r, slot, &plan);
    hb_free(members);
}

/* ---- Requests and answers ---- */

int relay_request(struct relay *r, int slot, const struct rdv_request *m)
{
    if (m->op == RDV_CANCEL || m->op == RDV_LEFT)
        return -HVD_EPROTO;
    if (r->counts[slot] >= RELAY_PENDING_MAX ||
        r->bytes[slot] + m->len > RELAY_PENDING_BYTES)
        return -HVD_EPROTO;
    if (m->op == RDV_FENCE && r->config.members)
        fence_request_numbered(r, slot, m);
    else if (m->op == RDV_FENCE)
        fence_request(r, slot, m);
    else
        ask(r, slot, m->id, NULL, m);
    return 0;
}

/* Returns where the pending request with this id hangs, or NULL. */
static struct relay_pending **pending_find(struct relay *r, uint32_t id)
{
    struct relay_pending **at = &r->pending;

    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return *at ? at : NULL;
}

void relay_answer(struct relay *r, const struct rdv_reply *m)
{
    struct relay_pending **at = pending_find(r, m->id);
    struct rdv_reply down = *m;
    struct relay_fence *fence;
    relay_own_cb own;
    void *own_arg;
    int slot;

    if (!at)
        return; /* its worker is gone */
    slot = (*at)->slot;
    fence = (*at)->fence;
    own = (*at)->own;
    own_arg = (*at)->own_arg;
    down.id = (*at)->worker_id;
    pending_free(r, at);
    if (own)
        own(own_arg, m);
    else if (fence)
        fence_answer(r, fence, m);
    else
        r->config.reply(r->config.arg, slot, &down);
}

/* ---- Requests of the agent itself ---- */

static int own_allowed(const struct relay *r, size_t len)
{
    return r->own_count < RELAY_OWN_MAX && len <= RELAY_OWN_VALUE_MAX;
}

/* Notes the request that ask() has sent as one of the agent's own. */
static uint32_t pending_own(struct relay *r, relay_own_cb cb, void *arg)
{
    r->pending->own = cb;
    r->pending->own_arg = arg;
    r->own_count++;
    return r->pending->id;
}

uint32_t relay_own_request(struct relay *r, const struct rdv_request *m,
                           relay_own_cb cb, void *arg)
{
    if (!own_allowed(r, m->len))
        return 0;
    ask(r, -1, 0, NULL, m);
    return pending_own(r, cb, arg);
}

uint32_t relay_own_fence(struct relay *r, const char *scope, const void *value,
                         size_t len, relay_own_cb cb, void *arg)
{
    const struct control_launch *job = r->config.job;
    struct rdv_request m = {.op = RDV_FENCE};
    struct hb_buf records = HB_BUF_INIT;

    if (!own_allowed(r, len))
        return 0;
    for (int i = 0; i < job->rank_count; i++)
        hb_must(rdv_put_record(&records, (uint32_t)job->ranks[i].rank, value,
                               i == 0 ? len : 0));
    snprintf(m.scope, sizeof(m.scope), "%s", scope);
    m.value = hb_buf_data(&records);
    m.len = hb_buf_len(&records);
    ask(r, -1, 0, NULL, &m);
    hb_buf_free(&records);
    return pending_own(r, cb, arg);
}

void relay_own_cancel(struct relay *r, uint32_t id)
{
    struct relay_pending **at = pending_find(r, id);
    struct rdv_request cancel = {.id = id, .op = RDV_CANCEL};

    if (!at || !(*at)->own)
        return;
    pending_free(r, at);
    r->config.ask(r->config.arg, &cancel);
}

/* ---- Ranks that come and go ---- */

void relay_slot_gone(struct relay *r, int slot)
{
    struct relay_pending **at = &r->pending;

    for (struct relay_fence *f = r->fences; f; f = f->next)
        f->slots[slot].waits = 0;
    while (*at) {
        struct rdv_request cancel = {.id = (*at)->id, .op = RDV_CANCEL};

        if ((*at)->slot != slot) {
            at = &(*at)->next;
            continue;
        }
        pending_free(r, at);
        r->config.ask(r->config.arg, &cancel);
    }
}

static void tell_left(struct relay *r, int slot, uint64_t epoch,
                      const char *why)
{
    uint32_t rank = (uint32_t)r->config.job->ranks[slot].rank;
    const unsigned char member[4] = {
        (unsigned char)(rank >> 24), (unsigned char)(rank >> 16),
        (unsigned char)(rank >> 8), (unsigned char)rank};
    struct rdv_request m = {.op = RDV_LEFT,
                            .after = epoch,
                            .members = member,
                            .member_count = 1,
                            .value = why,
                            .len = strlen(why)};

    r->config.ask(r->config.arg, &m);
}

void relay_rank_gone(struct relay *r, int slot, uint64_t epoch, const char *why)
{
    struct relay_absence *a = &r->absences[slot];
    struct relay_fence *f, *next;

    if (a->why && a->epoch >= epoch)
        return;
    hb_free(a->why);
    a->why = hb_xstrdup(why);
    a->since = ++r->absence_count;
    a->epoch = epoch;
    if (epoch != RELAY_ALL_EPOCHS)
        tell_left(r, slot, epoch, why);
    for (f = r->fences; f; f = next) {
        next = f->next;
        if (f->arrived < f->expected)
            fail_if_doomed(r, f);
    }
}

void relay_rank_restarted(struct relay *r, int slot)
{
    struct relay_absence *a = &r->absences[slot];

    hb_free(a->why);
    *a = (struct relay_absence){0, 0, NULL};
}

void relay_rank_back(struct relay *r, int slot)
{
    struct relay_absence *a = &r->absences[slot];

    if (!a->why || a->epoch == RELAY_ALL_EPOCHS)
        return;
    hb_free(a->why);
    *a = (struct relay_absence){0, 0, NULL};
    tell_left(r, slot, 0, "");
}
