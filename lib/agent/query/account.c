/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See account.h.  Directories are walked by descriptor and without following
 * links: other users may have put anything into /tmp.
 */
#include "lib/agent/query/account.h"

#include "lib/base/alloc.h"
#include "lib/base/strv.h"
#include "lib/protocol/query.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    STALE_S = 600, /* younger files may belong to a start in progress */
    /* other hosts may run younger agents from the same home directory */
    UNUSED_S = 30 * 24 * 3600,
};

const char *account_env(const char *name)
{
    struct hb_strv env = {environ, 0, 0};
    const char *value;

    while (environ && environ[env.count])
        env.count++;
    value = hb_env_get(&env, name);
    return value && *value ? value : NULL;
}

/* Finds the name of this uid, from "name:x:1000:..."; "" if there is none. */
static void passwd_name(char *name, size_t size)
{
    FILE *f = fopen("/etc/passwd", "re");
    char line[512];

    name[0] = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        size_t len = strcspn(line, ":");
        unsigned uid;

        if (sscanf(line + len, ":%*[^:]:%u:", &uid) != 1 || uid != geteuid())
            continue;
        snprintf(name, size, "%.*s", (int)len, line);
        break;
    }
    if (f)
        fclose(f);
}

json_t *account_user(void)
{
    const char *name = account_env("LOGNAME");
    char text[64];

    if (!name)
        name = account_env("USER");
    if (!name) {
        passwd_name(text, sizeof(text));
        name = text;
        if (!*text)
            snprintf(text, sizeof(text), "uid %u", (unsigned)geteuid());
    }
    return query_text(name);
}

/* ---- Whether directories can be used ---- */

/* Writes a file of one byte, because a full disk may still take the name. 0 or
 * an errno. */
static int try_write(const char *dir)
{
    char *path = hb_xasprintf("%s/.hvd-doctor-%d", dir, (int)getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    int e = fd < 0 ? errno : 0;

    if (fd >= 0) {
        if (write(fd, "x", 1) < 0 || fsync(fd) < 0)
            e = errno;
        close(fd);
        (void)unlink(path);
    }
    hb_free(path);
    return e;
}

json_t *account_home(void)
{
    const char *home = account_env("HOME");
    int e = home ? try_write(home) : ENOENT;

    return json_pack("{s:o, s:b, s:s}", "path", query_text(home ? home : ""),
                     "writable", e == 0, "error", e ? strerror(e) : "");
}

/* Lists the candidates in the order in which a start tries them. */
static void cache_dirs(const char *root, struct hb_strv *dirs)
{
    const char *xdg = account_env("XDG_CACHE_HOME"),
               *home = account_env("HOME");

    if (xdg && xdg[0] == '/')
        hb_strv_addf(dirs, "%s/hvd", xdg);
    if (home && home[0] == '/')
        hb_strv_addf(dirs, "%s/.cache/hvd", home);
    hb_strv_addf(dirs, "%s/tmp/hvd-%u", root, (unsigned)geteuid());
}

/* Returns path or the nearest directory above it that exists (heap). */
static char *existing(const char *path)
{
    char *at = hb_xstrdup(path), *slash;

    while (access(at, F_OK) < 0 && (slash = strrchr(at, '/')) && slash > at)
        *slash = '\0';
    return at;
}

static json_t *try_cache(const char *path, int *usable)
{
    char *at = existing(path);
    struct statvfs fs;
    int e = try_write(at);
    int noexec = statvfs(at, &fs) == 0 && (fs.f_flag & ST_NOEXEC);

    hb_free(at);
    *usable = e == 0 && !noexec;
    return json_pack("{s:o, s:b, s:b, s:s}", "path", query_text(path), "usable",
                     *usable, "noexec", noexec, "error", e ? strerror(e) : "");
}

/* Describes the first usable directory, or else the first. */
json_t *account_cache(void)
{
    struct hb_strv dirs = HB_STRV_INIT;
    json_t *first = NULL;

    cache_dirs("", &dirs);
    for (size_t i = 0; i < dirs.count; i++) {
        int usable;
        json_t *one = try_cache(dirs.items[i], &usable);

        if (usable || !first) {
            json_decref(first);
            first = one;
        } else {
            json_decref(one);
        }
        if (usable)
            break;
    }
    hb_strv_free(&dirs);
    return first;
}

/* ---- Cleaning ---- */

static int is_running(const struct stat *file)
{
    DIR *proc = opendir("/proc");
    int running = 0;
    struct dirent *e;

    while (proc && !running && (e = readdir(proc))) {
        char path[NAME_MAX + 16];
        struct stat st;

        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%s/exe", e->d_name);
        running = stat(path, &st) == 0 && st.st_dev == file->st_dev &&
                  st.st_ino == file->st_ino;
    }
    if (proc)
        closedir(proc);
    return running;
}

/* Opens a directory that is ours and that nobody else can write to, or returns
 * -1. */
static int open_private(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022))
        return fd;
    close(fd);
    return -1;
}

/* Returns whether a start that copies an agent gives files such a name
 * (lib/remote/bootstrap.sh). */
static int is_part(const char *name)
{
    return strncmp(name, ".push-", 6) == 0;
}

static int is_agent(const char *name)
{
    return strncmp(name, "hvd-agent-", 10) == 0;
}

static int is_file(int dir, const char *name, struct stat *st)
{
    return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

/* Returns whether the entry is a socket that hvdrun made for ssh-add
 * (lib/ssh/keys/ssh_add.c), and which no process has any more.  Such a socket
 * is removed at once, unless hvdrun is killed at that moment. */
static int is_dead_socket(int dir, const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat folder, st;
    int fd, dead;

    if (strcmp(name, "agent") != 0 || fstat(dir, &folder) < 0 ||
        (folder.st_mode & 0777) != 0700 ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
        return 0;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", dir,
             name);
    dead = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 &&
           errno == ECONNREFUSED;
    close(fd);
    return dead;
}

struct newest {
    char name[NAME_MAX + 1];
    struct timespec when;
};

static void find_newest(int dir, DIR *list, struct newest *n)
{
    struct dirent *e;
    struct stat st;

    memset(n, 0, sizeof(*n));
    while ((e = readdir(list))) {
        if (!is_agent(e->d_name) || !is_file(dir, e->d_name, &st))
            continue;
        if (n->name[0] && (st.st_mtim.tv_sec < n->when.tv_sec ||
                           (st.st_mtim.tv_sec == n->when.tv_sec &&
                            st.st_mtim.tv_nsec <= n->when.tv_nsec)))
            continue;
        snprintf(n->name, sizeof(n->name), "%s", e->d_name);
        n->when = st.st_mtim;
    }
    rewinddir(list);
}

static void add_path(json_t *out, const char *dir, const char *name,
                     const char *what)
{
    char *path = hb_xasprintf("%s%s%s", dir, *name ? "/" : "", name);

    json_array_append_new(
        out, json_pack("{s:o, s:s}", "path", query_text(path), "what", what));
    hb_free(path);
}

static int is_young(const struct stat *st)
{
    return st->st_mtim.tv_sec > time(NULL) - STALE_S;
}

/* Returns whether the agent was used lately: a start touches the agent that it
 * uses. */
static int was_used(const struct stat *st)
{
    return st->st_mtim.tv_sec > time(NULL) - UNUSED_S;
}

/* Returns what the entry is if it can be removed from `dir`, else NULL. */
static const char *useless(int dir, const char *name, const char *keep)
{
    int part = is_part(name);
    struct stat st;

    if (!keep && is_dead_socket(dir, name))
        return "a socket that nothing uses";
    if ((!part && !is_agent(name)) || !is_file(dir, name, &st))
        return NULL;
    if (part ? is_young(&st)
             : keep && (was_used(&st) || strcmp(name, keep) == 0))
        return NULL;
    return is_running(&st) ? NULL
           : part          ? "a transfer that was cut"
                           : "an old agent";
}

/* Removes unused agents, partial transfers and, from a temporary folder (not
 * keep_newest), a socket from `dir`, which it closes. */
static void clean_dir(int dir, const char *path, int keep_newest, int dry,
                      json_t *out)
{
    DIR *list = fdopendir(dir);
    struct newest newest;
    struct dirent *e;

    if (!list) {
        close(dir);
        return;
    }
    find_newest(dir, list, &newest);
    while ((e = readdir(list))) {
        const char *what =
            useless(dir, e->d_name, keep_newest ? newest.name : NULL);

        if (what && (dry || unlinkat(dir, e->d_name, 0) == 0))
            add_path(out, path, e->d_name, what);
    }
    closedir(list);
}

static void clean_caches(const char *root, int dry, json_t *out)
{
    struct hb_strv dirs = HB_STRV_INIT;

    cache_dirs(root, &dirs);
    for (size_t i = 0; i < dirs.count; i++) {
        int fd = open_private(AT_FDCWD, dirs.items[i]);

        if (fd >= 0)
            clean_dir(fd, dirs.items[i], 1, dry, out);
    }
    hb_strv_free(&dirs);
}

/* Returns whether the directory was made from hvd-XXXXXX: by mktemp, where no
 * cache was usable, or by hvdrun for a socket. */
static int is_temporary(const char *name)
{
    char own[32];

    snprintf(own, sizeof(own), "hvd-%u", (unsigned)geteuid());
    return strncmp(name, "hvd-", 4) == 0 && strlen(name) == 10 &&
           strcmp(name, own) != 0;
}

/* Returns whether the directory holds only what is put there, none of it in
 * use. */
static int is_left_behind(int dir)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    struct stat st;
    int left = list != NULL && fstat(dir, &st) == 0 && !is_young(&st);

    while (left && (e = readdir(list))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        left = is_dead_socket(dir, e->d_name) ||
               ((is_part(e->d_name) || is_agent(e->d_name)) &&
                is_file(dir, e->d_name, &st) && !is_running(&st));
    }
    if (list)
        closedir(list);
    else if (copy >= 0)
        close(copy);
    return left;
}

static void clean_one(DIR *parent, const char *parent_path, const char *name,
                      int dry, json_t *out)
{
    int fd = open_private(dirfd(parent), name);
    char *path;

    if (fd < 0)
        return;
    if (!is_left_behind(fd)) {
        close(fd);
        return;
    }
    path = hb_xasprintf("%s/%s", parent_path, name);
    clean_dir(fd, path, 0, dry, out);
    if (dry || unlinkat(dirfd(parent), name, AT_REMOVEDIR) == 0)
        add_path(out, path, "", "a private directory that nothing uses");
    hb_free(path);
}

static void clean_temporary(const char *parent_path, int dry, json_t *out)
{
    DIR *parent = opendir(parent_path);
    struct dirent *e;

    while (parent && (e = readdir(parent)))
        if (is_temporary(e->d_name))
            clean_one(parent, parent_path, e->d_name, dry, out);
    if (parent)
        closedir(parent);
}

json_t *account_clean(const char *root, int dry)
{
    static const char *const parents[] = {"/tmp", "/var/tmp", "/dev/shm"};
    const char *tmpdir = account_env("TMPDIR");
    json_t *out = json_array();

    clean_caches(root, dry, out);
    if (tmpdir && tmpdir[0] == '/' && strcmp(tmpdir, "/tmp") != 0)
        clean_temporary(tmpdir, dry, out);
    for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
        char *path = hb_xasprintf("%s%s", root, parents[i]);

        clean_temporary(path, dry, out);
        hb_free(path);
    }
    return out;
}
