/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a shm_group and its operations; see shm_member.h. */
#include "tests/unit/shm_member.h"

#include "tests/unit/values.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void shm_member_open(struct shm_member *k, struct shm_group *g, int me)
{
    static const struct hvd__arena fresh = HVD__ARENA_INIT;

    memset(k, 0, sizeof(*k));
    k->g = g;
    k->n = g->n;
    k->me = me;
    k->plane = shm_group_plane(g, me);
    k->arena = fresh;
    shm_group_arena(g, me, &k->arena);
}

void shm_member_close(struct shm_member *k)
{
    k->plane->ops->free(k->plane);
    hvd__arena_fini(&k->arena);
}

static int uses_arena(const struct shm_member *k, int is_send)
{
    if (k->sort == SHM_SOME_IN_ARENA)
        return k->me % 2 == is_send;
    return k->sort == SHM_IN_ARENA || (k->sort == SHM_SEND_IN_ARENA && is_send);
}

unsigned char *shm_member_get(struct shm_member *k, size_t bytes, int is_send)
{
    void *p = NULL;

    if (uses_arena(k, is_send))
        hvd__arena_alloc(&k->arena, bytes + 64, &p);
    else
        p = malloc(bytes + 64);
    if (!p)
        abort();
    memset(p, SHM_GUARD, bytes + 64);
    return p;
}

void shm_member_give(struct shm_member *k, void *p, int is_send)
{
    if (uses_arena(k, is_send))
        hvd__arena_free(&k->arena, p);
    else
        free(p);
}

struct hvd__op *shm_member_op(struct shm_member *k, enum hvd__kind kind,
                              enum hvd_dtype dtype)
{
    struct hvd__op *op = &k->op;

    memset(op, 0, sizeof(*op));
    hb_error_clear(&k->err);
    op->kind = kind;
    op->dtype = op->part_dtype = dtype;
    op->elem_bytes = hvd_dtype_size(dtype);
    op->name = "";
    op->prescale = op->postscale = 1.0;
    op->args = (struct hvd__reduce_args){1.0, 1.0, 1, 0};
    op->row_elems = 1;
    op->err = &k->err;
    op->signature = op->first_signature = ++k->step;
    op->entries = 1;
    return op;
}

int shm_member_do(struct shm_member *k)
{
    int rc = plane_do(k->plane, &k->op);

    return rc == 1 && k->op.trace.algorithm ? 0 : -1;
}

/* Returns whether nothing was written behind the end. */
int shm_guarded(const unsigned char *buf, size_t bytes)
{
    for (int i = 0; i < 64; i++)
        if (buf[bytes + (size_t)i] != SHM_GUARD)
            return 0;
    return 1;
}

/* Returns whether `count` elements from `first` of a reduction are right. */
int shm_reduced(enum hvd_dtype dtype, enum hvd_op op, int n,
                const unsigned char *buf, size_t first, size_t count)
{
    size_t good = values_check_from(dtype, op, n, 1.0, buf, first, count);

    if (good < count)
        fprintf(stderr, "%s %s: element %zu of %zu is wrong\n",
                hvd_dtype_name(dtype), hvd_op_name(op), good, count);
    return good == count;
}

/* Byte i of what `from` sends to `to` is from * 31 + to * 17 + i * 7 + i / 512:
 * every block of 512 bytes is one of 256 blocks. */
enum { BLOCK_BYTES = 512 };
static unsigned char blocks[256][BLOCK_BYTES];
static pthread_once_t blocks_once = PTHREAD_ONCE_INIT;

static void fill_blocks(void)
{
    for (size_t b = 0; b < 256; b++)
        for (size_t i = 0; i < BLOCK_BYTES; i++)
            blocks[b][i] = (unsigned char)(b + i * 7);
}

static const unsigned char *block(int from, int to, size_t number)
{
    pthread_once(&blocks_once, fill_blocks);
    return blocks[((size_t)from * 31 + (size_t)to * 17 + number) % 256];
}

void shm_bytes_fill(unsigned char *buf, size_t bytes, int from, int to)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
        memcpy(buf + at, block(from, to, at / BLOCK_BYTES), n);
    }
}

int shm_bytes_are(const unsigned char *buf, size_t bytes, int from, int to)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
        if (memcmp(buf + at, block(from, to, at / BLOCK_BYTES), n) != 0)
            return 0;
    }
    return 1;
}

int shm_do_allreduce(struct shm_member *k, enum hvd_dtype dtype,
                     enum hvd_op rop, size_t count, int in_place)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLREDUCE, dtype);
    size_t bytes = count * op->elem_bytes;
    unsigned char *recv = shm_member_get(k, bytes, 0);
    unsigned char *send = in_place ? recv : shm_member_get(k, bytes, 1);

    values_fill(dtype, rop, k->n, k->me, send, count);
    op->op = rop;
    op->reduce = hvd__reduce_get(dtype, rop);
    op->args.divisor = rop == HVD_AVERAGE ? k->n : 1;
    op->sendbuf = send;
    op->recvbuf = recv;
    op->count = count;
    must(shm_member_do(k) == 0);
    must(shm_reduced(dtype, rop, k->n, recv, 0, count));
    must(shm_guarded(recv, bytes) && shm_guarded(send, bytes));
    if (!in_place)
        shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

int shm_do_broadcast(struct shm_member *k, size_t bytes, int root)
{
    struct hvd__op *op = shm_member_op(k, HVD__BROADCAST, HVD_UINT8);
    unsigned char *recv = shm_member_get(k, bytes, 0),
                  *send = shm_member_get(k, bytes, 1);

    shm_bytes_fill(send, bytes, k->me, root);
    op->root = root;
    op->sendbuf = send;
    op->recvbuf = recv;
    op->count = bytes;
    must(shm_member_do(k) == 0);
    memset(send, 0, bytes); /* no rank reads it any more */
    must(shm_bytes_are(recv, bytes, root, root));
    must(shm_guarded(recv, bytes));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

static size_t sends(size_t count, int from, int to)
{
    return (from + to) % 4 == 3 ? 0
                                : count * (size_t)(1 + (from * 5 + to) % 3) / 3;
}

int shm_do_alltoall(struct shm_member *k, size_t count)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLTOALL, HVD_INT16);
    size_t sendcounts[SHM_GROUP_MAX], recvcounts[SHM_GROUP_MAX];
    size_t out = 0, in = 0, at = 0;
    unsigned char *send, *recv;

    for (int r = 0; r < k->n; r++) {
        sendcounts[r] = sends(count, k->me, r);
        out += sendcounts[r];
        in += sends(count, r, k->me);
    }
    send = shm_member_get(k, out * 2, 1);
    recv = shm_member_get(k, in * 2, 0);
    for (int r = 0; r < k->n; r++) {
        shm_bytes_fill(send + at, sendcounts[r] * 2, k->me, r);
        at += sendcounts[r] * 2;
    }
    op->sendbuf = send;
    op->sendcounts = sendcounts;
    op->count = out;
    op->recvbuf = recv;
    op->recvcap = in;
    op->recvcounts = recvcounts;
    must(shm_member_do(k) == 0);
    memset(send, 0, out * 2);
    at = 0;
    for (int r = 0; r < k->n; r++) {
        must(recvcounts[r] == sends(count, r, k->me));
        must(shm_bytes_are(recv + at, recvcounts[r] * 2, r, k->me));
        at += recvcounts[r] * 2;
    }
    must(shm_guarded(recv, in * 2));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

int shm_do_barrier(struct shm_member *k)
{
    shm_member_op(k, HVD__BARRIER, HVD_UINT8);
    return shm_member_do(k);
}

static void die(int sig)
{
    (void)sig;
    raise(SIGKILL);
}

void shm_member_die_at(void *at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    signal(SIGSEGV, die);
    if (mprotect((void *)((uintptr_t)at & ~(page - 1)), page, PROT_NONE) < 0)
        abort();
}
