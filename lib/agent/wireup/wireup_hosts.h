/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts tell each other if their ranks go without a kind of wire-up that
 * another host may use: through the job's store. */
#ifndef HVD_AGENT_WIREUP_HOSTS_H
#define HVD_AGENT_WIREUP_HOSTS_H

#include "lib/agent/wireup/wireup.h"

enum { WIREUP_HOSTS_TEXT_BYTES = 256 }; /* at most, with its final 0 */

/* Tells the other hosts of a job, if it has any, why this one goes without
 * `kind`. */
void wireup_tell_hosts(const struct wireup_config *config,
                       const struct wireup_kind *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Waits for a host that goes without `kind`: `cb` gets its text.  Returns a
 * number for relay_own_cancel, or 0 if there is no other host. */
uint32_t wireup_watch_hosts(const struct wireup_config *config,
                            const struct wireup_kind *kind, relay_own_cb cb,
                            void *arg);

#endif
