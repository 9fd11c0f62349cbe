/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers and calls of one rank; see prop_job.h. */
#include "tests/system/prog/prop_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void wrong(const struct run *run, const struct job *job, const char *what,
           int64_t at)
{
    const struct step *s = job ? job->step : NULL;

    fprintf(stderr,
            "prop: seed %llu, %sbatch %llu, rank %d: %s (%lld) %s; kind %d, "
            "%s %s, %d members, %zu, set %d, pre %g, post %g, wire %d\n",
            (unsigned long long)run->seed, run->joining ? "joining " : "",
            (unsigned long long)run->batch, run->me, what, (long long)at,
            hvd_error_message(), s ? (int)s->kind : -1,
            s ? hvd_dtype_name(s->dtype) : "", s ? hvd_op_name(s->op) : "",
            s ? s->members : 0, s ? s->count[0] : 0,
            s ? s->opts.process_set : 0, s ? s->opts.prescale : 0,
            s ? s->opts.postscale : 0, s ? s->opts.wire : 0);
    _exit(1);
}

void must(const struct run *run, const struct job *job, const char *what,
          int rc)
{
    if (rc < 0)
        wrong(run, job, what, rc);
}

const struct team *givers(const struct run *run, const struct step *s)
{
    return run->joining ? &run->live : &run->team[s->team];
}

int root_of(const struct run *run, const struct step *s)
{
    const struct team *team = givers(run, s);

    return team->rank[s->root % team->n];
}

int members_of(const struct step *s)
{
    return s->members ? s->members : 1;
}

/* ---- Buffers ---------------------------------------------------------- */

static size_t share(size_t rows, size_t n, size_t place)
{
    return rows / n + (place < rows % n);
}

size_t share_first(size_t rows, size_t n, size_t place)
{
    size_t rest = rows % n;

    return place * (rows / n) + (place < rest ? place : rest);
}

static void count_elements(const struct run *run, struct job *job, int m)
{
    const struct step *s = job->step;
    const struct team *from = givers(run, s), *team = &run->team[s->team];
    size_t send = s->count[m], recv = s->count[m];

    if (s->kind == ALLGATHER || s->kind == ALLTOALL) {
        recv = send = 0;
        for (int k = 0; k < from->n; k++)
            recv += s->kind == ALLGATHER
                        ? gather_count(s, m, from->rank[k])
                        : send_count(s, from->rank[k], run->me);
        for (int k = 0; k < team->n; k++) {
            job->splits[k] = send_count(s, run->me, team->rank[k]);
            send += s->kind == ALLTOALL ? job->splits[k] : 0;
        }
        if (s->kind == ALLGATHER)
            send = gather_count(s, m, run->me);
    } else if (s->kind == REDUCESCATTER) {
        send = s->count[m] * s->row;
        recv = s->row * share(s->count[m], (size_t)team->n, (size_t)job->place);
    }
    job->send_count[m] = send;
    job->recv_count[m] = recv;
    job->recv_cap[m] = recv + (size_t)(s->id % 3);
}

/* Returns the element of the receive buffer at which this rank's contribution
 * to an allgather in place begins; 0 for other kinds. */
static size_t own_offset(const struct run *run, const struct job *job, int m)
{
    const struct team *from = givers(run, job->step);
    size_t at = 0;

    if (job->step->kind != ALLGATHER)
        return 0;
    for (int k = 0; from->rank[k] != run->me; k++)
        at += gather_count(job->step, m, from->rank[k]);
    return at;
}

int is_in_place(const struct step *s)
{
    return s->in_place && s->kind != ALLTOALL && s->kind != REDUCESCATTER;
}

/* Allocates the buffers, aligned to an element only, with guards around. */
static void allocate(const struct run *run, struct job *job)
{
    const struct step *s = job->step;
    size_t elem = hvd_dtype_size(s->dtype), bytes = GUARD_BYTES + elem;
    void *p;

    for (int m = 0; m < members_of(s); m++)
        bytes +=
            (job->send_count[m] + job->recv_cap[m]) * elem + 2 * GUARD_BYTES;
    if (s->own_memory)
        must(run, job, "hvd_alloc", hvd_alloc(bytes, &p));
    else
        p = malloc(bytes);
    if (!p)
        wrong(run, job, "no memory", 0);
    job->memory = p;
    memset(p, GUARD, bytes);
    for (int m = 0, at = 0; m < members_of(s); m++) {
        unsigned char *base = job->memory + elem + (size_t)at;

        job->recv[m] = base + GUARD_BYTES;
        job->send[m] =
            is_in_place(s)
                ? job->recv[m] + own_offset(run, job, m) * elem
                : job->recv[m] + job->recv_cap[m] * elem + GUARD_BYTES;
        at += (int)((job->send_count[m] + job->recv_cap[m]) * elem +
                    2 * GUARD_BYTES);
    }
}

void prepare(const struct run *run, const struct step *s, struct job *job)
{
    size_t elem = hvd_dtype_size(s->dtype);

    memset(job, 0, sizeof(*job));
    job->step = s;
    job->place = place_in(&run->team[s->team], run->me);
    if (job->place < 0 || s->kind == BARRIER)
        return;
    for (int m = 0; m < members_of(s); m++)
        count_elements(run, job, m);
    allocate(run, job);
    for (int m = 0; m < members_of(s); m++) {
        if (s->kind == ALLREDUCE || s->kind == REDUCESCATTER)
            fill_input(s, m, run->me, job->send[m], job->send_count[m]);
        else if (s->kind != BROADCAST || root_of(run, s) == run->me)
            fill_bytes(s, m, run->me, job->send[m], job->send_count[m] * elem);
    }
}

void give_back(const struct run *run, struct job *job)
{
    if (job->memory && job->step->own_memory)
        must(run, job, "hvd_free", hvd_free(job->memory));
    else
        free(job->memory);
    job->memory = NULL;
}

/* ---- Issuing ---------------------------------------------------------- */

static int issue_group(struct job *job, const char *name)
{
    const struct step *s = job->step;
    const void *send[MEMBERS_MAX];
    void *recv[MEMBERS_MAX];
    size_t n = (size_t)s->members, rows[MEMBERS_MAX];

    for (size_t m = 0; m < n; m++) {
        send[m] = job->send[m];
        recv[m] = job->recv[m];
        rows[m] = s->row;
    }
    if (s->kind == ALLREDUCE)
        return name ? hvd_grouped_allreduce_async(name, n, send, recv, s->count,
                                                  s->dtype, s->op, &s->opts,
                                                  &job->req)
                    : hvd_grouped_allreduce(n, send, recv, s->count, s->dtype,
                                            s->op, &s->opts);
    if (s->kind == ALLGATHER)
        return name ? hvd_grouped_allgather_async(
                          name, n, send, job->send_count, recv, job->recv_cap,
                          job->counts, s->dtype, &s->opts, &job->req)
                    : hvd_grouped_allgather(n, send, job->send_count, recv,
                                            job->recv_cap, job->counts,
                                            s->dtype, &s->opts);
    return name ? hvd_grouped_reducescatter_async(name, n, send, recv, s->count,
                                                  rows, s->dtype, s->op,
                                                  &s->opts, &job->req)
                : hvd_grouped_reducescatter(n, send, recv, s->count, rows,
                                            s->dtype, s->op, &s->opts);
}

static int issue_now(const struct run *run, struct job *job)
{
    const struct step *s = job->step;
    void *send = job->send[0], *recv = job->recv[0];

    switch (s->kind) {
    case ALLREDUCE:
        return hvd_allreduce(send, recv, s->count[0], s->dtype, s->op,
                             &s->opts);
    case BROADCAST:
        return hvd_broadcast(send, recv, s->count[0], s->dtype, root_of(run, s),
                             &s->opts);
    case ALLGATHER:
        return hvd_allgather(send, job->send_count[0], recv, job->recv_cap[0],
                             job->counts, s->dtype, &s->opts);
    case ALLTOALL:
        return hvd_alltoall(send, job->splits, job->send_count[0], recv,
                            job->recv_cap[0], job->counts, s->dtype, &s->opts);
    case REDUCESCATTER:
        return hvd_reducescatter(send, recv, s->count[0], s->row, s->dtype,
                                 s->op, &s->opts);
    default:
        return hvd_barrier(&s->opts);
    }
}

static int issue_later(const struct run *run, struct job *job, const char *name)
{
    const struct step *s = job->step;
    void *send = job->send[0], *recv = job->recv[0];

    switch (s->kind) {
    case ALLREDUCE:
        return hvd_allreduce_async(name, send, recv, s->count[0], s->dtype,
                                   s->op, &s->opts, &job->req);
    case BROADCAST:
        return hvd_broadcast_async(name, send, recv, s->count[0], s->dtype,
                                   root_of(run, s), &s->opts, &job->req);
    case ALLGATHER:
        return hvd_allgather_async(name, send, job->send_count[0], recv,
                                   job->recv_cap[0], job->counts, s->dtype,
                                   &s->opts, &job->req);
    case ALLTOALL:
        return hvd_alltoall_async(name, send, job->splits, job->send_count[0],
                                  recv, job->recv_cap[0], job->counts, s->dtype,
                                  &s->opts, &job->req);
    case REDUCESCATTER:
        return hvd_reducescatter_async(name, send, recv, s->count[0], s->row,
                                       s->dtype, s->op, &s->opts, &job->req);
    default:
        return hvd_barrier_async(name, &s->opts, &job->req);
    }
}

void issue(const struct run *run, struct job *job, enum mode mode)
{
    const char *name = mode == BLOCKING ? NULL : mode == ASYNC ? "" : job->name;
    int rc;

    if (job->place < 0)
        return;
    if (job->step->members)
        rc = issue_group(job, name);
    else
        rc = name ? issue_later(run, job, name) : issue_now(run, job);
    must(run, job, "issue", rc);
}

/* Waits for the job's request; of some jobs, calls hvd_test first. */
void await(const struct run *run, struct job *job)
{
    int done;

    if (!job->req)
        return;
    if (job->step->id % 2)
        must(run, job, "hvd_test", hvd_test(job->req, &done));
    must(run, job, "hvd_wait", hvd_wait(job->req));
}
