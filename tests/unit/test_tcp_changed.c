/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP group of two members connected through a relay.  The relay does not
 * know the job's secret.  It forwards the proof of the secret, and later
 * changes a message from member 0 to member 1.
 */
#include "runtime/plane/tcp/tcp.h"
#include "runtime/plane/tcp/tcp_head.h"
#include "tests/unit/tcp_group.h"
#include "tests/unit/unit.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OPEN_MS = 20000,
    MARK_BYTES = 77, /* length of messages to change */
    WORDS_BYTES = 50,
    MESSAGE_MAX = 1 << 20,
    LEN_AT = 16, /* offset of the length in a head */
    EXCHANGES = 3,
};

static const char changed[] = "rank 100 on host h0: a message was changed on "
                              "its way (wrong authentication code)";

/* ---- The relay: a thread for each direction -------------------------- */

enum change { XOR, TWICE, NEVER, CUT_OFF, OTHERS };

struct relay {
    int from[2], to[2]; /* [0]: from member 0 to member 1; [1]: back */
    enum change change;
    size_t at; /* XOR: offset in the message */
    size_t len;
    int made;
    pthread_mutex_t lock;
    pthread_cond_t told;
    int has_other; /* `other` holds a message of member 1 */
    unsigned char other[TCP_HEAD_BYTES + MARK_BYTES];
};

static int pass(int from, int to, unsigned char *buf, size_t bytes)
{
    return recv(from, buf, bytes, MSG_WAITALL) == (ssize_t)bytes &&
           (to < 0 || send(to, buf, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

static uint64_t length_of(const unsigned char *head)
{
    uint64_t len = 0;

    for (int i = 0; i < 8; i++)
        len = len << 8 | head[LEN_AT + i];
    return len;
}

static int put(int to, const unsigned char *message, size_t bytes)
{
    return send(to, message, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* Forwards `message`, changed if it is the first marked one. */
static int put_changed(struct relay *r, unsigned char *message, size_t bytes)
{
    r->made = 1;
    switch (r->change) {
    case XOR:
        message[r->at] ^= 1;
        break;
    case TWICE:
        if (!put(r->to[0], message, bytes))
            return 0;
        break;
    case NEVER:
        return 1;
    case CUT_OFF:
        put(r->to[0], message, bytes - 1);
        return 0;
    case OTHERS:
        pthread_mutex_lock(&r->lock);
        while (!r->has_other)
            pthread_cond_wait(&r->told, &r->lock);
        memcpy(message, r->other, sizeof(r->other));
        pthread_mutex_unlock(&r->lock);
        break;
    }
    return put(r->to[0], message, bytes);
}

static void keep_other(struct relay *r, const unsigned char *message)
{
    pthread_mutex_lock(&r->lock);
    memcpy(r->other, message, sizeof(r->other));
    r->has_other = 1;
    pthread_cond_signal(&r->told);
    pthread_mutex_unlock(&r->lock);
}

static int relay_message(struct relay *r, int way, unsigned char *message)
{
    uint64_t len;

    if (!pass(r->from[way], -1, message, TCP_HEAD_BYTES))
        return 0;
    len = length_of(message);
    if (len > MESSAGE_MAX ||
        !pass(r->from[way], -1, message + TCP_HEAD_BYTES, (size_t)len))
        return 0;
    if (way == 0 && !r->made && len == r->len)
        return put_changed(r, message, TCP_HEAD_BYTES + (size_t)len);
    if (way == 1 && len == MARK_BYTES)
        keep_other(r, message);
    return put(r->to[way], message, TCP_HEAD_BYTES + (size_t)len);
}

static int pass_hello(const struct relay *r, int way, unsigned char *buf)
{
    int from = r->from[way], to = r->to[way];

    if (way == 1)
        return pass(from, to, buf, TCP_AUTH_ANSWER_BYTES);
    return pass(from, to, buf, TCP_AUTH_CALL_BYTES) &&
           pass(from, to, buf, TCP_AUTH_FINISH_BYTES);
}

static void run_way(struct relay *r, int way)
{
    unsigned char *message = malloc(TCP_HEAD_BYTES + MESSAGE_MAX);

    if (message && pass_hello(r, way, message))
        while (relay_message(r, way, message))
            ;
    free(message);
    shutdown(r->from[way], SHUT_RDWR);
    shutdown(r->to[way], SHUT_RDWR);
}

static void *run_back(void *arg)
{
    run_way(arg, 1);
    return NULL;
}

struct wire {
    struct relay relay;
    int listener;
    uint16_t port; /* of member 1 */
};

static void *run_relay(void *arg)
{
    struct wire *w = arg;
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(w->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int near = accept(w->listener, NULL, NULL);
    int far = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t back;

    if (near < 0 || far < 0 ||
        connect(far, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        return NULL;
    w->relay.from[0] = w->relay.to[1] = near;
    w->relay.to[0] = w->relay.from[1] = far;
    if (pthread_create(&back, NULL, run_back, &w->relay) != 0)
        return NULL;
    run_way(&w->relay, 0);
    pthread_join(back, NULL);
    return NULL;
}

/* Makes member 0 call member 1 through a relay. */
static int relay_start(struct tcp_group *g, struct wire *w)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(sa);
    pthread_t thread;

    pthread_mutex_init(&w->relay.lock, NULL);
    pthread_cond_init(&w->relay.told, NULL);
    w->port = g->peers[1].port;
    w->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (w->listener < 0 ||
        bind(w->listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        listen(w->listener, 1) < 0 ||
        getsockname(w->listener, (struct sockaddr *)&sa, &len) < 0)
        return -1;
    g->peers[1].port = ntohs(sa.sin_port);
    if (pthread_create(&thread, NULL, run_relay, w) != 0)
        return -1;
    return pthread_detach(thread);
}

/* ---- Members --------------------------------------------------------- */

/* What member 1's operation must end with. */
struct expected {
    enum change change;
    size_t at, len;
    int codes, rc;
    const char *text;
};

static int open_relayed(struct tcp_group *g, int me, struct hvd__tcp **t)
{
    static struct wire w; /* static: threads run until exit */
    const struct expected *x = g->arg;
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    g->auth.codes = x->codes;
    w.relay.change = x->change;
    w.relay.at = x->at;
    w.relay.len = x->len;
    must(me != 0 || relay_start(g, &w) == 0);
    rc = tcp_group_open(g, me, OPEN_MS, t, &err);
    if (rc < 0)
        fprintf(stderr, "member %d: %s\n", me, err.text);
    return rc;
}

static int exchange_marked(struct hvd__tcp *t, int me, struct hb_error *err)
{
    static unsigned char mine[MARK_BYTES], theirs[2 * MARK_BYTES];
    struct hvd__tcp_block blocks[2] = {{theirs, sizeof(theirs)},
                                       {theirs, sizeof(theirs)}};

    memset(mine, 'a' + me, sizeof(mine));
    hvd__tcp_exchange(t, mine, sizeof(mine), WORDS_BYTES, blocks);
    return tcp_group_finish(t, err);
}

static int check_end(const struct expected *x, int rc,
                     const struct hb_error *err)
{
    if (rc != x->rc || (x->text && strcmp(err->text, x->text) != 0))
        fprintf(stderr, "got %d: %s\n", rc, err->text);
    must(rc == x->rc);
    must(!x->text || strcmp(err->text, x->text) == 0);
    must(!x->text || err->rank == 100);
    return 0;
}

static int changed_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    int rc = 1;

    must(open_relayed(g, me, &t) == 0);
    for (int i = 0; i < EXCHANGES && rc == 1; i++)
        rc = exchange_marked(t, me, &err);
    if (me == 1) {
        must(check_end(g->arg, rc, &err) == 0);
        hvd__tcp_free(t);
    }
    tcp_group_meet(g, 0, 2); /* member 0 must not hang up before */
    if (me == 0)
        hvd__tcp_free(t);
    return 0;
}

#define XORED(place, codes, rc, text)           \
    {                                           \
        XOR, place, MARK_BYTES, codes, rc, text \
    }
#define IN_BODY(i) (TCP_HEAD_BYTES + (i))

static const struct expected changes[] = {
    XORED(3, 1, -HVD_EPROTO, changed),           /* magic */
    XORED(7, 1, -HVD_EPROTO, changed),           /* kind */
    XORED(11, 1, -HVD_EPROTO, changed),          /* sequence */
    XORED(15, 1, -HVD_EPROTO, changed),          /* words */
    XORED(LEN_AT, 1, -HVD_EPROTO, changed),      /* length: huge */
    XORED(LEN_AT + 6, 1, -HVD_EPROTO, changed),  /* longer than the data */
    XORED(LEN_AT + 7, 1, -HVD_EPROTO, changed),  /* shorter */
    XORED(24, 1, -HVD_EPROTO, changed),          /* code of the words */
    XORED(32, 1, -HVD_EPROTO, changed),          /* code of the head */
    XORED(IN_BODY(0), 1, -HVD_EPROTO, changed),  /* words */
    XORED(IN_BODY(49), 1, -HVD_EPROTO, changed), /* the last of them */
    XORED(IN_BODY(50), 1, 1, NULL),              /* tensor data */
    XORED(IN_BODY(0), 0, 1, NULL),               /* without codes */
    {TWICE, 0, MARK_BYTES, 1, -HVD_EPROTO, changed},
    {NEVER, 0, MARK_BYTES, 1, -HVD_EPROTO, changed},
    {OTHERS, 0, MARK_BYTES, 1, -HVD_EPROTO, changed},
    {CUT_OFF, 0, MARK_BYTES, 1, -HVD_EPEER, NULL},
};
enum { CHANGES = sizeof(changes) / sizeof(changes[0]) };

START_TEST(test_changed)
{
    struct expected x = changes[_i];
    struct tcp_group g = {.n = 2, .body = changed_body, .arg = &x};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* A changed report that a rank has shut down is refused, both between
 * operations and inside one. */
static int gone_body(struct tcp_group *g, int me, int between)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    int rc = 0;

    must(open_relayed(g, me, &t) == 0);
    if (me == 0) {
        hvd__tcp_tell_gone(t, 777);
    } else if (between) {
        while ((rc = hvd__tcp_began(t, &err)) == 0)
            hvd__tcp_pause(t, 0);
        must(check_end(g->arg, rc, &err) == 0);
    } else {
        must(check_end(g->arg, exchange_marked(t, me, &err), &err) == 0);
    }
    tcp_group_meet(g, 0, 2); /* member 0 must not hang up before */
    hvd__tcp_free(t);
    return 0;
}

static int gone_between_body(struct tcp_group *g, int me)
{
    return gone_body(g, me, 1);
}

static int gone_in_body(struct tcp_group *g, int me)
{
    return gone_body(g, me, 0);
}

START_TEST(test_changed_gone)
{
    static const size_t places[] = {24, 32, IN_BODY(3)};
    struct expected x = {XOR, places[_i / 2], TCP_GONE_BYTES,
                         1,   -HVD_EPROTO,    changed};
    struct tcp_group g = {
        .n = 2, .body = _i % 2 ? gone_between_body : gone_in_body, .arg = &x};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static Suite *tcp_changed_suite(void)
{
    Suite *s = suite_create("tcp_changed");
    TCase *t = tcase_create("tcp_changed");

    tcase_set_timeout(t, 100);
    tcase_add_loop_test(t, test_changed, 0, CHANGES);
    tcase_add_loop_test(t, test_changed_gone, 0, 6);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_changed_suite());
}
