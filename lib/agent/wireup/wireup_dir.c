/* SPDX-License-Identifier: Apache-2.0 */
/* Making and removing the directory of wireup_dir.h. */
#include "lib/agent/wireup/wireup_dir.h"

#include "lib/agent/query/account.h"
#include "lib/agent/trace_dir.h"

#include "lib/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* MPIs nest two levels; more than this is not theirs. */
enum { DEPTH_MAX = 8 };

static char *path_in(const char *parent, const char *job_id, int host_index)
{
    return hb_xasprintf("%s/hvd-wireup-%.*s-%d", parent, TRACE_DIR_ID_DIGITS,
                        job_id, host_index);
}

int wireup_dir_make(const char *job_id, int host_index, char **path,
                    struct hb_error *err)
{
    /* Not the job's TMPDIR: `hvdrun clean` could not know it. */
    const char *tmpdir = account_env("TMPDIR");
    char *made = path_in("/dev/shm", job_id, host_index);
    int e;

    if (mkdir(made, 0700) < 0) {
        hb_free(made);
        made = path_in(tmpdir && tmpdir[0] == '/' ? tmpdir : "/tmp", job_id,
                       host_index);
        if (mkdir(made, 0700) < 0) {
            e = errno;
            hb_error_sys(err, e,
                         "cannot make a directory in /dev/shm, nor %s; set "
                         "TMPDIR to a directory that can be written",
                         made);
            hb_free(made);
            return err ? err->status : -HVD_ESYSTEM;
        }
    }
    *path = made;
    return 0;
}

static int remove_tree(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!list) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    while ((e = readdir(list))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, e->d_name, 0) < 0 && depth < DEPTH_MAX)
            (void)remove_tree(fd, e->d_name, depth + 1);
    }
    closedir(list);
    return unlinkat(at, name, AT_REMOVEDIR);
}

int wireup_dir_remove(int at, const char *name)
{
    struct stat st;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return -1;
    return remove_tree(at, name, 0);
}
