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

/* Tells the agent that this rank leaves. */
void hvd__world_leave(void);

/* Unmaps the segment and closes the connection to the agent; idempotent. */
void hvd__world_close(void);

#endif
