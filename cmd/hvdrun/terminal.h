/* SPDX-License-Identifier: Apache-2.0 */
/* What hvdrun does only on a terminal. */
#ifndef HVDRUN_TERMINAL_H
#define HVDRUN_TERMINAL_H

#include "cmd/hvdrun/options/options.h"

/* Returns which streams get coloured prefixes, as struct job_config says: those
 * that are terminals, unless the options or the environment say otherwise. */
unsigned color_wanted(const struct options *o);
/* Returns whether there is a terminal for the line of --status. */
int status_is_shown(const struct options *o);

#endif
