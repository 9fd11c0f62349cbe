/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What anybody sends to an agent's probe listener, in pieces of any size.  A
 * model of the conversation says at each piece what the listener may have said:
 * nothing before the call has proved the token, then an answer of this host,
 * then in an echo what was sent, and in a sink the number of bytes.
 *
 * The first byte says what the call is: the next 64 bytes as they are, or a
 * call of any mode, from and to any hosts, with a bit of it changed or not, or
 * with another token.  The next byte says which time the listener fails to send
 * (0: never).  Two bytes follow, so that the limit of a sink is near, and then
 * pieces: a byte for the length, and the bytes.
 */
#include "lib/agent/route/route_talk.h"
#include "lib/base/buf.h"
#include "tests/fuzz/fuzz.h"

enum { HOST = 4711 };

static const unsigned char token[CONTROL_TOKEN_BYTES] = "the token of this job";
static const unsigned char other[CONTROL_TOKEN_BYTES] = "the token of that job";

static struct hb_buf said;
static unsigned says, failing; /* how often it was called; which call fails */

static int say(void *arg, const void *bytes, size_t len)
{
    FUZZ_CHECK(arg == &said);
    if (++says == failing)
        return -1;
    FUZZ_CHECK(hb_buf_append(&said, bytes, len) == 0);
    return 0;
}

struct model {
    unsigned char call[ROUTE_CALL_BYTES];
    int honest; /* the call proves the token and is in range */
    enum route_mode mode;
    struct hb_buf sent; /* after the call */
    uint64_t skipped;   /* of a sink's count */
    size_t got;         /* bytes of the call */
    int over;           /* the listener must have hung up */
};

static int take_host(struct fuzz_input *in)
{
    unsigned v = 0;

    for (int i = 0; i < 4; i++)
        v = v << 8 | fuzz_take(in);
    return (int)v;
}

/* Makes the call: any bytes, or one that is honest if its fields are in range
 * and nothing is changed. */
static void make_call(struct model *m, struct fuzz_input *in)
{
    unsigned how = fuzz_take(in), bit;
    struct route_call call;

    if (how & 128) {
        for (int i = 0; i < ROUTE_CALL_BYTES; i++)
            m->call[i] = (unsigned char)fuzz_take(in);
        return;
    }
    m->mode = call.mode = (enum route_mode)fuzz_take(in);
    call.from = take_host(in);
    call.to = take_host(in);
    FUZZ_CHECK(route_auth_call(how & 64 ? other : token, &call, m->call) == 0);
    m->honest = !(how & 64) && call.mode < ROUTE_MODE_COUNT && call.from >= 0 &&
                call.to >= 0;
    if (how & 32) {
        bit = fuzz_take(in);
        bit |= (fuzz_take(in) & 1) << 8;
        m->call[bit / 8] ^= (unsigned char)(1u << bit % 8);
        m->honest = 0;
    }
}

/* Checks all that was said against what was sent. */
static void check_said(const struct model *m)
{
    const unsigned char *p = (const unsigned char *)hb_buf_data(&said);
    size_t len = hb_buf_len(&said), echoed;
    int host = -1;

    if (m->got < ROUTE_CALL_BYTES || !m->honest) {
        FUZZ_CHECK(says == 0);
        return;
    }
    FUZZ_CHECK(says > 0);
    if (failing == 1) {
        FUZZ_CHECK(len == 0);
        return;
    }
    FUZZ_CHECK(len >= ROUTE_ANSWER_BYTES);
    FUZZ_CHECK(route_auth_read_answer(token, m->call, p, &host) == 0);
    FUZZ_CHECK(host == HOST);
    echoed = len - ROUTE_ANSWER_BYTES;
    if (m->mode == ROUTE_MODE_ECHO && !m->over)
        FUZZ_CHECK(echoed == hb_buf_len(&m->sent));
    if (m->mode == ROUTE_MODE_ECHO) {
        FUZZ_CHECK(echoed <= ROUTE_ECHO_MAX_BYTES &&
                   echoed <= hb_buf_len(&m->sent));
        FUZZ_CHECK(echoed == 0 || memcmp(p + ROUTE_ANSWER_BYTES,
                                         hb_buf_data(&m->sent), echoed) == 0);
    } else {
        FUZZ_CHECK(echoed == 0);
    }
}

/* Returns whether the listener must hang up after what was sent. */
static int is_over(const struct model *m)
{
    size_t more = hb_buf_len(&m->sent);

    if (m->got < ROUTE_CALL_BYTES)
        return 0;
    if (!m->honest)
        return 1;
    if (m->mode == ROUTE_MODE_SINK)
        return m->skipped + more > ROUTE_SINK_MAX_BYTES;
    return more > (m->mode == ROUTE_MODE_ECHO ? ROUTE_ECHO_MAX_BYTES : 0);
}

/* Sends a piece: first what is left of the call, then bytes of the input. */
static void send_piece(struct model *m, struct route_talk *t,
                       struct fuzz_input *in)
{
    size_t len = fuzz_take(in), own = ROUTE_CALL_BYTES - m->got, more = 0;
    struct hb_buf piece = HB_BUF_INIT;
    char *copy;
    int rc;

    if (own > len)
        own = len;
    if (len > own)
        more = len - own;
    if (more > (size_t)(in->end - in->p))
        more = (size_t)(in->end - in->p);
    FUZZ_CHECK(hb_buf_append(&piece, m->call + m->got, own) == 0 &&
               hb_buf_append(&piece, in->p, more) == 0 &&
               hb_buf_append(&m->sent, in->p, more) == 0);
    m->got += own;
    in->p += more;
    copy = fuzz_copy(hb_buf_data(&piece), hb_buf_len(&piece));
    rc = route_talk_take(t, copy, own + more);
    m->over = is_over(m) || (says > 0 && says == failing);
    FUZZ_CHECK((rc < 0) == m->over);
    free(copy);
    hb_buf_free(&piece);
}

/* The end of a sink is answered by the number of bytes, any other by nothing.
 */
static void check_end(struct route_talk *t, const struct model *m)
{
    size_t before = hb_buf_len(&said);
    uint64_t count = 0;

    route_talk_end(t);
    if (!t->proved || m->mode != ROUTE_MODE_SINK) {
        FUZZ_CHECK(hb_buf_len(&said) == before);
        return;
    }
    if (says == failing) {
        FUZZ_CHECK(hb_buf_len(&said) == before);
        return;
    }
    FUZZ_CHECK(hb_buf_len(&said) == before + 8);
    for (size_t i = 0; i < 8; i++)
        count = count << 8 | (unsigned char)hb_buf_data(&said)[before + i];
    FUZZ_CHECK(count == m->skipped + hb_buf_len(&m->sent));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    struct route_talk t = {
        .token = token, .host = HOST, .say = say, .arg = &said};
    struct model m = {.sent = HB_BUF_INIT};

    hb_buf_clear(&said);
    make_call(&m, &in);
    says = 0;
    failing = fuzz_take(&in);
    if (fuzz_take(&in) & 1)
        m.skipped = ROUTE_SINK_MAX_BYTES - fuzz_take(&in);
    t.bytes = m.mode == ROUTE_MODE_SINK ? m.skipped : 0;
    while (in.p < in.end && !m.over) {
        send_piece(&m, &t, &in);
        check_said(&m);
        FUZZ_CHECK(t.proved == (m.honest && m.got == ROUTE_CALL_BYTES));
    }
    if (!m.over)
        check_end(&t, &m);
    hb_buf_free(&m.sent);
    return 0;
}
