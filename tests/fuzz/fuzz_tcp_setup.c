/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting a TCP group of two.  The input is what a stranger sends.  It does
 * not know the job's secret but has heard other connections: a list of changes
 * to what a real peer would send, then anything.
 *
 * When the member is called, it answers the stranger only if that repeats a
 * real CALL, never accepts it, and still accepts the real peer, who calls next.
 * When the member calls, it accepts only a real ANSWER, unchanged.
 */
#include "runtime/plane/tcp/tcp_impl.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"

#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SAID_MAX = 512, TURNS_MAX = 5000, RANKS = 7 };
enum { CALLS = 1 }; /* bits of the first byte */

static const struct tcp_auth auth = {.secret =
                                         "a secret of 32 bytes, all known",
                                     .job_id = "job",
                                     .epoch = 3,
                                     .codes = 1};

struct play {
    struct hvd__tcp *t;
    const uint8_t *data; /* what the stranger sends */
    size_t size, piece, at;
    uint16_t port;
    int listener;
    int stranger, peer; /* their sockets; -1: none */
    int is_real;        /* the stranger's first message is unchanged */
    int turns, after;   /* after: turns since the answer was sent */
    unsigned char said[SAID_MAX], in[TCP_AUTH_CALL_BYTES];
    size_t got;
    struct tcp_auth_talk talk;
};

static int dial(uint16_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    return fd;
}

/* Applies the input's changes to a real message: their number, then place and
 * byte to XOR there; then what follows the message.  Returns the bytes to
 * send. */
static size_t change(struct play *p, size_t real)
{
    size_t changes = p->size ? *p->data % 4u : 0, used = 1 + 2 * changes;

    p->is_real = 1;
    for (size_t i = 0; i < changes && 2 + 2 * i < p->size; i++) {
        p->said[p->data[1 + 2 * i] % real] ^= p->data[2 + 2 * i];
        p->is_real &= p->data[2 + 2 * i] == 0;
    }
    /* Two changes at one place may cancel out. */
    if (changes > 1)
        p->is_real = -1;
    for (size_t i = used; i < p->size && real < SAID_MAX; i++)
        p->said[real++] = p->data[i];
    return real;
}

static size_t read_some(int fd, unsigned char *at, size_t room)
{
    ssize_t n = recv(fd, at, room, MSG_DONTWAIT);

    return n > 0 ? (size_t)n : 0;
}

/* ---- Called ---------------------------------------------------------- */

static void stranger_turn(struct play *p)
{
    size_t left = p->size - p->at;
    unsigned char byte;

    if (left > p->piece)
        left = p->piece;
    if (left && send(p->stranger, p->said + p->at, left,
                     MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        p->at += left;
    else
        p->at = p->size;
    if (recv(p->stranger, &byte, 1, MSG_DONTWAIT) == 1)
        FUZZ_CHECK(p->is_real);
}

static void peer_turn(struct play *p)
{
    unsigned char out[TCP_AUTH_CALL_BYTES];

    if (p->peer < 0) {
        p->peer = dial(p->port);
        FUZZ_CHECK(tcp_auth_call(&auth, &p->talk, RANKS, RANKS + 1, out) == 0);
        FUZZ_CHECK(send(p->peer, out, sizeof(out), MSG_NOSIGNAL) ==
                   sizeof(out));
        return;
    }
    if (p->got == TCP_AUTH_ANSWER_BYTES)
        return;
    p->got +=
        read_some(p->peer, p->in + p->got, TCP_AUTH_ANSWER_BYTES - p->got);
    if (p->got < TCP_AUTH_ANSWER_BYTES)
        return;
    FUZZ_CHECK(tcp_auth_finish(&auth, &p->talk, p->in, out) == 0);
    FUZZ_CHECK(send(p->peer, out, TCP_AUTH_FINISH_BYTES, MSG_NOSIGNAL) ==
               TCP_AUTH_FINISH_BYTES);
}

/* The others' turn: called whenever the member asks its agent. */
static int called_turn(void *arg, struct hb_error *err)
{
    struct play *p = arg;

    (void)err;
    FUZZ_CHECK(p->turns++ < TURNS_MAX);
    if (p->at < p->size)
        stranger_turn(p);
    else
        peer_turn(p);
    return 0;
}

/* ---- Calling --------------------------------------------------------- */

/* Answers the first call, then reports that the job is over. */
static int calling_turn(void *arg, struct hb_error *err)
{
    struct play *p = arg;
    uint32_t caller;

    FUZZ_CHECK(p->turns++ < TURNS_MAX);
    if (p->peer < 0)
        p->peer = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK);
    if (p->peer < 0)
        return 0;
    if (p->got < TCP_AUTH_CALL_BYTES) {
        p->got +=
            read_some(p->peer, p->in + p->got, TCP_AUTH_CALL_BYTES - p->got);
        if (p->got < TCP_AUTH_CALL_BYTES)
            return 0;
        FUZZ_CHECK(tcp_auth_answer(&auth, &p->talk, p->in, RANKS + 1, &caller,
                                   p->said) == 0);
        p->size = change(p, TCP_AUTH_ANSWER_BYTES);
        p->at = 0;
    }
    while (p->at < p->size) {
        size_t bytes = p->size - p->at < p->piece ? p->size - p->at : p->piece;

        if (send(p->peer, p->said + p->at, bytes, MSG_NOSIGNAL) < 0)
            break;
        p->at += bytes;
    }
    return p->after++ < 8 ? 0 : hb_error_set(err, HVD_EPEER, "the job is over");
}

/* ---- Both ------------------------------------------------------------ */

/* Closes a socket, if it is open, and resets its connection: in TIME_WAIT it
 * would occupy a port for a minute, and soon no port would be free. */
static void drop(int fd)
{
    const struct linger none = {.l_onoff = 1};

    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(fd);
}

static void prepare_called(struct play *p)
{
    struct tcp_auth_talk talk;

    FUZZ_CHECK(tcp_auth_call(&auth, &talk, RANKS, RANKS + 1, p->said) == 0);
    p->size = change(p, TCP_AUTH_CALL_BYTES);
    p->stranger = dial(p->port);
}

/* Only this member calls, and only the other one can be silent. */
static int on_no_answer(void *arg, uint32_t rank)
{
    (void)arg;
    FUZZ_CHECK(rank == RANKS + 1);
    return 0;
}

static int set_up(struct play *p, int me)
{
    struct hvd__tcp_peer peers[2] = {{RANKS, "h0", "127.0.0.1", p->port},
                                     {RANKS + 1, "h1", "127.0.0.1", p->port}};
    struct hvd__tcp_config config = {.peers = peers,
                                     .count = 2,
                                     .me = me,
                                     .auth = &auth,
                                     .listener = me ? p->listener : -1,
                                     .deadline_ns = UINT64_MAX,
                                     .agent_fd = eventfd(1, EFD_CLOEXEC),
                                     .silence_ms = 1,
                                     .no_answer = on_no_answer,
                                     .agent_lost =
                                         me ? called_turn : calling_turn,
                                     .arg = p};
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp t = {.n = 2, .me = me};
    struct tcp_conn conns[2];
    int rc;

    FUZZ_CHECK(config.agent_fd >= 0);
    memset(conns, 0, sizeof(conns));
    conns[0].fd = conns[1].fd = -1;
    t.conns = conns;
    p->t = &t;
    rc = tcp_setup(&t, &config, &err);
    fuzz_check_error(rc, &err);
    FUZZ_CHECK((rc == 0) == (conns[!me].fd >= 0));
    drop(conns[!me].fd);
    close(config.agent_fd);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct play p = {.stranger = -1, .peer = -1};
    int rc, me;

    if (size < 2 || size > SAID_MAX)
        return 0;
    me = !(data[0] & CALLS);
    p.piece = 1u + data[1];
    p.data = data + 2;
    p.size = size - 2;
    FUZZ_CHECK(hvd__tcp_listen("127.0.0.1", &p.listener, &p.port, NULL) == 0);
    if (me)
        prepare_called(&p);
    rc = set_up(&p, me);
    if (me)
        FUZZ_CHECK(rc == 0);
    else if (p.is_real >= 0)
        FUZZ_CHECK(rc == (p.is_real ? 0 : -HVD_EPEER));
    close(p.listener);
    drop(p.stranger);
    drop(p.peer);
    return 0;
}
