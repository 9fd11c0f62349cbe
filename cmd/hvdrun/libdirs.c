/* SPDX-License-Identifier: Apache-2.0 */
/* See libdirs.h. */
#include "cmd/hvdrun/libdirs.h"

#include "lib/base/alloc.h"

#include <unistd.h>

/* The Makefile asks the compiler: "x86_64-linux-gnu". */
#ifndef HVD_MULTIARCH
#define HVD_MULTIARCH ""
#endif

const char *const libdirs[] = {"../lib", "../lib64", "../lib/" HVD_MULTIARCH,
                               NULL};

char *libdirs_find(const char *dir, const char *file)
{
    for (const char *const *p = libdirs; *p; p++) {
        char *path = hb_xasprintf("%s/%s/%s", dir, *p, file);

        if (access(path, R_OK) == 0)
            return path;
        hb_free(path);
    }
    return NULL;
}
