/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the job's store (lib/protocol/rendezvous.h) between hvd_init and
 * hvd_shutdown: several at once, in any threads, beside the drivers that ask
 * hvd__agent_check whether the job is over.
 */
#ifndef HVD_CORE_AGENT_CALL_H
#define HVD_CORE_AGENT_CALL_H

#include "runtime/core/world/agent_client.h"

/* Sends a request, sets m->id, and waits for the reply, whose value it moves to
 * *value, which the caller frees.  Returns 0, or with err set:
 *   the status of the reply
 *   -HVD_ETIMEOUT   deadline_ns, on hb_now_ns's clock, has passed
 *   -HVD_ESHUTDOWN  hvd__agent_interrupt was called
 *   -HVD_EINVAL, -HVD_ENOMEM, -HVD_ESYSTEM, or as hvd__agent_check
 * After a failure the request may still be carried out. */
int hvd__agent_call(struct hvd__agent *a, struct rdv_request *m,
                    struct hb_buf *value, uint64_t deadline_ns,
                    struct hb_error *err);

/* Makes all calls fail, now and later, until the agent is opened again. */
void hvd__agent_interrupt(struct hvd__agent *a);

#endif
