/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over the libraries that a program needs; see needed_libs.h. */
#include "lib/agent/wireup/needed_libs.h"

#include "lib/agent/machine/ld_cache.h"
#include "lib/agent/wireup/elf_file.h"
#include "lib/agent/wireup/regular.h"
#include "lib/base/alloc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file that is looked at: the program, then the libraries in the order in
 * which the loader takes them. */
struct file {
    char *name; /* as it is needed; NULL: the program */
    char *path; /* NULL: not looked for yet */
    int parent; /* the file that needs it first; -1: none */
    struct elf_file elf;
};

struct walk {
    const struct needed_search *search;
    struct ld_cache cache;
    int cache_read;
    struct file files[NEEDED_FILES_MAX];
    int count;
};

/* Libraries that every program may need and that lead to no MPI: they are not
 * opened, so that a program without MPI starts as fast as before. */
static const char *const leaves[] = {
    "libc.so.",      "libm.so.",     "libdl.so.",      "libpthread.so.",
    "librt.so.",     "libutil.so.",  "libgcc_s.so.",   "libstdc++.so.",
    "libz.so.",      "libexpat.so.", "libgomp.so.",    "libresolv.so.",
    "libcrypt.so.",  "libtinfo.so.", "libselinux.so.", "ld-linux",
    "linux-vdso.so", "libnuma.so.",  "libcuda.so.",    "libcudart.so.",
    "libnccl.so.",   "libhvd.so.",
};

static const char *const usual_dirs[] = {
#if defined(__x86_64__)
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#endif
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
};

static int starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int is_leaf(const char *name)
{
    for (size_t i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++)
        if (starts(name, leaves[i]))
            return 1;
    return 0;
}

static int same(const char *library, const char *name)
{
    return strcmp(library, name) == 0;
}

/* ---- Finding files ---- */

/* Reads a regular file; 1 if it is an ELF file of this machine's kind. */
static int read_elf(const char *path, struct elf_file *out)
{
    int fd = regular_open(path), ok;

    if (fd < 0)
        return 0;
    ok = elf_file_read(fd, out);
    close(fd);
    return ok;
}

/* Returns the directory of a file, with links followed: $ORIGIN.  Heap. */
static char *origin_of(const char *path)
{
    char real[PATH_MAX];

    if (!realpath(path, real))
        snprintf(real, sizeof(real), "%s", path);
    *(strrchr(real, '/') ? strrchr(real, '/') : real) = '\0';
    return hb_xstrdup(real);
}

/* Returns a directory of a list with $ORIGIN replaced (heap), or NULL if it
 * contains another name to be replaced. */
static char *expand(const struct walk *w, const char *dir, size_t len,
                    const char *of)
{
    const char *rest = dir;
    char *origin, *out;

    if (len == 0)
        return hb_xstrdup(w->search->cwd);
    if (len >= 7 && memcmp(dir, "$ORIGIN", 7) == 0)
        rest += 7;
    else if (len >= 9 && memcmp(dir, "${ORIGIN}", 9) == 0)
        rest += 9;
    len -= (size_t)(rest - dir);
    if (memchr(rest, '$', len))
        return NULL;
    if (rest != dir) {
        origin = origin_of(of);
        out = hb_xasprintf("%s%.*s", origin, (int)len, rest);
        hb_free(origin);
        return out;
    }
    return dir[0] == '/'
               ? hb_xasprintf("%.*s", (int)len, dir)
               : hb_xasprintf("%s/%.*s", w->search->cwd, (int)len, dir);
}

/* Sets f to the library at `path`, which it takes, if it can be used. */
static int take(struct file *f, char *path)
{
    if (path && read_elf(path, &f->elf)) {
        f->path = path;
        return 1;
    }
    hb_free(path);
    return 0;
}

/* Looks in the directories of `list`, at which `of` is $ORIGIN. */
static int find_in_list(const struct walk *w, struct file *f, const char *list,
                        const char *seps, const char *of)
{
    for (const char *p = list; p && *p; p++) {
        size_t len = strcspn(p, seps);
        char *dir = expand(w, p, len, of);
        int found = dir && take(f, hb_xasprintf("%s/%s", dir, f->name));

        hb_free(dir);
        if (found)
            return 1;
        p += len;
        if (!*p)
            break;
    }
    return 0;
}

/* Looks along DT_RPATH of the file that needs f, and of those that led to
 * it. */
static int find_by_rpath(const struct walk *w, struct file *f)
{
    if (w->files[f->parent].elf.runpath)
        return 0;
    for (int i = f->parent; i >= 0; i = w->files[i].parent) {
        const struct file *by = &w->files[i];

        if (!by->elf.runpath &&
            find_in_list(w, f, by->elf.rpath, ":", by->path))
            return 1;
    }
    return 0;
}

static int find_by_system(struct walk *w, struct file *f)
{
    const char *root = w->search->root, *path;

    if (!w->cache_read) {
        ld_cache_read(root, &w->cache);
        w->cache_read = 1;
    }
    path = ld_cache_find(&w->cache, same, f->name);
    if (path && take(f, hb_xasprintf("%s%s", root, path)))
        return 1;
    for (size_t i = 0; i < sizeof(usual_dirs) / sizeof(usual_dirs[0]); i++)
        if (take(f, hb_xasprintf("%s%s/%s", root, usual_dirs[i], f->name)))
            return 1;
    return 0;
}

/* Finds and reads a library; 1, or 0 if it is nowhere. */
static int find(struct walk *w, struct file *f)
{
    const struct file *by = &w->files[f->parent];

    if (strchr(f->name, '/'))
        return take(f, f->name[0] == '/'
                           ? hb_xstrdup(f->name)
                           : hb_xasprintf("%s/%s", w->search->cwd, f->name));
    return find_by_rpath(w, f) ||
           find_in_list(w, f, w->search->library_path, ":;",
                        w->files[0].path) ||
           find_in_list(w, f, by->elf.runpath, ":", by->path) ||
           find_by_system(w, f);
}

/* ---- Judging ---- */

static int needs(const struct elf_file *elf, const char *prefix)
{
    for (size_t i = 0; i < elf->needed.count; i++)
        if (starts(elf->needed.items[i], prefix))
            return 1;
    return 0;
}

/* Returns the number in "libmpi.so.40", or 0. */
static int version_of(const char *name)
{
    int version = 0;

    for (const char *p = name + strlen("libmpi.so."); *p >= '0' && *p <= '9';
         p++)
        version = version < 1000 ? version * 10 + (*p - '0') : version;
    return version;
}

/* Judges libmpi.so.N, which is found: by what it needs, since Open MPI 1.10
 * and MPICH have used the same number; else by N. */
static void judge_libmpi(const struct file *f, struct needed_result *out)
{
    int version = version_of(f->name);

    out->mpi = NEEDED_PMIX;
    out->family = "Open MPI";
    if (needs(&f->elf, "libopen-pal") || needs(&f->elf, "libopen-rte") ||
        version >= 20)
        return;
    if (needs(&f->elf, "libpmix.so")) {
        out->family = "an MPI that uses PMIx";
        return;
    }
    out->mpi = version == 12 ? NEEDED_PMI1 : NEEDED_NO_MPI;
    out->family = "MPICH";
}

/* Judges a library by its name, and reads it if that must be known. */
static void judge(struct walk *w, struct file *f, struct needed_result *out)
{
    if (starts(f->name, "libmpi.so.") || starts(f->name, "libmpich.so.")) {
        (void)find(w, f);
        if (starts(f->name, "libmpi.so."))
            judge_libmpi(f, out);
        else
            *out =
                (struct needed_result){.mpi = NEEDED_PMI1, .family = "MPICH"};
        if (out->mpi == NEEDED_PMI1 && needs(&f->elf, "libpmix.so"))
            *out = (struct needed_result){.mpi = NEEDED_PMIX,
                                          .family = "an MPI that uses PMIx"};
    } else if (starts(f->name, "libmpi_cray") ||
               starts(f->name, "libmpi_gnu_") ||
               starts(f->name, "libmpi_intel_")) {
        out->mpi = NEEDED_UNKNOWN;
        out->family = "Cray MPICH";
    }
    if (out->mpi == NEEDED_NO_MPI)
        return;
    snprintf(out->library, sizeof(out->library), "%s", f->name);
    if (f->path && strlen(f->path) < sizeof(out->path))
        snprintf(out->path, sizeof(out->path), "%s", f->path);
}

/* ---- The PMIx of an Open MPI ---- */

/* Adds a file that `parent` leads to, and finds it; NULL if it is nowhere. */
static struct file *add_file(struct walk *w, int parent, const char *name)
{
    struct file *f = &w->files[w->count];

    if (w->count == NEEDED_FILES_MAX)
        return NULL;
    f->name = hb_xstrdup(name);
    f->parent = parent;
    w->count++;
    return find(w, f) ? f : NULL;
}

static int find_pmix(struct walk *w, int of, struct needed_result *out);

/* Looks at a library of Open MPI that `of` needs, which may need PMIx. */
static int find_pmix_below(struct walk *w, int of, const char *name,
                           struct needed_result *out)
{
    struct file *f;

    if (!starts(name, "libopen-rte") && !starts(name, "libopen-pal"))
        return 0;
    f = add_file(w, of, name);
    return f && find_pmix(w, (int)(f - w->files), out);
}

/* Sets out->pmix if the file `of` needs PMIx, or its parts do.  Files that need
 * each other end at NEEDED_FILES_MAX. */
static int find_pmix(struct walk *w, int of, struct needed_result *out)
{
    const struct hb_strv *needed = &w->files[of].elf.needed;
    struct file *f;

    for (size_t i = 0; i < needed->count; i++) {
        if (!starts(needed->items[i], "libpmix.so."))
            continue;
        f = add_file(w, of, needed->items[i]);
        if (f && strlen(f->path) < sizeof(out->pmix))
            snprintf(out->pmix, sizeof(out->pmix), "%s", f->path);
        return 1;
    }
    for (size_t i = 0; i < needed->count; i++)
        if (find_pmix_below(w, of, needed->items[i], out))
            return 1;
    return 0;
}

/* Looks at the plug-ins below one directory of Open MPI's libraries. */
static int find_pmix_plugin(struct walk *w, int libmpi, const char *dir,
                            struct needed_result *out)
{
    static const char *const names[] = {
        "openmpi/mca_pmix_ext3x.so", "openmpi/mca_pmix_ext2x.so",
        "openmpi/mca_pmix_ext4x.so", "openmpi3/mca_pmix_ext3x.so"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = hb_xasprintf("%s/%s", dir, names[i]);
        struct file *f = add_file(w, libmpi, path);

        hb_free(path);
        if (f)
            return find_pmix(w, (int)(f - w->files), out);
    }
    return 0;
}

/* Finds the PMIx of the libmpi that was added last, if it was found: from
 * version 5 on it is linked with PMIx, before that a plug-in is. */
static void find_pmix_of_mpi(struct walk *w, struct needed_result *out)
{
    int libmpi = w->count - 1;
    const struct file *f = &w->files[libmpi];
    const char *lists[] = {f->elf.rpath, f->elf.runpath};
    char *dir;

    if (!f->path || find_pmix(w, libmpi, out))
        return;
    dir = origin_of(f->path);
    if (find_pmix_plugin(w, libmpi, dir, out))
        lists[0] = lists[1] = NULL;
    hb_free(dir);
    for (size_t i = 0; i < 2; i++)
        for (const char *p = lists[i]; p && *p; p += *p == ':') {
            size_t len = strcspn(p, ":");
            int found;

            dir = expand(w, p, len, f->path);
            found = dir && find_pmix_plugin(w, libmpi, dir, out);
            hb_free(dir);
            if (found)
                return;
            p += len;
        }
}

/* ---- The walk ---- */

static int is_known(const struct walk *w, const char *name)
{
    for (int i = 1; i < w->count; i++)
        if (strcmp(w->files[i].name, name) == 0)
            return 1;
    return 0;
}

/* Adds the libraries that a file needs, and judges them, until one is an
 * MPI. */
static void add_needed(struct walk *w, int parent, struct needed_result *out)
{
    const struct hb_strv *needed = &w->files[parent].elf.needed;

    for (size_t i = 0; i < needed->count; i++) {
        struct file *f = &w->files[w->count];

        if (is_leaf(needed->items[i]) || is_known(w, needed->items[i]))
            continue;
        if (w->count == NEEDED_FILES_MAX)
            return;
        f->name = hb_xstrdup(needed->items[i]);
        f->parent = parent;
        w->count++;
        judge(w, f, out);
        if (out->mpi != NEEDED_NO_MPI)
            return;
    }
}

int needed_libs(const struct needed_search *s, const char *path,
                struct needed_result *out)
{
    struct walk *w;
    struct elf_file elf;

    if (!read_elf(path, &elf))
        return 0;
    *out = (struct needed_result){.mpi = NEEDED_NO_MPI};
    w = hb_xcalloc(1, sizeof(*w));
    w->search = s;
    w->files[0] = (struct file){NULL, hb_xstrdup(path), -1, elf};
    w->count = 1;
    for (int i = 0; i < w->count && out->mpi == NEEDED_NO_MPI; i++)
        if (w->files[i].path || find(w, &w->files[i]))
            add_needed(w, i, out);
    if (out->mpi == NEEDED_PMIX)
        find_pmix_of_mpi(w, out);
    for (int i = 0; i < w->count; i++) {
        hb_free(w->files[i].name);
        hb_free(w->files[i].path);
        elf_file_fini(&w->files[i].elf);
    }
    ld_cache_fini(&w->cache);
    hb_free(w);
    return 1;
}
