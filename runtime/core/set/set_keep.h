/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the process sets of an elastic job when its generation changes: a set
 * has the same number afterwards, with the members that are left.
 *
 * Before a rank leaves a generation it notes its sets (remember).  When it is
 * in the next one, all ranks of that tell each other what they have noted, and
 * make the sets again (remake).  A set is made only if all that should have
 * noted it have, so one that was being made or removed when a rank died exists
 * afterwards on all ranks or on none.  What is noted lasts until remake has
 * succeeded, as the next generation may end before that; but a rank that was
 * in none for a while forgets it, since the others have gone on.
 *
 * Called under the lock of hvd_init and hvd_shutdown.
 */
#ifndef HVD_CORE_SET_KEEP_H
#define HVD_CORE_SET_KEEP_H

#include "lib/base/error.h"

#include <stdint.h>

/* Notes the sets of the table.  Called when no thread makes or removes a set,
 * before the sets end.  Returns 0, or -HVD_ENOMEM with err set: the earlier
 * notes are then kept. */
int hvd__sets_remember(struct hb_error *err);

/* Sets the generation that this rank enters (0: the job is not elastic), before
 * its world comes up.  If the rank has missed a generation, forgets its sets
 * and treats the rank as a new one. */
void hvd__sets_enter(uint32_t generation);

/* Returns the generation in which this rank last came back after it had missed
 * some, or 0. */
uint32_t hvd__sets_returned(void);

/* Makes the sets that were noted, in a world that is up; all of its ranks call
 * it.  Does nothing unless the job is elastic.  Returns 0 or negative with err
 * set; the table may then have some of the sets. */
int hvd__sets_remake(struct hb_error *err);

/* Makes the next generation count as this rank's first: it has not made its
 * first sets yet. */
void hvd__sets_begin_again(void);

/* Returns whether all ranks of the world are in their first generation, or have
 * begun again; 1 if the job is not elastic. */
int hvd__sets_all_first(void);

/* Forgets the sets when the rank leaves the job.  If it comes back, the other
 * ranks treat it as another process. */
void hvd__sets_forget(void);

#endif
