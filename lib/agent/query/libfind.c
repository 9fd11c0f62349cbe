/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which versions of CUDA, NCCL and MPI a program would get here.  They are
 * looked for where its loader looks: LD_LIBRARY_PATH, the loader's cache, then
 * the usual directories.  The version is what follows ".so." in the name of the
 * file that the links lead to.
 */
#include "lib/agent/query/progcheck.h"

#include "lib/agent/machine/ld_cache.h"
#include "lib/base/alloc.h"
#include "lib/base/strv.h"
#include "lib/protocol/query.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual_dirs[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/opt/openmpi/lib",
};

static const struct {
    const char *label, *name;
} wanted[] = {
    {"cuda", "libcudart.so"},
    {"cuda_driver", "libcuda.so"},
    {"nccl", "libnccl.so"},
    {"mpi", "libmpi.so"},
};
enum { WANTED = sizeof(wanted) / sizeof(wanted[0]) };

/* Returns whether `file` is the library or a version of it: "libmpi.so" and
 * "libmpi.so.40.30.5", but not "libmpi.so_x". */
static int is_library(const char *file, const char *name)
{
    size_t len = strlen(name);

    return strncmp(file, name, len) == 0 &&
           (file[len] == '\0' || file[len] == '.');
}

/* Returns the longest, thus most precise, name in a directory: heap, or
 * NULL. */
static char *find_in_dir(const char *dir, const char *name)
{
    DIR *list = opendir(dir);
    char best[NAME_MAX + 1] = "";
    struct dirent *e;

    while (list && (e = readdir(list)))
        if (is_library(e->d_name, name) && strlen(e->d_name) > strlen(best))
            snprintf(best, sizeof(best), "%s", e->d_name);
    if (list)
        closedir(list);
    return best[0] ? hb_xasprintf("%s/%s", dir, best) : NULL;
}

static char *find_in_path(const char *library_path, const char *name)
{
    struct hb_strv dirs = HB_STRV_INIT;
    char *found = NULL;

    if (library_path)
        hb_strv_split(&dirs, library_path, ":");
    for (size_t i = 0; i < dirs.count && !found; i++)
        if (dirs.items[i][0] == '/')
            found = find_in_dir(dirs.items[i], name);
    hb_strv_free(&dirs);
    return found;
}

static char *find_in_usual(const char *root, const char *name)
{
    char *found = NULL;

    for (size_t i = 0; i < sizeof(usual_dirs) / sizeof(usual_dirs[0]); i++) {
        char *dir = hb_xasprintf("%s%s", root, usual_dirs[i]);

        found = find_in_dir(dir, name);
        hb_free(dir);
        if (found)
            break;
    }
    return found;
}

static char *find_in_cache(const struct ld_cache *c, const char *root,
                           const char *name)
{
    const char *path = ld_cache_find(c, is_library, name);

    return path ? hb_xasprintf("%s%s", root, path) : NULL;
}

static json_t *describe(const char *path)
{
    char real[PATH_MAX];
    const char *so;

    if (!realpath(path, real))
        snprintf(real, sizeof(real), "%s", path);
    so = strrchr(real, '/');
    so = so ? strstr(so, ".so.") : NULL;
    return json_pack("{s:o, s:o}", "path", query_text(path), "version",
                     query_text(so ? so + 4 : ""));
}

json_t *progcheck_libraries(const char *root, const char *library_path)
{
    json_t *out = json_object();
    struct ld_cache cache;

    ld_cache_read(root, &cache);
    for (int i = 0; i < WANTED; i++) {
        char *path = find_in_path(library_path, wanted[i].name);

        if (!path)
            path = find_in_cache(&cache, root, wanted[i].name);
        if (!path)
            path = find_in_usual(root, wanted[i].name);
        if (path)
            json_object_set_new(out, wanted[i].label, describe(path));
        hb_free(path);
    }
    ld_cache_fini(&cache);
    return out;
}
