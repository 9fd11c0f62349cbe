/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/keys/ssh_agent.h with agents that misbehave; test_ssh2_auth uses a
 * real one. */
#include "lib/base/hvd_status.h"
#include "lib/ssh/keys/ssh_agent.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];
static pid_t pid;
static struct ssh_agent agent;
static struct ssh_agent_keys keys;

static void setup(void)
{
    snprintf(path, sizeof(path), "/tmp/hvd-agent-%d", (int)getpid());
    memset(&keys, 0, sizeof(keys));
    agent.fd = -1;
}

static void stop(void)
{
    ssh_agent_close(&agent);
    ssh_agent_keys_free(&keys);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    pid = 0;
    unlink(path);
}

/* Starts an agent that answers the first message with these bytes, then hangs
 * or ends. */
static void start(const void *answer, size_t len, int hangs)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char bytes[4096];
    int fd;

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fd = accept(listener, NULL, NULL);
        if (read(fd, bytes, sizeof(bytes)) > 0 && len > 0 &&
            write(fd, answer, len) < 0)
            _exit(1);
        while (hangs)
            pause();
        _exit(0);
    }
    close(listener);
    ck_assert_int_eq(ssh_agent_open(path, -1, &agent), 0);
}

static int list(const void *answer, size_t len, int hangs)
{
    int rc;

    start(answer, len, hangs);
    rc = ssh_agent_list(&agent, hangs ? 200 : 20000, &keys);
    if (rc < 0)
        ck_assert_uint_eq(keys.count, 0);
    return rc;
}

#define LIST(bytes, hangs) list(bytes, sizeof(bytes) - 1, hangs)

START_TEST(no_agent)
{
    char name[200];

    ck_assert_int_eq(ssh_agent_open("/nonexistent", -1, &agent), -HVD_ENOENT);
    ck_assert_int_eq(ssh_agent_open("/", -1, &agent), -HVD_ENOENT);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    ck_assert_int_eq(ssh_agent_open(name, -1, &agent), -HVD_ENOENT);
    ssh_agent_close(&agent);
}
END_TEST

START_TEST(lists)
{
    ck_assert_int_eq(LIST("\0\0\0\5\x0c\0\0\0\0", 0), 0);
    ck_assert_uint_eq(keys.count, 0);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\x1b\x0c\0\0\0\2"
                          "\0\0\0\3abc\0\0\0\1x"
                          "\0\0\0\2de\0\0\0\0",
                          0),
                     0);
    ck_assert_uint_eq(keys.count, 2);
    ck_assert_uint_eq(keys.items[0].len, 3);
    ck_assert_mem_eq(keys.items[0].blob, "abc", 3);
    ck_assert_mem_eq(keys.items[1].blob, "de", 2);
}
END_TEST

START_TEST(answers_that_are_none)
{
    ck_assert_int_eq(LIST("", 0), -HVD_ECLOSED);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\5\x0c\0", 0), -HVD_ECLOSED);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\5\x0c\0", 1), -HVD_ETIMEOUT);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\1\5", 0), -HVD_EPERM);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\1\x63", 0), -HVD_EPROTO);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\0\x0c", 0), -HVD_EPROTO);
    stop();
    ck_assert_int_eq(LIST("\xff\xff\xff\xff\x0c", 0), -HVD_EPROTO);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\5\x0c\xff\xff\xff\xff", 0), -HVD_EPROTO);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\5\x0c\0\0\0\1", 0), -HVD_EPROTO);
    stop();
    ck_assert_int_eq(LIST("\0\0\0\x0d\x0c\0\0\0\1\0\0\0\0\0\0\0\0", 0),
                     -HVD_EPROTO);
}
END_TEST

static int sign(const void *answer, size_t len, struct hb_buf *out)
{
    unsigned char blob[] = "key";
    struct ssh_agent_key key = {blob, 3};

    start(answer, len, 0);
    return ssh_agent_sign(&agent, 20000, &key, "data", 4, 0, out);
}

START_TEST(signatures)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(sign("\0\0\0\x08\x0e\0\0\0\3sig", 12, &b), 0);
    ck_assert_uint_eq(hb_buf_len(&b), 3);
    ck_assert_mem_eq(hb_buf_data(&b), "sig", 3);
    stop();
    ck_assert_int_eq(sign("\0\0\0\1\5", 5, &b), -HVD_EPERM);
    stop();
    ck_assert_int_eq(sign("\0\0\0\x08\x0e\0\0\0\4sig", 12, &b), -HVD_EPROTO);
    stop();
    ck_assert_int_eq(sign("\0\0\0\2\x0e\0", 6, &b), -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(cancelled)
{
    int fd = eventfd(1, EFD_CLOEXEC);

    start("", 0, 1);
    agent.cancel_fd = fd;
    ck_assert_int_eq(ssh_agent_list(&agent, 60000, &keys), -HVD_ESHUTDOWN);
    close(fd);
}
END_TEST

/* An agent with a full queue of clients is asked again. */
START_TEST(a_full_queue)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int cancel = eventfd(1, EFD_CLOEXEC);
    struct ssh_agent others[64];
    int count = 0, rc = 0;

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    while (count < 64 && rc == 0) {
        rc = ssh_agent_open(path, cancel, &others[count]);
        count += rc == 0;
    }
    ck_assert_int_eq(rc, -HVD_ESHUTDOWN);
    ck_assert_int_gt(count, 0);
    while (count > 0)
        ssh_agent_close(&others[--count]);
    close(listener);
    close(cancel);
}
END_TEST

static int attempt(void *arg)
{
    static const char body[] = "\0\0\0\2\0\0\0\3abc\0\0\0\1x\0\0\0\2de\0\0\0\0";
    struct ssh_agent_keys some = {NULL, 0};
    int rc = ssh_agent_parse_keys(body, sizeof(body) - 1, &some);

    (void)arg;
    ssh_agent_keys_free(&some);
    return rc;
}

START_TEST(out_of_memory)
{
    unit_fail_each(attempt, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ssh_agent");
    TCase *t = tcase_create("all");

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, stop);
    tcase_add_test(t, no_agent);
    tcase_add_test(t, lists);
    tcase_add_test(t, answers_that_are_none);
    tcase_add_test(t, signatures);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, a_full_queue);
    tcase_add_test(t, out_of_memory);
    return unit_run(s);
}
