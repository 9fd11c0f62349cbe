/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/keys/ssh_add.h with programs that pose as ssh-add; test_ssh_key uses
 * the real one. */
#include "lib/base/hvd_status.h"
#include "lib/ssh/keys/ssh_add.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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
 * would ask the user elsewhere has no display; the socket has no name. */
START_TEST(what_it_is_given)
{
    setenv("DISPLAY", ":0", 1);
    setenv("SSH_ASKPASS_REQUIRE", "force", 1);
    setenv("SSH_AUTH_SOCK", "/the/users", 1);
    ck_assert_int_eq(decrypt(script("cat >in\n"
                                    "tr '\\0' '\\n' </proc/$$/cmdline >args\n"
                                    "env >env\n"
                                    "exec 4>&1\n"
                                    "readlink /proc/$$/fd/4 >socket\n"
                                    "[ -S /proc/$$/fd/4 ] && echo yes >is\n"
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
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ssh_add");
    TCase *t = tcase_create("all");
    char command[64];
    int rc;

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_it_is_given);
    tcase_add_test(t, how_it_fails);
    tcase_add_test(t, it_is_cancelled);
    tcase_add_test(t, it_does_not_outlive_us);
    tcase_add_test(t, where_it_is_found);
    if (!mkdtemp(dir))
        return EXIT_FAILURE;
    rc = unit_run(s);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) ? EXIT_FAILURE : rc;
}
