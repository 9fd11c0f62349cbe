/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves a real Horovod, whose ranks find each other by HTTP: a listener on
 * 127.0.0.1 that passes their requests on to the job's rendezvous store.
 *
 * A rank begins with PUT /scope/rank_N and a look at the other keys of that
 * kind.  It goes on with PUT /scope/N and reads the key N of each peer, where
 * 404 means "not yet: ask again".  When all have connected to each other, a
 * barrier follows, then DELETE /scope/N.  hvd.init() does this for six scopes
 * or more.  After hvd.shutdown() the next hvd.init() uses the same names again.
 *
 * Rounds.  A quick rank may put the keys of the next round before a slow one
 * has sent the DELETE of this round.  The first DELETE whose key exists drops
 * the whole scope (RDV_END_ROUND), and the others find their keys absent:
 *  - A rank sends DELETE after the barrier, when all ranks have read all that
 *    they wanted.  So dropping the scope takes nothing from this round.
 *  - A rank puts the key N of the next round after its own DELETE was answered.
 *    So when it does, the scope is empty of this round, and when a DELETE
 *    finds its key, that key is of the round which the DELETE ends.
 *  - The same holds if the client repeats a request, since a rank has only one
 *    under way, and they reach the store in order.
 * A rank that dies in between ends the job.
 *
 * The agent keeps the values that its ranks have read, since all of them read
 * the same.  A DELETE of any of its ranks drops those of the scope.  So none
 * outlives its round here: a rank that reads in the next round has sent its
 * DELETE of this one before.
 *
 * A GET of a key N that is absent is held for a moment, which spares ranks and
 * agent the polling.
 *
 * Only processes of the agent's user are served.  Each connection has a time
 * limit; their number, and the bytes kept, are bounded.
 */
#ifndef HVD_AGENT_HOROVOD_RDV_H
#define HVD_AGENT_HOROVOD_RDV_H

#include "lib/agent/rdv_relay.h"
#include "lib/base/error.h"
#include "lib/base/log.h"

#include <uv.h>

struct horovod_rdv;

struct horovod_rdv_config {
    uv_loop_t *loop;
    const struct control_launch *job; /* borrowed */
    const struct hb_log *log;
    struct relay *relay; /* to the store; used until the server is closed */
};

/* Begins to listen; the loop runs it.  0, or negative with err set. */
int horovod_rdv_open(const struct horovod_rdv_config *config,
                     struct horovod_rdv **out, struct hb_error *err);
/* Returns the TCP port, on 127.0.0.1. */
int horovod_rdv_port(const struct horovod_rdv *h);
/* Closes the listener and all connections.  NULL is allowed; may be repeated.
 * The loop must run empty before horovod_rdv_free. */
void horovod_rdv_close(struct horovod_rdv *h);
void horovod_rdv_free(struct horovod_rdv *h);

#endif
