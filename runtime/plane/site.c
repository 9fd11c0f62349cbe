/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies the places that operations are called from; see site.h. */
#include "runtime/plane/site.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

enum { MODULE_SHOWN = 40, FUNCTION_SHOWN = 40 };

/* Finds the module that contains the call returning to `caller`, and the call's
 * offset in it: one byte before the return address, as tools that translate
 * addresses into lines expect.  Returns 0 for code in no module, such as code
 * made at run time. */
static int find(const void *caller, Dl_info *info, struct link_map **map,
                uint64_t *offset)
{
    const char *call = (const char *)caller - 1;

    if (!dladdr1(call, info, (void **)map, RTLD_DL_LINKMAP) ||
        !info->dli_fname || !info->dli_fbase)
        return 0;
    *offset = (uint64_t)((uintptr_t)call - (uintptr_t)info->dli_fbase);
    return 1;
}

/* Returns the module's file name: its folder may differ between hosts. */
static const char *module_name(const Dl_info *info)
{
    const char *slash = strrchr(info->dli_fname, '/');

    return slash ? slash + 1 : info->dli_fname;
}

/* Hashes the module's name; "" for the executable: for that, dladdr gives
 * argv[0], which may differ between ranks. */
static uint64_t module_hash(const Dl_info *info, const struct link_map *map)
{
    return hvd__name_hash(map && !map->l_name[0] ? "" : module_name(info));
}

uint64_t hvd__site_hash(const void *caller)
{
    uint64_t offset, hash = hvd__mix(1, 1);
    struct link_map *map = NULL;
    Dl_info info;

    if (find(caller, &info, &map, &offset))
        hash = hvd__mix(module_hash(&info, map), offset);
    return hash | 1;
}

void hvd__site_text(const void *caller, char out[HVD__SITE_BYTES])
{
    uint64_t offset, in_function;
    struct link_map *map = NULL;
    const char *module;
    Dl_info info;

    out[0] = '\0';
    if (!caller)
        return;
    if (!find(caller, &info, &map, &offset)) {
        snprintf(out, HVD__SITE_BYTES, "code of no module");
        return;
    }
    module = module_name(&info);
    in_function = offset + (uint64_t)(uintptr_t)info.dli_fbase -
                  (uint64_t)(uintptr_t)info.dli_saddr;
    if (info.dli_sname)
        snprintf(out, HVD__SITE_BYTES,
                 "%.*s+0x%" PRIx64 " (%.*s+0x%" PRIx64 ")", FUNCTION_SHOWN,
                 info.dli_sname, in_function, MODULE_SHOWN, module, offset);
    else
        snprintf(out, HVD__SITE_BYTES, "%.*s+0x%" PRIx64, MODULE_SHOWN, module,
                 offset);
}
