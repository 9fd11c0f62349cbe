/* SPDX-License-Identifier: Apache-2.0 */
/* --check-build reports what is available, and only that. */
#include "cmd/hvdrun/check_build.h"

#include "cmd/hvdrun/libdirs.h"
#include "cmd/hvdrun/run_job.h"
#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
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

/* Makes a folder below the root, unless it is there. */
static void make_folder(const char *name)
{
    char *path = hb_xasprintf("%s/%s", root, name);

    ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
    hb_free(path);
}

static void setup(void)
{
    strcpy(strrchr(root, '.'), ".XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    make_folder("bin");
    make_folder("lib");
    make_folder("lib/hvd");
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static void teardown(void)
{
    ck_assert_int_eq(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static char *text_here(void)
{
    char *bin = hb_xasprintf("%s/bin", root);
    char *text = check_build_text(bin);

    hb_free(bin);
    return text;
}

static void expect_line(const char *line)
{
    char *text = text_here();

    ck_assert_msg(strstr(text, line), "no \"%s\" in:\n%s", line, text);
    hb_free(text);
}

START_TEST(nothing_there)
{
    char *text = text_here();

    ck_assert_int_eq(strncmp(text, "hvdrun " HVD_VERSION "\n",
                             sizeof("hvdrun " HVD_VERSION)),
                     0);
    ck_assert_ptr_nonnull(strstr(text, "[ ] libhvd: not found"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] hvd-agent: not found"));
    ck_assert_ptr_nonnull(
        strstr(text, "[ ] server of --http: status-http.so not found; it is "
                     "built where its library is installed\n"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] native, shared memory"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] native, TCP"));
    ck_assert_ptr_nonnull(
        strstr(text, "[ ] ssh, by libssh2: transport-ssh2.so not found; it is "
                     "built where its library is installed\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "[ ] NCCL: libhvd-nccl.so not found; it is built where "
                     "CUDA and NCCL are installed, unless WITH_NCCL=no\n"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] MPI: there is no libhvd"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] allreduce: there is no libhvd"));
    hb_free(text);
}
END_TEST

/* A file that exists but cannot be loaded is reported with the loader's
 * message. */
START_TEST(broken_files)
{
    char *real = realpath(root, NULL), *text, *line;

    touch("bin/hvd-agent");
    touch("lib/libhvd.so");
    touch("lib/hvd/libhvd-mpi.so");
    text = text_here();
    line = hb_xasprintf("[ ] libhvd: %s/lib/libhvd.so: file too short\n", real);
    ck_assert_ptr_nonnull(strstr(text, line));
    hb_free(line);
    line = hb_xasprintf("[X] hvd-agent: %s/bin/hvd-agent\n", real);
    ck_assert_ptr_nonnull(strstr(text, line));
    hb_free(line);
    ck_assert_ptr_nonnull(strstr(text, "[ ] native, shared memory"));
    ck_assert_ptr_nonnull(strstr(text, "[ ] native, TCP"));
    hb_free(text);
    free(real);
}
END_TEST

/* The library and the plug-ins are found in each folder that `make install` may
 * have put them into. */
START_TEST(each_library_folder)
{
    static const char *const files[] = {"libhvd.so.0", "hvd/libhvd-mpi.so",
                                        "hvd/libhvd-nccl.so"};
    const char *lib = libdirs[_i] + strlen("../");
    char *plugins = hb_xasprintf("%s/hvd", lib);
    char *bin = hb_xasprintf("%s/bin", root), *text;

    make_folder(lib);
    make_folder(plugins);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char *file = hb_xasprintf("%s/%s", lib, files[i]);

        touch(file);
        hb_free(file);
    }
    text = check_build_json(bin);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char *file = hb_xasprintf("%s/%s/%s", root, lib, files[i]);
        char *real = realpath(file, NULL);

        ck_assert_msg(strstr(text, real), "no %s in:\n%s", real, text);
        free(real);
        hb_free(file);
    }
    hb_free(text);
    hb_free(bin);
    hb_free(plugins);
}
END_TEST

/* Returns the report on the programs beside this test's folder. */
static char *built(char *(*print)(const char *dir))
{
    char *own = run_program_dir();
    char *bin = hb_xasprintf("%s/../bin", own);
    char *text = print(bin);

    hb_free(own);
    hb_free(bin);
    return text;
}

START_TEST(this_build)
{
    char *text = built(check_build_text);

    ck_assert_ptr_nonnull(strstr(text, "[X] libhvd: " HVD_VERSION ", /"));
    ck_assert_ptr_nonnull(strstr(text, "[X] hvd-agent: /"));
    ck_assert_ptr_nonnull(strstr(text, "[X] native, shared memory\n"));
    ck_assert_ptr_nonnull(strstr(text, "[X] native, TCP\n"));
    ck_assert_ptr_nonnull(strstr(text, "[X] allreduce: native"));
    hb_free(text);
}
END_TEST

/* Returns whether a list has an available object of this name. */
static int listed(json_t *top, const char *list, const char *name)
{
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(top, list), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
            return json_is_true(json_object_get(item, "available"));
    }
    ck_abort_msg("%s: no %s", list, name);
}

START_TEST(json)
{
    char *text = built(check_build_json);
    json_t *top = json_loads(text, 0, NULL);

    ck_assert_ptr_nonnull(top);
    ck_assert_str_eq(json_string_value(json_object_get(top, "version")),
                     HVD_VERSION);
    ck_assert_int_eq(listed(top, "parts", "libhvd"), 1);
    ck_assert_int_eq(listed(top, "controllers", "hvd-agent on this machine"),
                     1);
    ck_assert_int_eq(listed(top, "planes", "native, TCP"), 1);
    ck_assert_int_eq(listed(top, "operations", "alltoall"), 1);
    json_decref(top);
    hb_free(text);
}
END_TEST

/* ---- NCCL ---- */

/* Puts libhvd, and a plug-in or what resembles one, below the root. */
static void link_plugin(void)
{
    static const char *const links[][2] = {
        {"../lib/libhvd.so", "lib/libhvd.so"},
        {"stand_in.so", "lib/hvd/libhvd-nccl.so"}};
    char *own = run_program_dir();

    for (int i = 0; i < 2; i++) {
        char *to = hb_xasprintf("%s/%s", own, links[i][0]);
        char *from = hb_xasprintf("%s/%s", root, links[i][1]);

        ck_assert_int_eq(symlink(to, from), 0);
        hb_free(to);
        hb_free(from);
    }
    hb_free(own);
}

static void set_library(const char *knob, const char *value)
{
    char *own = run_program_dir();
    char *path = hb_xasprintf("%s/%s", own, value);

    setenv(knob, value[0] == '/' ? value : path, 1);
    hb_free(path);
    hb_free(own);
}

START_TEST(nccl_is_there)
{
    link_plugin();
    set_library("HVD_CUDA_LIBRARY", "stand_in.so");
    set_library("HVD_NCCL_LIBRARY", "stand_in.so");
    expect_line("[X] NCCL: CUDA 99.1, NCCL 2.99.3, /");
    expect_line("[X] CUDA driver: 99.1, /");
    expect_line("[X] NCCL: 2.99.3, /");
    expect_line("/stand_in.so\n");
    expect_line(", NCCL\n");
    expect_line("[X] barrier: native");
    setenv("HVD_NCCL", "0", 1);
    expect_line("[ ] NCCL: switched off by HVD_NCCL (built with CUDA 99.1, ");
    unsetenv("HVD_NCCL");
}
END_TEST

START_TEST(nccl_lacks_something)
{
    link_plugin();
    set_library("HVD_CUDA_LIBRARY", "/nonexistent/cuda.so");
    set_library("HVD_NCCL_LIBRARY", "stand_in.so");
    expect_line("[ ] NCCL: NCCL plane unavailable: no CUDA driver (built with "
                "CUDA 99.1, NCCL 2.99.3, /");
    expect_line("[ ] CUDA driver: /nonexistent/cuda.so: cannot open shared "
                "object file");
    set_library("HVD_CUDA_LIBRARY", "stand_in.so");
    set_library("HVD_NCCL_LIBRARY", "/nonexistent/nccl.so");
    expect_line("[ ] NCCL: NCCL plane unavailable: no NCCL (built with");
    expect_line("[ ] NCCL: /nonexistent/nccl.so: cannot open");
}
END_TEST

START_TEST(driver_where_the_loader_does_not_look)
{
    char *place = hb_xasprintf("%s/lib", root), *line;

    link_plugin();
    touch("lib/libcuda.so.1");
    setenv("LD_LIBRARY_PATH", place, 1); /* too late for this process itself */
    line = hb_xasprintf("[ ] CUDA driver: it is not where the loader "
                        "looks; try HVD_CUDA_LIBRARY=%s/libcuda.so.1\n",
                        place);
    if (!dlopen("libcuda.so.1", RTLD_LAZY)) /* a machine without the driver */
        expect_line(line);
    hb_free(line);
    hb_free(place);
}
END_TEST

START_TEST(nccl_json)
{
    json_t *top;
    char *text, *bin;

    link_plugin();
    set_library("HVD_CUDA_LIBRARY", "stand_in.so");
    set_library("HVD_NCCL_LIBRARY", "stand_in.so");
    bin = hb_xasprintf("%s/bin", root);
    text = check_build_json(bin);
    top = json_loads(text, 0, NULL);
    ck_assert_int_eq(listed(top, "planes", "NCCL"), 1);
    ck_assert_int_eq(listed(top, "libraries", "NCCL"), 1);
    ck_assert_int_eq(listed(top, "libraries", "CUDA driver"), 1);
    json_decref(top);
    hb_free(text);
    set_library("HVD_CUDA_LIBRARY", "/nonexistent/cuda.so");
    text = check_build_json(bin);
    top = json_loads(text, 0, NULL);
    ck_assert_int_eq(listed(top, "planes", "NCCL"), 0);
    ck_assert_int_eq(listed(top, "libraries", "CUDA driver"), 0);
    json_decref(top);
    hb_free(text);
    hb_free(bin);
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
    int places = 0;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_there);
    tcase_add_test(t, broken_files);
    while (libdirs[places])
        places++;
    tcase_add_loop_test(t, each_library_folder, 0, places);
    tcase_add_test(t, this_build);
    tcase_add_test(t, json);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, build_facts);
    tcase_add_test(t, nccl_is_there);
    tcase_add_test(t, nccl_lacks_something);
    tcase_add_test(t, driver_where_the_loader_does_not_look);
    tcase_add_test(t, nccl_json);
    suite_add_tcase(s, t);
    return unit_run(s);
}
