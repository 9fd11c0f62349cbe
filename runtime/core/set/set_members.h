/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets that their members make and remove alone, while the other ranks
 * do something else.  The members meet in the job's store, by fences of their
 * own, so several threads of a rank may make sets at the same time.
 */
#ifndef HVD_CORE_SET_MEMBERS_H
#define HVD_CORE_SET_MEMBERS_H

#include "lib/base/error.h"

#include <stddef.h>

struct hvd__set_birth;

/* Makes a set and writes its number on this rank to *set, as
 * hvd_process_set_add_members.  Returns 0 or negative with err set. */
int hvd__set_add_members(const int *ranks, size_t count, const char *tag,
                         int *set, struct hb_error *err);

/* Makes set `id` of this rank in a new generation, with the n members that are
 * left, all of which call it.  Returns 0 or negative with err set. */
int hvd__set_remake_members(int id, const int *ranks, int n,
                            const struct hvd__set_birth *birth,
                            struct hb_error *err);

/* Removes a set that hvd__set_add_members made, as hvd_process_set_remove.
 * Returns 0 or negative with err set. */
int hvd__set_remove_members(int set, struct hb_error *err);

#endif
