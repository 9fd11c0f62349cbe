/* SPDX-License-Identifier: Apache-2.0 */
/* A plane of threads; see thread_plane.h. */
#include "tests/unit/thread_plane.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static int thread_start(struct hvd__plane *plane, struct hvd__op *op)
{
    struct thread_plane *f = (struct thread_plane *)plane;

    if (f->begun < THREAD_OPS_MAX) {
        f->signature[f->begun] = op->signature;
        f->first_signature[f->begun] = op->first_signature;
        f->entries[f->begun] = op->entries;
        f->kind[f->begun] = op->kind;
    }
    f->group->op[f->me] = op;
    f->progressed = 0;
    return f->begun++ == f->fail_at
               ? hb_error_set(op->err, HVD_EPEER, "rank 1 is dead")
               : 0;
}

static int agree(const struct thread_group *g, struct hvd__op *op)
{
    int same = 1, first_same = 1;

    op->agreed_entries = g->op[0]->entries;
    for (int r = 1; r < g->n; r++) {
        same &= g->op[r]->signature == g->op[0]->signature;
        first_same &= g->op[r]->first_signature == g->op[0]->first_signature;
        if (g->op[r]->entries < op->agreed_entries)
            op->agreed_entries = g->op[r]->entries;
    }
    return same ? 1 : first_same ? HVD__CUT : -HVD_EMISMATCH;
}

/* Returns what rank r sends to this rank. */
static const void *sent_by(const struct thread_group *g, int r, int me,
                           size_t *bytes)
{
    const struct hvd__op *op = g->op[r];
    size_t first = 0;

    *bytes = op->count * op->elem_bytes;
    if (op->kind != HVD__ALLTOALL)
        return op->sendbuf;
    for (int k = 0; k < me; k++)
        first += op->sendcounts[k];
    *bytes = op->sendcounts[me] * op->elem_bytes;
    return (const char *)op->sendbuf + first * op->elem_bytes;
}

/* Computes into `out`: in place, others still read this rank's input. */
static size_t carry_out(struct thread_plane *f, char *out)
{
    const struct thread_group *g = f->group;
    const struct hvd__op *op = g->op[f->me];
    const void *srcs[THREAD_RANKS_MAX];
    size_t at = 0, bytes = 0;

    for (int r = 0; r < g->n; r++) {
        srcs[r] = sent_by(g, r, f->me, &bytes);
        if (op->kind != HVD__ALLREDUCE && bytes)
            memcpy(out + at, srcs[r], bytes);
        at += bytes;
    }
    if (op->kind == HVD__ALLREDUCE) {
        op->reduce(out, srcs, g->n, op->count, &op->args);
        return bytes;
    }
    ck_assert_uint_eq(at, op->recvcap * op->elem_bytes);
    return at;
}

static int thread_progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct thread_plane *f = (struct thread_plane *)plane;
    char *out;
    size_t bytes;
    int rc;

    if (!f->progressed++)
        return 0;
    pthread_barrier_wait(&f->group->barrier);
    rc = agree(f->group, op);
    if (rc == 1) {
        size_t room = (op->recvcap + op->count) * op->elem_bytes;

        out = malloc(room + 1);
        bytes = carry_out(f, out);
        pthread_barrier_wait(&f->group->barrier);
        if (bytes)
            memcpy(op->recvbuf, out, bytes);
        free(out);
    }
    pthread_barrier_wait(&f->group->barrier);
    return rc;
}

static const struct hvd__plane_ops thread_ops = {
    .name = "threads", .start = thread_start, .progress = thread_progress};

void thread_group_init(struct thread_group *g, int n)
{
    ck_assert_int_le(n, THREAD_RANKS_MAX);
    pthread_barrier_init(&g->barrier, NULL, (unsigned)n);
    g->n = n;
}

void thread_group_fini(struct thread_group *g)
{
    pthread_barrier_destroy(&g->barrier);
}

void thread_plane_init(struct thread_plane *p, struct thread_group *g, int me)
{
    memset(p, 0, sizeof(*p));
    p->plane.ops = &thread_ops;
    p->group = g;
    p->me = me;
    p->fail_at = -1;
}
