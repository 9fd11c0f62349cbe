/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of tensors; see shapes.h. */
#include "runtime/core/sched/shapes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHAPE_TEXT = 96 }; /* bytes, in a message */

/* Returns the first dimension that must be the same on all ranks. */
static int first_common(enum hvd__kind kind)
{
    return kind == HVD__ALLGATHER || kind == HVD__ALLTOALL;
}

uint64_t hvd__shapes_hash(enum hvd__kind kind, const struct hvd_shape *shapes,
                          size_t n)
{
    uint64_t h = 1;

    for (size_t i = 0; i < n; i++) {
        h = hvd__mix(h, (uint64_t)shapes[i].ndim);
        for (int k = first_common(kind); k < shapes[i].ndim; k++)
            h = hvd__mix(h, (uint64_t)shapes[i].dims[k]);
    }
    return h;
}

/* ---- Copying ------------------------------------------------------------- */

size_t hvd__shapes_copy_bytes(const struct hvd_shape *shapes, size_t n)
{
    size_t bytes = n * sizeof(*shapes);

    for (size_t i = 0; i < n; i++)
        bytes += (size_t)shapes[i].ndim * sizeof(int64_t);
    return bytes;
}

const struct hvd_shape *
hvd__shapes_copy(void *block, const struct hvd_shape *shapes, size_t n)
{
    struct hvd_shape *copy = block;
    int64_t *dims = (int64_t *)(void *)(copy + n);

    for (size_t i = 0; i < n; i++) {
        size_t ndim = (size_t)shapes[i].ndim;

        copy[i] = (struct hvd_shape){shapes[i].ndim, dims};
        if (ndim)
            memcpy(dims, shapes[i].dims, ndim * sizeof(*dims));
        dims += ndim;
    }
    return copy;
}

/* ---- Tables -------------------------------------------------------------- */

size_t hvd__shapes_put_bytes(const struct hvd_shape *shapes, size_t n)
{
    size_t bytes = n * 4;

    for (size_t i = 0; i < n; i++)
        bytes += (size_t)shapes[i].ndim * 8;
    return bytes;
}

void hvd__shapes_put(struct hb_buf *b, const struct hvd_shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hb_buf_put_u32(b, (uint32_t)shapes[i].ndim);
        for (int k = 0; k < shapes[i].ndim; k++)
            hb_buf_put_u64(b, (uint64_t)shapes[i].dims[k]);
    }
}

const void *hvd__shapes_skip(struct hb_reader *r, size_t n)
{
    const void *begin = r->p;

    for (size_t i = 0; i < n; i++) {
        uint32_t ndim = hb_read_u32(r);

        if (r->bad || ndim > HVD_NDIM_MAX)
            return NULL;
        for (uint32_t k = 0; k < ndim; k++)
            if (hb_read_u64(r) > INT64_MAX || r->bad)
                return NULL;
    }
    return begin;
}

/* ---- Comparing ----------------------------------------------------------- */

/* One shape that was read from a table. */
struct shape {
    uint32_t ndim;
    int64_t dims[HVD_NDIM_MAX];
};

/* Reads the next shape of those that hvd__shapes_skip has accepted. */
static void read_shape(struct hb_reader *r, struct shape *s)
{
    s->ndim = hb_read_u32(r);
    for (uint32_t k = 0; k < s->ndim; k++)
        s->dims[k] = (int64_t)hb_read_u64(r);
}

static int same_shape(const struct shape *a, const struct shape *b, int first)
{
    if (a->ndim != b->ndim)
        return 0;
    for (uint32_t k = (uint32_t)first; k < a->ndim; k++)
        if (a->dims[k] != b->dims[k])
            return 0;
    return 1;
}

/* Writes the shape as "[2, 3]"; cuts a long one. */
static void shape_text(char out[SHAPE_TEXT], const struct shape *s)
{
    size_t at = 1, room = SHAPE_TEXT - sizeof(", ...]");

    out[0] = '[';
    for (uint32_t k = 0; k < s->ndim; k++) {
        char dim[24];
        int n =
            snprintf(dim, sizeof(dim), "%s%" PRId64, k ? ", " : "", s->dims[k]);

        if (at + (size_t)n > room) {
            at += (size_t)snprintf(out + at, SHAPE_TEXT - at, ", ...");
            break;
        }
        memcpy(out + at, dim, (size_t)n);
        at += (size_t)n;
    }
    snprintf(out + at, SHAPE_TEXT - at, "]");
}

static void tell(const struct hvd__party *const who[2], const char *text[2],
                 const char *of, struct hb_error *err)
{
    const struct hvd__descriptor *d = who[0]->d;
    int named = d->name[0] != '\0';

    hb_error_set(err, HVD_EMISMATCH,
                 "%s%s%.100s%s: rank %d%s%s has %s%s, rank %d%s%s has %s",
                 collective_name(d->kind), named ? " \"" : "", d->name,
                 named ? "\"" : "", who[0]->rank,
                 who[0]->host ? " on host " : "",
                 who[0]->host ? who[0]->host : "", text[0], of, who[1]->rank,
                 who[1]->host ? " on host " : "",
                 who[1]->host ? who[1]->host : "", text[1]);
}

/* Sets err for two ranks of which only one has given shapes; its first shape is
 * named. */
static void tell_none(const struct hvd__shapes_party *const p[2],
                      struct hb_error *err)
{
    const struct hvd__party *who[2] = {&p[0]->who, &p[1]->who};
    char text[2][SHAPE_TEXT + 8] = {"no shape", "no shape"};

    for (int i = 0; i < 2; i++) {
        struct hb_reader r;
        struct shape s;

        if (!p[i]->shapes)
            continue;
        hb_reader_init(&r, p[i]->shapes, 4 + 8 * HVD_NDIM_MAX);
        read_shape(&r, &s);
        memcpy(text[i], "shape ", 6);
        shape_text(text[i] + 6, &s);
    }
    tell(who, (const char *[2]){text[0], text[1]}, "", err);
}

int hvd__shapes_differ(const struct hvd__shapes_party *a,
                       const struct hvd__shapes_party *b, struct hb_error *err)
{
    const struct hvd__descriptor *d = a->who.d;
    size_t n = d->parts ? (size_t)d->parts : 1;
    size_t most = n * (4 + 8 * HVD_NDIM_MAX);
    struct hb_reader x, y;

    if (!a->shapes && !b->shapes)
        return 0;
    if (!a->shapes || !b->shapes) {
        tell_none((const struct hvd__shapes_party *[2]){a, b}, err);
        return 1;
    }
    hb_reader_init(&x, a->shapes, most);
    hb_reader_init(&y, b->shapes, most);
    for (size_t i = 0; i < n; i++) {
        const struct hvd__party *who[2] = {&a->who, &b->who};
        char s[SHAPE_TEXT], t[SHAPE_TEXT], of[40] = "";
        struct shape u, v;

        read_shape(&x, &u);
        read_shape(&y, &v);
        if (same_shape(&u, &v, first_common((enum hvd__kind)d->kind)))
            continue;
        shape_text(s, &u);
        shape_text(t, &v);
        if (d->parts)
            snprintf(of, sizeof(of), " of member %zu", i);
        tell(who, (const char *[2]){s, t}, of, err);
        return 1;
    }
    return 0;
}
