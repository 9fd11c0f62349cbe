/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collective calls.  A blocking call keeps everything on its stack; groups
 * and joins go through the queue, as asynchronous calls do.
 */
#include "runtime/core/api/call.h"

int hvd_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                  enum hvd_dtype dtype, enum hvd_op op,
                  const struct hvd_options *opts)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, count, dtype};
    const struct hvd__given given = {.kind = HVD__ALLREDUCE,
                                     .dtype = (uint32_t)dtype,
                                     .op = (uint32_t)op,
                                     .count = count,
                                     .sendbuf = sendbuf,
                                     .recvbuf = recvbuf};
    struct hvd__call c;
    int rc;

    if (hvd__call_again(&c, &given, opts, &rc))
        return rc;
    rc = hvd__call_begin(&c, HVD__ALLREDUCE, NULL, opts);
    c.req.given = &given;
    if (rc == 0)
        rc = hvd__call_allreduce(&c, &b, op);
    return hvd__call_run(&c, rc);
}

int hvd_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                        size_t count, enum hvd_dtype dtype, enum hvd_op op,
                        const struct hvd_options *opts, hvd_request **req)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, count, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLREDUCE, name, opts);

    if (rc == 0)
        rc = hvd__call_allreduce(&c, &b, op);
    return hvd__call_submit(&c, rc, req);
}

int hvd_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                  enum hvd_dtype dtype, int root,
                  const struct hvd_options *opts)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, count, dtype};
    const struct hvd__given given = {.kind = HVD__BROADCAST,
                                     .dtype = (uint32_t)dtype,
                                     .root = root,
                                     .count = count,
                                     .sendbuf = sendbuf,
                                     .recvbuf = recvbuf};
    struct hvd__call c;
    int rc;

    if (hvd__call_again(&c, &given, opts, &rc))
        return rc;
    rc = hvd__call_begin(&c, HVD__BROADCAST, NULL, opts);
    c.req.given = &given;
    if (rc == 0)
        rc = hvd__call_broadcast(&c, &b, root);
    return hvd__call_run(&c, rc);
}

int hvd_broadcast_async(const char *name, const void *sendbuf, void *recvbuf,
                        size_t count, enum hvd_dtype dtype, int root,
                        const struct hvd_options *opts, hvd_request **req)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, count, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__BROADCAST, name, opts);

    if (rc == 0)
        rc = hvd__call_broadcast(&c, &b, root);
    return hvd__call_submit(&c, rc, req);
}

int hvd_allgather(const void *sendbuf, size_t sendcount, void *recvbuf,
                  size_t recvcap, size_t *recvcounts, enum hvd_dtype dtype,
                  const struct hvd_options *opts)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, sendcount, dtype};
    const struct hvd__received r = {recvcap, recvcounts};
    const struct hvd__given given = {.kind = HVD__ALLGATHER,
                                     .dtype = (uint32_t)dtype,
                                     .count = sendcount,
                                     .recvcap = recvcap,
                                     .sendbuf = sendbuf,
                                     .recvbuf = recvbuf,
                                     .recvcounts = recvcounts};
    struct hvd__call c;
    int rc;

    if (hvd__call_again(&c, &given, opts, &rc))
        return rc;
    rc = hvd__call_begin(&c, HVD__ALLGATHER, NULL, opts);
    c.req.given = &given;
    if (rc == 0)
        rc = hvd__call_set_dtype(&c.req.op, dtype, &c.req.err);
    if (rc == 0)
        rc = hvd__call_allgather(&c, &c.req.op, &b, &r);
    return hvd__call_run(&c, rc);
}

int hvd_allgather_async(const char *name, const void *sendbuf, size_t sendcount,
                        void *recvbuf, size_t recvcap, size_t *recvcounts,
                        enum hvd_dtype dtype, const struct hvd_options *opts,
                        hvd_request **req)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, sendcount, dtype};
    const struct hvd__received r = {recvcap, recvcounts};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLGATHER, name, opts);

    if (rc == 0)
        rc = hvd__call_set_dtype(&c.req.op, dtype, &c.req.err);
    if (rc == 0)
        rc = hvd__call_allgather(&c, &c.req.op, &b, &r);
    return hvd__call_submit(&c, rc, req);
}

int hvd_alltoall(const void *sendbuf, const size_t *sendcounts, size_t count,
                 void *recvbuf, size_t recvcap, size_t *recvcounts,
                 enum hvd_dtype dtype, const struct hvd_options *opts)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, count, dtype};
    const struct hvd__received r = {recvcap, recvcounts};
    const struct hvd__given given = {.kind = HVD__ALLTOALL,
                                     .dtype = (uint32_t)dtype,
                                     .count = count,
                                     .recvcap = recvcap,
                                     .sendbuf = sendbuf,
                                     .recvbuf = recvbuf,
                                     .recvcounts = recvcounts};
    struct hvd__call c;
    int rc;

    if (!sendcounts && hvd__call_again(&c, &given, opts, &rc))
        return rc;
    rc = hvd__call_begin(&c, HVD__ALLTOALL, NULL, opts);
    c.req.given = sendcounts ? NULL : &given;
    if (rc == 0)
        rc = hvd__call_alltoall(&c, &b, sendcounts, &r);
    return hvd__call_run(&c, rc);
}

int hvd_alltoall_async(const char *name, const void *sendbuf,
                       const size_t *sendcounts, size_t count, void *recvbuf,
                       size_t recvcap, size_t *recvcounts, enum hvd_dtype dtype,
                       const struct hvd_options *opts, hvd_request **req)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, count, dtype};
    const struct hvd__received r = {recvcap, recvcounts};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLTOALL, name, opts);

    if (rc == 0)
        rc = hvd__call_alltoall(&c, &b, sendcounts, &r);
    return hvd__call_submit(&c, rc, req);
}

int hvd_reducescatter(const void *sendbuf, void *recvbuf, size_t rows,
                      size_t row_elems, enum hvd_dtype dtype, enum hvd_op op,
                      const struct hvd_options *opts)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, rows, dtype};
    const struct hvd__given given = {.kind = HVD__REDUCESCATTER,
                                     .dtype = (uint32_t)dtype,
                                     .op = (uint32_t)op,
                                     .count = rows,
                                     .row_elems = row_elems,
                                     .sendbuf = sendbuf,
                                     .recvbuf = recvbuf};
    struct hvd__call c;
    int rc;

    if (hvd__call_again(&c, &given, opts, &rc))
        return rc;
    rc = hvd__call_begin(&c, HVD__REDUCESCATTER, NULL, opts);
    c.req.given = &given;
    if (rc == 0)
        rc = hvd__call_set_reduction(&c, dtype, op);
    if (rc == 0)
        rc = hvd__call_reducescatter(&c, &c.req.op, &b, row_elems);
    return hvd__call_run(&c, rc);
}

int hvd_reducescatter_async(const char *name, const void *sendbuf,
                            void *recvbuf, size_t rows, size_t row_elems,
                            enum hvd_dtype dtype, enum hvd_op op,
                            const struct hvd_options *opts, hvd_request **req)
{
    const struct hvd__buffers b = {sendbuf, recvbuf, rows, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__REDUCESCATTER, name, opts);

    if (rc == 0)
        rc = hvd__call_set_reduction(&c, dtype, op);
    if (rc == 0)
        rc = hvd__call_reducescatter(&c, &c.req.op, &b, row_elems);
    return hvd__call_submit(&c, rc, req);
}

int hvd_barrier(const struct hvd_options *opts)
{
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__BARRIER, NULL, opts);

    return hvd__call_run(&c, rc);
}

int hvd_barrier_async(const char *name, const struct hvd_options *opts,
                      hvd_request **req)
{
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__BARRIER, name, opts);

    return hvd__call_submit(&c, rc, req);
}

int hvd_grouped_allreduce(size_t n, const void *const *sendbufs,
                          void *const *recvbufs, const size_t *counts,
                          enum hvd_dtype dtype, enum hvd_op op,
                          const struct hvd_options *opts)
{
    const struct hvd__group g = {n, sendbufs, recvbufs, counts, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLREDUCE, NULL, opts);

    if (rc == 0)
        rc = hvd__call_group_allreduce(&c, &g, op);
    return hvd__call_submit_and_wait(&c, rc);
}

int hvd_grouped_allreduce_async(const char *name, size_t n,
                                const void *const *sendbufs,
                                void *const *recvbufs, const size_t *counts,
                                enum hvd_dtype dtype, enum hvd_op op,
                                const struct hvd_options *opts,
                                hvd_request **req)
{
    const struct hvd__group g = {n, sendbufs, recvbufs, counts, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLREDUCE, name, opts);

    if (rc == 0)
        rc = hvd__call_group_allreduce(&c, &g, op);
    return hvd__call_submit(&c, rc, req);
}

int hvd_grouped_allgather(size_t n, const void *const *sendbufs,
                          const size_t *sendcounts, void *const *recvbufs,
                          const size_t *recvcaps, size_t *recvcounts,
                          enum hvd_dtype dtype, const struct hvd_options *opts)
{
    const struct hvd__group g = {n, sendbufs, recvbufs, sendcounts, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLGATHER, NULL, opts);

    if (rc == 0)
        rc = hvd__call_group_allgather(&c, &g, recvcaps, recvcounts);
    return hvd__call_submit_and_wait(&c, rc);
}

int hvd_grouped_allgather_async(const char *name, size_t n,
                                const void *const *sendbufs,
                                const size_t *sendcounts, void *const *recvbufs,
                                const size_t *recvcaps, size_t *recvcounts,
                                enum hvd_dtype dtype,
                                const struct hvd_options *opts,
                                hvd_request **req)
{
    const struct hvd__group g = {n, sendbufs, recvbufs, sendcounts, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__ALLGATHER, name, opts);

    if (rc == 0)
        rc = hvd__call_group_allgather(&c, &g, recvcaps, recvcounts);
    return hvd__call_submit(&c, rc, req);
}

int hvd_grouped_reducescatter(size_t n, const void *const *sendbufs,
                              void *const *recvbufs, const size_t *rows,
                              const size_t *row_elems, enum hvd_dtype dtype,
                              enum hvd_op op, const struct hvd_options *opts)
{
    const struct hvd__group g = {n, sendbufs, recvbufs, rows, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__REDUCESCATTER, NULL, opts);

    if (rc == 0)
        rc = hvd__call_group_reducescatter(&c, &g, row_elems, op);
    return hvd__call_submit_and_wait(&c, rc);
}

int hvd_grouped_reducescatter_async(const char *name, size_t n,
                                    const void *const *sendbufs,
                                    void *const *recvbufs, const size_t *rows,
                                    const size_t *row_elems,
                                    enum hvd_dtype dtype, enum hvd_op op,
                                    const struct hvd_options *opts,
                                    hvd_request **req)
{
    const struct hvd__group g = {n, sendbufs, recvbufs, rows, dtype};
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__REDUCESCATTER, name, opts);

    if (rc == 0)
        rc = hvd__call_group_reducescatter(&c, &g, row_elems, op);
    return hvd__call_submit(&c, rc, req);
}

int hvd_join(int *last_rank, const struct hvd_options *opts)
{
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__JOIN, NULL, opts);

    c.req.last_rank = last_rank;
    return hvd__call_submit_and_wait(&c, rc);
}

int hvd_join_async(int *last_rank, const struct hvd_options *opts,
                   hvd_request **req)
{
    struct hvd__call c;
    int rc = hvd__call_begin(&c, HVD__JOIN, NULL, opts);

    c.req.last_rank = last_rank;
    return hvd__call_submit(&c, rc, req);
}
