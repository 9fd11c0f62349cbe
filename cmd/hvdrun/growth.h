/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that get hosts and ranks while they run: finding the first hosts, and
 * making room in the plan. */
#ifndef HVDRUN_GROWTH_H
#define HVDRUN_GROWTH_H

#include "cmd/hvdrun/options/options.h"
#include "lib/job/discovery/discoverer.h"

/* Runs the discovery script until it has named enough slots for the first
 * ranks.  Returns 0 and *hosts; a positive exit code if a signal came; or
 * negative with err set: the script fails, or names too few slots within
 * --elastic-timeout. */
int growth_discover(const struct options *o, const struct hb_log *log,
                    struct hostlist *hosts, struct hb_error *err);

/* Fills in how the hosts are found while the job runs; the caller adds loop,
 * log and callbacks. */
void growth_discoverer(const struct options *o, struct discoverer_config *out);

/* Gives hosts of a list that was found while the job runs the names that the
 * plan has, as known_name says, and merges those that get the same.  0, or
 * negative with err set. */
int growth_rename(struct hostlist *l,
                  const char *(*known_name)(void *arg, const char *name),
                  void *arg, struct hb_error *err);

/* Returns the most ranks that work at once, in a job of np at first. */
int growth_most(const struct options *o, int np);
/* Makes room in the plan for hosts and ranks that come later. */
void growth_reserve(const struct options *o, struct plan *plan);

#endif
