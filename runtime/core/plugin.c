/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading a plug-in; see plugin.h. */
#include "runtime/core/plugin.h"

#include "lib/base/env.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char file[] = "libhvd-mpi.so";

/* The folder in path, or "" for a file that is loaded without one. */
static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    snprintf(out, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
}

static int find(char path[PATH_MAX], struct hb_error *err)
{
    const char *given = hb_knob("PLUGIN_DIR");
    char dir[PATH_MAX];
    Dl_info self;
    int len;

    if (given) {
        len = snprintf(path, PATH_MAX, "%s/%s", given, file);
    } else {
        /* This library, wherever it was loaded from. */
        if (!dladdr((const void *)file, &self))
            self.dli_fname = NULL;
        folder_of(self.dli_fname, dir);
        len = snprintf(path, PATH_MAX, "%s/hvd/%s", dir, file);
    }
    if (len >= PATH_MAX)
        return hb_error_set(err, HVD_EINVAL, "%s: its path is too long", file);
    if (access(path, F_OK) < 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "there is no %s; build libhvd where an MPI is "
                            "installed, or say in HVD_PLUGIN_DIR where it is",
                            path);
    return 0;
}

const struct hvd__mpi *hvd__plugin_mpi(struct hb_error *err)
{
    static const struct hvd__mpi *mpi; /* under hvd_init's lock */
    char path[PATH_MAX];
    hvd__plugin_fn *get;
    void *so, *symbol;

    if (mpi)
        return mpi;
    if (find(path, err) < 0)
        return NULL;
    /* Global: MPI's own plug-ins look for MPI's symbols. */
    so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    symbol = so ? dlsym(so, HVD__PLUGIN_SYMBOL) : NULL;
    if (!symbol) {
        hb_error_set(err, HVD_ESYSTEM, "%s", dlerror());
        return NULL;
    }
    memcpy(&get, &symbol, sizeof(get)); /* as POSIX has it */
    mpi = get(HVD__PLUGIN_ABI, err);
    return mpi;
}
