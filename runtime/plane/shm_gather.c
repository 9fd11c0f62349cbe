/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast and ragged allgather in shared memory.
 *
 * A broadcast is a gather in which only the root has anything.  Counts
 * travel in the headers, with the data if it fits.  Longer data goes
 * through the region's ring in slot-sized pieces: `filled` counts the
 * pieces a rank has written, `drained` the rounds in which it has copied
 * out every rank's piece.  Piece i + 2 reuses the slot of piece i - 2, so
 * it waits for all ranks to have drained that one.
 */
#include "runtime/plane/shm_impl.h"

#include <string.h>

enum {
    INLINE_BYTES = SHM_PAYLOAD_BYTES - sizeof(uint64_t),
    STREAM_BYTES = 8 << 20,
    AHEAD = 2, /* pieces written before their round */
};

enum stage { STAGE_BEGIN, STAGE_COPY_OUT, STAGE_COPY_IN };

static size_t sent_bytes(const struct hvd__shm *p, const struct hvd__op *op)
{
    if (op->kind == HVD__BROADCAST &&
        p->world_ranks[p->me] != (uint32_t)op->root)
        return 0;
    return op->count * op->elem_bytes;
}

static size_t bytes_of(const struct shm_run *run, int rank)
{
    return run->offset[rank + 1] - run->offset[rank];
}

static size_t pieces(size_t bytes)
{
    return bytes <= INLINE_BYTES ? bytes > 0 : (bytes - 1) / SHM_SLOT_BYTES + 1;
}

static size_t piece_bytes(size_t bytes, size_t i)
{
    size_t left = bytes - i * SHM_SLOT_BYTES;

    return left < SHM_SLOT_BYTES ? left : SHM_SLOT_BYTES;
}

/* Where a rank's piece lies. */
static unsigned char *piece_at(const struct hvd__shm *p, int rank, size_t bytes,
                               size_t i)
{
    return bytes <= INLINE_BYTES ? shm_line(p, rank)->payload + sizeof(uint64_t)
                                 : shm_slot(p, rank, i);
}

void shm_gather_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    uint64_t bytes = sent_bytes(p, op);

    memcpy(shm_line(p, p->me)->payload, &bytes, sizeof(bytes));
    p->run.send = op->sendbuf;
    if (bytes)
        hvd__copy(piece_at(p, p->me, bytes, 0), op->sendbuf,
                  piece_bytes(bytes, 0), 0);
}

static void read_counts(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    run->rounds = 0;
    run->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        uint64_t bytes;
        size_t n;

        memcpy(&bytes, shm_line(p, r)->payload, sizeof(bytes));
        run->offset[r + 1] = run->offset[r] + bytes;
        n = pieces(bytes);
        if (n > run->rounds)
            run->rounds = n;
        if (op->recvcounts)
            op->recvcounts[r] = bytes / op->elem_bytes;
    }
}

/* Puts this rank's own part into recvbuf. */
static void place_own(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t bytes = bytes_of(run, p->me);
    unsigned char *dst;

    if (!run->deliver || bytes == 0)
        return;
    dst = (unsigned char *)op->recvbuf + run->offset[p->me];
    if (dst != run->send)
        memmove(dst, run->send, bytes);
    run->send = dst;
}

static int send_overlaps(const struct hvd__shm *p, const struct hvd__op *op)
{
    uintptr_t send = (uintptr_t)op->sendbuf;
    uintptr_t recv = (uintptr_t)op->recvbuf;

    return send < recv + p->run.offset[p->n] &&
           recv < send + bytes_of(&p->run, p->me);
}

static void gather_begin(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    read_counts(p, op);
    run->deliver = op->kind == HVD__BROADCAST ||
                   run->offset[p->n] <= op->recvcap * op->elem_bytes;
    run->streamed = run->offset[p->n] >= STREAM_BYTES;
    /* Before other data can overwrite it: an allgather's sendbuf may lie
     * anywhere in recvbuf.  Otherwise peers come first. */
    run->own_placed = send_overlaps(p, op);
    if (run->own_placed)
        place_own(p, op);
}

static void copy_in(struct hvd__shm *p, size_t i)
{
    struct shm_run *run = &p->run;
    size_t bytes = bytes_of(run, p->me);

    if (i >= pieces(bytes))
        return;
    hvd__copy(shm_slot(p, p->me, i), run->send + i * SHM_SLOT_BYTES,
              piece_bytes(bytes, i), 0);
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + i + 1);
}

/* Every other rank's piece of this round. */
static int copy_out(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t i = run->round;

    for (; run->peer < p->n; run->peer++) {
        int r = run->peer;
        size_t bytes = bytes_of(run, r);
        int rc = 1;

        if (r == p->me || i >= pieces(bytes))
            continue;
        if (i > 0)
            rc = shm_reached(p, r, &p->ranks[r].filled.value, p->base + i + 1,
                             op->err);
        if (rc <= 0)
            return rc;
        if (run->deliver)
            hvd__copy((unsigned char *)op->recvbuf + run->offset[r] +
                          i * SHM_SLOT_BYTES,
                      piece_at(p, r, bytes, i), piece_bytes(bytes, i),
                      run->streamed);
    }
    run->peer = 0;
    return 1;
}

/* Whether the slot of piece i is free. */
static int drained(struct hvd__shm *p, struct hvd__op *op, size_t i)
{
    if (i < SHM_SLOTS || i >= pieces(bytes_of(&p->run, p->me)))
        return 1;
    return shm_all_reached(p, SHM_DRAINED, p->base + i - SHM_SLOTS + 1,
                           op->err);
}

static int advance_rounds(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    while (run->round < run->rounds) {
        size_t next = run->round + AHEAD;
        int rc;

        if (run->stage == STAGE_COPY_OUT) {
            rc = copy_out(p, op);
            if (rc <= 0)
                return rc;
            shm_publish(p, &p->ranks[p->me].drained.value,
                        p->base + run->round + 1);
            run->stage = STAGE_COPY_IN;
        }
        rc = drained(p, op, next);
        if (rc <= 0)
            return rc;
        copy_in(p, next);
        run->stage = STAGE_COPY_OUT;
        run->round++;
    }
    if (!run->own_placed)
        place_own(p, op);
    p->base += run->rounds;
    return 1;
}

int shm_gather_advance(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == STAGE_BEGIN) {
        gather_begin(p, op);
        for (size_t i = 1; i < AHEAD; i++)
            copy_in(p, i);
        run->stage = STAGE_COPY_OUT;
    }
    rc = advance_rounds(p, op);
    if (rc <= 0 || run->deliver || (!op->recvbuf && op->recvcap == 0))
        return rc;
    return hb_error_set(op->err, HVD_EINVAL,
                        "allgather: recvbuf has room for %zu elements and "
                        "%zu are gathered",
                        op->recvcap, run->offset[p->n] / op->elem_bytes);
}
