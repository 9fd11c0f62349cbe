/* SPDX-License-Identifier: Apache-2.0 */
/* PATH look-up and the explanations of failures; see program.h. */
#include "lib/agent/rank/program.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

enum { UNSEARCHABLE = -1 };

/* Returns 0 if file can be executed, else an errno, or UNSEARCHABLE if a
 * directory on its path may not be searched. */
static int check(const char *file)
{
    struct stat st;

    if (stat(file, &st) < 0)
        return errno == EACCES ? UNSEARCHABLE : errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    if (!S_ISREG(st.st_mode))
        return EACCES;
    return faccessat(AT_FDCWD, file, X_OK, AT_EACCESS) < 0 ? errno : 0;
}

/* Returns dir/name (heap); a relative or empty dir is relative to cwd. */
static char *join(const char *cwd, const char *dir, size_t dir_len,
                  const char *name)
{
    if (dir_len == 0)
        return hb_xasprintf("%s/%s", cwd, name);
    if (dir[0] == '/')
        return hb_xasprintf("%.*s/%s", (int)dir_len, dir, name);
    return hb_xasprintf("%s/%.*s/%s", cwd, (int)dir_len, dir, name);
}

/* Names the first directory of the path that may not be searched. */
static int refuse_directory(const char *shown, struct hb_error *err)
{
    size_t len = 0;
    char *dir = hb_xstrdup(shown);

    do {
        dir[len] = shown[len];
        len += 1 + strcspn(shown + len + 1, "/");
        dir[len] = '\0';
    } while (shown[len] && faccessat(AT_FDCWD, dir, X_OK, AT_EACCESS) == 0);
    hb_error_set(err, HVD_EPERM, "%s: directory %s may not be searched", shown,
                 shown[len] ? dir : "of a link in its path");
    hb_free(dir);
    return -HVD_EPERM;
}

/* Returns whether the name is that of a Python script. */
static int is_python(const char *name)
{
    size_t len = strlen(name);

    return len > 3 && strcmp(name + len - 3, ".py") == 0;
}

static int refuse(const char *shown, int why, int *exit_code,
                  struct hb_error *err)
{
    if (why == EISDIR) {
        *exit_code = PROGRAM_NOT_EXECUTABLE;
        return hb_error_set(err, HVD_EPERM, "%s: is a directory", shown);
    }
    if (why == UNSEARCHABLE) {
        *exit_code = PROGRAM_NOT_EXECUTABLE;
        return refuse_directory(shown, err);
    }
    if (why == EACCES || why == EPERM) {
        *exit_code = PROGRAM_NOT_EXECUTABLE;
        return hb_error_set(err, HVD_EPERM, "%s: not executable; try %s", shown,
                            is_python(shown) ? "python before its name"
                                             : "chmod +x");
    }
    *exit_code = PROGRAM_NOT_FOUND;
    return hb_error_sys(err, why, "%s", shown);
}

static int resolve_path(const char *name, const char *cwd, char **out,
                        int *exit_code, struct hb_error *err)
{
    char *file = name[0] == '/' ? hb_xstrdup(name) : join(cwd, "", 0, name);
    int why = check(file);
    int rc;

    if (why == 0) {
        *out = file;
        return 0;
    }
    rc = refuse(file, why, exit_code, err);
    hb_free(file);
    return rc;
}

int program_resolve(const char *name, const char *path, const char *cwd,
                    char **out, int *exit_code, struct hb_error *err)
{
    char *blocked = NULL;
    int blocked_why = 0, rc;

    if (strchr(name, '/'))
        return resolve_path(name, cwd, out, exit_code, err);
    if (!path)
        path = DEFAULT_PATH;
    for (const char *p = path; *name; p++) {
        size_t len = strcspn(p, ":");
        char *file = join(cwd, p, len, name);
        int why = check(file);

        if (why == 0) {
            hb_free(blocked);
            *out = file;
            return 0;
        }
        /* Directories that may not be searched are skipped, as a shell does. */
        if (!blocked && why == EACCES) {
            blocked = file;
            blocked_why = why;
        } else {
            hb_free(file);
        }
        p += len;
        if (!*p)
            break;
    }
    if (blocked) {
        rc = refuse(blocked, blocked_why, exit_code, err);
        hb_free(blocked);
        return rc;
    }
    *exit_code = PROGRAM_NOT_FOUND;
    return hb_error_set(err, HVD_ENOENT, "%s: command not found in PATH%s%s",
                        *name ? name : "''",
                        is_python(name) ? "; try python " : "",
                        is_python(name) ? name : "");
}

/* Names what is missing: ENOENT for a script that exists means that its
 * interpreter does not. */
static int missing_interpreter(const char *path, struct hb_error *err)
{
    char head[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof(head) - 1);
    char *start;

    if (fd >= 0)
        close(fd);
    if (n < 3 || head[0] != '#' || head[1] != '!')
        return hb_error_set(err, HVD_ENOENT,
                            "%s: its loader or a directory of its path "
                            "does not exist",
                            path);
    head[n] = '\0';
    start = head + 2 + strspn(head + 2, " \t");
    start[strcspn(start, " \t\n")] = '\0';
    if (strchr(start, '\r'))
        return hb_error_set(err, HVD_ENOENT,
                            "%s: bad interpreter: its first line ends in a "
                            "carriage return (DOS line ends); try sed -i "
                            "'s/\\r$//' %s",
                            path, path);
    return hb_error_set(err, HVD_ENOENT,
                        "%s: bad interpreter: %s does not exist", path, start);
}

int program_exec_error(const char *path, int e, int *exit_code,
                       struct hb_error *err)
{
    struct utsname u;

    *exit_code = PROGRAM_NOT_EXECUTABLE;
    switch (e) {
    case ENOENT:
        return missing_interpreter(path, err);
    case ENOEXEC:
        uname(&u);
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "%s: exec format error; a script needs a first "
                            "line such as #!/bin/sh, a binary must be built "
                            "for %s",
                            path, u.machine);
    case E2BIG:
        return hb_error_set(err, HVD_EINVAL,
                            "%s: the arguments and the environment are "
                            "longer than this system allows (128 KiB for "
                            "one string, a quarter of ulimit -s for all)",
                            path);
    default:
        return hb_error_sys(err, e, "cannot execute %s", path);
    }
}
