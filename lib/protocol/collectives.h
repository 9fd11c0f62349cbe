/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of collective operations, from which all parts of the program make
 * their enums and tables: the symbol of a kind, its name, and whether NCCL can
 * carry it out on arrays in device memory.
 *
 *     #define STATUS_KIND(symbol, name, nccl) STATUS_##symbol
 *     enum status_kind { COLLECTIVES_AND_JOIN(STATUS_KIND), STATUS_KINDS };
 *
 * The order is that of the numbers in messages, in shared memory and in
 * hvd_stats.
 */
#ifndef HVD_PROTOCOL_COLLECTIVES_H
#define HVD_PROTOCOL_COLLECTIVES_H

#include <stddef.h>

/* clang-format off */
#define COLLECTIVES(X) \
    X(ALLREDUCE, "allreduce", 1), \
    X(BROADCAST, "broadcast", 1), \
    X(ALLGATHER, "allgather", 1), \
    X(BARRIER, "barrier", 0), \
    X(ALLTOALL, "alltoall", 1), \
    X(REDUCESCATTER, "reducescatter", 1)
/* clang-format on */

/* A join has no data, and statistics do not count it. */
#define COLLECTIVES_AND_JOIN(X) COLLECTIVES(X), X(JOIN, "join", 1)

#define COLLECTIVE_NAME(symbol, name, nccl) name

/* Returns "allreduce" and so on, "join" too; "?" for a kind not in the list. */
static inline const char *collective_name(unsigned kind)
{
    static const char *const names[] = {COLLECTIVES_AND_JOIN(COLLECTIVE_NAME)};

    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

#endif
