/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP: a peer of a group of two sends anything, in pieces as the second byte
 * says, and hangs up.  The group alternates between looking for a begun
 * operation and exchanges until one fails; each successful one must give
 * exactly the bytes sent.
 *
 * With CODES messages carry authentication codes: then nothing from the input
 * may be accepted.  With EDITED the input is a list of changes to messages that
 * the peer made with the right key: an exchange gives the original message or
 * fails.
 */
#include "runtime/plane/tcp/tcp_impl.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"

#include <sys/socket.h>
#include <unistd.h>

enum { ROOM_BYTES = 100, STREAM_MAX = 16 << 10, EXCHANGES_MAX = 100 };
enum { KNOWN = 1, CODES = 2, EDITED = 4 };
enum { MADE = 4, WORDS_BYTES = 24, MADE_BYTES = TCP_HEAD_BYTES + ROOM_BYTES };

static const unsigned char key[SIPHASH_KEY_BYTES] = "the key of both";

static struct hvd__tcp *make(int fd)
{
    struct hvd__tcp *t = hb_calloc(1, sizeof(*t));

    FUZZ_CHECK(t);
    t->n = 2;
    t->epoll_fd = t->begins_fd = t->event_fd = t->agent_fd = t->lost = -1;
    t->conns = hb_calloc(2, sizeof(*t->conns));
    FUZZ_CHECK(t->conns);
    t->conns[0].fd = -1;
    t->conns[1].fd = fd;
    t->conns[1].rank = 1;
    strcpy(t->conns[1].host, "h1");
    return t;
}

struct stream {
    const uint8_t *data;
    size_t left, piece;
    int fd; /* -1: closed */
};

/* Sends the next piece, or hangs up after the last one. */
static void feed(struct stream *s)
{
    size_t bytes = s->piece < s->left ? s->piece : s->left;

    if (s->fd < 0)
        return;
    if (bytes == 0) {
        close(s->fd);
        s->fd = -1;
        return;
    }
    FUZZ_CHECK(send(s->fd, s->data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    s->data += bytes;
    s->left -= bytes;
}

static void check_failure(int rc, const struct hb_error *err)
{
    fuzz_check_error(rc, err);
    FUZZ_CHECK(rc == -HVD_EPROTO || rc == -HVD_ESHUTDOWN || rc == -HVD_EPEER);
}

/* Runs an exchange; returns 1 if it completed.  Compares what it gave with
 * `expected`: all of it without codes, the words only with codes. */
static int exchange(struct hvd__tcp *t, struct stream *s, int known,
                    const uint8_t **expected)
{
    int codes = t->conns[1].mac_in.on;
    struct hb_error err = HB_ERROR_INIT;
    unsigned char *in = malloc(ROOM_BYTES), out[3] = {1, 2, 3};
    struct hvd__tcp_block send[2] = {{NULL, 0}, {out, sizeof(out)}};
    struct hvd__tcp_block recv[2] = {{NULL, 0}, {in, ROOM_BYTES}};
    int rc, began;

    FUZZ_CHECK(in);
    while ((began = hvd__tcp_began(t, &err)) == 0)
        feed(s);
    if (began < 0)
        check_failure(began, &err);
    hb_error_clear(&err);
    hvd__tcp_alltoallv(t, send, NULL, recv, known);
    while ((rc = hvd__tcp_progress(t, &err)) == 0)
        feed(s);
    FUZZ_CHECK(began == 1 || rc < 0);
    if (rc < 0)
        check_failure(rc, &err);
    else
        FUZZ_CHECK(recv[1].len <= ROOM_BYTES &&
                   memcmp(in, *expected + TCP_HEAD_BYTES,
                          codes ? WORDS_BYTES : recv[1].len) == 0);
    *expected += TCP_HEAD_BYTES + recv[1].len;
    free(in);
    return rc;
}

static void check_head(const uint8_t *data, size_t size)
{
    unsigned char again[TCP_HEAD_BYTES];
    struct tcp_head head;

    if (size < TCP_HEAD_BYTES || tcp_head_decode(data, &head) < 0)
        return;
    tcp_head_encode(&head, again);
    FUZZ_CHECK(memcmp(again, data, TCP_HEAD_FIELDS_BYTES) == 0); /* code not
                                                                  * compared */
}

static void set_codes(struct tcp_mac *m)
{
    m->on = 1;
    memcpy(m->key, key, sizeof(m->key));
}

/* Makes the peer's own messages. */
static void make_messages(unsigned char made[MADE][MADE_BYTES])
{
    struct tcp_mac m = {0};

    set_codes(&m);
    for (unsigned i = 0; i < MADE; i++) {
        struct tcp_head head = {TCP_HEAD_DATA, i + 1, WORDS_BYTES, ROOM_BYTES};
        unsigned char *body = made[i] + TCP_HEAD_BYTES;

        memset(body, (int)(i + 1), ROOM_BYTES);
        tcp_mac_seal(&m, &head, body, made[i]);
    }
}

/* Applies the input's triples: message, place, byte to XOR there.  Each appends
 * the changed message to `out`. */
static size_t edit(const uint8_t *data, size_t size,
                   unsigned char made[MADE][MADE_BYTES],
                   unsigned char out[STREAM_MAX])
{
    size_t bytes = 0;

    for (; size >= 3 && bytes + MADE_BYTES <= STREAM_MAX;
         data += 3, size -= 3) {
        memcpy(out + bytes, made[data[0] % MADE], MADE_BYTES);
        out[bytes + data[1] % MADE_BYTES] ^= data[2];
        bytes += MADE_BYTES;
    }
    return bytes;
}

/* Runs exchanges over what the peer sends; returns how many completed. */
static int run(struct stream *s, int flags, const uint8_t *expected)
{
    struct hvd__tcp *t;
    int fds[2], i;

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    s->fd = fds[1];
    t = make(fds[0]);
    if (flags & CODES)
        set_codes(&t->conns[1].mac_in);
    for (i = 0; i < EXCHANGES_MAX; i++)
        if (exchange(t, s, flags & KNOWN, &expected) != 1)
            break;
    hvd__tcp_free(t);
    if (s->fd >= 0)
        close(s->fd);
    return i;
}

static void run_edited(const uint8_t *data, size_t size, size_t piece)
{
    unsigned char made[MADE][MADE_BYTES];
    unsigned char *bytes = malloc(STREAM_MAX);
    struct stream s = {.fd = -1};
    int good = 0;

    FUZZ_CHECK(bytes);
    make_messages(made);
    s = (struct stream){bytes, edit(data, size, made, bytes), piece, -1};
    while (good < MADE && (size_t)good * 3 + 3 <= size &&
           data[good * 3] % MADE == good && !data[good * 3 + 2])
        good++; /* unchanged messages at the beginning */
    FUZZ_CHECK(run(&s, KNOWN | CODES, made[0]) >= good);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream s = {.fd = -1};
    int accepted;

    if (size < 2 || size > STREAM_MAX)
        return 0;
    check_head(data + 2, size - 2);
    if (data[0] & EDITED) {
        run_edited(data + 2, size - 2, 1u + data[1]);
        return 0;
    }
    s = (struct stream){data + 2, size - 2, 1u + data[1], -1};
    accepted = run(&s, data[0], s.data);
    FUZZ_CHECK(!(data[0] & CODES) || accepted == 0);
    return 0;
}
