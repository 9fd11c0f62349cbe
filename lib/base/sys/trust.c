/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/sys/trust.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The program and its folder. */
struct near {
    char path[PATH_MAX]; /* "" where it is not known */
    int known;
    struct stat file, folder;
};

/* Removes the last name from path. */
static void go_up(char *path)
{
    char *slash = strrchr(path, '/');

    slash[slash == path ? 1 : 0] = '\0';
}

static void find_near(struct near *n, const char *path)
{
    char folder[PATH_MAX];

    memset(n, 0, sizeof(*n));
    n->known = path && stat(path, &n->file) == 0;
    if (!n->known || !realpath(path, n->path)) {
        n->path[0] = '\0';
        return;
    }
    snprintf(folder, sizeof(folder), "%s", n->path);
    go_up(folder);
    if (stat(folder, &n->folder) < 0)
        memset(&n->folder, 0, sizeof(n->folder));
}

static int group_writes(const struct stat *st, gid_t gid)
{
    return (st->st_mode & S_IWGRP) && st->st_gid == gid;
}

/* Returns whether the group is trusted: its members gain nothing if they are as
 * good as root, or can replace the program itself. */
static int group_is_trusted(const struct near *n, gid_t gid)
{
    return gid == 0 || group_writes(&n->file, gid) ||
           group_writes(&n->folder, gid);
}

/* Checks that none but root, our user and the program's owner can write to the
 * path.  With `parent` the sticky bit suffices, because nobody can replace
 * others' files there. */
static int check(const char *path, const struct near *n, int parent,
                 struct hb_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return hb_error_sys(err, errno, "%s", path);
    if (st.st_uid != 0 && st.st_uid != geteuid() &&
        !(n->known && st.st_uid == n->file.st_uid))
        return hb_error_set(err, HVD_EPERM,
                            "%s belongs to another user (uid %u); try chown",
                            path, (unsigned)st.st_uid);
    if (parent && (st.st_mode & S_ISVTX))
        return 0;
    if (st.st_mode & S_IWOTH)
        return hb_error_set(err, HVD_EPERM,
                            "%s can be written by others; try chmod o-w", path);
    if ((st.st_mode & S_IWGRP) && !group_is_trusted(n, st.st_gid))
        return hb_error_set(err, HVD_EPERM,
                            "%s can be written by a group (gid %u) that "
                            "cannot write to the program; try chmod g-w",
                            path, (unsigned)st.st_gid);
    return 0;
}

/* Returns whether the path is inside the folder: who can replace a folder above
 * the program can replace the program. */
static int holds(const char *folder, const char *path)
{
    size_t len = strlen(folder);

    return strncmp(path, folder, len) == 0 &&
           (path[len] == '/' || (len == 1 && path[0] == '/'));
}

int hb_check_trust(const char *path, const char *near, char real[PATH_MAX],
                   struct hb_error *err)
{
    char at[PATH_MAX];
    struct near n;
    int rc;

    if (!realpath(path, real))
        return hb_error_sys(err, errno, "%s", path);
    find_near(&n, near);
    rc = check(real, &n, 0, err);
    snprintf(at, sizeof(at), "%s", real);
    for (int parent = 0; rc == 0 && strcmp(at, "/") != 0; parent = 1) {
        go_up(at);
        if (parent && holds(at, n.path))
            break;
        rc = check(at, &n, parent, err);
    }
    return rc;
}
