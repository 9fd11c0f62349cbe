/* SPDX-License-Identifier: Apache-2.0 */
/* See compat.h. */
#include "cmd/hvdrun/compat.h"

#include "cmd/hvdrun/run_job.h"
#include "lib/base/alloc.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of these, relative to hvdrun's directory, the first that exists is used. */
static const char *const places[] = {
    "../python",                             /* make python */
    "../lib{,64,/*-linux-*}/hvd/python",     /* make install */
    "../lib*/python3*/{site,dist}-packages", /* pip install */
};

/* Returns the folder of the package in the matching one, the last by version if
 * several Pythons have one; NULL if none has.  Links below that are kept: in a
 * build tree they lead to the sources, where the compiled module is not. */
static char *find_in(const char *dir, const char *subdir)
{
    static const char file[] = "/hvd/compat/horovod/__init__.py";
    char *pattern = hb_xasprintf("%s/%s%s", dir, subdir, file);
    char real[PATH_MAX], *last = NULL, *found = NULL;
    glob_t g;

    if (glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            if (!last || strverscmp(g.gl_pathv[i], last) > 0)
                last = g.gl_pathv[i];
        }
        last[strlen(last) - strlen(file)] = '\0';
        if (realpath(last, real))
            found = hb_xasprintf("%s/hvd/compat", real);
        globfree(&g);
    }
    hb_free(pattern);
    return found;
}

int compat_find(struct options *o, struct hb_error *err)
{
    static const char missing[] =
        "there is no Python package beside hvdrun; install it with pip, or "
        "build it with make python";
    char *dir;

    if (o->horovod == HOROVOD_OFF ||
        (o->action != OPTIONS_RUN && o->action != OPTIONS_DRY_RUN))
        return 0;
    dir = run_program_dir();
    for (size_t i = 0; !o->compat_dir && i < sizeof(places) / sizeof(places[0]);
         i++)
        o->compat_dir = find_in(dir, places[i]);
    hb_free(dir);
    if (o->compat_dir)
        return 0;
    if (!o->horovodrun || o->horovod == HOROVOD_FORCE)
        return hb_error_set(err, HVD_ENOENT, "--horovod: %s", missing);
    hb_must(hb_strv_addf(&o->warnings,
                         "ranks in Python cannot import horovod: %s", missing));
    return 0;
}
