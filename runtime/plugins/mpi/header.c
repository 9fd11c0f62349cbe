/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers: a dissemination (Hensgen, Finkel and Manber, 1988).  In round k
 * each rank sends what it knows of all to the rank 2^k after it; after log2(n)
 * rounds everybody has heard, directly or not, from everybody.  Merging the
 * same header twice does no harm: flags are and-ed, and a minimum is taken.
 *
 * Each rank sends its own signature; the receiver compares it with its own and
 * clears a flag if they differ.  A flag that is still set at the end means
 * that all signatures are equal: a chain of comparisons links every rank to
 * this one.
 *
 * A receive is always posted for the next message of each round.  The peer
 * differs from round to round, and messages between two ranks keep their
 * order, so one tag is enough.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

static int post(struct mp_plane *p, int k, struct hb_error *err)
{
    struct mp_round *r = &p->rounds[k];
    int rc = MPI_Irecv(r->in, MP_WORDS, MPI_UINT64_T, r->from, MP_TAG_HEADER,
                       p->comm, &p->recvs[k]);

    r->arrived = 0;
    return rc == MPI_SUCCESS
               ? 0
               : mp_error(err, p->ranks[r->from], rc, "MPI_Irecv");
}

int mp_headers_post(struct mp_plane *p, struct hb_error *err)
{
    int rc = 0;

    for (int k = 0; k < p->nrounds && rc == 0; k++) {
        struct mp_round *r = &p->rounds[k];

        r->to = (p->me + (1 << k)) % p->n;
        r->from = (p->me - (1 << k) + p->n) % p->n;
        rc = post(p, k, err);
    }
    return rc;
}

/* Returns 1 if the round was sent, 0 if the send before the last has not
 * completed, or negative. */
static int send_round(struct mp_plane *p, struct hb_error *err)
{
    struct mp_round *r = &p->rounds[p->round];
    int parity = (int)(p->seq & 1), flag = 1, rc = MPI_SUCCESS;
    MPI_Request *req = &p->sends[2 * (p->n + p->round) + parity];

    if (*req != MPI_REQUEST_NULL)
        rc = MPI_Test(req, &flag, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && !flag)
        return 0;
    for (int i = 0; i < MP_WORDS; i++)
        r->out[parity][i] = p->head[i];
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(r->out[parity], MP_WORDS, MPI_UINT64_T, r->to,
                       MP_TAG_HEADER, p->comm, req);
    if (rc != MPI_SUCCESS)
        return mp_error(err, p->ranks[r->to], rc, "MPI_Isend");
    p->sent = 1;
    return 1;
}

int mp_header_send(struct mp_plane *p, const struct hvd__op *op)
{
    int in_place = op->parts || op->sendbuf == op->recvbuf;
    int rc;

    p->head[MP_SIGNATURE] = op->signature;
    p->head[MP_FIRST] = op->first_signature;
    p->head[MP_LEAST] = op->entries ? op->entries : 1;
    p->head[MP_FLAGS] = (uint64_t)MP_SAME | MP_SAME_FIRST |
                        (in_place ? MP_IN_PLACE : MP_APART) |
                        (p->solo_seq ? MP_SOLO : 0);
    p->round = 0;
    p->sent = 0;
    rc = send_round(p, op->err);
    return rc < 0 ? rc : 0;
}

/* Tests for a round's message up to `times` times: 1, 0 or negative. */
static int arrived(struct mp_plane *p, int k, int times, struct hb_error *err)
{
    struct mp_round *r = &p->rounds[k];

    for (int i = 0; i < times && !r->arrived; i++) {
        int rc = MPI_Test(&p->recvs[k], &r->arrived, MPI_STATUS_IGNORE);

        if (rc != MPI_SUCCESS)
            return mp_error(err, p->ranks[r->from], rc, "MPI_Test");
    }
    return r->arrived;
}

int mp_header_agree(struct mp_plane *p, struct hvd__op *op)
{
    while (p->round < p->nrounds) {
        struct mp_round *r = &p->rounds[p->round];
        int rc = p->sent ? 1 : send_round(p, op->err);

        if (rc == 1)
            rc = arrived(p, p->round, p->wait.spins, op->err);
        /* In later rounds r->from may itself be waiting for another rank. */
        if (rc == 0 && p->round == 0)
            hvd__op_misses(op, r->from);
        if (rc <= 0)
            return rc;
        mp_merge_header(p->head, r->in);
        rc = post(p, p->round, op->err);
        if (rc < 0)
            return rc;
        p->round++;
        p->sent = 0;
    }
    return 1;
}

int mp_header_arrived(struct mp_plane *p, struct hb_error *err)
{
    return arrived(p, 0, 1, err);
}

/* ---- Without a plane ------------------------------------------------- */

/* Finds the least *value of the members, by dissemination.  `rounds` is static
 * because unfinished requests keep using it after a failure; planes are made
 * one at a time, and none after a failure. */
int mp_members_min(const struct hvd__mpi_plane_config *c, uint64_t *value,
                   struct hb_error *err)
{
    static struct {
        uint64_t out, in;
        MPI_Request reqs[2];
    } rounds[31];
    int tag = MP_TAG_MAKE + (int)(c->tag % MP_TAGS), rc = 0;

    for (int k = 0; rc == 0 && 1 << k < c->n; k++) {
        int to = c->ranks[(c->me + (1 << k)) % c->n];
        int from = c->ranks[(c->me - (1 << k) + c->n) % c->n];

        rounds[k].out = *value;
        rc = MPI_Irecv(&rounds[k].in, 1, MPI_UINT64_T, from, tag, mp_world.comm,
                       &rounds[k].reqs[0]);
        if (rc != MPI_SUCCESS)
            return mp_error(err, from, rc, "MPI_Irecv");
        rc = MPI_Isend(&rounds[k].out, 1, MPI_UINT64_T, to, tag, mp_world.comm,
                       &rounds[k].reqs[1]);
        if (rc != MPI_SUCCESS)
            return mp_error(err, to, rc, "MPI_Isend");
        rc = mp_await("MPI_Irecv", from, rounds[k].reqs, 2, err);
        if (rc == 0 && rounds[k].in < *value)
            *value = rounds[k].in;
    }
    return rc;
}
