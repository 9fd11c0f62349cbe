/* SPDX-License-Identifier: Apache-2.0 */
/* libssh2's memory and bytes; see ssh2_session.h. */
#include "lib/ssh/ssh2_session.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FREE_TRIES = 16,
    RSA_SHA2_VERSION = 0x010b00,
    EXTENSIONS_VERSION = 0x010b01, /* adds "ext-info-c" itself */
};

/* ---- Memory ---- */

/* A block that libssh2 has allocated, linked to the session: 1.10 leaks some of
 * them when a handshake is broken off. */
struct ssh2_block {
    struct ssh2_block *next, **back; /* back: the pointer to this block */
    size_t len;
    max_align_t bytes[];
};

static void link_block(struct ssh2_session *s, struct ssh2_block *b, size_t len)
{
    b->len = len;
    b->next = s->blocks;
    b->back = &s->blocks;
    if (b->next)
        b->next->back = &b->next;
    s->blocks = b;
    s->allocated += len;
}

static void unlink_block(struct ssh2_session *s, struct ssh2_block *b)
{
    *b->back = b->next;
    if (b->next)
        b->next->back = b->back;
    s->allocated -= b->len;
}

static struct ssh2_block *block_of(void *p)
{
    return (struct ssh2_block *)((char *)p -
                                 offsetof(struct ssh2_block, bytes));
}

/* Wipes the block, which may have held a key. */
static void free_block(struct ssh2_block *b)
{
    explicit_bzero(b->bytes, b->len);
    hb_free(b);
}

static int fits(const struct ssh2_session *s, size_t len)
{
    return len <= SSH2_MEMORY_MAX && s->allocated <= SSH2_MEMORY_MAX - len;
}

void *ssh2_session_alloc(struct ssh2_session *s, size_t len)
{
    struct ssh2_block *b = NULL;

    if (fits(s, len))
        b = hb_malloc(sizeof(*b) + len);
    if (!b)
        return NULL;
    link_block(s, b, len);
    return b->bytes;
}

static LIBSSH2_ALLOC_FUNC(on_alloc)
{
    return ssh2_session_alloc(*abstract, count);
}

static LIBSSH2_FREE_FUNC(on_free)
{
    if (!ptr)
        return;
    unlink_block(*abstract, block_of(ptr));
    free_block(block_of(ptr));
}

static LIBSSH2_REALLOC_FUNC(on_realloc)
{
    size_t len = ptr ? block_of(ptr)->len : 0;
    void *p = ssh2_session_alloc(*abstract, count);

    if (p && ptr) {
        memcpy(p, ptr, len < count ? len : count);
        on_free(ptr, abstract);
    }
    return p;
}

static void free_blocks(struct ssh2_session *s)
{
    while (s->blocks) {
        struct ssh2_block *b = s->blocks;
        unlink_block(s, b);
        free_block(b);
    }
}

/* ---- Bytes ---- */

static LIBSSH2_SEND_FUNC(on_send)
{
    struct ssh2_session *s = *abstract;

    (void)socket;
    (void)flags;
    if (hb_buf_append(&s->out, buffer, length) < 0)
        return -ENOMEM;
    return (ssize_t)length;
}

static ssize_t take_first(struct ssh2_session *s, void *buffer, size_t length)
{
    size_t n = hb_buf_len(&s->in);

    if (n > length)
        n = length;
    memcpy(buffer, hb_buf_data(&s->in), n);
    hb_buf_consume(&s->in, n);
    return (ssize_t)n;
}

static LIBSSH2_RECV_FUNC(on_recv)
{
    struct ssh2_session *s = *abstract;
    ssize_t n;

    (void)socket;
    (void)flags;
    if (hb_buf_len(&s->in) > 0)
        return take_first(s, buffer, length);
    if (s->give_up)
        return -ECONNRESET;
    if (s->closed || s->budget == 0)
        return -EAGAIN;
    if (length > s->budget)
        length = s->budget;
    do
        n = recv(s->fd, buffer, length, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        s->budget -= (size_t)n;
        return n;
    }
    if (n == 0 || errno != EAGAIN) {
        s->closed = 1;
        s->sys_errno = n < 0 ? errno : 0;
    }
    return -EAGAIN;
}

int ssh2_session_flush(struct ssh2_session *s)
{
    while (hb_buf_len(&s->out) > 0) {
        ssize_t n = send(s->fd, hb_buf_data(&s->out), hb_buf_len(&s->out),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            hb_buf_consume(&s->out, (size_t)n);
        else if (errno == EAGAIN)
            return 0;
        else if (errno != EINTR)
            break;
    }
    if (hb_buf_len(&s->out) == 0)
        return 0;
    /* Input that the peer sent before it went is still to be read. */
    hb_buf_clear(&s->out);
    return -HVD_ECLOSED;
}

/* ---- Sessions ---- */

static int setup_rc;

static void setup(void)
{
    setup_rc = libssh2_init(0);
}

int ssh2_session_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, setup);
    return setup_rc ? -HVD_ESYSTEM : 0;
}

int ssh2_session_has_rsa_sha2(void)
{
    return libssh2_version(RSA_SHA2_VERSION) != NULL;
}

struct ssh2_session *ssh2_session_new(int fd, struct hb_buf *first)
{
    static const struct hb_buf empty = HB_BUF_INIT;
    struct ssh2_session *s = hb_calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->lib = libssh2_session_init_ex(on_alloc, on_free, on_realloc, s);
    if (!s->lib) {
        free_blocks(s);
        hb_free(s);
        return NULL;
    }
    s->fd = fd;
    s->in = *first;
    *first = empty;
    libssh2_session_callback_set(s->lib, LIBSSH2_CALLBACK_SEND,
                                 (void *)on_send);
    libssh2_session_callback_set(s->lib, LIBSSH2_CALLBACK_RECV,
                                 (void *)on_recv);
    libssh2_session_set_blocking(s->lib, 0);
    return s;
}

/* Frees the session.  With give_up set, libssh2 waits for nothing, even if a
 * handshake or a channel is half open. */
void ssh2_session_free(struct ssh2_session *s)
{
    if (!s)
        return;
    s->closed = s->give_up = 1;
    hb_buf_clear(&s->in);
    for (int i = 0; i < FREE_TRIES; i++)
        if (libssh2_session_free(s->lib) != LIBSSH2_ERROR_EAGAIN)
            break;
    free_blocks(s);
    close(s->fd);
    hb_buf_free(&s->in);
    hb_buf_free(&s->out);
    hb_free(s);
}

/* ---- Methods ---- */

int ssh2_session_able(struct ssh2_session *s, int method, struct hb_buf *out)
{
    const char **names;
    int count = libssh2_session_supported_algs(s->lib, method, &names);
    int rc = 0;

    if (count < 0)
        return count == LIBSSH2_ERROR_ALLOC ? -HVD_ENOMEM : 0;
    for (int i = 0; i < count && rc == 0; i++)
        rc = hb_buf_printf(out, "%s%s", i ? "," : "", names[i]);
    libssh2_free(s->lib, (void *)names);
    return rc;
}

static int is_listed(const char *name, size_t len, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n == len && memcmp(list, name, n) == 0)
            return 1;
        list += n + (list[n] == ',');
    }
    return 0;
}

static int put_common(const char *list, const char *able, struct hb_buf *out)
{
    int rc = 0;

    while (rc == 0 && *list) {
        size_t n = strcspn(list, ",");
        if (n > 0 && is_listed(list, n, able))
            rc = hb_buf_printf(out, "%s%.*s", hb_buf_len(out) ? "," : "",
                               (int)n, list);
        list += n + (list[n] == ',');
    }
    return rc;
}

/* Gives libssh2 only those methods of `list` that it supports.  It would leave
 * out the others itself, but libssh2 1.10 does so by a memcpy with overlapping
 * ranges. */
int ssh2_session_prefer(struct ssh2_session *s, int method, const char *list)
{
    static const char extension[] = "ext-info-c";
    struct hb_buf able = HB_BUF_INIT, both = HB_BUF_INIT;
    int rc = ssh2_session_able(s, method, &able), some;

    if (rc == 0)
        rc = put_common(list, hb_buf_data(&able), &both);
    some = hb_buf_len(&both) > 0;
    /* Without it, 1.11.0 does not learn that the server supports RSA with
     * SHA-2. */
    if (rc == 0 && some && method == LIBSSH2_METHOD_KEX &&
        !libssh2_version(EXTENSIONS_VERSION) &&
        is_listed(extension, sizeof(extension) - 1, hb_buf_data(&able)))
        rc = hb_buf_printf(&both, ",%s", extension);
    if (rc == 0)
        rc = !some ? -HVD_EUNSUPPORTED
             : libssh2_session_method_pref(s->lib, method, hb_buf_data(&both))
                 ? -HVD_ENOMEM
                 : 0;
    hb_buf_free(&able);
    hb_buf_free(&both);
    return rc;
}

const char *ssh2_session_error(const struct ssh2_session *s)
{
    char *text = NULL;

    libssh2_session_last_error(s->lib, &text, NULL, 0);
    return text && *text ? text : "unknown error";
}
