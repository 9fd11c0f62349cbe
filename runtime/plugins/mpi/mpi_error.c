/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts error codes of MPI to struct hb_error.
 *
 * An error of a collective does not name a peer.  If a process of this host
 * has ended, it is blamed; MPI may notice that before the kernel tells, so
 * find_dead waits a little.  Otherwise the text says that MPI names no peer,
 * and the peer's own farewell (leave.c) may explain it.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { DEATH_MS = 50 };

const char *mp_host(int rank)
{
    const struct hvd__mpi_world *w = &mp_world.view;

    return w->hosts[w->host_of[rank]];
}

void mp_name_rank(struct hb_error *err, int rank)
{
    if (!err || err->status)
        return;
    err->rank = rank;
    snprintf(err->host, sizeof(err->host), "%s", mp_host(rank));
}

/* Reads MPI's text as one line; MPICH's has several. */
static void read_text(int mpi_rc, char text[MPI_MAX_ERROR_STRING])
{
    int len = 0;

    memcpy(text, "?", 2);
    MPI_Error_string(mpi_rc, text, &len);
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = c[1] ? ' ' : 0;
}

/* Returns a rank of this host whose process has ended, or -1. */
static int find_dead(void)
{
    const struct hvd__mpi_world *w = &mp_world.view;
    int dead = -1;

    for (int pass = 0; pass < 2 && dead < 0 && w->pidfds; pass++) {
        for (int i = 0; i < w->local_size && dead < 0; i++) {
            struct pollfd p = {.fd = w->pidfds[i], .events = POLLIN};

            if (p.fd >= 0 && poll(&p, 1, 0) == 1)
                dead = w->local_ranks[i];
        }
        if (dead < 0 && pass == 0)
            poll(NULL, 0, DEATH_MS);
    }
    return dead;
}

int mp_error(struct hb_error *err, int peer, int mpi_rc, const char *call)
{
    const char *end = "";
    char text[MPI_MAX_ERROR_STRING];

    mp_world.failed = 1;
    read_text(mpi_rc, text);
    if (peer < 0) {
        peer = find_dead();
        end = "its process has ended: ";
    }
    if (peer < 0)
        return hb_error_set(err, HVD_EPEER, "%s: %s; MPI names no peer", call,
                            text);
    mp_name_rank(err, peer);
    return hb_error_set(err, HVD_EPEER, "rank %d on host %s: %s%s: %s", peer,
                        mp_host(peer), end, call, text);
}

int mp_error_test(struct hb_error *err, int peer, int mpi_rc, const char *test,
                  const char *call)
{
    char both[64];

    snprintf(both, sizeof(both), "%s of %s", test, call);
    return mp_error(err, peer, mpi_rc, both);
}

enum { HEAD_BYTES = HVD__MPI_HOST_BYTES + 64 };

static size_t begin_failure(char head[HEAD_BYTES], int rank)
{
    return (size_t)snprintf(head, HEAD_BYTES,
                            "rank %d on host %s has failed: ", rank,
                            mp_host(rank));
}

int mp_error_peer(struct hb_error *err, int rank, const char *why)
{
    char head[HEAD_BYTES];

    begin_failure(head, rank);
    mp_world.failed = 1; /* that rank does not finalise MPI */
    mp_name_rank(err, rank);
    return hb_error_set(err, HVD_EPEER, "%s%s", head, why);
}

const char *mp_peer_reason(const struct hb_error *err)
{
    char head[HEAD_BYTES];
    size_t len;

    if (err->status != -HVD_EPEER || err->rank < 0)
        return NULL;
    len = begin_failure(head, err->rank);
    return strncmp(err->text, head, len) == 0 ? err->text + len : NULL;
}

int mp_error_own(struct hb_error *err, int mpi_rc, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];

    mp_world.failed = 1;
    read_text(mpi_rc, text);
    return hb_error_set(err, HVD_ESYSTEM, "%s: %s", call, text);
}
