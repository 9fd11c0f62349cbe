/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hosts tell each other for PMIx, by hvdrun's rendezvous store.
 *
 * A fence N of PMIx is the store's fence "pmix.N".  For direct modex, in which
 * a rank's data are fetched when they are first needed, a host that needs data
 * puts want.HOST.  Each host watches the key with its own index, and then puts
 * data.RANK for all its ranks: a status byte and the data.
 */
#ifndef HVD_AGENT_WIREUP_PMIX_MODEX_H
#define HVD_AGENT_WIREUP_PMIX_MODEX_H

#include "lib/agent/rdv_relay.h"
#include "lib/protocol/pmix_wire.h"

struct pmix_request;

struct pmix_modex_events {
    /* Everyone has come to the fence, or, by its status, not: `text` says why,
     * and `blames` is 1 + the rank, or 0. */
    void (*on_fence)(void *arg, const struct pmix_wire_item *m, int blames,
                     const char *text);
    /* The data of a rank elsewhere. */
    void (*on_data)(void *arg, const struct pmix_wire_item *m);
    /* Those data have not come in time; nothing more follows for them. */
    void (*on_late)(void *arg, uint32_t rank);
    /* Another host needs the data of this host's ranks. */
    void (*on_wanted)(void *arg);
};

struct pmix_modex {
    struct relay *relay;
    const struct control_launch *job;
    const struct pmix_modex_events *events;
    void *arg;
    int *hosts;           /* by rank: index of its host */
    unsigned char *asked; /* by host: want.HOST has been put */
    struct pmix_request *requests;
};

/* Begins to watch; `events` are called from the loop.  A job of one host needs
 * nothing of this. */
void pmix_modex_open(struct pmix_modex *x);
void pmix_modex_fence(struct pmix_modex *x, const struct pmix_wire_item *m);
/* Asks for the data of a rank elsewhere: on_data follows, or on_late. */
void pmix_modex_want(struct pmix_modex *x, uint32_t rank, uint64_t due_ms);
/* Gives up the data that are due: on_late follows for each.  Returns when the
 * next are due, or 0 if none are. */
uint64_t pmix_modex_expire(struct pmix_modex *x, uint64_t now_ms);
/* Tells the other hosts a local rank's data. */
void pmix_modex_answer(struct pmix_modex *x, const struct pmix_wire_item *m);
/* Cancels everything; no event follows. */
void pmix_modex_close(struct pmix_modex *x);

#endif
