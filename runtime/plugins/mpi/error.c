/* SPDX-License-Identifier: Apache-2.0 */
/* What MPI says, as struct hb_error. */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <stdio.h>

void mp_name_rank(struct hb_error *err, int rank)
{
    const struct hvd__mpi_world *w = &mp_world.view;

    if (!err || err->status)
        return;
    err->rank = rank;
    snprintf(err->host, sizeof(err->host), "%s", w->hosts[w->host_of[rank]]);
}

int mp_error(struct hb_error *err, int peer, int mpi_rc, const char *call)
{
    const struct hvd__mpi_world *w = &mp_world.view;
    char text[MPI_MAX_ERROR_STRING] = "?";
    int len = 0;

    mp_world.failed = 1;
    MPI_Error_string(mpi_rc, text, &len);
    if (peer < 0)
        return hb_error_set(err, HVD_EPEER, "%s: %s", call, text);
    mp_name_rank(err, peer);
    return hb_error_set(err, HVD_EPEER, "rank %d on host %s: %s: %s", peer,
                        w->hosts[w->host_of[peer]], call, text);
}

int mp_error_own(struct hb_error *err, int mpi_rc, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "?";
    int len = 0;

    mp_world.failed = 1;
    MPI_Error_string(mpi_rc, text, &len);
    return hb_error_set(err, HVD_ESYSTEM, "%s: %s", call, text);
}
