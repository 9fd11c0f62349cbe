/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One libssh2 session, which never touches its socket itself.
 *
 * What libssh2 sends goes into a buffer that always accepts, so that a call
 * is never left half done: in libssh2 a read that has to enlarge its window
 * fails for good while a write waits for the socket.  What it receives is
 * limited by a budget, so that a fast or hostile host does not hold the
 * caller; its memory is limited too.  LIBSSH2_ERROR_EAGAIN therefore always
 * means: flush, wait until the socket is readable (whatever
 * libssh2_session_block_directions says), call again.
 *
 * A connection that has ended looks to libssh2 as if nothing more came,
 * until give_up is set: on an error it would not hand out what it has
 * received before.
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
    struct hb_buf in;          /* was read before libssh2 came in */
    struct hb_buf out;         /* is to be sent */
    size_t budget;             /* bytes that may yet be received */
    struct ssh2_block *blocks; /* what libssh2 has allocated */
    size_t allocated;          /* bytes of it */
    int closed;                /* the connection has ended */
    int give_up;               /* and libssh2 may know it */
    int sys_errno;             /* why, or 0 */
};

/* Once per process. */
int ssh2_session_setup(void);

/* Takes fd, and what `first` holds.  NULL when memory is short. */
struct ssh2_session *ssh2_session_new(int fd, struct hb_buf *first);
/* Closes fd; sends nothing. */
void ssh2_session_free(struct ssh2_session *s);

/* Sends what it can: 0, or negative when the connection is gone. */
int ssh2_session_flush(struct ssh2_session *s);
/* What libssh2 has for a LIBSSH2_METHOD_*, with commas; 0 or -HVD_ENOMEM. */
int ssh2_session_able(struct ssh2_session *s, int method, struct hb_buf *out);
/* Allows what is in the list, best first: 0; -HVD_EUNSUPPORTED when it has
 * nothing that libssh2 has; -HVD_ENOMEM. */
int ssh2_session_prefer(struct ssh2_session *s, int method, const char *list);
/* libssh2's last error, a phrase. */
const char *ssh2_session_error(const struct ssh2_session *s);
/* For memory that libssh2 will free. */
void *ssh2_session_alloc(struct ssh2_session *s, size_t len);
/* Of this libssh2, at run time. */
int ssh2_session_has_rsa_sha2(void);

#endif
