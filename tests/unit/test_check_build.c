/* SPDX-License-Identifier: Apache-2.0 */
/* --check-build says what is there, and only that. */
#include "cmd/hvdrun/check_build.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/test_check_build.XXXXXX";

static void touch(const char *name)
{
    char *path = hb_xasprintf("%s/%s", root, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0755);

    ck_assert_int_ge(fd, 0);
    close(fd);
    hb_free(path);
}

static void setup(void)
{
    char *bin, *lib;

    strcpy(strrchr(root, '.'), ".XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    bin = hb_xasprintf("%s/bin", root);
    lib = hb_xasprintf("%s/lib", root);
    ck_assert_int_eq(mkdir(bin, 0755) | mkdir(lib, 0755), 0);
    hb_free(bin);
    hb_free(lib);
}

static void teardown(void)
{
    static const char *const names[] = {"bin/hvd-agent", "lib/libhvd.so", "bin",
                                        "lib", ""};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = hb_xasprintf("%s/%s", root, names[i]);

        remove(path);
        hb_free(path);
    }
}

static char *text_here(void)
{
    char *bin = hb_xasprintf("%s/bin", root);
    char *text = check_build_text(bin);

    hb_free(bin);
    return text;
}

START_TEST(nothing_there)
{
    char *text = text_here();

    ck_assert_int_eq(strncmp(text, "hvdrun " HVD_VERSION "\n",
                             sizeof("hvdrun " HVD_VERSION)),
                     0);
    ck_assert_ptr_nonnull(strstr(text, "[ ] libhvd: not found"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] hvd-agent: not found"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] native, shared memory"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] native, TCP"));
    ck_assert_ptr_nonnull(
        strstr(text, "[ ] ssh, by libssh2: transport-ssh2.so not found"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] NCCL: not in this version"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] MPI: not in this version"));
    hb_free(text);
}
END_TEST

START_TEST(library_and_agent_are_found)
{
    char *real = realpath(root, NULL), *text, *line;

    touch("bin/hvd-agent");
    touch("lib/libhvd.so");
    text = text_here();
    line = hb_xasprintf("[X] libhvd: %s/lib/libhvd.so\n", real);
    ck_assert_ptr_nonnull(strstr(text, line));
    hb_free(line);
    line = hb_xasprintf("[X] hvd-agent: %s/bin/hvd-agent\n", real);
    ck_assert_ptr_nonnull(strstr(text, line));
    ck_assert_ptr_nonnull(strstr(text, "[X] native, shared memory"));
    ck_assert_ptr_nonnull(strstr(text, "[X] native, TCP"));
    hb_free(line);
    hb_free(text);
    free(real);
}
END_TEST

START_TEST(build_facts)
{
    char *text = text_here();

    ck_assert_ptr_nonnull(strstr(text, "libuv 1."));
    ck_assert_ptr_nonnull(strstr(text, "jansson 2."));
    ck_assert_ptr_nonnull(strstr(text, "libyaml 0."));
    hb_free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("check_build");
    TCase *t = tcase_create("check_build");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_there);
    tcase_add_test(t, library_and_agent_are_found);
    tcase_add_test(t, build_facts);
    suite_add_tcase(s, t);
    return unit_run(s);
}
