/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting a TCP group despite strangers: scanners, floods, wrong keys,
 * replays, impostors; and despite absent peers.
 *
 * Member 0 plays the strangers before it calls member 1 itself.
 */
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "runtime/plane/tcp/tcp_impl.h"
#include "tests/unit/tcp_group.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OPEN_MS = 20000, SHORT_MS = 400, FLOOD = 300 };

static int knock(const struct tcp_group *g)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(g->peers[1].port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Returns whether the peer hangs up without sending anything. */
static int hung_up(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    close(fd);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* Checks that the group connects despite the strangers. */
static int connect_after_all(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    unsigned char mine = (unsigned char)me, all[2];
    struct hvd__tcp_block blocks[2] = {{&all[0], 1}, {&all[1], 1}};
    struct hvd__tcp *t = NULL;

    if (tcp_group_open(g, me, OPEN_MS, &t, &err) < 0)
        fprintf(stderr, "member %d: %s\n", me, err.text);
    must(t);
    hvd__tcp_exchange(t, &mine, 1, 1, blocks);
    must(tcp_group_finish(t, NULL) == 1);
    must(all[!me] == !me);
    hvd__tcp_free(t);
    return 0;
}

static int good_call(const struct tcp_group *g, struct tcp_auth_talk *talk,
                     unsigned char call[TCP_AUTH_CALL_BYTES])
{
    return tcp_auth_call(&g->auth, talk, g->peers[0].rank, g->peers[1].rank,
                         call);
}

/* ---- The strangers --------------------------------------------------- */

static int sends_garbage(struct tcp_group *g)
{
    char garbage[4096];
    int fd = knock(g);

    memset(garbage, 'G', sizeof(garbage));
    must(fd >= 0);
    must(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL) > 0);
    must(hung_up(fd));
    return 0;
}

static int sends_nothing(struct tcp_group *g)
{
    must(knock(g) >= 0);
    return 0;
}

/* A silent stranger is cut off after 5 s. */
static int waits_for_the_end(struct tcp_group *g)
{
    uint64_t before_ns = hb_now_ns();
    int fd = knock(g);

    must(fd >= 0 && hung_up(fd));
    must(hb_now_ns() - before_ns >= UINT64_C(4000000000));
    return 0;
}

static int sends_half(struct tcp_group *g)
{
    unsigned char call[TCP_AUTH_CALL_BYTES];
    struct tcp_auth_talk talk;
    int fd = knock(g);

    must(fd >= 0 && good_call(g, &talk, call) == 0);
    must(send(fd, call, sizeof(call) / 2, MSG_NOSIGNAL) > 0);
    return 0;
}

static int floods(struct tcp_group *g)
{
    for (int i = 0; i < FLOOD; i++)
        must(knock(g) >= 0);
    return 0;
}

static int opens_and_closes(struct tcp_group *g)
{
    for (int i = 0; i < FLOOD; i++) {
        int fd = knock(g);

        must(fd >= 0);
        close(fd);
    }
    return 0;
}

/* Every wrong call is answered by hanging up without a word. */
static int calls_wrongly(struct tcp_group *g, const struct tcp_auth *auth,
                         uint32_t caller, uint32_t callee)
{
    unsigned char call[TCP_AUTH_CALL_BYTES];
    struct tcp_auth_talk talk;
    int fd = knock(g);

    must(fd >= 0 && tcp_auth_call(auth, &talk, caller, callee, call) == 0);
    must(send(fd, call, sizeof(call), MSG_NOSIGNAL) == sizeof(call));
    must(hung_up(fd));
    return 0;
}

static int has_wrong_key(struct tcp_group *g)
{
    struct tcp_auth auth = g->auth;

    auth.secret[0] ^= 1;
    return calls_wrongly(g, &auth, g->peers[0].rank, g->peers[1].rank);
}

static int has_wrong_epoch(struct tcp_group *g)
{
    struct tcp_auth auth = g->auth;

    auth.epoch++;
    return calls_wrongly(g, &auth, g->peers[0].rank, g->peers[1].rank);
}

static int is_wrong_rank(struct tcp_group *g)
{
    return calls_wrongly(g, &g->auth, g->peers[1].rank, g->peers[1].rank) ||
           calls_wrongly(g, &g->auth, 4711, g->peers[1].rank) ||
           calls_wrongly(g, &g->auth, g->peers[0].rank, g->peers[0].rank);
}

static int speaks_other_version(struct tcp_group *g)
{
    unsigned char call[TCP_AUTH_CALL_BYTES];
    struct tcp_auth_talk talk;
    int fd = knock(g);

    must(fd >= 0 && good_call(g, &talk, call) == 0);
    call[7]++;
    must(send(fd, call, sizeof(call), MSG_NOSIGNAL) == sizeof(call));
    must(hung_up(fd));
    return 0;
}

/* Replays a recorded CALL and FINISH. */
static int replays(struct tcp_group *g)
{
    unsigned char call[TCP_AUTH_CALL_BYTES], answer[TCP_AUTH_ANSWER_BYTES];
    unsigned char finish[TCP_AUTH_FINISH_BYTES];
    struct tcp_auth_talk talk;
    int fd = knock(g);

    must(fd >= 0 && good_call(g, &talk, call) == 0);
    must(send(fd, call, sizeof(call), MSG_NOSIGNAL) == sizeof(call));
    must(recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer));
    must(tcp_auth_finish(&g->auth, &talk, answer, finish) == 0);
    close(fd); /* the recorded connection ended early */
    fd = knock(g);
    must(fd >= 0);
    must(send(fd, call, sizeof(call), MSG_NOSIGNAL) == sizeof(call));
    must(send(fd, finish, sizeof(finish), MSG_NOSIGNAL) == sizeof(finish));
    must(recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer));
    must(hung_up(fd));
    return 0;
}

static int two_at_once(struct tcp_group *g)
{
    unsigned char call[TCP_AUTH_CALL_BYTES];
    struct tcp_auth_talk talk;
    int one = knock(g), two = knock(g);

    must(one >= 0 && two >= 0 && good_call(g, &talk, call) == 0);
    call[30] ^= 1;
    for (size_t i = 0; i < sizeof(call); i++) {
        must(send(one, call + i, 1, MSG_NOSIGNAL) == 1);
        must(send(two, "x", 1, MSG_NOSIGNAL) == 1);
    }
    must(hung_up(one) && hung_up(two));
    return 0;
}

static int (*const strangers[])(struct tcp_group *) = {
    sends_garbage,        sends_nothing, sends_half,      floods,
    opens_and_closes,     has_wrong_key, has_wrong_epoch, is_wrong_rank,
    speaks_other_version, replays,       two_at_once,     waits_for_the_end,
};
enum { STRANGERS = sizeof(strangers) / sizeof(strangers[0]) };

static int stranger_body(struct tcp_group *g, int me)
{
    if (me == 0)
        must(strangers[*(int *)g->arg](g) == 0);
    return connect_after_all(g, me);
}

START_TEST(test_strangers)
{
    struct tcp_group g = {.n = 2, .body = stranger_body, .arg = &_i};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* Once all members are connected nobody listens any more. */
static int closed_body(struct tcp_group *g, int me)
{
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    tcp_group_meet(g, 0, 2);
    if (me == 0) {
        /* The test itself holds the listeners until its members end. */
        int fd = knock(g);

        must(fd < 0 || recv(fd, &fd, 1, MSG_DONTWAIT) < 0);
    }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_listener_is_closed)
{
    struct tcp_group g = {.n = 2, .body = closed_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Peers that are not what they should be -------------------------- */

/* An impostor that listens in a peer's place gets a call, but is not
 * accepted. */
static int impostor_body(struct tcp_group *g, int me)
{
    unsigned char call[TCP_AUTH_CALL_BYTES],
        answer[TCP_AUTH_ANSWER_BYTES] = {0};
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    struct pollfd p = {.fd = g->listeners[me], .events = POLLIN};
    int fd;

    if (me == 0) {
        must(tcp_group_open(g, me, SHORT_MS, &t, &err) == -HVD_ETIMEOUT);
        must(strstr(err.text, "no connection to rank 101 on host h1"));
        must(err.rank == 101 && strcmp(err.host, "h1") == 0);
        return 0;
    }
    must(poll(&p, 1, OPEN_MS) == 1);
    fd = accept(g->listeners[me], NULL, NULL);
    must(recv(fd, call, sizeof(call), MSG_WAITALL) == sizeof(call));
    must(send(fd, answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer));
    must(hung_up(fd));
    return 0;
}

START_TEST(test_impostor)
{
    struct tcp_group g = {.n = 2, .body = impostor_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static int wrong_secret_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;

    if (me == 0)
        g->auth.secret[5] ^= 1;
    must(tcp_group_open(g, me, SHORT_MS, &t, &err) == -HVD_ETIMEOUT);
    must(strstr(err.text, me ? "no connection from rank 100 on host h0"
                             : "no connection to rank 101 on host h1"));
    return 0;
}

START_TEST(test_wrong_secret)
{
    struct tcp_group g = {.n = 2, .body = wrong_secret_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* One member's messages carry authentication codes and the other's do not. */
static int other_codes_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;

    g->auth.codes = me;
    must(tcp_group_open(g, me, OPEN_MS, &t, &err) == -HVD_EINVAL);
    must(strcmp(err.text,
                me ? "rank 100 on host h0: HVD_TCP_MAC is 0 there and 1 on "
                     "rank 101; set it alike for all ranks"
                   : "rank 101 on host h1: HVD_TCP_MAC is 1 there and 0 on "
                     "rank 100; set it alike for all ranks") == 0);
    must(err.rank == (me ? 100 : 101));
    return 0;
}

START_TEST(test_other_codes)
{
    struct tcp_group g = {.n = 2, .body = other_codes_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* Nobody listens: reported well before the deadline. */
static int nobody_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;

    if (me == 1)
        return 0;
    g->peers[1].port = 1;
    must(tcp_group_open(g, me, OPEN_MS, &t, &err) == -HVD_ESYSTEM);
    must(strstr(err.text, "rank 101 on host h1 (127.0.0.1 port 1): "
                          "Connection refused"));
    return 0;
}

START_TEST(test_nobody)
{
    struct tcp_group g = {.n = 2, .body = nobody_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Hosts that do not answer ---------------------------------------- */

struct silent {
    int count;
    uint32_t rank;
};

static int note_no_answer(void *arg, uint32_t rank)
{
    struct silent *silent = arg;

    silent->count++;
    silent->rank = rank;
    return 1;
}

/* Returns a configuration in which a host that has not answered for a second is
 * silent; *silent gets the ranks of such hosts.  On a busy machine a process
 * may not run for much of that time. */
static struct hvd__tcp_config silence_config(const struct tcp_group *g, int me,
                                             struct silent *silent)
{
    struct hvd__tcp_config config = tcp_group_config(g, me);

    config.deadline_ns = hb_now_ns() + 1000000ull * OPEN_MS;
    config.silence_ms = 1000;
    config.no_answer = note_no_answer;
    config.arg = silent;
    return config;
}

/* Ends the job as soon as a rank is reported as silent. */
static int given_up(void *arg, struct hb_error *err)
{
    const struct silent *silent = arg;

    return silent->count ? hb_error_set(err, HVD_EPEER, "given up") : 0;
}

/* Returns a port to which no connection comes about: the kernel drops what is
 * sent to a listener whose queue is full. */
static uint16_t deaf_port(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 0) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return 0;
    for (int i = 0; i < 4; i++) {
        int call = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

        (void)connect(call, (struct sockaddr *)&sa, len);
    }
    return ntohs(sa.sin_port);
}

static int deaf_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct silent silent = {0, 0};
    struct hvd__tcp *t = NULL;
    struct hvd__tcp_config config = silence_config(g, me, &silent);

    if (me == 1)
        return 0;
    g->peers[1].port = deaf_port();
    must(g->peers[1].port);
    config.agent_lost = given_up;
    must(hvd__tcp_open(&config, &t, &err) == -HVD_EPEER);
    must(silent.count == 1 && silent.rank == 101);
    return 0;
}

START_TEST(test_no_answer)
{
    struct tcp_group g = {.n = 2, .body = deaf_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* A host answers whose kernel accepts a connection, although its process, which
 * is stopped, does not say anything for longer than any limit. */
static int stopped_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct silent silent = {0, 0};
    struct hvd__tcp *t = NULL;
    struct hvd__tcp_config config = silence_config(g, me, &silent);

    if (me == 1) {
        tcp_group_meet(g, 0, 2);
        return 0;
    }
    config.deadline_ns = hb_now_ns() + 6000000000u;
    must(hvd__tcp_open(&config, &t, &err) == -HVD_ETIMEOUT);
    must(silent.count == 0);
    tcp_group_meet(g, 0, 2);
    return 0;
}

START_TEST(test_stopped_process_is_no_silence)
{
    struct tcp_group g = {.n = 2, .body = stopped_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* A host that refuses connections answers. */
static int refused_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct silent silent = {0, 0};
    struct hvd__tcp *t = NULL;
    struct hvd__tcp_config config = silence_config(g, me, &silent);

    if (me == 1)
        return 0;
    g->peers[1].port = 1;
    must(hvd__tcp_open(&config, &t, &err) == -HVD_ESYSTEM);
    must(silent.count == 0);
    return 0;
}

/* The kernel ends an idle connection later than is_silent in tcp.c does, which
 * also tells the agent. */
START_TEST(test_keepalive_is_patient)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), idle = 0, interval = 0, count = 0;
    socklen_t len = sizeof(int);

    for (uint32_t s = 1; s <= 86400; s += 1 + s / 100) {
        tcp_tune(fd, s * 1000);
        getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len);
        getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &len);
        getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &len);
        ck_assert_int_gt(idle + interval * count, (int)s);
        ck_assert_int_lt(idle + interval * 3, (int)s + 5);
    }
    close(fd);
}
END_TEST

START_TEST(test_refusal_is_an_answer)
{
    struct tcp_group g = {.n = 2, .body = refused_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* The agent's report that a peer has died is found although another thread has
 * read it from the socket. */
static int word(void *arg, struct hb_error *err)
{
    (void)arg;
    return hb_error_set(err, HVD_EPEER, "rank 9 on host x: killed");
}

static int taken_word_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    struct hvd__tcp_config config = tcp_group_config(g, me);
    uint64_t began_ns = hb_now_ns();

    config.deadline_ns = hb_now_ns() + 1000000ull * OPEN_MS;
    config.agent_lost = word;
    if (me == 0)
        return 0;
    must(hvd__tcp_open(&config, &t, &err) == -HVD_EPEER);
    must(hb_now_ns() - began_ns < 700000000);
    must(strcmp(err.text, "rank 9 on host x: killed") == 0);
    return 0;
}

START_TEST(test_taken_word)
{
    struct tcp_group g = {.n = 2, .body = taken_word_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* TCP_USER_TIMEOUT is not set: it would end the connection of a process that is
 * stopped and reads nothing. */
static int patience_body(struct tcp_group *g, int me)
{
    struct hvd__tcp *t = NULL;
    int limit_ms = -1;
    socklen_t len = sizeof(limit_ms);

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    must(getsockopt(hvd__tcp_fd(t, !me), IPPROTO_TCP, TCP_USER_TIMEOUT,
                    &limit_ms, &len) == 0);
    must(limit_ms == 0);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_patience)
{
    struct tcp_group g = {.n = 2, .body = patience_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* A group of one connects to nobody but allocates memory. */
START_TEST(test_no_memory)
{
    struct tcp_auth auth = {.epoch = 1};
    struct hvd__tcp_peer peer = {1, "h", "127.0.0.1", 1};
    struct hvd__tcp *t = NULL;
    long n;

    for (n = 0; !t; n++) {
        struct hvd__tcp_config config = {.peers = &peer,
                                         .count = 1,
                                         .auth = &auth,
                                         .deadline_ns = UINT64_MAX,
                                         .agent_fd = -1};
        uint16_t port;
        int rc, fired;

        ck_assert_int_eq(hvd__tcp_listen("", &config.listener, &port, NULL), 0);
        hb_alloc_fail_after(n);
        rc = hvd__tcp_open(&config, &t, NULL);
        fired = hb_alloc_fail_after(-1);
        ck_assert_int_eq(rc, fired ? -HVD_ENOMEM : 0);
    }
    ck_assert_int_gt(n, 3);
    hvd__tcp_free(t);
}
END_TEST

START_TEST(test_listen_addresses)
{
    struct hb_error err = HB_ERROR_INIT;
    const char *addresses[] = {"127.0.0.1", "::1", "", "192.0.2.77",
                               "no address"};

    for (int i = 0; i < 5; i++) {
        uint16_t port = 0;
        int fd = -1;

        ck_assert_int_eq(hvd__tcp_listen(addresses[i], &fd, &port, &err), 0);
        ck_assert(fd >= 0 && port > 0);
        close(fd);
    }
}
END_TEST

static Suite *tcp_setup_suite(void)
{
    Suite *s = suite_create("tcp_setup");
    TCase *t = tcase_create("tcp_setup");

    tcase_set_timeout(t, 100);
    tcase_add_loop_test(t, test_strangers, 0, STRANGERS);
    tcase_add_test(t, test_listener_is_closed);
    tcase_add_test(t, test_impostor);
    tcase_add_test(t, test_wrong_secret);
    tcase_add_test(t, test_other_codes);
    tcase_add_test(t, test_nobody);
    tcase_add_test(t, test_no_answer);
    tcase_add_test(t, test_stopped_process_is_no_silence);
    tcase_add_test(t, test_refusal_is_an_answer);
    tcase_add_test(t, test_keepalive_is_patient);
    tcase_add_test(t, test_taken_word);
    tcase_add_test(t, test_patience);
    tcase_add_test(t, test_no_memory);
    tcase_add_test(t, test_listen_addresses);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_setup_suite());
}
