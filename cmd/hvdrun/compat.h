/* SPDX-License-Identifier: Apache-2.0 */
/* --horovod: where the Python package that answers to `import horovod` is. */
#ifndef HVDRUN_COMPAT_H
#define HVDRUN_COMPAT_H

#include "cmd/hvdrun/options/options.h"

/* The version of Horovod that the package and horovodrun's command line are
 * compatible with. */
#define COMPAT_VERSION "0.28.1"

/* Sets o->compat_dir for a run with --horovod.  The folder hvd/compat is looked
 * for in the build tree, in an installation and in the site-packages of a
 * Python environment, relative to hvdrun's own program.  0, or -HVD_ENOENT
 * with err set if there is none; horovodrun, which may start programs that are
 * not in Python, adds a warning instead and returns 0. */
int compat_find(struct options *o, struct hb_error *err);

#endif
