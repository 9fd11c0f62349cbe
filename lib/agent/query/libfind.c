/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which versions of CUDA, NCCL and MPI a program would get here.  They are
 * looked for where its loader looks: LD_LIBRARY_PATH, the loader's cache, then
 * the usual directories.  The version is what follows ".so." in the name of the
 * file that the links lead to.
 */
#include "lib/agent/query/progcheck.h"

#include "lib/base/alloc.h"
#include "lib/base/strv.h"
#include "lib/protocol/query.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* glibc's sysdeps/generic/dl-cache.h, the format since 2.2; offsets are
 * from the beginning of the header. */
struct cache_head {
    char magic[20];
    uint32_t count, strings_bytes;
    uint32_t unused[5];
};

struct cache_entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hwcap;
};

static const char cache_magic[20] = "glibc-ld.so.cache1.1";

enum {
    ARCH_MASK = 0xff00,
#if defined(__x86_64__)
    ARCH = 0x0300,
#elif defined(__aarch64__)
    ARCH = 0x0a00,
#else
    ARCH = -1,
#endif
};

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

struct cache {
    char *bytes; /* NULL: none; followed by an added 0 */
    size_t len;
};

static void cache_read(const char *root, struct cache *c)
{
    char *path = hb_xasprintf("%s/etc/ld.so.cache", root);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    hb_free(path);
    c->bytes = NULL;
    c->len = 0;
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < (64 << 20)) {
        c->bytes = hb_xcalloc((size_t)st.st_size + 1, 1);
        while (c->len < (size_t)st.st_size) {
            ssize_t n =
                read(fd, c->bytes + c->len, (size_t)st.st_size - c->len);

            if (n <= 0)
                break;
            c->len += (size_t)n;
        }
    }
    close(fd);
}

static char *find_in_cache(const struct cache *c, const char *root,
                           const char *name)
{
    struct cache_head head;
    struct cache_entry e;
    size_t at = sizeof(head);

    if (c->len < sizeof(head))
        return NULL;
    memcpy(&head, c->bytes, sizeof(head));
    if (memcmp(head.magic, cache_magic, sizeof(cache_magic)) != 0)
        return NULL;
    for (uint32_t i = 0; i < head.count; i++, at += sizeof(e)) {
        if (c->len - at < sizeof(e))
            break;
        memcpy(&e, c->bytes + at, sizeof(e));
        if (e.key >= c->len || e.value >= c->len ||
            (ARCH >= 0 && (e.flags & ARCH_MASK) != ARCH))
            continue;
        if (is_library(c->bytes + e.key, name))
            return hb_xasprintf("%s%s", root, c->bytes + e.value);
    }
    return NULL;
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
    struct cache cache;

    cache_read(root, &cache);
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
    hb_free(cache.bytes);
    return out;
}
