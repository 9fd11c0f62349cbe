/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's end of the conversation with its agent (lib/protocol/
 * worker.h).  Used by one thread at a time; every wait ends at a deadline.
 */
#ifndef HVD_CORE_AGENT_CLIENT_H
#define HVD_CORE_AGENT_CLIENT_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/rendezvous.h"
#include "lib/protocol/worker.h"

#include <stdint.h>

struct hvd__agent {
    int fd; /* -1: not connected */
    struct hb_buf in;
    int memfd; /* received and not yet given away, or -1 */
};

/* clang-format off */
#define HVD__AGENT_INIT { -1, HB_BUF_INIT, -1 }
/* clang-format on */

/*
 * Connects to `unix:@NAME` or `unix:/path`, checks that the other side
 * runs as this user, says hello and gets the welcome.
 *
 * deadline_ns is on hb_now_ns's clock.  0, or with err set -HVD_EINVAL (the
 * address), -HVD_ESYSTEM, -HVD_EPERM (another user's socket, or refused),
 * -HVD_ETIMEOUT, -HVD_ECLOSED, -HVD_EPROTO, -HVD_ENOMEM.  On failure the
 * connection is closed.
 */
int hvd__agent_open(struct hvd__agent *a, const char *address, uint32_t rank,
                    uint64_t deadline_ns, struct worker_welcome *w,
                    struct hb_error *err);

/* Joins an epoch, waits until all local ranks have, and gives away the
 * descriptor of its segment.  Fails as above, and with -HVD_EPEER when a
 * rank dies meanwhile. */
int hvd__agent_join(struct hvd__agent *a, uint32_t epoch,
                    uint64_t segment_bytes, uint64_t deadline_ns, int *memfd,
                    struct hb_error *err);

/* How this host reaches each host of the job: numeric addresses, by index
 * in the plan; for its own, where to listen ("": on every address).  Fails
 * as hvd__agent_join. */
int hvd__agent_routes(struct hvd__agent *a, uint64_t deadline_ns,
                      uint32_t host_count,
                      char (*addresses)[WORKER_ADDRESS_MAX],
                      struct hb_error *err);

/* Every rank of the job gives a value to the fence of a scope, and gets all
 * of them when the last has. */
struct hvd__fence {
    const char *scope; /* the same on all ranks, each used once */
    const void *value; /* at most WORKER_VALUE_MAX bytes */
    size_t len;
    uint32_t size; /* ranks of the job */
    /* Gets the values by rank, which are gone when it returns. */
    int (*take)(void *arg, const struct worker_value *values,
                struct hb_error *err);
    void *arg;
};

/* 0, what take returned, or as hvd__agent_join. */
int hvd__agent_fence(struct hvd__agent *a, const struct hvd__fence *fence,
                     uint64_t deadline_ns, struct hb_error *err);

/* Any request to the job's store (lib/protocol/rendezvous.h): put, get,
 * delete, a fence of some ranks; its id is set here.  take gets the reply,
 * whose value is gone when it returns.  0, what take returned, -HVD_EINVAL
 * for a request that is none, or as hvd__agent_join; a get that waits does
 * so until the deadline. */
int hvd__agent_ask(struct hvd__agent *a, struct rdv_request *m,
                   int (*take)(void *arg, const struct rdv_reply *m), void *arg,
                   uint64_t deadline_ns, struct hb_error *err);

/* Any thread, without blocking: 0 while the agent is there, or when there is
 * no memory to read what it says, which the next call then does; -HVD_EPEER,
 * -HVD_ETIMEOUT, -HVD_ECLOSED or -HVD_EPROTO with err set when it told of a
 * death, or that the job ends because a rank waited too long, is gone
 * itself, or says what it should not. */
int hvd__agent_check(struct hvd__agent *a, struct hb_error *err);

/* Says something short if the agent takes it at once.  Any thread, at any
 * time: so few bytes go whole or not at all. */
void hvd__agent_say(struct hvd__agent *a, const void *frame, size_t len);

/* Says that this rank leaves; not told if the agent does not take it. */
void hvd__agent_leave(struct hvd__agent *a, uint32_t epoch);

void hvd__agent_close(struct hvd__agent *a); /* idempotent */

#endif
