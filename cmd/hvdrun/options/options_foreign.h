/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of other launchers that hvdrun does not have, and launchers as the
 * command, with what to use instead: people come from torchrun, mpirun and srun
 * with their habits.
 */
#ifndef HVD_HVDRUN_OPTIONS_FOREIGN_H
#define HVD_HVDRUN_OPTIONS_FOREIGN_H

#include <stddef.h>

/* Returns whether `word`, without a value, is another launcher's option, and
 * sets *program to the launcher's name and *advice to what to do. */
int foreign_option(const char *word, const char **program, const char **advice);
/* Returns the name of that index, or NULL after the last; for tests. */
const char *foreign_option_name(size_t index);
/* Returns the name of the launcher that `command`, which ends with NULL, runs,
 * and sets *advice to what hvdrun should run instead.  Returns NULL if the
 * command is no launcher. */
const char *foreign_launcher(char *const *command, const char **advice);

#endif
