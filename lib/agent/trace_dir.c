/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of timelines that nobody needs any more; see trace_dir.h. */
#include "lib/agent/trace_dir.h"

#include "lib/agent/query/account.h"
#include "lib/agent/query/jobscan.h"
#include "lib/agent/wireup/wireup_dir.h"
#include "lib/base/alloc.h"
#include "lib/protocol/query.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A directory exists before its ranks do. */
enum { YOUNG_S = 60 };

/* The directories that agents make. */
static const struct kind {
    const char *prefix, *what;
    int (*remove)(int at, const char *name);
} kinds[] = {
    {"hvd-timeline-", "timelines of a job's ranks", trace_dir_remove},
    {"hvd-wireup-", "files of a job's MPI", wireup_dir_remove},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int open_own(int at, const char *name, struct stat *st)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -1;
    if (fstat(fd, st) == 0 && st->st_uid == geteuid() && !(st->st_mode & 022))
        return fd;
    close(fd);
    return -1;
}

int trace_dir_hold(const char *path)
{
    struct stat st;
    int fd = open_own(AT_FDCWD, path, &st);

    if (fd >= 0)
        (void)flock(fd, LOCK_SH | LOCK_NB);
    return fd;
}

static int is_timeline(const char *name)
{
    size_t len = strlen(name);

    return strncmp(name, "trace.", 6) == 0 && len > 11 &&
           strcmp(name + len - 5, ".json") == 0 &&
           strspn(name + 6, "0123456789") == len - 11;
}

int trace_dir_remove(int at, const char *name)
{
    struct stat st;
    int fd = open_own(at, name, &st);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!list) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    while ((e = readdir(list)))
        if (is_timeline(e->d_name))
            unlinkat(fd, e->d_name, 0);
    closedir(list);
    return unlinkat(at, name, AT_REMOVEDIR);
}

/* Returns the kind and, in *id, the part of the name after its prefix; or
 * NULL. */
static const struct kind *kind_of(const char *name, const char **id)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t len = strlen(kinds[i].prefix), host;

        if (strncmp(name, kinds[i].prefix, len) != 0)
            continue;
        *id = name + len;
        if (strspn(*id, "0123456789abcdef") != TRACE_DIR_ID_DIGITS ||
            (*id)[TRACE_DIR_ID_DIGITS] != '-')
            return NULL;
        name = *id + TRACE_DIR_ID_DIGITS + 1;
        host = strspn(name, "0123456789");
        return host > 0 && name[host] == '\0' ? &kinds[i] : NULL;
    }
    return NULL;
}

static int same_id(const char *a, const char *b)
{
    return strncmp(a, b, TRACE_DIR_ID_DIGITS) == 0;
}

static int has_process(const struct jobscan *s, const char *id)
{
    for (size_t i = 0; i < s->count; i++)
        if (same_id(id, s->jobs[i].id))
            return 1;
    return 0;
}

/* Returns whether no agent holds the directory and, with `old`, it is older
 * than YOUNG_S.  If the system cannot tell, the directory counts as held. */
static int is_free(int at, const char *name, int old)
{
    struct stat st;
    int fd = open_own(at, name, &st), is;

    if (fd < 0)
        return 0;
    is = (!old || st.st_mtim.tv_sec <= time(NULL) - YOUNG_S) &&
         flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return is;
}

static void clean_in(const char *parent_path, const struct jobscan *s,
                     const char *id, int dry, json_t *out)
{
    DIR *parent = opendir(parent_path);
    struct dirent *e;
    char *path;

    while (parent && (e = readdir(parent))) {
        const char *own;
        const struct kind *kind = kind_of(e->d_name, &own);

        if (!kind || has_process(s, own) || (id && !same_id(own, id)) ||
            !is_free(dirfd(parent), e->d_name, !id) ||
            (!dry && kind->remove(dirfd(parent), e->d_name) < 0))
            continue;
        path = hb_xasprintf("%s/%s", parent_path, e->d_name);
        json_array_append_new(out,
                              json_pack("{s:o, s:s}", "path", query_text(path),
                                        "what", kind->what));
        hb_free(path);
    }
    if (parent)
        closedir(parent);
}

void trace_dir_clean(const char *root, const char *id, int dry, json_t *out)
{
    static const char *const parents[] = {"/tmp", "/var/tmp", "/dev/shm"};
    const char *tmpdir = account_env("TMPDIR");
    struct jobscan s = JOBSCAN_INIT;

    if (jobscan_read(&s) < 0)
        return;
    if (tmpdir && tmpdir[0] == '/' && strcmp(tmpdir, "/tmp") != 0)
        clean_in(tmpdir, &s, id, dry, out);
    for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
        char *path = hb_xasprintf("%s%s", root, parents[i]);

        clean_in(path, &s, id, dry, out);
        hb_free(path);
    }
    jobscan_free(&s);
}
