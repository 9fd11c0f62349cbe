/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and loads a plug-in; see plugin_load.h. */
#include "runtime/core/world/plugin_load.h"

#include "lib/base/env.h"
#include "lib/base/sys/trust.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char none; /* gives an address in this library */

/* Writes the folder of a path, or "." if it has none. */
static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    snprintf(out, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
}

static int find(const struct hvd__plugin *p, char path[PATH_MAX],
                struct hb_error *err)
{
    const char *given = hb_knob("PLUGIN_DIR");
    char dir[PATH_MAX];
    Dl_info self;
    int len;

    if (given) {
        len = snprintf(path, PATH_MAX, "%s/%s", given, p->file);
    } else {
        /* Beside this library, wherever it was loaded from. */
        if (!dladdr((const void *)&none, &self))
            self.dli_fname = NULL;
        folder_of(self.dli_fname, dir);
        len = snprintf(path, PATH_MAX, "%s/hvd/%s", dir, p->file);
    }
    if (len >= PATH_MAX)
        return hb_error_set(err, HVD_EINVAL, "%s: its path is too long",
                            p->file);
    if (access(path, F_OK) < 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "there is no %s; build libhvd where %s is "
                            "installed, or say in HVD_PLUGIN_DIR where it is",
                            path, p->needs);
    return 0;
}

/* Replaces path by its real path, and checks that no other user can exchange
 * the file.  A folder in HVD_PLUGIN_DIR is trusted: the user has chosen it.
 * Otherwise the owner of this library is trusted too, unless it was found by a
 * relative path: the working directory, or another one of that name, may be
 * anybody's. */
static int check(char path[PATH_MAX], struct hb_error *err)
{
    char real[PATH_MAX];
    Dl_info self;
    int known = dladdr((const void *)&none, &self) && self.dli_fname &&
                self.dli_fname[0] == '/';
    int rc;

    if (hb_knob("PLUGIN_DIR"))
        return 0;
    rc = hb_check_trust(path, known ? self.dli_fname : NULL, real, err);
    if (rc == 0)
        memcpy(path, real, sizeof(real));
    return rc;
}

/* Loads a plug-in and returns its table; NULL with err set.  flags: of
 * dlopen. */
static const void *load(const struct hvd__plugin *p, int flags,
                        struct hb_error *err)
{
    char path[PATH_MAX];
    hvd__plugin_fn *get;
    void *so, *symbol;

    if (find(p, path, err) < 0)
        return NULL;
    if (check(path, err) < 0)
        return NULL;
    so = dlopen(path, RTLD_NOW | flags);
    symbol = so ? dlsym(so, HVD__PLUGIN_SYMBOL) : NULL;
    if (!symbol) {
        hb_error_set(err, HVD_ESYSTEM, "%s", dlerror());
        return NULL;
    }
    memcpy(&get, &symbol, sizeof(get)); /* as POSIX suggests */
    return get(HVD__PLUGIN_ABI, err);
}

const void *hvd__plugin_load(struct hvd__plugin *p, struct hb_error *err)
{
    if (!p->table)
        p->table = load(p, p->flags, err);
    return p->table;
}

int hvd__plugin_ask(const struct hvd__plugin *p, int (*ask)(const void *table))
{
    const void *table = load(p, RTLD_LOCAL, NULL);

    if (!table)
        return 0;
    return ask ? ask(table) : 1;
}
