/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one connection, from a name to a running /bin/sh, step by step, on a
 * thread; see ssh2_impl.h.
 */
#include "lib/ssh/ssh2_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BANNER_MAX = 64 << 10,       /* bytes before and with the version line */
    BANNER_LINE_MAX = 255,       /* RFC 4253, section 4.2 */
    WAIT_BUDGET = 64 << 10,      /* received between two checks of the clock */
    CONNECT_BYTES_MAX = 4 << 20, /* received before the shell runs */
    MS_NS = 1000000,
};

static const char command[] = "exec /bin/sh";

/* ---- Waiting ---- */

void ssh2_step(struct ssh2_task *t, const char *stage, int timeout_ms)
{
    t->deadline_ns = hb_now_ns() + (uint64_t)timeout_ms * MS_NS;
    ssh2_task_stage(t, stage);
}

/* Waits for events: 0, or negative with err set. */
static int wait_fd(struct ssh2_task *t, int fd, short events,
                   struct hb_error *err)
{
    struct pollfd p[2] = {{t->cancel_fd, POLLIN, 0}, {fd, events, 0}};

    for (;;) {
        uint64_t now = hb_now_ns();
        int ms = now >= t->deadline_ns
                     ? 0
                     : (int)((t->deadline_ns - now) / MS_NS + 1);
        int n = poll(p, 2, ms);

        if (n > 0 && p[0].revents)
            return hb_error_set(err, HVD_ESHUTDOWN, "it was cancelled");
        if (ms == 0)
            return hb_error_set(err, HVD_ETIMEOUT,
                                "ssh: no answer in time (%s)", t->stage);
        if (n > 0)
            return 0;
    }
}

int ssh2_wait(struct ssh2_task *t, struct hb_error *err)
{
    struct ssh2_session *s = t->session;
    int rc;

    t->received += WAIT_BUDGET - s->budget;
    if (t->received > CONNECT_BYTES_MAX)
        return hb_error_set(err, HVD_EPROTO, "ssh: it sends without end (%s)",
                            t->stage);
    if (s->closed) { /* the next call will fail */
        s->give_up = 1;
        return 0;
    }
    ssh2_session_flush(s); /* a lost connection is found by reading */
    rc = wait_fd(t, s->fd,
                 (short)(hb_buf_len(&s->out) > 0 ? POLLIN | POLLOUT : POLLIN),
                 err);
    s->budget = WAIT_BUDGET;
    return rc;
}

static int is_connection_error(int code)
{
    return code == LIBSSH2_ERROR_SOCKET_RECV ||
           code == LIBSSH2_ERROR_SOCKET_SEND ||
           code == LIBSSH2_ERROR_SOCKET_DISCONNECT;
}

int ssh2_failed(struct ssh2_task *t, const char *doing, struct hb_error *err)
{
    struct ssh2_session *s = t->session;
    int code = libssh2_session_last_errno(s->lib);

    if (s->closed && s->sys_errno)
        return hb_error_set(err, HVD_ECLOSED,
                            "ssh: the connection was lost in %s: %s", doing,
                            strerror(s->sys_errno));
    if (s->closed || is_connection_error(code))
        return hb_error_set(err, HVD_ECLOSED,
                            "ssh: its sshd closed the connection in %s (too "
                            "many at a time? see MaxStartups)",
                            doing);
    if (code == LIBSSH2_ERROR_ALLOC)
        return hb_error_set(err, HVD_EPROTO,
                            "ssh: it sends more than there is memory for");
    return hb_error_set(err, HVD_EPROTO, "ssh: %s failed: %s", doing,
                        ssh2_session_error(s));
}

/* ---- The connection ---- */

/* Resolves the name; cannot be interrupted. */
static int resolve(struct ssh2_task *t, struct addrinfo **out,
                   struct hb_error *err)
{
    struct addrinfo hints = {.ai_family = t->config.family,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};
    char port[16];
    int rc;

    snprintf(port, sizeof(port), "%d", t->config.port);
    rc = getaddrinfo(t->config.hostname, port, &hints, out);
    if (rc == 0)
        return 0;
    if (rc == EAI_SYSTEM)
        hb_error_sys(err, errno, "ssh: cannot resolve %s", t->config.hostname);
    else
        hb_error_set(err, rc == EAI_AGAIN ? HVD_ETIMEOUT : HVD_EINVAL,
                     "ssh: cannot resolve %s: %s; check the name and DNS",
                     t->config.hostname, gai_strerror(rc));
    return hb_error_stage(err, HB_STAGE_NAME);
}

static int connect_error(const struct ssh2_task *t, const char *address, int e,
                         struct hb_error *err)
{
    enum hvd_status status = e == ETIMEDOUT    ? HVD_ETIMEOUT
                             : e == ECONNRESET ? HVD_ECLOSED
                             : e == EAGAIN     ? HVD_ECLOSED
                                               : HVD_ESYSTEM;
    const char *advice = e == ECONNREFUSED ? "; is sshd running there?"
                         : e == EMFILE     ? " (see ulimit -n)"
                                           : "";

    hb_error_set(err, status, "ssh: cannot connect to %s port %d: %s%s",
                 address, t->config.port, strerror(e), advice);
    err->sys_errno = e;
    return err->status;
}

/* Connects to one address: the socket, or negative with err set. */
static int connect_address(struct ssh2_task *t, const struct addrinfo *a,
                           struct hb_error *err)
{
    char address[NI_MAXHOST] = "?";
    int e = 0, rc = 0;
    socklen_t len = sizeof(e);
    int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof(address), NULL, 0,
                NI_NUMERICHOST);
    if (fd < 0)
        return connect_error(t, address, errno, err);
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0)
        e = errno;
    if (e == EINPROGRESS) {
        rc = wait_fd(t, fd, POLLOUT, err);
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len);
    }
    if (rc == -HVD_ETIMEOUT) {
        hb_error_clear(err);
        rc = connect_error(t, address, ETIMEDOUT, err);
    } else if (rc == 0 && e) {
        rc = connect_error(t, address, e, err);
    }
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

static int connect_timeout_ms(const struct ssh2_task *t)
{
    return t->config.connect_timeout_ms > 0 ? t->config.connect_timeout_ms
                                            : SSH2_CONNECT_TIMEOUT_MS;
}

/* Tries each address in turn.  Reports a temporary error rather than a final
 * one, because trying again may then help. */
static int connect_any(struct ssh2_task *t, const struct addrinfo *list,
                       struct hb_error *err)
{
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        struct hb_error e = HB_ERROR_INIT;
        int fd;

        ssh2_step(t, "connecting", connect_timeout_ms(t));
        fd = connect_address(t, a, &e);
        if (fd >= 0) {
            t->fd = fd;
            return 0;
        }
        if (a == list || e.status == -HVD_ETIMEOUT ||
            e.status == -HVD_ECLOSED || e.status == -HVD_ESHUTDOWN)
            *err = e;
        if (e.status == -HVD_ESHUTDOWN)
            break;
    }
    return err->status;
}

static int connect_host(struct ssh2_task *t, struct hb_error *err)
{
    struct addrinfo *list = NULL;
    int rc, on = 1;

    ssh2_task_stage(t, "resolving its name");
    rc = resolve(t, &list, err);
    if (ssh2_task_interruptible(t) < 0)
        rc = hb_error_set(err, HVD_ESHUTDOWN, "it was cancelled");
    if (rc == 0)
        rc = connect_any(t, list, err);
    if (list)
        freeaddrinfo(list);
    if (rc < 0)
        return rc;
    setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(t->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    return 0;
}

/* ---- The banner ---- */

/* Reports what came instead of a banner; `ended`: the connection, too. */
static int no_banner(const struct hb_buf *in, int ended, struct hb_error *err)
{
    static const char begin[] = "SSH-2.0-";
    int n = (int)strcspn(hb_buf_data(in), "\r\n");
    size_t len = hb_buf_len(in);

    if (len > sizeof(begin) - 1)
        len = sizeof(begin) - 1;
    /* sshd refuses connections, for now */
    if (strncmp(hb_buf_data(in), "Exceeded MaxStartups", 20) == 0 ||
        strncmp(hb_buf_data(in), "Not allowed at this time", 24) == 0)
        return hb_error_set(err, HVD_ECLOSED, "ssh: it says \"%.*s\"", n,
                            hb_buf_data(in));
    if (ended && memcmp(hb_buf_data(in), begin, len) == 0)
        return hb_error_set(
            err, HVD_ECLOSED,
            "ssh: its sshd closed the connection at once (too many "
            "at a time? see MaxStartups)");
    return hb_error_set(err, HVD_EPROTO,
                        "ssh: that is no ssh server: it says \"%.*s\"",
                        n > 60 ? 60 : n, hb_buf_data(in));
}

/* Looks for a line that begins with SSH-2.0- or SSH-1.99-: 1 if it is complete,
 * 0 if more is needed, negative if there will be none. */
static int find_banner(const struct hb_buf *in, struct hb_error *err)
{
    const char *p = hb_buf_data(in), *end = p + hb_buf_len(in);
    const char *eol;

    for (; (eol = memchr(p, '\n', (size_t)(end - p))) != NULL; p = eol + 1) {
        size_t len = (size_t)(eol - p);
        if (strncmp(p, "SSH-2.0-", 8) == 0 || strncmp(p, "SSH-1.99-", 9) == 0)
            return len <= BANNER_LINE_MAX ? 1 : no_banner(in, 0, err);
        /* libssh2 treats an empty line as an error, and so do we. */
        if (len > BANNER_LINE_MAX || memchr(p, '\0', len) || *p == '\n' ||
            *p == '\r' || strncmp(p, "SSH-", 4) == 0)
            return no_banner(in, 0, err);
    }
    if (end - p > BANNER_LINE_MAX || hb_buf_len(in) > BANNER_MAX)
        return no_banner(in, 0, err);
    return 0;
}

/* Reads up to the banner: libssh2 itself would read lines that are no banner
 * for ever. */
static int read_banner(struct ssh2_task *t, struct hb_buf *in,
                       struct hb_error *err)
{
    int rc = 0;

    ssh2_step(t, "waiting for its sshd", connect_timeout_ms(t));
    while (rc == 0) {
        char bytes[BANNER_LINE_MAX];
        ssize_t n;

        rc = wait_fd(t, t->fd, POLLIN, err);
        if (rc < 0)
            return rc;
        n = recv(t->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return hb_error_set(err, HVD_ECLOSED,
                                "ssh: the connection was lost: %s (too many "
                                "at a time? see MaxStartups)",
                                strerror(errno));
        if (n == 0)
            return no_banner(in, 1, err);
        if (hb_buf_append(in, bytes, (size_t)n) < 0)
            hb_die_oom();
        rc = find_banner(in, err);
    }
    return rc < 0 ? rc : 0;
}

/* ---- The session ---- */

/* Sets one of the user's lists of algorithms. */
static int prefer(struct ssh2_task *t, int method, const char *list,
                  const char *what, struct hb_error *err)
{
    int rc = list ? ssh2_session_prefer(t->session, method, list) : 0;

    if (rc == -HVD_EUNSUPPORTED)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: libssh2 %s has none of the %s that are "
                            "allowed",
                            libssh2_version(0), what);
    return rc < 0 ? hb_error_set(err, HVD_ENOMEM, "ssh: no memory") : 0;
}

static int prefer_methods(struct ssh2_task *t, struct hb_error *err)
{
    const struct ssh_config *c = &t->config;
    int rc = prefer(t, LIBSSH2_METHOD_KEX, c->kex, "key exchanges", err);

    if (rc == 0)
        rc = prefer(t, LIBSSH2_METHOD_CRYPT_CS, c->ciphers, "ciphers", err);
    if (rc == 0)
        rc = prefer(t, LIBSSH2_METHOD_CRYPT_SC, c->ciphers, "ciphers", err);
    if (rc == 0)
        rc = prefer(t, LIBSSH2_METHOD_MAC_CS, c->macs, "MACs", err);
    if (rc == 0)
        rc = prefer(t, LIBSSH2_METHOD_MAC_SC, c->macs, "MACs", err);
    return rc;
}

static int handshake(struct ssh2_task *t, struct hb_error *err)
{
    struct ssh2_session *s = t->session;
    int rc;

    ssh2_step(t, "exchanging keys", SSH2_PHASE_TIMEOUT_MS);
    while ((rc = libssh2_session_handshake(s->lib, s->fd)) ==
           LIBSSH2_ERROR_EAGAIN)
        if (ssh2_wait(t, err) < 0)
            return err->status;
    if (rc == 0)
        return 0;
    if (!s->closed && (rc == LIBSSH2_ERROR_KEX_FAILURE ||
                       rc == LIBSSH2_ERROR_KEY_EXCHANGE_FAILURE ||
                       rc == LIBSSH2_ERROR_METHOD_NONE))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: libssh2 %s and its sshd agree on no way to "
                            "exchange keys",
                            libssh2_version(0));
    return ssh2_failed(t, "the key exchange", err);
}

static int open_shell(struct ssh2_task *t, struct hb_error *err)
{
    struct ssh2_session *s = t->session;
    int rc;

    ssh2_step(t, "starting a shell", SSH2_PHASE_TIMEOUT_MS);
    while (!(s->channel = libssh2_channel_open_session(s->lib))) {
        if (libssh2_session_last_errno(s->lib) != LIBSSH2_ERROR_EAGAIN)
            break;
        if (ssh2_wait(t, err) < 0)
            return err->status;
    }
    if (!s->channel &&
        libssh2_session_last_errno(s->lib) == LIBSSH2_ERROR_CHANNEL_FAILURE)
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its sshd refuses sessions (see MaxSessions "
                            "there)");
    if (!s->channel)
        return ssh2_failed(t, "opening a session", err);
    while ((rc = libssh2_channel_exec(s->channel, command)) ==
           LIBSSH2_ERROR_EAGAIN)
        if (ssh2_wait(t, err) < 0)
            return err->status;
    if (rc == LIBSSH2_ERROR_CHANNEL_REQUEST_DENIED)
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its sshd refuses to run a command");
    return rc ? ssh2_failed(t, "starting a shell", err) : 0;
}

/* ---- All of it ---- */

static int make_session(struct ssh2_task *t, struct hb_buf *banner,
                        struct hb_error *err)
{
    t->session = ssh2_session_new(t->fd, banner);
    if (!t->session)
        return hb_error_set(err, HVD_ENOMEM, "ssh: no memory");
    t->fd = -1;
    t->session->budget = WAIT_BUDGET;
    return 0;
}

/* Notes the stage of an error; HB_STAGE_CONNECT if the connection broke.
 * Returns rc. */
static int at_stage(int rc, enum hb_stage stage, struct hb_error *err)
{
    if (rc == -HVD_ECLOSED || rc == -HVD_ETIMEOUT)
        stage = HB_STAGE_CONNECT;
    if (rc < 0)
        hb_error_stage(err, stage);
    return rc;
}

static int shake_hands(struct ssh2_task *t, struct hb_error *err)
{
    struct ssh2_hosts hosts;
    int rc = ssh2_hosts_read(t, &hosts, err);

    if (rc == 0)
        rc = prefer_methods(t, err);
    if (rc == 0)
        rc = ssh2_hosts_prepare(t, &hosts, err);
    if (rc == 0)
        rc = handshake(t, err);
    if (rc == 0)
        rc = at_stage(ssh2_hosts_check(t, &hosts, err), HB_STAGE_HOST_KEY, err);
    ssh2_hosts_free(&hosts);
    if (rc == 0)
        rc = at_stage(ssh2_authenticate(t, err), HB_STAGE_LOGIN, err);
    return rc;
}

static int connect_all(struct ssh2_task *t, struct hb_error *err)
{
    struct hb_buf banner = HB_BUF_INIT;
    int rc;

    if (t->cancel_fd < 0)
        return hb_error_sys(err, EMFILE, "ssh: cannot start (see ulimit -n)");
    if (t->fd < 0)
        rc = at_stage(connect_host(t, err), HB_STAGE_CONNECT, err);
    else
        rc = ssh2_task_interruptible(t);
    if (rc == 0)
        rc = at_stage(read_banner(t, &banner, err), HB_STAGE_CONNECT, err);
    if (rc == 0) {
        ssh2_task_stage(t, "waiting for its turn");
        rc = ssh2_task_take_slot(t);
    }
    if (rc == 0)
        rc = make_session(t, &banner, err);
    hb_buf_free(&banner);
    if (rc == 0)
        rc = shake_hands(t, err);
    ssh2_task_give_slot(t);
    if (rc == 0)
        rc = at_stage(open_shell(t, err), HB_STAGE_LOGIN, err);
    return at_stage(rc, HB_STAGE_NONE, err);
}

void ssh2_connect(struct ssh2_task *t)
{
    if (connect_all(t, &t->err) == 0)
        return;
    /* A cancelled step may have set no error; nobody will read it. */
    hb_error_set(&t->err, HVD_ESHUTDOWN, "it was cancelled");
    ssh2_session_free(t->session);
    t->session = NULL;
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}
