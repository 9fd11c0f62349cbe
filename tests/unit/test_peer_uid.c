/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/horovod/peer_uid.h: who is at the other end. */
#include "lib/agent/horovod/peer_uid.h"
#include "tests/unit/unit.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_UID = 65534 };

static struct sockaddr_in own, peer;
static int listener;
static struct peer_uid by_netlink, by_proc;

static void setup(void)
{
    socklen_t len = sizeof(own);

    own = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&own, len), 0);
    ck_assert_int_eq(listen(listener, 5), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&own, &len), 0);
    by_netlink = (struct peer_uid)PEER_UID_INIT;
    by_proc = (struct peer_uid)PEER_UID_INIT;
    by_proc.no_netlink = 1;
}

static void teardown(void)
{
    peer_uid_fini(&by_netlink);
    peer_uid_fini(&by_proc);
    close(listener);
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    return fd;
}

static int take(void)
{
    socklen_t len = sizeof(peer);
    int fd = accept(listener, (struct sockaddr *)&peer, &len);

    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Expects both ways to find `uid`, or with found 0, nobody. */
static void expect(int fd, int found, uid_t uid)
{
    struct peer_uid *ways[] = {&by_netlink, &by_proc};
    uid_t got;

    for (int i = 0; i < 2; i++) {
        got = 12345;
        ck_assert_int_eq(peer_uid_find(ways[i], fd, &own, &peer, &got),
                         found ? 0 : -1);
        ck_assert_uint_eq(got, found ? uid : 12345);
    }
}

START_TEST(own_user)
{
    int client = dial(), server = take();

    expect(server, 1, geteuid());
    expect(server, 1, geteuid());
    shutdown(client, SHUT_WR); /* it still reads */
    expect(server, 1, geteuid());
    close(client);
    close(server);
}
END_TEST

/* The kernel says 0 of a socket without a process, which is no proof of
 * root. */
START_TEST(closed_by_its_process)
{
    int client = dial(), server = take();

    close(client);
    expect(server, 0, 0);
    close(server);
}
END_TEST

START_TEST(reset)
{
    struct linger now = {1, 0};
    int client = dial(), server = take();

    setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(client);
    expect(server, 0, 0);
    close(server);
}
END_TEST

START_TEST(another_user)
{
    int go[2], server, status;
    pid_t pid;
    char c;

    if (geteuid() != 0)
        return; /* only root can be another user */
    ck_assert_int_eq(pipe(go), 0);
    pid = fork();
    if (pid == 0) {
        close(go[1]);
        if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) == 0)
            dial();
        _exit(read(go[0], &c, 1) < 0);
    }
    close(go[0]);
    server = take();
    expect(server, 1, OTHER_UID);
    close(go[1]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    expect(server, 0, 0);
    close(server);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("peer_uid");
    TCase *c = tcase_create("peer_uid");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, own_user);
    tcase_add_test(c, closed_by_its_process);
    tcase_add_test(c, reset);
    tcase_add_test(c, another_user);
    suite_add_tcase(s, c);
    return unit_run(s);
}
