/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/keys/ssh_add.h with programs that pose as ssh-add: shell scripts, and
 * this program itself where a connection to the socket is needed.  test_ssh_key
 * uses the real one. */
#include "lib/base/hvd_status.h"
#include "lib/ssh/keys/ssh_add.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/hvd-add-XXXXXX";
static struct hb_buf key;
static char why[SSH_ADD_WHY_MAX];

static const char *path(const char *name)
{
    static char paths[4][64];
    static unsigned next;
    char *p = paths[next++ % 4];

    snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
    return p;
}

/* Writes a shell script that poses as ssh-add, and returns its path. */
static const char *script(const char *text)
{
    const char *name = path("ssh-add");
    FILE *f = fopen(name, "w");

    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\ncd %s\n%s\n", dir, text);
    fclose(f);
    ck_assert_int_eq(chmod(name, 0700), 0);
    return name;
}

static const char *read_text(const char *name)
{
    static char text[4096];
    FILE *f = fopen(path(name), "r");

    text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    return text;
}

/* ---- This program as ssh-add ---- */

enum { ADD_IDENTITY = 17, SUCCESS = 6 };

/* Sends a key of that text to the agent.  Returns the type of the answer, 0 if
 * there is none. */
static int send_key(const char *text)
{
    struct sockaddr_un addr = {AF_UNIX, "/proc/self/fd/1"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t len = strlen(text);
    unsigned char head[] = {0, 0, 0, (unsigned char)(1 + len), ADD_IDENTITY};
    unsigned char answer[5];

    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return -1;
    (void)!send(fd, head, sizeof(head), MSG_NOSIGNAL);
    (void)!send(fd, text, len, MSG_NOSIGNAL);
    return recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer)
               ? answer[4]
               : 0;
}

/* Lets another process be the first to connect. */
static int pose_behind_stranger(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(send_key("stranger"));
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return 1;
    return send_key("its own") != SUCCESS;
}

/* Sends the key, while a process that it has started holds its stderr. */
static int pose_followed(void)
{
    if (fork() == 0) {
        pause();
        _exit(0);
    }
    send_key("its own");
    pause();
    return 0;
}

/* Lets the process that runs it have at most that many descriptors. */
static void limit_files(rlim_t most)
{
    struct rlimit limit;

    prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit);
    limit.rlim_cur = most;
    prlimit(getppid(), RLIMIT_NOFILE, &limit, NULL);
}

/* Makes accept() fail. */
static int pose_unacceptable(void)
{
    limit_files(4);
    send_key("its own");
    pause();
    return 0;
}

/* Makes poll() fail. */
static int pose_unpollable(void)
{
    limit_files(0);
    (void)!write(2, "x", 1);
    pause();
    return 0;
}

/* Sends a key if signals are neither blocked nor ignored. */
static int pose_signalled(void)
{
    struct sigaction old;
    sigset_t set;

    sigprocmask(SIG_BLOCK, NULL, &set);
    sigaction(SIGUSR1, NULL, &old);
    if (!sigisemptyset(&set) || old.sa_handler != SIG_DFL)
        return 1;
    return send_key("its own") != SUCCESS;
}

static const struct pose {
    const char *name;
    int (*run)(void);
} poses[] = {
    {"behind_stranger", pose_behind_stranger},
    {"followed", pose_followed},
    {"signalled", pose_signalled},
    {"unacceptable", pose_unacceptable},
    {"unpollable", pose_unpollable},
};

static int pose(const char *name)
{
    for (size_t i = 0; i < sizeof(poses) / sizeof(poses[0]); i++)
        if (strcmp(name, poses[i].name) == 0)
            return poses[i].run();
    return 2;
}

/* Returns a program that becomes this one, in one of these roles. */
static const char *poser(const char *name)
{
    char self[256], text[300];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    snprintf(text, sizeof(text), "exec '%s' --pose %s", self, name);
    return script(text);
}

/* ---- Tests ---- */

static int decrypt(const char *program, int cancel_fd)
{
    int rc;

    hb_buf_clear(&key);
    why[0] = '\0';
    rc = ssh_add_decrypt(program, path("key"), "open sesame", cancel_fd, &key,
                         why);
    /* nothing is left */
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
    return rc;
}

/* What other users can see of a process has no passphrase; a program that
 * would ask the user elsewhere has no display; the socket has no name; no core
 * is dumped. */
START_TEST(what_it_is_given)
{
    const struct rlimit core = {1 << 20, 1 << 20};

    setrlimit(RLIMIT_CORE, &core);
    setenv("DISPLAY", ":0", 1);
    setenv("SSH_ASKPASS_REQUIRE", "force", 1);
    setenv("SSH_AUTH_SOCK", "/the/users", 1);
    ck_assert_int_eq(decrypt(script("cat >in\n"
                                    "tr '\\0' '\\n' </proc/$$/cmdline >args\n"
                                    "env >env\n"
                                    "exec 4>&1\n"
                                    "readlink /proc/$$/fd/4 >socket\n"
                                    "[ -S /proc/$$/fd/4 ] && echo yes >is\n"
                                    "ulimit -H -c >core\n"
                                    "exec 3</dev/tty && echo yes >tty"),
                             -1),
                     -HVD_EPROTO);
    ck_assert_str_eq(read_text("in"), "open sesame\n");
    ck_assert_ptr_null(strstr(read_text("args"), "sesame"));
    ck_assert_ptr_nonnull(strstr(read_text("args"), "\n-k\n--\n/tmp/"));
    ck_assert_ptr_null(strstr(read_text("env"), "sesame"));
    ck_assert_ptr_null(strstr(read_text("env"), "\nDISPLAY="));
    ck_assert_ptr_null(strstr(read_text("env"), "SSH_ASKPASS_REQUIRE="));
    ck_assert_ptr_null(strstr(read_text("env"), "/the/users"));
    ck_assert_str_eq(read_text("is"), "yes\n");
    ck_assert_ptr_nonnull(strstr(read_text("socket"), "/agent (deleted)"));
    ck_assert_str_eq(read_text("tty"), "");
    ck_assert_str_eq(read_text("core"), "0\n");
}
END_TEST

/* Another process of the user that finds the socket is not listened to. */
START_TEST(whom_it_accepts)
{
    ck_assert_int_eq(decrypt(poser("behind_stranger"), -1), 0);
    ck_assert_uint_eq(hb_buf_len(&key), 7);
    ck_assert_mem_eq(hb_buf_data(&key), "its own", 7);
}
END_TEST

/* What ssh-add has started does not keep us waiting, and does not stay. */
START_TEST(what_it_leaves)
{
    int status;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < 2; i++) {
        const char *program =
            i == 0 ? poser("followed") : script("sleep 1000 & exit 1");

        hb_buf_clear(&key);
        ck_assert_int_eq(
            ssh_add_decrypt(program, path("key"), "x", -1, &key, why),
            i == 0 ? 0 : -HVD_EPROTO);
        ck_assert_uint_eq(hb_buf_len(&key), i == 0 ? 7 : 0);
        ck_assert_int_gt(waitpid(-1, &status, 0), 0);
        ck_assert_int_eq(WTERMSIG(status), SIGKILL);
    }
}
END_TEST

/* An error of the system ends it, rather than be met again without end. */
START_TEST(what_the_system_refuses)
{
    static const char *const whys[][2] = {
        {"unacceptable", "ssh-add's connection cannot be accepted: Too many "
                         "open files"},
        {"unpollable", "ssh-add cannot be waited for: Invalid argument"},
    };
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++) {
        const char *program = poser(whys[i][0]);
        int rc;

        hb_buf_clear(&key);
        rc = ssh_add_decrypt(program, path("key"), "x", -1, &key, why);
        setrlimit(RLIMIT_NOFILE, &limit);
        ck_assert_int_eq(rc, -HVD_EPROTO);
        ck_assert_str_eq(why, whys[i][1]);
    }
}
END_TEST

/* It has none of our treatment of signals. */
START_TEST(which_signals_it_gets)
{
    sigset_t all;

    signal(SIGUSR1, SIG_IGN);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    ck_assert_int_eq(decrypt(poser("signalled"), -1), 0);
}
END_TEST

/* Returns where the socket was while it had a name. */
static const char *socket_place(void)
{
    ck_assert_int_eq(
        decrypt(script("exec 4>&1; readlink /proc/$$/fd/4 >at"), -1),
        -HVD_EPROTO);
    return read_text("at");
}

static void expect_place(const char *parent)
{
    char want[300];

    snprintf(want, sizeof(want), "%s/hvd-", parent);
    ck_assert_int_eq(strncmp(socket_place(), want, strlen(want)), 0);
}

/* The socket is made in TMPDIR, whose path may be longer than a socket's
 * address, and else in /tmp; nothing is left there. */
START_TEST(where_the_socket_is_made)
{
    char tmpdir[256], sub[112];

    memset(sub, 'x', sizeof(sub) - 1);
    sub[sizeof(sub) - 1] = '\0';
    snprintf(tmpdir, sizeof(tmpdir), "%s/%s", dir, sub);
    ck_assert_int_eq(mkdir(tmpdir, 0755), 0);
    setenv("TMPDIR", tmpdir, 1);
    expect_place(tmpdir);
    ck_assert_int_eq(rmdir(tmpdir), 0);
    expect_place("/tmp");
    setenv("TMPDIR", "relative", 1);
    expect_place("/tmp");
    unsetenv("TMPDIR");
    expect_place("/tmp");
}
END_TEST

START_TEST(how_it_fails)
{
    static const struct {
        const char *text, *why;
        int rc;
    } cases[] = {
        {"echo 'Bad passphrase, try again for x: ' >&2; exit 1", "",
         -HVD_EPERM},
        {"printf 'one\\nt\\033wo: invalid format\\r\\n' >&2; exit 1",
         "ssh-add: t?wo: invalid format", -HVD_EPROTO},
        {"exit 1", "ssh-add: it failed", -HVD_EPROTO},
        {"exec 2>&-; exec sleep 1000", "ssh-add: it failed", -HVD_EPROTO},
        {"yes | head -c 100000 >&2", "ssh-add: y", -HVD_EPROTO},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(decrypt(script(cases[i].text), -1), cases[i].rc);
        ck_assert_str_eq(why, cases[i].why);
        ck_assert_uint_eq(hb_buf_len(&key), 0);
    }
    ck_assert_int_eq(decrypt("/nonexistent/ssh-add", -1), -HVD_EPROTO);
    ck_assert_str_eq(why, "ssh-add: it cannot be started");
    ck_assert_int_eq(
        ssh_add_decrypt("/nonexistent/ssh-add", "x", "", -1, &key, why),
        -HVD_EPERM);
}
END_TEST

/* A path in the message, however long, does not displace the reason. */
START_TEST(how_long_lines_end)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"printf 'Error loading key \"%0200d\": invalid format\n' 0 >&2",
         "ssh-add: invalid format"},
        {"printf 'a: b%0100d end\n' 0 >&2",
         "ssh-add: "
         "000000000000000000000000000000000000000000000000"
         "000000000000000000000000000000000000000000000000 end"},
        {"printf '\303\274\303\274%098dx\n' 0 >&2",
         "ssh-add: "
         "0000000000000000000000000000000000000000000000000"
         "0000000000000000000000000000000000000000000000000x"},
        {"printf '\303\274%098dx\n' 0 >&2",
         "ssh-add: "
         "0000000000000000000000000000000000000000000000000"
         "0000000000000000000000000000000000000000000000000x"},
        {"printf '%0200d: \n' 0 >&2",
         "ssh-add: "
         "0000000000000000000000000000000000000000000000000"
         "00000000000000000000000000000000000000000000000000:"},
        {"yes | head -c 100000 >&2; echo 'x: no memory' >&2",
         "ssh-add: x: no memory"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(decrypt(script(cases[i].text), -1), -HVD_EPROTO);
        ck_assert_str_eq(why, cases[i].why);
    }
}
END_TEST

/* ssh-add takes "-" for its standard input. */
START_TEST(a_file_named_like_an_option)
{
    hb_buf_clear(&key);
    ck_assert_int_eq(
        ssh_add_decrypt(script("echo \"$*\" >args"), "-", "x", -1, &key, why),
        -HVD_EPROTO);
    ck_assert_str_eq(read_text("args"), "-k -- ./-\n");
}
END_TEST

START_TEST(it_is_cancelled)
{
    int cancel = eventfd(1, EFD_CLOEXEC);

    ck_assert_int_eq(decrypt(script("exec sleep 1000"), cancel),
                     -HVD_ESHUTDOWN);
    close(cancel);
}
END_TEST

/* It ends when we are killed, however long it would still take. */
START_TEST(it_does_not_outlive_us)
{
    const char *program = script("echo $$ >new; mv new pid; exec sleep 1000");
    pid_t us, it = 0;
    int status;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    us = fork();
    if (us == 0)
        _exit(decrypt(program, -1));
    for (int i = 0; i < 1000 && it == 0; i++) {
        it = atoi(read_text("pid"));
        usleep(10000);
    }
    ck_assert_int_gt(it, 0);
    ck_assert_int_eq(kill(us, SIGKILL), 0);
    ck_assert_int_eq(waitpid(us, &status, 0), us);
    ck_assert_int_eq(waitpid(it, &status, 0), it);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}
END_TEST

START_TEST(where_it_is_found)
{
    char dirs[256], *found;

    script("exit 1");
    snprintf(dirs, sizeof(dirs), "/nonexistent::%s:/usr/bin", dir);
    setenv("PATH", dirs, 1);
    found = ssh_add_find();
    ck_assert_str_eq(found, path("ssh-add"));
    hb_free(found);
    unlink(path("ssh-add"));
    setenv("PATH", dir, 1);
    ck_assert_ptr_null(ssh_add_find());
    ck_assert_int_eq(mkdir(path("ssh-add"), 0700), 0);
    ck_assert_ptr_null(ssh_add_find());
    ck_assert_int_eq(rmdir(path("ssh-add")), 0);
    script("exit 1");
    ck_assert_int_eq(chdir(dir), 0);
    setenv("PATH", ".", 1);
    ck_assert_ptr_null(ssh_add_find());
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("ssh_add");
    TCase *t = tcase_create("all");
    char command[64];
    int rc;

    if (argc > 2 && strcmp(argv[1], "--pose") == 0)
        return pose(argv[2]);
    suite_add_tcase(s, t);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_it_is_given);
    tcase_add_test(t, whom_it_accepts);
    tcase_add_test(t, what_it_leaves);
    tcase_add_test(t, what_the_system_refuses);
    tcase_add_test(t, which_signals_it_gets);
    tcase_add_test(t, where_the_socket_is_made);
    tcase_add_test(t, how_it_fails);
    tcase_add_test(t, how_long_lines_end);
    tcase_add_test(t, a_file_named_like_an_option);
    tcase_add_test(t, it_is_cancelled);
    tcase_add_test(t, it_does_not_outlive_us);
    tcase_add_test(t, where_it_is_found);
    if (!mkdtemp(dir))
        return EXIT_FAILURE;
    rc = unit_run(s);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) ? EXIT_FAILURE : rc;
}
