/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world: joins the other ranks of the job, through hvdrun's agent or MPI,
 * and makes the process set of all of them.
 *
 * hvd_init and hvd_shutdown call these functions one at a time, and
 * hvd__set_connect is called under the lock of changes of sets.
 * hvd__world_leave and hvd__world_agent are also called from exit handlers.
 */
#ifndef HVD_CORE_WORLD_SET_H
#define HVD_CORE_WORLD_SET_H

#include "runtime/core/set/set.h"

/* Joins the world that the environment tells of, sets the context's topology
 * and makes the world's plane.  leave: as for open of struct
 * hvd__world_ops.  Returns 0, or negative with err set; the caller then
 * closes. */
int hvd__world_join(void (*leave)(void), struct hb_error *err);

/* Returns whether other ranks may wait for this one. */
int hvd__world_has_peers(void);

struct hvd__agent *hvd__world_agent(void);
const char *hvd__world_host(void); /* name of this host; "" if alone */

/* Opens the arena of hvd_alloc and the set of all ranks, for which `tuner` is
 * used if it is open, and publishes the set.  Called once the knobs are read
 * and the providers open.  Returns 0 or negative with err set. */
int hvd__world_open(struct hvd__tuner *tuner, struct hb_error *err);

/* Makes s->plane (and s->hosts) of a process set for the n world ranks `ranks`;
 * this rank is ranks[me], or no member if me is -1.  All ranks of the world
 * call it, members or not.  Returns 0 or negative with err set. */
int hvd__set_connect(struct hvd__set *s, const int *ranks, int n, int me,
                     struct hb_error *err);

/* What the members of a set that they make alone have agreed on. */
struct hvd__founding {
    const int *ranks; /* n world ranks, ascending; this rank is ranks[me] */
    int n, me;
    int slot;         /* the set's part of this host's segment */
    uint32_t founded; /* as in struct hvd__set */
    uint64_t deadline_ns;
    /* As in struct hvd__subset, but among the members alone: `all` is set to 0
     * for the other ranks. */
    int (*exchange)(void *arg, const void *mine, size_t len, void *all,
                    struct hb_error *err);
    void *arg;
};

/* Makes s->plane as hvd__set_connect, but is called by the members alone. */
int hvd__set_connect_members(struct hvd__set *s, const struct hvd__founding *f,
                             struct hb_error *err);

/* Returns whether this rank is the first of the n world ranks on its host, and
 * the place of that one among them; -1: there is none. */
int hvd__world_is_first(const int *ranks, int n);
int hvd__world_first(const int *ranks, int n);

/* Claims a part of the segment for a set, or any from `slot` down, and sets
 * s->slot: 1, or 0 if all are claimed.  unclaim gives back what this rank has
 * claimed for the set; idempotent. */
int hvd__set_claim(struct hvd__set *s, int slot, int lowest);
void hvd__set_unclaim(struct hvd__set *s);

/* Returns whether the ranks have no agent, but MPI. */
int hvd__world_is_launched(void);
/* Returns the number of the world: 1 after the first hvd_init. */
uint32_t hvd__world_epoch(void);
/* Gets the limit on waiting for peers that begins now.  Returns 0, or
 * -HVD_EINVAL with err set. */
int hvd__world_deadline(uint64_t *deadline_ns, struct hb_error *err);
/* Makes the calls fail that wait for the agent (world/agent_call.h). */
void hvd__world_interrupt(void);

/* Tells the agent that this rank leaves. */
void hvd__world_leave(void);

/* Unmaps the segment, except for blocks of hvd_alloc that were detached from
 * it, and closes the connection to the agent; idempotent. */
void hvd__world_close(void);
/* Reads HVD_ELASTIC: 1 in an elastic job, 2 if the other ranks of that job run
 * already, else 0; or -HVD_EINVAL with err set. */
int hvd__world_is_elastic(struct hb_error *err);
/* Returns what the agent has said of this rank's world; valid until hvd_init,
 * hvd_sync or hvd_shutdown. */
const struct worker_welcome *hvd__world_welcome(void);
/* Returns what ranks and agent share on this host in the generation of an
 * elastic job, or NULL; valid as above. */
struct segment_head *hvd__world_head(void);

#endif
