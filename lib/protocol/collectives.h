/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of collective operations, from which all parts of the program make
 * their enums and tables: the symbol of a kind, its name, whether NCCL can
 * carry it out on arrays in device memory, and whether it reduces data.
 *
 *     #define STATUS_KIND(symbol, ...) STATUS_##symbol
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
    X(ALLREDUCE, "allreduce", 1, 1), \
    X(BROADCAST, "broadcast", 1, 0), \
    X(ALLGATHER, "allgather", 1, 0), \
    X(BARRIER, "barrier", 0, 0), \
    X(ALLTOALL, "alltoall", 1, 0), \
    X(REDUCESCATTER, "reducescatter", 1, 1)
/* clang-format on */

/* A join has no data, and statistics do not count it. */
#define COLLECTIVES_AND_JOIN(X) COLLECTIVES(X), X(JOIN, "join", 1, 0)

#define COLLECTIVE_NAME(symbol, name, ...) name
#define COLLECTIVE_NCCL(symbol, name, nccl, reduces) nccl
#define COLLECTIVE_REDUCES(symbol, name, nccl, reduces) reduces

/* Returns "allreduce" and so on, "join" too; "?" for a kind not in the list. */
static inline const char *collective_name(unsigned kind)
{
    static const char *const names[] = {COLLECTIVES_AND_JOIN(COLLECTIVE_NAME)};

    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

/* Returns whether NCCL can carry out the kind on arrays in device memory. */
static inline int collective_nccl(unsigned kind)
{
    static const unsigned char can[] = {COLLECTIVES_AND_JOIN(COLLECTIVE_NCCL)};

    return kind < sizeof(can) && can[kind];
}

/* Returns whether the kind reduces data, so that it can be scaled. */
static inline int collective_reduces(unsigned kind)
{
    static const unsigned char does[] = {
        COLLECTIVES_AND_JOIN(COLLECTIVE_REDUCES)};

    return kind < sizeof(does) && does[kind];
}

#endif
