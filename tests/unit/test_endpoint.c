/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/endpoint.h: which clients are accepted; raw clients on its loop. */
#include "tests/unit/unit.h"
#include "tests/unit/worker_client.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(test_name_is_random_and_abstract)
{
    struct endpoint other;

    ck_assert_int_eq(strncmp(endpoint.name, "unix:@hvd-", 10), 0);
    ck_assert_uint_eq(strlen(endpoint.name), 10 + 32);
    ck_assert_int_eq(endpoint_init(&other, &loop, &job, 4, NULL, NULL), 0);
    ck_assert_str_ne(endpoint.name, other.name);
    endpoint_close(&other);
    run_turns(2);
    endpoint_fini(&other);
}
END_TEST

START_TEST(test_welcome)
{
    struct worker_welcome m;
    struct client c;

    client_open(&c);
    send_hello(&c, 11, WORKER_ABI);
    expect_welcome(&c, &m);
    ck_assert_uint_eq(m.rank, 11);
    ck_assert_uint_eq(m.size, 20);
    ck_assert_uint_eq(m.local_rank, 1);
    ck_assert_uint_eq(m.local_size, RANKS);
    ck_assert_uint_eq(m.cross_rank, 1);
    ck_assert_uint_eq(m.cpus, 4);
    ck_assert_uint_eq(m.local_ranks[2], 12);
    ck_assert_str_eq(m.host, job.host);
    ck_assert_str_eq(m.job_id, job.job_id);
    ck_assert_mem_eq(m.secret, job.secret, sizeof(m.secret));
    client_close(&c);
}
END_TEST

START_TEST(test_domains)
{
    uint32_t *domains = hb_xcalloc(RANKS, sizeof(*domains));
    struct worker_welcome m;
    struct client c;

    endpoint_set_domains(&endpoint, hb_xcalloc(RANKS, sizeof(*domains)));
    domains[1] = domains[2] = 1;
    endpoint_set_domains(&endpoint, domains);
    client_open(&c);
    send_hello(&c, 11, WORKER_ABI);
    expect_welcome(&c, &m);
    ck_assert_mem_eq(m.local_domains, domains, RANKS * sizeof(*domains));
    client_close(&c);
}
END_TEST

START_TEST(test_refusals)
{
    struct client a, b;

    client_open(&b);
    send_hello(&b, 11, WORKER_ABI + 1);
    expect_text(&b, WORKER_REFUSED, "same release");
    expect_end(&b);
    client_close(&b);

    client_open(&b);
    send_hello(&b, 13, WORKER_ABI);
    expect_text(&b, WORKER_REFUSED, "rank 13 does not belong to host here");
    client_close(&b);

    greet(&a, 11);
    client_open(&b);
    send_hello(&b, 11, WORKER_ABI);
    expect_text(&b, WORKER_REFUSED, "rank 11 is taken by pid");
    expect_end(&b);
    client_close(&b);
    client_close(&a); /* after that the rank may come again */
    run_turns(4);
    greet(&a, 11);
    client_close(&a);

    endpoint_rank_ended(&endpoint, 1, 1, "rank 11: gone");
    client_open(&b);
    send_hello(&b, 11, WORKER_ABI);
    expect_text(&b, WORKER_REFUSED, "has ended already");
    client_close(&b);
}
END_TEST

static void expect_garbage_refused(const char *bytes, size_t len)
{
    struct hb_buf b = HB_BUF_INIT;
    struct client c;

    client_open(&c);
    hb_buf_append(&b, bytes, len);
    client_send(&c, &b);
    expect_text(&c, WORKER_REFUSED, "not libhvd's protocol");
    expect_end(&c);
    client_close(&c);
}

START_TEST(test_garbage)
{
    struct hb_buf b = HB_BUF_INIT;

    expect_garbage_refused("GET / HTTP/1.1\r\n\r\n", 18);
    worker_encode_leave(&b, 1); /* before HELLO */
    expect_garbage_refused(hb_buf_data(&b), hb_buf_len(&b));
    hb_buf_clear(&b);
    frame_encode(&b, WORKER_HELLO, "short", 5);
    expect_garbage_refused(hb_buf_data(&b), hb_buf_len(&b));
    hb_buf_clear(&b);
    frame_encode(&b, WORKER_HELLO,
                 "a frame that is far longer than any that libhvd sends to "
                 "its agent",
                 66);
    expect_garbage_refused(hb_buf_data(&b), hb_buf_len(&b));
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_connections_are_bounded)
{
    enum { MANY = 2 * RANKS + 40 };
    struct client c[MANY];
    int closed = 0;

    for (int i = 0; i < MANY; i++)
        client_open(&c[i]);
    run_turns(10);
    ck_assert_int_le(endpoint.conn_count, 2 * RANKS + 8);
    for (int i = 0; i < MANY; i++)
        closed += client_receive(&c[i]) == 0;
    ck_assert_int_eq(closed, MANY - endpoint.conn_count);
    close_all(c, MANY);
    run_turns(10);
    ck_assert_int_eq(endpoint.conn_count, 0);
}
END_TEST

/* Any user can connect as fast as the agent accepts: the loop runs other
 * handles in between. */
START_TEST(test_many_connections_at_once)
{
    enum { MANY = 1000 };
    struct client c[MANY], rank;
    int taken = 0, most = 2 * RANKS + 8;

    for (int i = 0; i < MANY; i++)
        client_open(&c[i]);
    while (taken < MANY - most) {
        int before = taken;

        uv_run(&loop, UV_RUN_ONCE);
        for (taken = 0; taken < MANY; taken++)
            if (taken >= most && client_receive(&c[taken]) != 0)
                break;
        ck_assert_int_le(taken - before, ENDPOINT_ACCEPTS_PER_TURN);
    }
    close_all(c, MANY);
    greet(&rank, 11);
    client_close(&rank);
}
END_TEST

/* Runs in a grandchild whose parent has ended: says HELLO as rank 11 and writes
 * the answer to `out`. */
static void greet_as_stranger(int out)
{
    struct client c;
    char bytes[WORKER_TEXT_MAX + 64];
    ssize_t n;

    client_open(&c);
    send_hello(&c, 11, WORKER_ABI);
    n = recv(c.fd, bytes, sizeof(bytes), 0);
    _exit(n > 0 && write(out, bytes, (size_t)n) == n ? 0 : 1);
}

/* A process of our own user that the agent did not start is refused even
 * before the rank has come.  It may be in another container that shares our
 * network. */
START_TEST(test_who_is_no_descendant_is_refused)
{
    struct client rank, ear = {.passed_fd = -1};
    pid_t child, me = getpid();
    int told[2], status;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, told), 0);
    child = fork();
    if (child == 0) {
        child = getpid();
        if (fork() != 0)
            _exit(0);
        while (getppid() == child)
            sched_yield();
        _exit(getppid() == me ? 2 : (greet_as_stranger(told[1]), 3));
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    close(told[1]);
    ear.fd = told[0];
    expect_text(&ear, WORKER_REFUSED, "was not started by a rank of this job");
    client_close(&ear);
    greet(&rank, 11);
    client_close(&rank);
}
END_TEST

/* A child's child is accepted. */
START_TEST(test_who_descends_is_welcomed)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct client c;
        char byte;

        pid = fork();
        if (pid > 0)
            _exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1);
        client_open(&c);
        send_hello(&c, 11, WORKER_ABI);
        _exit(recv(c.fd, &byte, 1, 0) == 1 ? 0 : 1);
    }
    while (waitpid(pid, &status, WNOHANG) == 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(status, 0);
    ck_assert(endpoint.slots[1].pid > 0);
}
END_TEST

/* Mounts a /proc that hides other users' processes.  Returns 0 if that is not
 * allowed. */
static int hide_processes(void)
{
    return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("proc", "/proc", "proc", 0, "hidepid=2") == 0;
}

/* Begins a session, for which this process must not lead a process group. */
static void begin_session(void)
{
    pid_t other = fork();

    if (other == 0) {
        pause();
        _exit(0);
    }
    setpgid(other, other);
    setpgid(0, other);
    ck_assert_int_eq(setsid(), getpid());
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

/* Says hello when `go` can be read.  Returns the type of the answer. */
static int greet_when_told(int go)
{
    unsigned char answer[FRAME_HEADER_BYTES];
    struct client c;

    if (read(go, answer, 1) != 1)
        return 0;
    client_open(&c);
    send_hello(&c, 11, WORKER_ABI);
    return recv(c.fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer)
               ? answer[5]
               : 0;
}

/* Runs the endpoint as another user, from whom a child of root's is hidden.
 * Returns what that child is answered, -1 if this cannot be tried. */
static int answer_to_hidden(void)
{
    int go[2], status;
    pid_t pid;

    if (pipe(go) < 0)
        return -1;
    pid = fork();
    if (pid == 0)
        _exit(greet_when_told(go[0]));
    if (setgroups(0, NULL) < 0 || /* root's sees all */
        setegid(65534) < 0 || seteuid(65534) < 0 || write(go[1], "", 1) != 1)
        return -1;
    while (waitpid(pid, &status, WNOHANG) == 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    close(go[0]);
    close(go[1]);
    return seteuid(0) == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A rank that runs as root is accepted where /proc hides other users'
 * processes.  Needs the right to mount and to change the uid. */
START_TEST(test_a_hidden_rank_is_welcomed)
{
    if (!hide_processes())
        return;
    begin_session();
    ck_assert_int_eq(answer_to_hidden(), WORKER_WELCOME);
    ck_assert(endpoint.slots[1].pid > 0);
}
END_TEST

/* In a session that neither the agent nor its guardian began, a hidden process
 * may be anybody's. */
START_TEST(test_a_hidden_stranger_is_refused)
{
    int status;
    pid_t pid;

    if (!hide_processes())
        return;
    begin_session();
    pid = fork();
    if (pid == 0) {
        pid = fork();
        if (pid == 0)
            _exit(uv_loop_fork(&loop) == 0 ? answer_to_hidden() : 0);
        _exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status)
                  ? WEXITSTATUS(status)
                  : 0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), WORKER_REFUSED);
}
END_TEST

/* Needs the right to change the uid. */
START_TEST(test_another_user_is_not_listened_to)
{
    pid_t pid;
    int status;

    if (geteuid() != 0)
        return;
    pid = fork();
    if (pid == 0) {
        struct client c;
        char byte;

        if (setuid(65534) < 0)
            _exit(2);
        client_open(&c);
        _exit(recv(c.fd, &byte, 1, 0) == 0 ? 0 : 1);
    }
    while (waitpid(pid, &status, WNOHANG) == 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* A client that never reads is disconnected; others are served. */
START_TEST(test_slow_client)
{
    struct client c[RANKS], slow;
    struct hb_buf b = HB_BUF_INIT;

    endpoint_rank_ended(&endpoint, 1, 1, "rank 11: gone");
    greet(&slow, 10);
    for (uint32_t i = 1; i < 20000; i++) {
        ssize_t n;

        worker_encode_join(&b, &(struct worker_join){i, SEGMENT_BYTES});
        n = send(slow.fd, hb_buf_data(&b), hb_buf_len(&b),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        hb_buf_clear(&b);
        run_turns(1);
        if (n < 0 && errno != EAGAIN)
            break;
    }
    hb_buf_free(&b);
    run_turns(8);
    ck_assert_int_eq(endpoint.conn_count, 0);
    greet(&c[0], 12);
    client_close(&c[0]);
    client_close(&slow);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("endpoint");
    TCase *t = tcase_create("endpoint");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, clients_setup, clients_teardown);
    tcase_add_test(t, test_name_is_random_and_abstract);
    tcase_add_test(t, test_welcome);
    tcase_add_test(t, test_domains);
    tcase_add_test(t, test_refusals);
    tcase_add_test(t, test_garbage);
    tcase_add_test(t, test_connections_are_bounded);
    tcase_add_test(t, test_many_connections_at_once);
    tcase_add_test(t, test_who_is_no_descendant_is_refused);
    tcase_add_test(t, test_who_descends_is_welcomed);
    tcase_add_test(t, test_a_hidden_rank_is_welcomed);
    tcase_add_test(t, test_a_hidden_stranger_is_refused);
    tcase_add_test(t, test_another_user_is_not_listened_to);
    tcase_add_test(t, test_slow_client);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
