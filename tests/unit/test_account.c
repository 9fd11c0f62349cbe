/* SPDX-License-Identifier: Apache-2.0 */
/* Home and cache folders, and what `hvdrun clean` removes from them. */
#include "lib/agent/query/account.h"

#include "lib/agent/query/progcheck.h"
#include "lib/agent/trace_dir.h"
#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/protocol/query.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture f;
static char path[PATH_MAX];

static const char *at(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", f.root, name);
    return path;
}

static void setup(void)
{
    fixture_open(&f);
    setenv("HOME", f.root, 1);
    setenv("XDG_CACHE_HOME", at("xdg"), 1);
    unsetenv("TMPDIR");
}

static void teardown(void)
{
    fixture_close(&f);
}

static void make_old(const char *name)
{
    struct timespec times[2] = {{1000, 0}, {1000, 0}};

    ck_assert_int_eq(utimensat(AT_FDCWD, at(name), times, AT_SYMLINK_NOFOLLOW),
                     0);
}

static void make_unused(const char *name, int days)
{
    struct timespec when = {time(NULL) - days * 24 * 3600, 0};
    struct timespec times[2] = {when, when};

    ck_assert_int_eq(utimensat(AT_FDCWD, at(name), times, AT_SYMLINK_NOFOLLOW),
                     0);
}

static void file(const char *name, int old)
{
    fixture_file(&f, name, "x");
    if (old)
        make_old(name);
}

static int exists(const char *name)
{
    struct stat st;

    return lstat(at(name), &st) == 0;
}

/* Cleans, or only reports if `dry`; returns the number of entries reported. */
static int clean(int dry)
{
    json_t *list = account_clean(f.root, dry);
    int count = (int)json_array_size(list);

    json_decref(list);
    return count;
}

START_TEST(user)
{
    json_t *name;

    setenv("LOGNAME", "alice", 1);
    name = account_user();
    ck_assert_str_eq(json_string_value(name), "alice");
    json_decref(name);
    unsetenv("LOGNAME");
    unsetenv("USER");
    name = account_user();
    ck_assert_int_gt((int)strlen(json_string_value(name)), 0);
    json_decref(name);
}
END_TEST

START_TEST(a_home)
{
    json_t *h = account_home();

    ck_assert_int_eq(query_true(h, "writable"), 1);
    ck_assert_str_eq(query_string(h, "path"), f.root);
    json_decref(h);
    setenv("HOME", at("none"), 1);
    h = account_home();
    ck_assert_int_eq(query_true(h, "writable"), 0);
    ck_assert_str_eq(query_string(h, "error"), "No such file or directory");
    json_decref(h);
}
END_TEST

START_TEST(cache)
{
    json_t *c = account_cache();
    char want[PATH_MAX];

    ck_assert_int_eq(query_true(c, "usable"), 1);
    snprintf(want, sizeof(want), "%s/xdg/hvd", f.root);
    ck_assert_str_eq(query_string(c, "path"), want);
    json_decref(c);
    /* A file is in the way: the next place is used. */
    file("xdg", 0);
    c = account_cache();
    ck_assert_int_eq(query_true(c, "usable"), 1);
    snprintf(want, sizeof(want), "%s/.cache/hvd", f.root);
    ck_assert_str_eq(query_string(c, "path"), want);
    json_decref(c);
}
END_TEST

START_TEST(old_agents_go_the_newest_stays)
{
    file("xdg/hvd/hvd-agent-1", 1);
    file("xdg/hvd/hvd-agent-2", 0);
    file("xdg/hvd/hvd-agent-6", 1);
    make_unused("xdg/hvd/hvd-agent-6", 29); /* another host may run it */
    file("xdg/hvd/hvd-agent-7", 1);
    make_unused("xdg/hvd/hvd-agent-7", 31);
    file("xdg/hvd/.push-3", 1);
    file("xdg/hvd/.push-4", 0);
    file("xdg/hvd/notes", 1);
    ck_assert_int_eq(symlink("/bin/true", at("xdg/hvd/hvd-agent-5")), 0);
    ck_assert_int_eq(clean(1), 3);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-1"), 1);
    ck_assert_int_eq(clean(0), 3);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-6"), 1);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-7"), 0);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-1"), 0);
    ck_assert_int_eq(exists("xdg/hvd/.push-3"), 0);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-2"), 1);
    ck_assert_int_eq(exists("xdg/hvd/.push-4"), 1);
    ck_assert_int_eq(exists("xdg/hvd/notes"), 1);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-5"), 1);
    ck_assert_int_eq(clean(0), 0);
}
END_TEST

/* Runs a copy of sleep from there; returns its pid once it runs. */
static pid_t run_copy(const char *name)
{
    char command[PATH_MAX * 2];
    pid_t pid;
    int ends[2];
    char byte;

    snprintf(command, sizeof(command), "cp /bin/sleep %s", at(name));
    pid = fork();
    if (pid == 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        execl(at(name), "x", "1000", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* closed by the exec */
    close(ends[0]);
    return pid;
}

START_TEST(what_runs_stays)
{
    pid_t pid;

    file("xdg/hvd/hvd-agent-2", 0);
    pid = run_copy("xdg/hvd/hvd-agent-1");
    make_old("xdg/hvd/hvd-agent-1");
    ck_assert_int_eq(clean(0), 0);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(clean(0), 1);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-1"), 0);
}
END_TEST

START_TEST(a_cache_that_others_can_write_to_is_not_touched)
{
    file("xdg/hvd/hvd-agent-1", 1);
    file("xdg/hvd/hvd-agent-2", 0);
    ck_assert_int_eq(chmod(at("xdg/hvd"), 0777), 0);
    ck_assert_int_eq(clean(0), 0);
    ck_assert_int_eq(exists("xdg/hvd/hvd-agent-1"), 1);
}
END_TEST

START_TEST(private_directories)
{
    file("tmp/hvd-AAAAAA/hvd-agent-1", 1);
    file("tmp/hvd-AAAAAA/.push-1", 1);
    make_old("tmp/hvd-AAAAAA");
    file("tmp/hvd-BBBBBB/hvd-agent-1", 1); /* its directory is recent */
    file("tmp/hvd-CCCCCC/hvd-agent-1", 1);
    file("tmp/hvd-CCCCCC/data", 1);
    make_old("tmp/hvd-CCCCCC");
    file("tmp/hvd-DDDDDDD/hvd-agent-1", 1);
    make_old("tmp/hvd-DDDDDDD");
    ck_assert_int_eq(symlink(".", at("tmp/hvd-EEEEEE")), 0);
    ck_assert_int_eq(clean(1), 3);
    ck_assert_int_eq(exists("tmp/hvd-AAAAAA/hvd-agent-1"), 1);
    ck_assert_int_eq(clean(0), 3);
    ck_assert_int_eq(exists("tmp/hvd-AAAAAA"), 0);
    ck_assert_int_eq(exists("tmp/hvd-BBBBBB/hvd-agent-1"), 1);
    ck_assert_int_eq(exists("tmp/hvd-CCCCCC/hvd-agent-1"), 1);
    ck_assert_int_eq(exists("tmp/hvd-DDDDDDD/hvd-agent-1"), 1);
    ck_assert_int_eq(exists("tmp/hvd-EEEEEE"), 1);
}
END_TEST

/* Makes a directory with a socket named "agent", and returns the socket. */
static int make_socket(const char *name, mode_t mode)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    file("tmp/other", 0); /* makes tmp */
    ck_assert_int_eq(mkdir(at(name), mode), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
    ck_assert_int_eq(chdir(path), 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "agent");
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(chdir("/"), 0);
    make_old(name);
    return fd;
}

/* What an hvdrun that was killed while it made a socket has left goes, but not
 * while a process has the socket, and not what others could have made. */
START_TEST(sockets_of_a_killed_hvdrun)
{
    int fd = make_socket("tmp/hvd-AAAAAA", 0700);

    close(make_socket("tmp/hvd-BBBBBB", 0755));
    close(make_socket("tmp/hvd-CCCCCC", 0700));
    file("tmp/hvd-CCCCCC/agents", 1);
    make_old("tmp/hvd-CCCCCC");
    ck_assert_int_eq(clean(0), 0);
    close(fd);
    ck_assert_int_eq(clean(1), 2);
    ck_assert_int_eq(exists("tmp/hvd-AAAAAA/agent"), 1);
    ck_assert_int_eq(clean(0), 2);
    ck_assert_int_eq(exists("tmp/hvd-AAAAAA"), 0);
    ck_assert_int_eq(exists("tmp/hvd-BBBBBB/agent"), 1);
    ck_assert_int_eq(exists("tmp/hvd-CCCCCC/agent"), 1);
}
END_TEST

static int clean_dirs(const char *id)
{
    json_t *list = json_array();
    int count;

    trace_dir_clean(f.root, id, 0, list);
    count = (int)json_array_size(list);
    json_decref(list);
    return count;
}

/* Timelines stay while an agent holds them: it may still be sending them. */
START_TEST(timelines_that_an_agent_holds_stay)
{
    static const char id[] = "0123456789abcdef0123456789abcdef";
    int lock;

    file("tmp/hvd-timeline-0123456789abcdef-0/trace.0.json", 1);
    file("tmp/hvd-timeline-0123456789abcdef-1/trace.1.json", 1);
    make_old("tmp/hvd-timeline-0123456789abcdef-0");
    make_old("tmp/hvd-timeline-0123456789abcdef-1");
    lock = trace_dir_hold(at("tmp/hvd-timeline-0123456789abcdef-1"));
    ck_assert_int_ge(lock, 0);
    ck_assert_int_eq(clean_dirs(NULL), 1);
    ck_assert_int_eq(exists("tmp/hvd-timeline-0123456789abcdef-0"), 0);
    ck_assert_int_eq(clean_dirs(id), 0);
    ck_assert_int_eq(exists("tmp/hvd-timeline-0123456789abcdef-1/trace.1.json"),
                     1);
    close(lock);
    ck_assert_int_eq(clean_dirs("another"), 0);
    ck_assert_int_eq(clean_dirs(id), 1);
}
END_TEST

/* Files of an MPI go with all directories, but nothing behind a link. */
START_TEST(files_of_an_mpi_go)
{
    static const char id[] = "0123456789abcdef0123456789abcdef";
    static const char dir[] = "tmp/hvd-wireup-0123456789abcdef-0";
    char *kept = hb_xstrdup(at("tmp/kept"));
    int lock;

    file("tmp/hvd-wireup-0123456789abcdef-0/3/segment", 1);
    file("tmp/kept/file", 1);
    ck_assert_int_eq(
        symlink(kept, at("tmp/hvd-wireup-0123456789abcdef-0/link")), 0);
    hb_free(kept);
    file("tmp/hvd-wireup-0123456789abcde-0/file", 1);
    ck_assert_int_eq(chmod(at(dir), 0700), 0);
    lock = trace_dir_hold(at(dir));
    ck_assert_int_eq(clean_dirs(id), 0);
    close(lock);
    ck_assert_int_eq(clean_dirs(NULL), 0); /* it is young */
    ck_assert_int_eq(chmod(at(dir), 0770), 0);
    ck_assert_int_eq(clean_dirs(id), 0); /* others may write there */
    ck_assert_int_eq(chmod(at(dir), 0700), 0);
    ck_assert_int_eq(clean_dirs(id), 1);
    ck_assert_int_eq(exists(dir), 0);
    ck_assert_int_eq(exists("tmp/kept/file"), 1);
    ck_assert_int_eq(exists("tmp/hvd-wireup-0123456789abcde-0/file"), 1);
}
END_TEST

/* ---- Libraries ---- */

static const char *version(json_t *libs, const char *name)
{
    return query_string(json_object_get(libs, name), "version");
}

START_TEST(libraries_in_usual_places)
{
    json_t *libs = progcheck_libraries(f.root, NULL);

    ck_assert_uint_eq(json_object_size(libs), 0);
    json_decref(libs);
    file("usr/local/cuda/lib64/libcudart.so.12.1.105", 0);
    ck_assert_int_eq(symlink("libcudart.so.12.1.105",
                             at("usr/local/cuda/lib64/libcudart.so.12")),
                     0);
    file("usr/lib64/libnccl.so.2.18.3", 0);
    file("usr/lib64/libnccl.so_old", 0);
    libs = progcheck_libraries(f.root, NULL);
    ck_assert_str_eq(version(libs, "cuda"), "12.1.105");
    ck_assert_str_eq(version(libs, "nccl"), "2.18.3");
    ck_assert_str_eq(version(libs, "mpi"), "");
    json_decref(libs);
}
END_TEST

START_TEST(the_library_path_comes_first)
{
    char dirs[PATH_MAX];
    json_t *libs;

    file("usr/lib64/libnccl.so.2.18.3", 0);
    file("mine/libnccl.so.2.20.5", 0);
    snprintf(dirs, sizeof(dirs), "relative::%s/none:%s/mine", f.root, f.root);
    libs = progcheck_libraries(f.root, dirs);
    ck_assert_str_eq(version(libs, "nccl"), "2.20.5");
    json_decref(libs);
}
END_TEST

static void write_cache(const char *bytes, size_t len)
{
    int fd;

    fixture_file(&f, "etc/ld.so.cache", "");
    fd = open(at("etc/ld.so.cache"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

/* The loader's cache, cut at every length and with every byte changed: it is
 * read correctly or not at all. */
START_TEST(the_loaders_cache)
{
    static const char strings[] = "libmpi.so.40\0/opt/x/libmpi.so.40";
    char bytes[48 + 24 + sizeof(strings)] = "glibc-ld.so.cache1.1";
    uint32_t one = 1, key = 72, value = 85;
    int32_t flags = 0x0303;
    json_t *libs;

#if defined(__aarch64__)
    flags = 0x0a03;
#endif
    memcpy(bytes + 20, &one, 4);
    memcpy(bytes + 48, &flags, 4);
    memcpy(bytes + 52, &key, 4);
    memcpy(bytes + 56, &value, 4);
    memcpy(bytes + 72, strings, sizeof(strings));
    file("opt/x/libmpi.so.40.30.5", 0);
    ck_assert_int_eq(symlink("libmpi.so.40.30.5", at("opt/x/libmpi.so.40")), 0);
    write_cache(bytes, sizeof(bytes));
    libs = progcheck_libraries(f.root, NULL);
    ck_assert_str_eq(version(libs, "mpi"), "40.30.5");
    json_decref(libs);
    for (size_t len = 0; len < sizeof(bytes); len++) {
        write_cache(bytes, len);
        json_decref(progcheck_libraries(f.root, NULL));
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (char)~bytes[i];
        write_cache(bytes, sizeof(bytes));
        json_decref(progcheck_libraries(f.root, NULL));
        bytes[i] = (char)~bytes[i];
    }
}
END_TEST

/* ---- Programs ---- */

static json_t *check(const char *program)
{
    struct progcheck c = {.program = program, .cwd = f.root, .path = "/bin"};

    return progcheck_program(&c);
}

START_TEST(programs)
{
    json_t *p = check("sh");

    ck_assert_str_eq(query_string(p, "error"), "");
    ck_assert_uint_eq(strlen(query_string(p, "hash")), 32);
    ck_assert_int_gt(query_int(p, "bytes", 0), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(p, "missing")), 0);
    json_decref(p);
    p = check("no-such-program");
    ck_assert_ptr_nonnull(strstr(query_string(p, "error"), "no-such-program"));
    json_decref(p);
    fixture_file(&f, "script", "#! /nonexistent/python3 -u\n");
    ck_assert_int_eq(chmod(at("script"), 0755), 0);
    p = check("./script");
    ck_assert_str_eq(query_string(p, "interpreter"), "/nonexistent/python3");
    ck_assert_int_eq(query_true(p, "interpreter_missing"), 1);
    json_decref(p);
}
END_TEST

/* A copy of sh that needs a library of another name. */
START_TEST(a_missing_library_is_named)
{
    static const char have[] = "libc.so.6", want[] = "libq.so.6";
    int fd = open("/bin/sh", O_RDONLY | O_CLOEXEC), out;
    char *bytes = hb_xcalloc(1, 8 << 20), *name;
    ssize_t n = read(fd, bytes, (8 << 20) - 1);
    json_t *p, *missing;

    close(fd);
    ck_assert_int_gt(n, 0);
    name = memmem(bytes, (size_t)n, have, sizeof(have));
    ck_assert_ptr_nonnull(name);
    memcpy(name, want, sizeof(want));
    out = open(at("altered"), O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    ck_assert_int_eq(write(out, bytes, (size_t)n), n);
    close(out);
    hb_free(bytes);
    p = check("./altered");
    missing = json_object_get(p, "missing");
    ck_assert_int_ge((int)json_array_size(missing), 1);
    ck_assert_str_eq(json_string_value(json_array_get(missing, 0)), want);
    json_decref(p);
}
END_TEST

START_TEST(files_and_tools)
{
    json_t *v;

    fixture_file(&f, "train.py", "print(1)\n");
    v = progcheck_file("train.py", f.root);
    ck_assert_int_eq(query_int(v, "bytes", 0), 9);
    json_decref(v);
    v = progcheck_file("--epochs", f.root);
    ck_assert_int_eq(json_is_null(v), 1);
    json_decref(v);
    v = progcheck_file(".", f.root);
    ck_assert_int_eq(json_is_null(v), 1);
    json_decref(v);
    fixture_file(&f, "mpirun", "#!/bin/sh\necho mpirun 4.1; echo more\n");
    ck_assert_int_eq(chmod(at("mpirun"), 0755), 0);
    v = progcheck_tool("mpirun", f.root);
    ck_assert_str_eq(query_string(v, "version"), "mpirun 4.1");
    json_decref(v);
    v = progcheck_tool("no-such-tool", f.root);
    ck_assert_int_eq(json_is_null(v), 1);
    json_decref(v);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("account");
    TCase *tc = tcase_create("account");

    tcase_set_timeout(tc, 60);
    tcase_add_unchecked_fixture(tc, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, user);
    tcase_add_test(tc, a_home);
    tcase_add_test(tc, cache);
    tcase_add_test(tc, old_agents_go_the_newest_stays);
    tcase_add_test(tc, what_runs_stays);
    tcase_add_test(tc, a_cache_that_others_can_write_to_is_not_touched);
    tcase_add_test(tc, private_directories);
    tcase_add_test(tc, sockets_of_a_killed_hvdrun);
    tcase_add_test(tc, timelines_that_an_agent_holds_stay);
    tcase_add_test(tc, files_of_an_mpi_go);
    tcase_add_test(tc, libraries_in_usual_places);
    tcase_add_test(tc, the_library_path_comes_first);
    tcase_add_test(tc, the_loaders_cache);
    tcase_add_test(tc, programs);
    tcase_add_test(tc, a_missing_library_is_named);
    tcase_add_test(tc, files_and_tools);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
