/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fences: every member contributes a value, and all requests are answered with
 * all values when the last has come.  A request holds the records of one host's
 * members and gets one answer.
 */
#include "lib/rendezvous/store_impl.h"

#include "lib/base/alloc.h"

#include <string.h>

static const char FULL[] = "the job's store is full";

/* Returns the bytes of a fence without its values. */
static size_t frame_size(const char *scope, uint32_t members, uint32_t count)
{
    return sizeof(struct fence) + strlen(scope) + 1 +
           sizeof(uint32_t) * (size_t)members +
           (sizeof(struct hb_buf) + 1 + sizeof(struct asker)) * (size_t)count;
}

static void fence_free(struct rdv_store *s, struct fence *f)
{
    struct fence **at = &s->fences;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    s->bytes -= f->bytes;
    s->fence_count--;
    for (uint32_t i = 0; i < f->count; i++)
        hb_buf_free(&f->values[i]);
    hb_free(f->values);
    hb_free(f->has);
    hb_free(f->members);
    hb_free(f->askers);
    hb_free(f->scope);
    hb_free(f);
}

static uint32_t member(const struct fence *f, uint32_t index)
{
    return f->members ? f->members[index] : index;
}

/* Returns the index of a rank among the members, or -1. */
static int64_t index_of(const struct fence *f, uint32_t rank)
{
    uint32_t low = 0, high = f->count;

    if (!f->members)
        return rank < f->count ? (int64_t)rank : -1;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (f->members[mid] < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return low < f->count && f->members[low] == rank ? (int64_t)low : -1;
}

static int same_members(const struct fence *f, const struct rdv_request *m)
{
    if (f->epoch != m->after)
        return 0;
    if (!f->members)
        return m->member_count == 0;
    if (m->member_count != f->count)
        return 0;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->members[i] != rdv_member(m, i))
            return 0;
    return 1;
}

static struct fence *fence_new(struct rdv_store *s, const struct rdv_request *m)
{
    struct fence *f = hb_xcalloc(1, sizeof(*f));

    f->scope = hb_xstrdup(m->scope);
    f->epoch = m->after;
    f->count = m->member_count ? m->member_count : (uint32_t)s->config.ranks;
    if (m->member_count) {
        f->members = hb_xcalloc(f->count, sizeof(*f->members));
        for (uint32_t i = 0; i < f->count; i++)
            f->members[i] = rdv_member(m, i);
    }
    f->values = hb_xcalloc(f->count, sizeof(*f->values));
    f->has = hb_xcalloc(f->count, 1);
    f->bytes = frame_size(f->scope, m->member_count, f->count);
    s->bytes += f->bytes;
    s->fence_count++;
    f->next = s->fences;
    s->fences = f;
    return f;
}

static struct fence *fence_find(struct rdv_store *s, const char *scope)
{
    struct fence *f = s->fences;

    while (f && strcmp(f->scope, scope) != 0)
        f = f->next;
    return f;
}

static void fence_fail(struct rdv_store *s, struct fence *f, int status,
                       const char *text)
{
    for (size_t i = 0; i < f->asker_count; i++)
        store_refuse(s, f->askers[i].origin, f->askers[i].id, status, "%s",
                     text);
    fence_free(s, f);
}

static const struct absence *absence_of(const struct rdv_store *s,
                                        const struct fence *f, uint32_t index)
{
    const struct absence *a = &s->absences[member(f, index)];

    if (f->has[index] || !a->why)
        return NULL;
    if (a->epoch == RDV_ALL_EPOCHS || (f->epoch && f->epoch <= a->epoch))
        return a;
    return NULL;
}

/* Fails the fence if a member will not come: 1, else 0.  Names the one that has
 * been gone longest, because others may have left in consequence. */
static int fail_if_doomed(struct rdv_store *s, struct fence *f)
{
    struct rdv_reply m = {.status = HVD_EPEER};
    const struct absence *first = NULL;

    for (uint32_t i = 0; s->absence_count && i < f->count; i++) {
        const struct absence *a = absence_of(s, f, i);

        if (a && (!first || a->since < first->since))
            first = a;
    }
    if (!first)
        return 0;
    m.version = (uint64_t)(first - s->absences);
    m.value = first->why;
    m.len = strlen(first->why);
    for (size_t i = 0; i < f->asker_count; i++) {
        m.id = f->askers[i].id;
        s->config.reply(s->config.arg, f->askers[i].origin, &m);
    }
    fence_free(s, f);
    return 1;
}

static void fence_finish(struct rdv_store *s, struct fence *f)
{
    struct hb_buf all = HB_BUF_INIT;

    if (f->full) {
        fence_fail(s, f, HVD_ENOMEM, FULL);
        return;
    }
    for (uint32_t i = 0; i < f->count; i++)
        hb_must(rdv_put_record(&all, member(f, i), hb_buf_data(&f->values[i]),
                               hb_buf_len(&f->values[i])));
    s->version++;
    if (hb_buf_len(&all) > FRAME_PAYLOAD_MAX - 64)
        fence_fail(s, f, HVD_ENOMEM, "the fence's values are too large");
    else {
        for (size_t i = 0; i < f->asker_count; i++)
            store_reply(s, f->askers[i].origin, f->askers[i].id, s->version,
                        hb_buf_data(&all), hb_buf_len(&all));
        fence_free(s, f);
    }
    hb_buf_free(&all);
}

static void add_asker(struct fence *f, int origin, uint32_t id)
{
    if (f->asker_count == f->asker_cap) {
        f->asker_cap = f->asker_cap ? 2 * f->asker_cap : 8;
        f->askers =
            hb_xrealloc_array(f->askers, f->asker_cap, sizeof(*f->askers));
    }
    f->askers[f->asker_count++] = (struct asker){origin, id};
}

/* Checks all records before any is taken: 0, or a status with *text set. */
static int check_records(const struct fence *f, const struct rdv_request *m,
                         const char **text)
{
    struct hb_reader r;
    struct rdv_record record;
    int64_t last = -1;
    int rc;

    hb_reader_init(&r, m->value, m->len);
    while ((rc = rdv_next_record(&r, &record)) > 0) {
        int64_t index = index_of(f, record.rank);

        *text = "a rank that is no member contributes to the fence";
        if (index < 0)
            return HVD_ENOTMEMBER;
        *text = "a rank contributes to the fence twice";
        if (f->has[index] || index <= last)
            return HVD_EDUPNAME;
        last = index;
    }
    *text = "malformed records";
    return rc < 0 || last < 0 ? HVD_EPROTO : 0;
}

static void add_records(struct rdv_store *s, struct fence *f,
                        const struct rdv_request *m)
{
    struct hb_reader r;
    struct rdv_record record;

    if (s->bytes + m->len > s->config.bytes_max)
        f->full = 1;
    hb_reader_init(&r, m->value, m->len);
    while (rdv_next_record(&r, &record) > 0) {
        int64_t index = index_of(f, record.rank);

        if (record.len && !f->full)
            hb_must(hb_buf_append(&f->values[index], record.value, record.len));
        f->has[index] = 1;
        f->arrived++;
    }
    if (f->full)
        return;
    f->bytes += m->len;
    s->bytes += m->len;
}

static int members_exist(const struct rdv_store *s, const struct rdv_request *m)
{
    return m->member_count == 0 ||
           rdv_member(m, m->member_count - 1) < (uint32_t)s->config.ranks;
}

static int has_room(const struct rdv_store *s, const struct rdv_request *m)
{
    uint32_t count = m->member_count;

    if (count == 0)
        count = (uint32_t)s->config.ranks;
    return s->fence_count < STORE_FENCES_MAX &&
           s->bytes + frame_size(m->scope, m->member_count, count) <=
               s->config.bytes_max;
}

void fence_request(struct rdv_store *s, int origin, const struct rdv_request *m)
{
    struct fence *f = fence_find(s, m->scope);
    const char *text = "a member of the fence is no rank of the job";
    int status = members_exist(s, m) ? 0 : HVD_EINVAL;

    if (status == 0 && f && !same_members(f, m)) {
        text = "ranks differ in the members or the epoch of a fence";
        status = HVD_EMISMATCH;
    }
    if (status == 0) {
        if (!f && !has_room(s, m)) {
            text = FULL;
            status = HVD_ENOMEM;
        } else {
            if (!f)
                f = fence_new(s, m);
            status = check_records(f, m, &text);
        }
    }
    if (status) {
        store_refuse(s, origin, m->id, status, "fence %.100s: %s", m->scope,
                     text);
        if (f && f->arrived == 0)
            fence_free(s, f);
        return;
    }
    add_records(s, f, m);
    add_asker(f, origin, m->id);
    if (fail_if_doomed(s, f))
        return;
    if (f->arrived == f->count)
        fence_finish(s, f);
}

/* Drops the askers; their contributions stay. */
void fence_cancel(struct rdv_store *s, int origin, const uint32_t *id)
{
    for (struct fence *f = s->fences; f; f = f->next) {
        size_t kept = 0;

        for (size_t i = 0; i < f->asker_count; i++)
            if (f->askers[i].origin != origin || (id && f->askers[i].id != *id))
                f->askers[kept++] = f->askers[i];
        f->asker_count = kept;
    }
}

void fence_rank_gone(struct rdv_store *s, int rank)
{
    struct fence *f, *next;

    for (f = s->fences; f; f = next) {
        next = f->next;
        if (index_of(f, (uint32_t)rank) >= 0)
            fail_if_doomed(s, f);
    }
}

void fence_free_all(struct rdv_store *s)
{
    while (s->fences)
        fence_free(s, s->fences);
}
