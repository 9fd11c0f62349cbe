/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of fabrics; see fabric.h. */
#include "lib/agent/machine/fabric.h"

#include "lib/base/alloc.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether a directory has an entry that begins with `prefix`. */
static int has_entry(const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    int found = 0;

    if (!d)
        return 0;
    while (!found && (e = readdir(d)))
        found = e->d_name[0] != '.' &&
                strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(d);
    return found;
}

int fabric_present(const char *root)
{
    static const struct {
        const char *dir, *prefix;
    } devices[] = {
        /* verbs: InfiniBand, RoCE, iWARP, Omni-Path, EFA, usNIC */
        {"/sys/class/infiniband", ""},
        {"/dev/infiniband", ""}, /* where a container has no /sys */
        {"/dev", "hfi1"},        /* Omni-Path */
        {"/dev", "ipath"},       /* True Scale */
        {"/sys/class/cxi", ""},  /* Slingshot */
        {"/dev", "cxi"},
        {"/dev", "kgni"},       /* Aries */
        {"/sys/class/bxi", ""}, /* BXI */
        {"/dev", "bxi"},
    };
    int found = 0;

    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]) && !found;
         i++) {
        char *dir = hb_xasprintf("%s%s", root, devices[i].dir);

        found = has_entry(dir, devices[i].prefix);
        hb_free(dir);
    }
    return found;
}
