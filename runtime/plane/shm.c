/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory plane: layout of the segment, headers and matching.
 * The rules of the memory are in shm_impl.h.
 */
#include "runtime/plane/shm_impl.h"

#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct shm_line) == SHM_LINE_BYTES,
               "a header is one pair of cache lines");
_Static_assert(sizeof(struct shm_rank) % SEGMENT_LINE_BYTES == 0,
               "ranks share no cache line");

static uint64_t control_bytes(int local_size)
{
    uint64_t bytes = sizeof(struct shm_shared) +
                     (uint64_t)local_size * sizeof(struct shm_rank);

    return (bytes + 4095) & ~(uint64_t)4095;
}

uint64_t hvd__shm_segment_bytes(int local_size)
{
    return segment_head_bytes((uint32_t)local_size) +
           control_bytes(local_size) +
           (uint64_t)local_size * 2 * SHM_REGION_BYTES;
}

static int shm_supports(const struct hvd__plane *plane,
                        const struct hvd__op *op)
{
    (void)plane;
    (void)op;
    return 1;
}

int hvd__shm_start_as(struct hvd__plane *plane, struct hvd__op *op,
                      const struct hvd__op *what)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    struct shm_line *line;
    int rc = shm_check_abort(p, op->err);

    if (rc < 0)
        return rc;
    if (p->broken.status) {
        *op->err = p->broken;
        return p->broken.status;
    }
    p->seq++;
    p->run.matched = 0;
    p->run.peer = 0;
    p->run.stage = 0;
    p->run.round = 0;
    line = shm_line(p, p->me);
    p->run.signature = what->signature;
    line->signature = what->signature;
    hvd__op_describe(what, &p->ranks[p->me].descriptor[shm_parity(p)].d);
    if (op->kind == HVD__ALLREDUCE)
        shm_allreduce_stage(p, op);
    else if (op->kind == HVD__REDUCE_SCATTER)
        shm_scatter_stage(p, op);
    else if (op->kind != HVD__BARRIER)
        shm_gather_stage(p, op);
    shm_publish(p, &line->seq, p->seq);
    return 0;
}

static int shm_start(struct hvd__plane *plane, struct hvd__op *op)
{
    return hvd__shm_start_as(plane, op, op);
}

const struct hvd__descriptor *hvd__shm_descriptor(struct hvd__plane *plane,
                                                  int local_rank,
                                                  uint64_t *signature)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    *signature = shm_line(p, local_rank)->signature;
    return &p->ranks[local_rank].descriptor[shm_parity(p)].d;
}

/* Signatures differ: the first rank that differs from local rank 0 is
 * named, so every rank tells the same. */
static int explain_mismatch(struct hvd__shm *p, struct hb_error *err)
{
    int parity = shm_parity(p);
    const struct hvd__party first = {&p->ranks[0].descriptor[parity].d,
                                     (int)p->world_ranks[0], NULL};

    for (int r = 1; r < p->n; r++) {
        const struct hvd__party other = {&p->ranks[r].descriptor[parity].d,
                                         (int)p->world_ranks[r], NULL};

        if (hvd__descriptor_differ(&first, &other, err))
            return -HVD_EMISMATCH;
    }
    return hb_error_set(err, HVD_EPROTO,
                        "shared memory: headers differ and their "
                        "descriptors do not");
}

/* 1 when the headers of all ranks are there and agree. */
static int match(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    for (; run->peer < p->n; run->peer++) {
        int rc = shm_reached(p, run->peer, &shm_line(p, run->peer)->seq, p->seq,
                             op->err);
        if (rc <= 0)
            return rc;
    }
    run->peer = 0;
    for (int r = 0; r < p->n; r++)
        if (shm_line(p, r)->signature != run->signature)
            return explain_mismatch(p, op->err);
    run->matched = 1;
    return 1;
}

static int advance(struct hvd__shm *p, struct hvd__op *op)
{
    if (!p->run.matched) {
        int rc = match(p, op);
        if (rc <= 0)
            return rc;
    }
    if (op->kind == HVD__ALLREDUCE)
        return shm_allreduce_advance(p, op);
    if (op->kind == HVD__BARRIER)
        return 1;
    if (op->kind == HVD__REDUCE_SCATTER)
        return shm_scatter_advance(p, op);
    return shm_gather_advance(p, op);
}

static int shm_progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    int rc = advance(p, op);

    if (rc != 0)
        shm_disarm(p);
    /* After a mismatch, or when recvbuf had no room, all are in step. */
    if (rc < 0 && rc != -HVD_EMISMATCH && rc != -HVD_EINVAL)
        p->broken = *op->err;
    return rc;
}

static void shm_leave(struct hvd__plane *plane)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    atomic_store(&p->ranks[p->me].left, 1);
    for (int r = 0; r < p->n; r++)
        if (r != p->me)
            segment_wake(p->head, (uint32_t)r);
}

static void shm_free(struct hvd__plane *plane)
{
    hb_free(plane);
}

static const struct hvd__plane_ops shm_ops = {
    .name = "shm",
    .supports = shm_supports,
    .start = shm_start,
    .progress = shm_progress,
    .pause = shm_pause,
    .interrupt = shm_interrupt,
    .leave = shm_leave,
    .free = shm_free,
};

struct hvd__plane *hvd__shm_new(const struct hvd__shm_config *config)
{
    struct hvd__shm *p = hb_calloc(1, sizeof(*p));
    unsigned char *at = (unsigned char *)config->head;

    if (!p)
        return NULL;
    p->plane.ops = &shm_ops;
    p->config = *config;
    p->head = config->head;
    p->n = config->local_size;
    p->me = config->local_rank;
    memcpy(p->world_ranks, config->world_ranks,
           (size_t)p->n * sizeof(p->world_ranks[0]));
    snprintf(p->host, sizeof(p->host), "%s", config->host);
    at += segment_head_bytes((uint32_t)p->n);
    p->shared = (struct shm_shared *)at;
    p->ranks = (struct shm_rank *)(at + sizeof(*p->shared));
    p->data = at + control_bytes(p->n);
    shm_wait_init(p);
    return &p->plane;
}
