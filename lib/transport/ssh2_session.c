/* SPDX-License-Identifier: Apache-2.0 */
/* libssh2's memory and bytes; see ssh2_session.h. */
#include "lib/transport/ssh2_session.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FREE_TRIES = 16, RSA_SHA2_VERSION = 0x010b00 };

/* ---- Memory ---- */

void *ssh2_session_alloc(struct ssh2_session *s, size_t len)
{
    void *p = NULL;

    if (len <= SSH2_MEMORY_MAX && s->allocated + len <= SSH2_MEMORY_MAX)
        p = malloc(len ? len : 1);
    if (p)
        s->allocated += malloc_usable_size(p);
    return p;
}

static LIBSSH2_ALLOC_FUNC(on_alloc)
{
    return ssh2_session_alloc(*abstract, count);
}

static LIBSSH2_FREE_FUNC(on_free)
{
    struct ssh2_session *s = *abstract;

    if (ptr)
        s->allocated -= malloc_usable_size(ptr);
    free(ptr);
}

static LIBSSH2_REALLOC_FUNC(on_realloc)
{
    struct ssh2_session *s = *abstract;
    size_t before = ptr ? malloc_usable_size(ptr) : 0;
    void *p = NULL;

    if (count <= SSH2_MEMORY_MAX &&
        s->allocated - before + count <= SSH2_MEMORY_MAX)
        p = realloc(ptr, count ? count : 1);
    if (p)
        s->allocated += malloc_usable_size(p) - before;
    return p;
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
    if (s->closed)
        return -ECONNRESET;
    if (s->budget == 0)
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
    if (n < 0 && errno == EAGAIN)
        return -EAGAIN;
    s->closed = 1;
    s->sys_errno = n < 0 ? errno : 0;
    return -ECONNRESET;
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
    /* What the other side said before it went is still to be read. */
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

/* With the connection marked as closed nothing is waited for, even when a
 * handshake or a channel is half open. */
void ssh2_session_free(struct ssh2_session *s)
{
    if (!s)
        return;
    s->closed = 1;
    hb_buf_clear(&s->in);
    for (int i = 0; i < FREE_TRIES; i++)
        if (libssh2_session_free(s->lib) != LIBSSH2_ERROR_EAGAIN)
            break;
    close(s->fd);
    hb_buf_free(&s->in);
    hb_buf_free(&s->out);
    hb_free(s);
}

const char *ssh2_session_error(const struct ssh2_session *s)
{
    char *text = NULL;

    libssh2_session_last_error(s->lib, &text, NULL, 0);
    return text && *text ? text : "unknown error";
}
