/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/port.h: a port that only a process that knows it can bind. */
#include "lib/agent/port.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int bind_to(int port, int reuse)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return fd;
    close(fd);
    return -1;
}

START_TEST(test_reserved)
{
    int fd, port = 0, other;

    ck_assert_int_eq(port_reserve(&fd, &port, NULL), 0);
    ck_assert_int_gt(port, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert_int_eq(bind_to(port, 0), -1);
    ck_assert_int_eq(errno, EADDRINUSE);
    other = bind_to(port, 1); /* as rank 0's server does */
    ck_assert_int_ge(other, 0);
    ck_assert_int_eq(listen(other, 5), 0);
    close(other);
    close(fd);
}
END_TEST

START_TEST(test_each_gets_another)
{
    int fd[2], port[2];

    ck_assert_int_eq(port_reserve(&fd[0], &port[0], NULL), 0);
    ck_assert_int_eq(port_reserve(&fd[1], &port[1], NULL), 0);
    ck_assert_int_ne(port[0], port[1]);
    close(fd[0]);
    close(fd[1]);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("port");
    TCase *t = tcase_create("port");

    tcase_add_test(t, test_reserved);
    tcase_add_test(t, test_each_gets_another);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
