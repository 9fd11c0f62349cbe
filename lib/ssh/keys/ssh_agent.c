/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the ssh-agent protocol: u32 length, a type, a body; see
 * ssh_agent.h. */
#include "lib/ssh/keys/ssh_agent.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    AGENT_FAILURE = 5,
    AGENT_REQUEST_IDENTITIES = 11,
    AGENT_IDENTITIES_ANSWER = 12,
    AGENT_SIGN_REQUEST = 13,
    AGENT_SIGN_RESPONSE = 14,
    HEAD_BYTES = 4,
    /* An agent with many clients at once refuses for a moment. */
    CONNECT_TRIES = 200,
    CONNECT_PAUSE_MS = 25,
};

/* Waits for events: 1, 0 if time is up, or -HVD_ESHUTDOWN. */
static int wait_fd(const struct ssh_agent *a, short events,
                   uint64_t deadline_ns)
{
    struct pollfd p[2] = {{a->cancel_fd, POLLIN, 0}, {a->fd, events, 0}};

    for (;;) {
        uint64_t now = hb_now_ns();
        int ms =
            now >= deadline_ns ? 0 : (int)((deadline_ns - now) / 1000000 + 1);
        int n = poll(p, 2, ms);

        if (n > 0 && p[0].revents)
            return -HVD_ESHUTDOWN;
        if (n > 0)
            return 1;
        if (n == 0 && ms == 0)
            return 0;
    }
}

/* ---- Connections ---- */

int ssh_agent_open(const char *path, int cancel_fd, struct ssh_agent *out)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct pollfd cancel = {cancel_fd, POLLIN, 0};
    int rc = -HVD_ENOENT;

    if (strlen(path) >= sizeof(addr.sun_path))
        return rc;
    memcpy(addr.sun_path, path, strlen(path));
    out->cancel_fd = cancel_fd;
    out->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    for (int i = 0; out->fd >= 0 && i < CONNECT_TRIES; i++) {
        if (connect(out->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
            return 0;
        if (errno != EAGAIN)
            break;
        if (poll(&cancel, 1, CONNECT_PAUSE_MS) > 0) {
            rc = -HVD_ESHUTDOWN;
            break;
        }
    }
    ssh_agent_close(out);
    return rc;
}

void ssh_agent_close(struct ssh_agent *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

/* ---- Messages ---- */

static int send_all(struct ssh_agent *a, const struct hb_buf *b,
                    uint64_t deadline_ns)
{
    size_t done = 0;

    while (done < hb_buf_len(b)) {
        ssize_t n = send(a->fd, hb_buf_data(b) + done, hb_buf_len(b) - done,
                         MSG_NOSIGNAL);
        int rc;

        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -HVD_ECLOSED;
        rc = wait_fd(a, POLLOUT, deadline_ns);
        if (rc <= 0)
            return rc ? rc : -HVD_ETIMEOUT;
    }
    return 0;
}

static int recv_exactly(struct ssh_agent *a, unsigned char *p, size_t len,
                        uint64_t deadline_ns)
{
    while (len > 0) {
        ssize_t n = recv(a->fd, p, len, 0);
        int rc;

        if (n > 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return -HVD_ECLOSED;
        rc = wait_fd(a, POLLIN, deadline_ns);
        if (rc <= 0)
            return rc ? rc : -HVD_ETIMEOUT;
    }
    return 0;
}

/* Sends a message and receives the answer, whose type must be `want`; *body is
 * its rest after the type (heap). */
static int ask(struct ssh_agent *a, int timeout_ms,
               const struct hb_buf *message, int want, unsigned char **body,
               size_t *len)
{
    uint64_t deadline = hb_now_ns() + (uint64_t)timeout_ms * 1000000;
    unsigned char head[HEAD_BYTES + 1], *p;
    struct hb_reader r;
    uint32_t n;
    int rc = send_all(a, message, deadline);

    if (rc == 0)
        rc = recv_exactly(a, head, sizeof(head), deadline);
    if (rc < 0)
        return rc;
    hb_reader_init(&r, head, sizeof(head));
    n = hb_read_u32(&r);
    if (n < 1 || n > SSH_AGENT_REPLY_MAX)
        return -HVD_EPROTO;
    p = hb_malloc(n);
    if (!p)
        return -HVD_ENOMEM;
    rc = recv_exactly(a, p, n - 1, deadline);
    if (rc == 0 && head[HEAD_BYTES] != want)
        rc = head[HEAD_BYTES] == AGENT_FAILURE ? -HVD_EPERM : -HVD_EPROTO;
    if (rc < 0) {
        hb_free(p);
        return rc;
    }
    *body = p;
    *len = n - 1;
    return 0;
}

/* ---- Keys ---- */

void ssh_agent_keys_free(struct ssh_agent_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        hb_free(keys->items[i].blob);
    hb_free(keys->items);
    keys->items = NULL;
    keys->count = 0;
}

int ssh_agent_parse_keys(const void *body, size_t len,
                         struct ssh_agent_keys *out)
{
    struct hb_reader r;
    uint32_t count;
    int rc = 0;

    hb_reader_init(&r, body, len);
    count = hb_read_u32(&r);
    if (r.bad || count > SSH_AGENT_KEYS_MAX)
        return -HVD_EPROTO;
    out->items = hb_calloc(count, sizeof(*out->items));
    if (!out->items)
        return -HVD_ENOMEM;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        uint32_t n = hb_read_u32(&r);
        const void *blob = hb_read_bytes(&r, n);
        struct ssh_agent_key *key = &out->items[out->count];

        hb_read_bytes(&r, hb_read_u32(&r)); /* the comment */
        if (r.bad || n == 0) {
            rc = -HVD_EPROTO;
            break;
        }
        key->blob = hb_malloc(n);
        if (!key->blob) {
            rc = -HVD_ENOMEM;
            break;
        }
        memcpy(key->blob, blob, n);
        key->len = n;
        out->count++;
    }
    if (rc < 0)
        ssh_agent_keys_free(out);
    return rc;
}

int ssh_agent_list(struct ssh_agent *a, int timeout_ms,
                   struct ssh_agent_keys *out)
{
    struct hb_buf message = HB_BUF_INIT;
    unsigned char *body;
    size_t len;
    int rc = hb_buf_put_u32(&message, 1);

    if (rc == 0)
        rc = hb_buf_put_u8(&message, AGENT_REQUEST_IDENTITIES);
    if (rc == 0)
        rc = ask(a, timeout_ms, &message, AGENT_IDENTITIES_ANSWER, &body, &len);
    hb_buf_free(&message);
    if (rc < 0)
        return rc;
    rc = ssh_agent_parse_keys(body, len, out);
    hb_free(body);
    return rc;
}

/* ---- Signatures ---- */

static int put_string(struct hb_buf *b, const void *bytes, size_t len)
{
    int rc = hb_buf_put_u32(b, (uint32_t)len);

    return rc < 0 ? rc : hb_buf_append(b, bytes, len);
}

static int put_sign_request(struct hb_buf *b, const struct ssh_agent_key *key,
                            const void *data, size_t len, unsigned flags)
{
    size_t total = 1 + HEAD_BYTES + key->len + HEAD_BYTES + len + 4;
    int rc = hb_buf_put_u32(b, (uint32_t)total);

    if (rc == 0)
        rc = hb_buf_put_u8(b, AGENT_SIGN_REQUEST);
    if (rc == 0)
        rc = put_string(b, key->blob, key->len);
    if (rc == 0)
        rc = put_string(b, data, len);
    if (rc == 0)
        rc = hb_buf_put_u32(b, flags);
    return rc;
}

int ssh_agent_sign(struct ssh_agent *a, int timeout_ms,
                   const struct ssh_agent_key *key, const void *data,
                   size_t len, unsigned flags, struct hb_buf *signature)
{
    struct hb_buf message = HB_BUF_INIT;
    struct hb_reader r;
    unsigned char *body;
    const void *bytes;
    size_t body_len;
    uint32_t n;
    int rc = put_sign_request(&message, key, data, len, flags);

    if (rc == 0)
        rc =
            ask(a, timeout_ms, &message, AGENT_SIGN_RESPONSE, &body, &body_len);
    hb_buf_free(&message);
    if (rc < 0)
        return rc;
    hb_reader_init(&r, body, body_len);
    n = hb_read_u32(&r);
    bytes = hb_read_bytes(&r, n);
    rc = bytes ? hb_buf_append(signature, bytes, n) : -HVD_EPROTO;
    hb_free(body);
    return rc;
}
