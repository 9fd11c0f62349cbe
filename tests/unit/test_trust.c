/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/sys/trust.h: which files may be loaded. */
#include "lib/base/sys/trust.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* DIR/bin/program and DIR/lib/hvd/plugin.so */
static char dir[64], bin[72], near[96], lib[72], folder[80], file[96];

static void make(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, 0755), 0);
    close(fd);
}

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/hvd-trust-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(bin, sizeof(bin), "%s/bin", dir);
    snprintf(near, sizeof(near), "%s/program", bin);
    snprintf(lib, sizeof(lib), "%s/lib", dir);
    snprintf(folder, sizeof(folder), "%s/hvd", lib);
    snprintf(file, sizeof(file), "%s/plugin.so", folder);
    ck_assert_int_eq(mkdir(bin, 0700), 0);
    ck_assert_int_eq(mkdir(lib, 0700), 0);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    make(file);
    make(near);
}

static void teardown(void)
{
    unlink(file);
    unlink(near);
    rmdir(folder);
    rmdir(lib);
    rmdir(bin);
    rmdir(dir);
}

static int check(const char *path, const char *program, struct hb_error *err)
{
    char real[PATH_MAX];
    int rc = hb_check_trust(path, program, real, err);

    if (rc == 0)
        ck_assert_str_eq(real, file);
    return rc;
}

static void refused(const char *why)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(check(file, near, &err), -HVD_EPERM);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

static void mode(const char *path, mode_t bits)
{
    ck_assert_int_eq(chmod(path, bits), 0);
}

START_TEST(modes)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(check(file, near, NULL), 0);
    ck_assert_int_eq(check(file, NULL, NULL), 0);
    mode(file, 0757);
    refused("plugin.so can be written by others; try chmod o-w");
    mode(file, 0755);
    mode(folder, 01777);
    refused("lib/hvd can be written by others");
    mode(folder, 0755);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(check(file, near, &err), -HVD_ENOENT);
}
END_TEST

/* No other user may replace a folder above the file, unless that user could
 * replace the program in the same way. */
START_TEST(folders_above)
{
    mode(lib, 0777);
    refused("/lib can be written by others");
    mode(lib, 01777); /* like /tmp */
    ck_assert_int_eq(check(file, near, NULL), 0);
    mode(lib, 0755);
    mode(dir, 0777);
    ck_assert_int_eq(check(file, near, NULL), 0);
    ck_assert_int_eq(check(file, NULL, NULL), -HVD_EPERM);
    mode(dir, 0755);
}
END_TEST

/* A link is resolved: its target is checked, and is the path to load. */
START_TEST(links)
{
    char link[96], by_link[128];

    snprintf(link, sizeof(link), "%s/link", bin);
    snprintf(by_link, sizeof(by_link), "%s/hvd/plugin.so", link);
    ck_assert_int_eq(symlink(lib, link), 0);
    ck_assert_int_eq(check(by_link, near, NULL), 0);
    mode(lib, 0777);
    ck_assert_int_eq(check(by_link, near, NULL), -HVD_EPERM);
    ck_assert_int_eq(unlink(link), 0);
}
END_TEST

/* As root only: other users cannot give files away. */
START_TEST(owners)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chown(file, 1234, 0), 0);
    refused("plugin.so belongs to another user (uid 1234)");
    ck_assert_int_eq(chown(near, 1234, 0), 0);
    ck_assert_int_eq(check(file, near, NULL), 0);
    ck_assert_int_eq(check(file, NULL, NULL), -HVD_EPERM);
    ck_assert_int_eq(chown(folder, 1235, 0), 0);
    refused("hvd belongs to another user (uid 1235)");
    ck_assert_int_eq(chown(folder, 0, 0), 0);
    ck_assert_int_eq(chown(lib, 1235, 0), 0);
    refused("lib belongs to another user (uid 1235)");
}
END_TEST

/* A group may write if it can replace the program as well, as with umask 002 or
 * in a project's folder with the setgid bit.  That this process has the group
 * is not enough: it may be everybody's. */
START_TEST(groups)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(setegid(1236), 0);
    ck_assert_int_eq(chown(file, 0, 1236), 0);
    mode(file, 0775);
    refused("plugin.so can be written by a group (gid 1236)");
    ck_assert_int_eq(chown(near, 0, 1236), 0);
    refused("try chmod g-w");
    mode(near, 0775);
    ck_assert_int_eq(check(file, near, NULL), 0);
    mode(near, 0755);
    ck_assert_int_eq(chown(bin, 0, 1236), 0);
    mode(bin, 02775);
    ck_assert_int_eq(check(file, near, NULL), 0);
    ck_assert_int_eq(chown(lib, 0, 1237), 0);
    mode(lib, 02775);
    refused("/lib can be written by a group (gid 1237)");
    ck_assert_int_eq(setegid(0), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trust");
    TCase *t = tcase_create("all");

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, modes);
    tcase_add_test(t, folders_above);
    tcase_add_test(t, links);
    tcase_add_test(t, owners);
    tcase_add_test(t, groups);
    return unit_run(s);
}
