/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading a plug-in; see plugin.h. */
#include "runtime/core/plugin.h"

#include "lib/base/env.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char none; /* an address of this library's */

/* The folder in path, or "" for a file that is loaded without one. */
static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    snprintf(out, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
}

static int find(const char *file, char path[PATH_MAX], struct hb_error *err)
{
    const char *given = hb_knob("PLUGIN_DIR");
    char dir[PATH_MAX];
    Dl_info self;
    int len;

    if (given) {
        len = snprintf(path, PATH_MAX, "%s/%s", given, file);
    } else {
        /* This library, wherever it was loaded from. */
        if (!dladdr((const void *)&none, &self))
            self.dli_fname = NULL;
        folder_of(self.dli_fname, dir);
        len = snprintf(path, PATH_MAX, "%s/hvd/%s", dir, file);
    }
    if (len >= PATH_MAX)
        return hb_error_set(err, HVD_EINVAL, "%s: its path is too long", file);
    if (access(path, F_OK) < 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "there is no %s; build libhvd where %s is "
                            "installed, or say in HVD_PLUGIN_DIR where it is",
                            path, strstr(file, "mpi") ? "an MPI" : "CUDA");
    return 0;
}

/* What `file` exports; NULL with err set. */
static void *load(const char *file, int flags, struct hb_error *err)
{
    char path[PATH_MAX];
    void *so, *symbol;

    if (find(file, path, err) < 0)
        return NULL;
    so = dlopen(path, RTLD_NOW | flags);
    symbol = so ? dlsym(so, HVD__PLUGIN_SYMBOL) : NULL;
    if (!symbol)
        hb_error_set(err, HVD_ESYSTEM, "%s", dlerror());
    return symbol;
}

const struct hvd__mpi *hvd__plugin_mpi(struct hb_error *err)
{
    static const struct hvd__mpi *mpi; /* under hvd_init's lock */
    hvd__plugin_fn *get;
    void *symbol;

    if (mpi)
        return mpi;
    /* Global: MPI's own plug-ins look for MPI's symbols. */
    symbol = load("libhvd-mpi.so", RTLD_GLOBAL, err);
    if (!symbol)
        return NULL;
    memcpy(&get, &symbol, sizeof(get)); /* as POSIX has it */
    mpi = get(HVD__PLUGIN_ABI, err);
    return mpi;
}

const struct hvd__gpu *hvd__plugin_gpu(struct hb_error *err)
{
    static const struct hvd__gpu *gpu; /* under hvd_init's lock */
    hvd__gpu_plugin_fn *get;
    void *symbol;

    if (gpu)
        return gpu;
    symbol = load("libhvd-nccl.so", RTLD_LOCAL, err);
    if (!symbol)
        return NULL;
    memcpy(&get, &symbol, sizeof(get));
    gpu = get(HVD__PLUGIN_ABI, err);
    return gpu;
}
