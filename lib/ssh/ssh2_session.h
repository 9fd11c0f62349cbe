/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One libssh2 session, which never uses its socket itself.
 *
 * What libssh2 sends goes into a buffer that always accepts, so that a call is
 * never left half done: in libssh2 a read that has to enlarge its window fails
 * for good while a write waits for the socket.  What it receives is limited by
 * a budget, so that a fast or hostile host cannot keep the caller busy; its
 * memory is limited, too.  So LIBSSH2_ERROR_EAGAIN always means: flush, wait
 * until the socket is readable (whatever libssh2_session_block_directions
 * says), call again.
 *
 * When the connection has ended, libssh2 merely sees no more input until
 * give_up is set: on an error it would not deliver what it has already
 * received.
 *
 * No locks: one thread at a time.
 */
#ifndef HVD_TRANSPORT_SSH2_SESSION_H
#define HVD_TRANSPORT_SSH2_SESSION_H

#include "lib/base/buf.h"

/* 1.11.1 renames functions that 1.10 has. */
#define LIBSSH2_DISABLE_DEPRECATION
#include <libssh2.h>

enum { SSH2_MEMORY_MAX = 32 << 20 };

struct ssh2_session {
    LIBSSH2_SESSION *lib;
    LIBSSH2_CHANNEL *channel; /* freed with lib */
    int fd;
    struct hb_buf in;          /* read before libssh2 took over */
    struct hb_buf out;         /* to be sent */
    size_t budget;             /* bytes that may still be received */
    struct ssh2_block *blocks; /* allocations of libssh2 */
    size_t allocated;          /* their bytes */
    int closed;                /* the connection has ended */
    int give_up;               /* libssh2 may be told */
    int sys_errno;             /* errno of its end, or 0 */
};

/* Initialises libssh2, once per process. */
int ssh2_session_setup(void);

/* Makes a session; takes over fd and the contents of `first`.  NULL if out of
 * memory. */
struct ssh2_session *ssh2_session_new(int fd, struct hb_buf *first);
/* Closes fd; sends nothing. */
void ssh2_session_free(struct ssh2_session *s);

/* Sends what the socket takes.  0, or negative if the connection is gone. */
int ssh2_session_flush(struct ssh2_session *s);
/* Appends what libssh2 supports for a LIBSSH2_METHOD_*, comma-separated.  0 or
 * -HVD_ENOMEM. */
int ssh2_session_able(struct ssh2_session *s, int method, struct hb_buf *out);
/* Allows only what is in the list, best first.  0; -HVD_EUNSUPPORTED if libssh2
 * supports none of it; -HVD_ENOMEM. */
int ssh2_session_prefer(struct ssh2_session *s, int method, const char *list);
/* Returns libssh2's last error, a phrase. */
const char *ssh2_session_error(const struct ssh2_session *s);
/* Allocates memory that libssh2 will free. */
void *ssh2_session_alloc(struct ssh2_session *s, size_t len);
/* Returns whether the libssh2 in use supports rsa-sha2 signatures. */
int ssh2_session_has_rsa_sha2(void);

#endif
