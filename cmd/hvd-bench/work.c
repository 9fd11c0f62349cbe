/* SPDX-License-Identifier: Apache-2.0 */
/* What an iteration does: tensors, and the check of their results. */
#include "cmd/hvd-bench/work.h"

#include "cmd/hvd-bench/resnet50.h"
#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

enum { WINDOW_BYTES = 65536, SPOILED = 0xee };

int bench_work_failed(const struct bench_work *w, int rc, struct hb_error *err)
{
    return hb_error_set(err, (enum hvd_status) - rc, "rank %d: %s: %s",
                        hvd_rank(), bench_what_name(w->o->what),
                        hvd_error_message());
}

/* ---- Buffers --------------------------------------------------------- */

/* Sets whole counts; the same for every rank if the tensor is cut into
 * parts. */
static void set_counts(const struct bench_work *w, struct bench_tensor *t,
                       size_t count)
{
    size_t ranks = (size_t)w->set.size, part = (count + ranks - 1) / ranks;

    t->send_count = t->recv_count = count;
    switch (w->o->what) {
    case BENCH_ALLTOALL:
        t->send_count = t->recv_count = part * ranks;
        break;
    case BENCH_ALLGATHER:
        t->send_count = part;
        t->recv_count = part * ranks;
        break;
    case BENCH_REDUCESCATTER:
        t->send_count = part * ranks;
        t->recv_count = part;
        break;
    case BENCH_ALLREDUCE:
    case BENCH_BROADCAST:
    case BENCH_BARRIER:
    case BENCH_IDLE:
        break;
    }
}

static int open_tensor(struct bench_work *w, struct bench_tensor *t, int i,
                       size_t count, struct hb_error *err)
{
    const struct bench_options *o = w->o;
    size_t elem = hvd_dtype_size(o->dtype), at = 0;
    int rc;

    t->data = (struct bench_data){o->dtype, o->op, w->set.size,
                                  UINT64_C(88172645463325252) + count * elem +
                                      (unsigned)i};
    snprintf(t->name, sizeof(t->name), "%s.%d",
             o->mode == BENCH_RESNET50 ? "resnet50" : "bench", i);
    set_counts(w, t, count);
    rc = bench_memory_get(&w->memory, t->recv_count * elem, &t->recv, err);
    if (rc < 0)
        return rc;
    if (!o->in_place)
        return bench_memory_get(&w->memory, t->send_count * elem, &t->send,
                                err);
    if (o->what == BENCH_ALLGATHER)
        at = (size_t)w->set.rank * t->send_count * elem;
    t->send = (char *)t->recv + at;
    return 0;
}

/* Returns the larger of send and receive count, as nccl-tests counts. */
static size_t larger(const struct bench_tensor *t)
{
    return t->send_count > t->recv_count ? t->send_count : t->recv_count;
}

static void sum_up(struct bench_work *w)
{
    size_t elem = hvd_dtype_size(w->o->dtype), total = 0;

    for (int i = 0; i < w->ntensors; i++)
        total += larger(&w->tensors[i]);
    w->total_bytes = total * elem;
    w->count = w->o->mode == BENCH_RESNET50 ? total : larger(w->tensors);
    w->bytes = w->count * elem;
}

/* Prepares the arguments of a grouped call. */
static int open_group(struct bench_work *w, struct hb_error *err)
{
    struct bench_group *g = &w->group;
    size_t n = (size_t)w->ntensors;

    g->sends = hb_calloc(n, sizeof(*g->sends));
    g->recvs = hb_calloc(n, sizeof(*g->recvs));
    g->send_counts = hb_calloc(n, sizeof(size_t));
    g->recv_caps = hb_calloc(n, sizeof(size_t));
    g->ones = hb_calloc(n, sizeof(size_t));
    if (!g->sends || !g->recvs || !g->send_counts || !g->recv_caps || !g->ones)
        return hb_error_set(err, HVD_ENOMEM, "no memory");
    for (size_t i = 0; i < n; i++) {
        g->sends[i] = w->tensors[i].send;
        g->recvs[i] = w->tensors[i].recv;
        g->send_counts[i] = w->tensors[i].send_count;
        g->recv_caps[i] = w->tensors[i].recv_count;
        g->ones[i] = 1;
    }
    return 0;
}

static int fill_tensor(struct bench_work *w, struct bench_tensor *t,
                       struct hb_error *err)
{
    size_t elem = hvd_dtype_size(w->o->dtype), bytes = t->send_count * elem;
    int rc = bench_memory_set(&w->memory, t->recv, SPOILED,
                              t->recv_count * elem, err);
    void *data;

    if (rc < 0 || (w->o->what == BENCH_BROADCAST && w->set.rank > 0))
        return rc;
    data = bench_memory_edit(&w->memory, t->send, bytes, err);
    if (!data)
        return -HVD_ENOMEM;
    bench_data_fill(&t->data, w->set.rank, data, t->send_count);
    return bench_memory_put(&w->memory, t->send, bytes, err);
}

static int fill(struct bench_work *w, struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < w->ntensors && rc == 0; i++)
        rc = fill_tensor(w, &w->tensors[i], err);
    return rc;
}

/* Sets the options of the library's calls. */
static void set_options(struct bench_work *w)
{
    struct hvd_options plain = HVD_OPTIONS_INIT;

    plain.process_set = w->set.number;
    w->plain = w->opts = plain;
    w->opts.wire = (int)w->o->wire;
    if (w->o->stream)
        w->opts.stream = bench_cuda_stream(w->gpu.cuda);
}

int bench_work_open(struct bench_work *w, const struct bench_options *o,
                    const struct bench_set *set, const struct bench_gpu *gpu,
                    size_t bytes, struct hb_error *err)
{
    size_t counts[RESNET50_TENSORS];
    size_t elem = hvd_dtype_size(o->dtype);
    size_t count = o->what == BENCH_BARRIER ? 0 : bytes / elem;
    int rc = 0;

    *w = (struct bench_work){.o = o, .set = *set};
    if (gpu)
        w->gpu = *gpu;
    w->memory = (struct bench_memory){.cuda = w->gpu.cuda, .alloc = o->alloc};
    set_options(w);
    w->tensors = hb_calloc((size_t)o->tensors, sizeof(*w->tensors));
    if (!w->tensors)
        return hb_error_set(err, HVD_ENOMEM, "no memory");
    w->ntensors = o->tensors;
    bench_resnet50(counts);
    for (int i = 0; i < w->ntensors && rc == 0; i++)
        rc = open_tensor(w, &w->tensors[i], i,
                         o->mode == BENCH_RESNET50 ? counts[i] : count, err);
    if (rc == 0)
        rc = open_group(w, err);
    if (rc < 0)
        return rc;
    sum_up(w);
    return fill(w, err);
}

void bench_work_close(struct bench_work *w)
{
    for (int i = 0; i < w->ntensors; i++) {
        if (!w->o->in_place)
            bench_memory_free(&w->memory, w->tensors[i].send);
        bench_memory_free(&w->memory, w->tensors[i].recv);
    }
    bench_memory_fini(&w->memory);
    hb_free(w->tensors);
    hb_free(w->group.sends);
    hb_free(w->group.recvs);
    hb_free(w->group.send_counts);
    hb_free(w->group.recv_caps);
    hb_free(w->group.ones);
}

/* ---- Results --------------------------------------------------------- */

struct range {
    size_t begin, end; /* elements in a receive buffer */
};

static int equal(struct bench_work *w, const struct bench_tensor *t, int source,
                 size_t first, struct range r, struct hb_error *err)
{
    const struct bench_data *d = &t->data;
    size_t elem = hvd_dtype_size(d->dtype);
    const void *recv =
        bench_memory_look(&w->memory, (const char *)t->recv + r.begin * elem,
                          (r.end - r.begin) * elem, err);
    struct bench_wrong wrong;

    if (!recv)
        return -HVD_ESYSTEM;
    if (bench_data_equal(d, source, first, recv, r.end - r.begin, &wrong))
        return 0;
    return hb_error_set(err, HVD_EPROTO,
                        "rank %d: wrong result: %s of %zu %s: element %zu has "
                        "the bits %#llx, not %#llx",
                        hvd_rank(), bench_what_name(w->o->what), t->recv_count,
                        hvd_dtype_name(d->dtype), r.begin + wrong.at,
                        (unsigned long long)wrong.got,
                        (unsigned long long)wrong.want);
}

/* Compares a buffer of parts: rank r's part is at r * part, and begins with
 * element `first` of what r sent. */
static int equal_parts(struct bench_work *w, const struct bench_tensor *t,
                       size_t first, struct range all, struct hb_error *err)
{
    size_t part = t->recv_count / (size_t)w->set.size;
    int rc = 0;

    while (all.begin < all.end && rc == 0) {
        size_t source = all.begin / part, at = all.begin % part;
        struct range r = {all.begin, (source + 1) * part};

        r.end = r.end < all.end ? r.end : all.end;
        rc = equal(w, t, (int)source, first + at, r, err);
        all.begin = r.end;
    }
    return rc;
}

static int compare(struct bench_work *w, const struct bench_tensor *t,
                   struct range r, struct hb_error *err)
{
    size_t own = (size_t)w->set.rank;

    switch (w->o->what) {
    case BENCH_ALLREDUCE:
        return equal(w, t, BENCH_REDUCED, r.begin, r, err);
    case BENCH_REDUCESCATTER:
        return equal(w, t, BENCH_REDUCED, own * t->recv_count + r.begin, r,
                     err);
    case BENCH_BROADCAST:
        return equal(w, t, 0, r.begin, r, err);
    case BENCH_ALLGATHER:
        return equal_parts(w, t, 0, r, err);
    case BENCH_ALLTOALL:
        return equal_parts(w, t, own * (t->recv_count / (size_t)w->set.size), r,
                           err);
    case BENCH_BARRIER:
    case BENCH_IDLE:
        break;
    }
    return 0;
}

int bench_work_verify(struct bench_work *w, struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < w->ntensors && rc == 0; i++)
        rc = compare(w, &w->tensors[i],
                     (struct range){0, w->tensors[i].recv_count}, err);
    return rc;
}

/* Returns the tensor and window of a turn: each turn another tensor, each
 * round over the tensors another place. */
static struct bench_tensor *window(const struct bench_work *w, int64_t turn,
                                   struct range *r)
{
    struct bench_tensor *t = &w->tensors[turn % w->ntensors];
    size_t round = (size_t)(turn / w->ntensors);
    size_t most = WINDOW_BYTES / hvd_dtype_size(w->o->dtype);
    size_t places = (t->recv_count + most - 1) / most;

    r->begin = places ? round % places * most : 0;
    r->end = r->begin + most;
    if (r->end > t->recv_count)
        r->end = t->recv_count;
    return t;
}

/* Returns whether the receive buffer is also input, which the next iterations
 * read. */
static int is_input(const struct bench_work *w)
{
    return w->o->in_place &&
           (w->o->what != BENCH_BROADCAST || w->set.rank == 0);
}

int bench_work_spoil(struct bench_work *w, int64_t turn, struct hb_error *err)
{
    size_t elem = hvd_dtype_size(w->o->dtype);
    struct range r;
    struct bench_tensor *t = window(w, turn, &r);

    if (is_input(w))
        return 0;
    return bench_memory_set(&w->memory, (char *)t->recv + r.begin * elem,
                            SPOILED, (r.end - r.begin) * elem, err);
}

int bench_work_check(struct bench_work *w, int64_t turn, struct hb_error *err)
{
    struct range r;
    const struct bench_tensor *t = window(w, turn, &r);

    return compare(w, t, r, err);
}

int bench_work_repeats(const struct bench_work *w)
{
    return !w->o->in_place || w->o->what != BENCH_ALLREDUCE;
}

int bench_work_zero(struct bench_work *w, struct hb_error *err)
{
    size_t elem = hvd_dtype_size(w->o->dtype);
    int rc = 0;

    for (int i = 0; i < w->ntensors && rc == 0; i++) {
        struct bench_tensor *t = &w->tensors[i];

        rc =
            bench_memory_set(&w->memory, t->recv, 0, t->recv_count * elem, err);
        if (rc == 0)
            rc = bench_memory_set(&w->memory, t->send, 0, t->send_count * elem,
                                  err);
    }
    return rc;
}
