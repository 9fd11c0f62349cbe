/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds and removes process sets.  All ranks of the world call these functions,
 * members of the set or not, in the same order.
 */
#ifndef HVD_CORE_SET_CHANGE_H
#define HVD_CORE_SET_CHANGE_H

#include "lib/base/error.h"

#include <stddef.h>

/* Makes a set and writes its number to *set, as hvd_process_set_add.  Returns 0
 * or negative with err set. */
int hvd__set_add(const int *ranks, size_t count, int *set,
                 struct hb_error *err);

/* Makes set `id` in a new generation, with n >= 0 members; as hvd__set_add, all
 * ranks call it.  Returns 0 or negative with err set. */
int hvd__set_remake(int id, int *ranks, int n, struct hb_error *err);

/* Removes a set, as hvd_process_set_remove.  Returns 0 or negative with err
 * set. */
int hvd__set_remove(int set, struct hb_error *err);

/* Checks that `number` is the same on all ranks.  what: a phrase for the
 * message on what is done with it.  Returns 0 or negative with err set. */
int hvd__sets_agree(int number, const char *what, struct hb_error *err);

#endif
