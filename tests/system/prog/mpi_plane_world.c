/* SPDX-License-Identifier: Apache-2.0 */
/* The world of mpi_plane, its planes and operations; see mpi_plane.h. */
#include "tests/system/prog/mpi_plane.h"

#include <stdio.h>
#include <stdlib.h>

const struct hvd__mpi *mpi;
struct hvd__mpi_world world;

void fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "rank %d of %d, %s:%d: %s\n", world.rank, world.size, file,
            line, what);
    abort();
}

void check_rc(const char *file, int line, int rc, int want,
              const struct hb_error *err)
{
    if (rc == want)
        return;
    fprintf(stderr, "rank %d of %d, %s:%d: %d instead of %d: %s\n", world.rank,
            world.size, file, line, rc, want, err->text);
    abort();
}

/* ---- Operations ---------------------------------------------------------- */

struct hvd__op *prepare(struct member *m, enum hvd__kind kind,
                        enum hvd_dtype dtype, size_t count)
{
    struct hvd__op *op = &m->op;

    hvd__op_init(op);
    hb_error_clear(&m->err);
    op->kind = kind;
    op->dtype = op->part_dtype = dtype;
    op->prescale = op->postscale = 1.0;
    op->args = (struct hvd__reduce_args){1.0, 1.0, 1, 0};
    op->name = "";
    op->count = count;
    op->elem_bytes = hvd_dtype_size(dtype);
    op->row_elems = 1;
    op->err = &m->err;
    return op;
}

void reduces(struct member *m, enum hvd_op how)
{
    m->op.op = how;
    m->op.reduce = hvd__reduce_get(m->op.dtype, how);
    m->op.args.divisor = how == HVD_AVERAGE ? m->n : 1;
}

void sign(struct member *m)
{
    m->op.signature = hvd__mix(hvd__op_signature(&m->op), ++m->seq);
    m->op.first_signature = m->op.signature;
}

int finish(struct member *m)
{
    int rc;

    while ((rc = m->plane->ops->progress(m->plane, &m->op)) == 0)
        m->plane->ops->pause(m->plane, 0);
    return rc;
}

int run(struct member *m)
{
    int rc;

    CHECK(m->plane->ops->supports(m->plane, &m->op));
    rc = m->plane->ops->start(m->plane, &m->op);
    return rc < 0 ? rc : finish(m);
}

void done(struct member *m, const char *file, int line)
{
    sign(m);
    check_rc(file, line, run(m), 1, &m->err);
    CHECK(m->op.trace.algorithm);
}

uint64_t start_limit(void)
{
    return hb_now_ns() + UINT64_C(60000000000);
}

void open_world(void)
{
    struct hb_error err = HB_ERROR_INIT;
    int on_host = 0;

    CHECK_RC(mpi->open(&world, start_limit(), &err), 0, &err);
    CHECK(world.size >= 1 && world.size <= RANKS_MAX);
    for (int r = 0; r < world.size; r++)
        on_host += world.host_of[r] == world.cross_rank;
    CHECK(on_host == world.local_size);
    CHECK(world.local_ranks[world.local_rank] == world.rank);
    CHECK(world.hosts[world.cross_rank][0] && world.library[0]);
}

struct member join_plane(const int *ranks, int n, uint32_t tag)
{
    struct hvd__mpi_plane_config config = {
        .ranks = ranks, .n = n, .tag = tag, .deadline_ns = start_limit()};
    struct member m = {.n = n, .err = HB_ERROR_INIT};

    for (int i = 0; i < n; i++)
        if (ranks[i] == world.rank)
            config.me = m.me = i;
    m.plane = mpi->plane(&config, &m.err);
    if (!m.plane)
        CHECK_RC(m.err.status, 0, &m.err);
    return m;
}

struct member join_world(uint32_t tag)
{
    int ranks[RANKS_MAX];

    for (int r = 0; r < world.size; r++)
        ranks[r] = r;
    return join_plane(ranks, world.size, tag);
}

void part_from(struct member *m)
{
    m->plane->ops->free(m->plane);
}
