/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/machine/cgroup.h: real cgroups where this test may make them, else
 * only that nothing is touched. */
#include "lib/agent/machine/cgroup.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char home[PATH_MAX]; /* "" if cgroups cannot be made */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_gt(write(fd, text, strlen(text)), 0);
    close(fd);
}

/* Makes a delegated cgroup and moves this process there. */
static void setup(void)
{
    static const char *const mounts[] = {"/sys/fs/cgroup",
                                         "/sys/fs/cgroup/unified"};

    home[0] = '\0';
    for (int i = 0; i < 2 && !home[0]; i++) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/cgroup.procs", mounts[i]);
        if (access(path, W_OK) < 0)
            continue;
        snprintf(home, sizeof(home), "%s/hvd-test-%d", mounts[i],
                 (int)getpid());
        if (mkdir(home, 0755) < 0 ||
            setxattr(home, "trusted.delegate", "1", 1, 0) < 0) {
            rmdir(home);
            home[0] = '\0';
        }
    }
    if (home[0])
        write_file(home, "cgroup.procs", "0");
}

static void teardown(void)
{
    char parent[PATH_MAX];

    if (!home[0])
        return;
    snprintf(parent, sizeof(parent), "%s", home);
    *strrchr(parent, '/') = '\0';
    write_file(parent, "cgroup.procs", "0");
    ck_assert_int_eq(rmdir(home), 0);
}

START_TEST(test_not_delegated)
{
    struct fixture f;
    struct cgroup c;

    fixture_open(&f);
    cgroup_open(&c, f.root); /* no /proc at all */
    ck_assert_ptr_null(c.path);
    fixture_file(&f, "proc/self/cgroup", "4:memory:/x\n0::/a\n");
    fixture_file(&f, "sys/fs/cgroup/a/cgroup.procs", "");
    cgroup_open(&c, f.root);
    if (geteuid() == 0)
        ck_assert_ptr_null(c.path);
    cgroup_close(&c);
    cgroup_close(&c);
    fixture_close(&f);
}
END_TEST

START_TEST(test_fork_without_a_cgroup)
{
    struct cgroup c = {NULL, -1};
    pid_t pid = cgroup_fork(&c);
    int status;

    if (pid == 0)
        _exit(7);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), 7);
    cgroup_kill(&c);
    cgroup_close(&c);
}
END_TEST

START_TEST(test_kill_reaches_everybody)
{
    char path[PATH_MAX], byte;
    struct cgroup c;
    int fds[2];
    pid_t pid;

    if (!home[0])
        return;
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    cgroup_open(&c, "");
    ck_assert_ptr_nonnull(c.path);
    snprintf(path, sizeof(path), "%s", c.path);
    ck_assert_int_eq(strncmp(path, home, strlen(home)), 0);
    ck_assert_int_eq(pipe(fds), 0);
    pid = cgroup_fork(&c);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execl("/bin/sh", "sh", "-c",
              "trap '' TERM; (setsid sleep 1000 &); echo; sleep 1000",
              (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    cgroup_kill(&c);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    /* The end of the pipe is the end of all processes. */
    ck_assert_int_eq(read(fds[0], &byte, 1), 0);
    close(fds[0]);
    cgroup_close(&c);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

START_TEST(test_what_is_below_goes_too)
{
    char below[PATH_MAX + 16], path[PATH_MAX];
    struct cgroup c;

    if (!home[0])
        return;
    cgroup_open(&c, "");
    ck_assert_ptr_nonnull(c.path);
    snprintf(path, sizeof(path), "%s", c.path);
    snprintf(below, sizeof(below), "%s/hvd-1", path);
    ck_assert_int_eq(mkdir(below, 0755), 0);
    cgroup_close(&c);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

/* A real agent's ranks run in a cgroup, which is removed afterwards. */
START_TEST(test_agent)
{
    char path[PATH_MAX + 32];

    if (!home[0])
        return;
    peer_open(&peer);
    snprintf(path, sizeof(path), "%s/hvd-%d", home, (int)peer.guardian);
    peer_run(&peer, "cat /proc/self/cgroup; exec sleep 1000", 2);
    snprintf(path, sizeof(path), "/hvd-%d\n", (int)peer.guardian);
    peer_until_output(&peer, 1, path);
    snprintf(path, sizeof(path), "%s/hvd-%d", home, (int)peer.guardian);
    ck_assert_int_eq(access(path, F_OK), 0);
    kill(peer.agent, SIGKILL);
    ck_assert_int_eq(peer_close(&peer), 137);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cgroup");
    TCase *t = tcase_create("cgroup");

    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_not_delegated);
    tcase_add_test(t, test_fork_without_a_cgroup);
    tcase_add_test(t, test_kill_reaches_everybody);
    tcase_add_test(t, test_what_is_below_goes_too);
    tcase_add_test(t, test_agent);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
