/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plane of a group on several hosts: shared memory inside each host,
 * TCP between them.
 *
 * The first local rank of each host is its leader.  Every operation begins
 * with an agreement: the local ranks compare their signatures, the leaders
 * exchange them and tell the outcome to their hosts.  That completes a
 * barrier, and also a small reduction or broadcast, whose data travels in the
 * same messages.
 *
 * Larger data crosses between hosts in lanes (map.h), all at once:
 *
 *   allreduce  reduce-scatter in each host: lane l's rank has the l-th part
 *              of the host's sum; an allreduce of that part over its lane;
 *              allgather in each host.  What is not direct goes through the
 *              plane's memory, in rounds
 *   reducescatter  the same, but each rank's rows are in the lane of its
 *              local rank, modulo their number, and a reduce-scatter runs
 *              over the lane: half of an allreduce's traffic
 *   broadcast  broadcast in root's host; the l-th part over lane l;
 *              allgather in the other hosts
 *   allgather  in rounds: local ranks gather the next piece of their host's
 *              elements, the leaders exchange pieces, and share them
 *   alltoall   in rounds: lane l carries, in one message for each host, all
 *              that the ranks of its place, modulo their number, send there;
 *              the receiver hands it to its local ranks
 *
 * Order of operands: within a host by rank; then over hosts, for small tensors
 * by host, else as TCP's algorithm orders them.  It depends on the sizes, on
 * where the ranks are and on the measured cost of the group's connections.
 * Every element is reduced in one place, or everywhere in the same order, so
 * all ranks get the same bits; the same ranks on other hosts may get others.
 * float16 and bfloat16 are rounded once per host and step between hosts.
 *
 * Failures: the leader tells the other hosts of a rank of this host that is
 * gone; the segment tells the local ranks of a rank of another host that is
 * gone.
 */
#ifndef HVD_PLANE_HIER_H
#define HVD_PLANE_HIER_H

#include "lib/protocol/segment.h"
#include "runtime/plane/hier/map.h"
#include "runtime/plane/plane.h"
#include "runtime/plane/tcp/tcp.h"

struct hvd__hier_config {
    const struct hvd__map *map; /* borrowed until free */
    uint32_t rank;              /* in the map */
    struct hvd__plane *shm;     /* of this host's ranks; freed with the
                                   plane; NULL: this rank is alone here */
    struct hvd__tcp *tcp;       /* this rank's lane, freed with the plane;
                                   NULL: it has none */
    struct segment_head *head;  /* shared with `segment_ranks` ranks */
    uint32_t segment_ranks;
};

/* Returns NULL if memory runs out; shm and tcp then remain the caller's. */
struct hvd__plane *hvd__hier_new(const struct hvd__hier_config *config);

#endif
