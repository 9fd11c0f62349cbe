/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the library that an iteration makes. */
#include "cmd/hvd-bench/work.h"

static int call(const struct bench_work *w, const struct bench_tensor *t)
{
    const struct bench_options *o = w->o;

    switch (o->what) {
    case BENCH_ALLREDUCE:
        return hvd_allreduce(t->send, t->recv, t->send_count, o->dtype, o->op,
                             &w->opts);
    case BENCH_BROADCAST:
        return hvd_broadcast(t->send, t->recv, t->send_count, o->dtype,
                             w->set.root, &w->opts);
    case BENCH_ALLGATHER:
        return hvd_allgather(t->send, t->send_count, t->recv, t->recv_count,
                             NULL, o->dtype, &w->opts);
    case BENCH_ALLTOALL:
        return hvd_alltoall(t->send, NULL, t->send_count, t->recv,
                            t->recv_count, NULL, o->dtype, &w->opts);
    case BENCH_REDUCESCATTER:
        return hvd_reducescatter(t->send, t->recv, t->send_count, 1, o->dtype,
                                 o->op, &w->opts);
    case BENCH_BARRIER:
    case BENCH_IDLE:
        break;
    }
    return hvd_barrier(&w->opts);
}

static int call_async(const struct bench_work *w, struct bench_tensor *t)
{
    const struct bench_options *o = w->o;

    switch (o->what) {
    case BENCH_ALLREDUCE:
        return hvd_allreduce_async(t->name, t->send, t->recv, t->send_count,
                                   o->dtype, o->op, &w->opts, &t->req);
    case BENCH_BROADCAST:
        return hvd_broadcast_async(t->name, t->send, t->recv, t->send_count,
                                   o->dtype, w->set.root, &w->opts, &t->req);
    case BENCH_ALLGATHER:
        return hvd_allgather_async(t->name, t->send, t->send_count, t->recv,
                                   t->recv_count, NULL, o->dtype, &w->opts,
                                   &t->req);
    case BENCH_ALLTOALL:
        return hvd_alltoall_async(t->name, t->send, NULL, t->send_count,
                                  t->recv, t->recv_count, NULL, o->dtype,
                                  &w->opts, &t->req);
    case BENCH_REDUCESCATTER:
        return hvd_reducescatter_async(t->name, t->send, t->recv, t->send_count,
                                       1, o->dtype, o->op, &w->opts, &t->req);
    case BENCH_BARRIER:
    case BENCH_IDLE:
        break;
    }
    return hvd_barrier_async(t->name, &w->opts, &t->req);
}

static int call_group(const struct bench_work *w)
{
    const struct bench_options *o = w->o;
    const struct bench_group *g = &w->group;
    size_t n = (size_t)w->ntensors;

    switch (o->what) {
    case BENCH_ALLGATHER:
        return hvd_grouped_allgather(n, g->sends, g->send_counts, g->recvs,
                                     g->recv_caps, NULL, o->dtype, &w->opts);
    case BENCH_REDUCESCATTER:
        return hvd_grouped_reducescatter(n, g->sends, g->recvs, g->send_counts,
                                         g->ones, o->dtype, o->op, &w->opts);
    default:
        return hvd_grouped_allreduce(n, g->sends, g->recvs, g->send_counts,
                                     o->dtype, o->op, &w->opts);
    }
}

/* Starts all tensors, and waits for what was started even after a failure. */
static int call_burst(struct bench_work *w)
{
    int rc = 0, started = 0, waited;

    while (started < w->ntensors && rc == 0)
        rc = call_async(w, &w->tensors[started++]);
    if (rc < 0)
        started--;
    for (int i = 0; i < started; i++) {
        waited = w->opts.stream
                     ? hvd_wait_on_stream(w->tensors[i].req, w->opts.stream)
                     : hvd_wait(w->tensors[i].req);
        rc = rc < 0 ? rc : waited;
    }
    return rc;
}

int bench_work_iterate(struct bench_work *w)
{
    switch (w->o->mode) {
    case BENCH_BLOCKING:
        return call(w, w->tensors);
    case BENCH_GROUP:
        return call_group(w);
    default:
        return call_burst(w);
    }
}
