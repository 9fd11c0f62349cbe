/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plug-in: a shared object whose planes need a library that is not on every
 * host.  libhvd.so opens it when it is needed; without it, the other planes
 * still work.  It exports one function, hvd_plugin, which returns the table of
 * its functions:
 *
 *     plug-in         table              header
 *     libhvd-mpi.so   struct hvd__mpi    mpi_plugin.h
 *     libhvd-nccl.so  struct hvd__gpu    gpu.h
 *
 * Both sides must come from the same build: they share the structs of
 * runtime/plane, whose version HVD__PLUGIN_ABI holds.  A plug-in is never
 * unloaded (-z nodelete), as MPI cannot be.
 */
#ifndef HVD_PLUGINS_PLUGIN_H
#define HVD_PLUGINS_PLUGIN_H

#include "lib/base/error.h"

#include <string.h>

#define HVD__PLUGIN_SYMBOL "hvd_plugin"
#define HVD__PLUGIN_ABI "10 " HVD_VERSION

/* Returns the plug-in's table; NULL with err set if `abi`, the caller's
 * HVD__PLUGIN_ABI, is not the plug-in's. */
typedef const void *hvd__plugin_fn(const char *abi, struct hb_error *err);

/* Returns `table` if `abi` is the plug-in's; else NULL with err set.  file: the
 * plug-in's name. */
static inline const void *hvd__plugin_table(const void *table, const char *file,
                                            const char *abi,
                                            struct hb_error *err)
{
    if (strcmp(abi, HVD__PLUGIN_ABI) == 0)
        return table;
    hb_error_set(err, HVD_EPROTO,
                 "%s is of version \"%s\" and libhvd.so of \"%s\"", file,
                 HVD__PLUGIN_ABI, abi);
    return NULL;
}

#endif
