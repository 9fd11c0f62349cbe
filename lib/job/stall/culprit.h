/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the ranks that failed caused the others' failures.
 *
 * Mostly it is the one whose process ended first.  But a rank that leaves with
 * exit() loses its connections before its process ends, and the ranks that
 * notice may end sooner: each of those says which rank it blames.  Pure.
 */
#ifndef HVD_JOB_CULPRIT_H
#define HVD_JOB_CULPRIT_H

#include "lib/protocol/control/control.h"

#include <stddef.h>

/* Follows who blames whom, from the first of `failed`, which is in order of
 * death; count is at least 1.  Sets *at to the index of the last failed rank on
 * that path, and returns the rank which that one blames and which is not in
 * `failed`, or -1 if it blames none.  A circle of blame counts as none: *at is
 * 0. */
int culprit_find(const struct control_exited *failed, size_t count, size_t *at);

#endif
