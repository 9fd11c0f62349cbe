/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the prefixes of the ranks' lines are coloured. */
#ifndef HVDRUN_COLOR_H
#define HVDRUN_COLOR_H

#include "cmd/hvdrun/options/options.h"

/* Returns which streams get coloured prefixes, as struct job_config says: those
 * that are terminals, unless the options or the environment say otherwise. */
unsigned color_wanted(const struct options *o);

#endif
