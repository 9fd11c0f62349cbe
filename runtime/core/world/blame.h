/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells this host's agent which rank made this one fail.
 *
 * A program that is told that rank 2 has died or left mostly exits with an
 * error, and may do so before rank 2's process has ended, because that runs
 * its exit handlers.  With this word hvdrun knows which of the two failures
 * is the first.
 */
#ifndef HVD_CORE_BLAME_H
#define HVD_CORE_BLAME_H

#include "lib/base/error.h"
#include "runtime/core/world/agent_client.h"

/* Uses the agent until hvd__blame_close. */
void hvd__blame_open(struct hvd__agent *agent);
void hvd__blame_close(void);

/* Sends the agent the rank that err names, if err says that this rank has
 * died or left; nothing otherwise, after the first time, or without an agent.
 * Any thread, without blocking. */
void hvd__blame(const struct hb_error *err);

/* Returns whether err says that the generation of an elastic job has ended:
 * that a rank has died or left, or that the connection to it broke. */
int hvd__generation_ended(const struct hb_error *err);

#endif
