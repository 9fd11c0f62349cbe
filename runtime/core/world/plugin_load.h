/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds and loads a plug-in (plugins/plugin.h): in HVD_PLUGIN_DIR, or else in
 * the folder hvd/ beside libhvd.so.
 */
#ifndef HVD_CORE_PLUGIN_H
#define HVD_CORE_PLUGIN_H

#include "runtime/plugins/plugin.h"

/* A plug-in, as the module that uses it knows it. */
struct hvd__plugin {
    const char *file;  /* libhvd-X.so */
    const char *needs; /* what it is built with, for the message */
    int flags;         /* of dlopen */
    const void *table; /* NULL: not loaded; protected by hvd_init's lock */
};

/* Returns the table of a plug-in: the same at every call, never unloaded.  NULL
 * with err set:
 *   HVD_EUNSUPPORTED  there is none
 *   HVD_ESYSTEM       it cannot be loaded; the message has the loader's text
 *   HVD_EPROTO        it is of another release */
const void *hvd__plugin_load(struct hvd__plugin *p, struct hb_error *err);

/* Calls `ask` with the table of a plug-in, which is loaded if need be.  Returns
 * the result, 1 if `ask` is NULL, or 0 if the plug-in cannot be loaded.
 * hvd__plugin_load() still has to load it; its symbols are not visible to other
 * libraries.  Any thread. */
int hvd__plugin_ask(const struct hvd__plugin *p, int (*ask)(const void *table));

#endif
