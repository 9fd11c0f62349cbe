/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the SSH plug-in: ssh2.c has the transport on the loop,
 * ssh2_task.c the threads, ssh2_connect.c the steps that run on them,
 * ssh2_hostkey.c and ssh2_auth.c two of those steps, ssh2_keys.c the keys that
 * hosts share, ssh2_session.c one libssh2 session.
 *
 * A task is a connection being made.  A thread owns it from TASK_RESOLVING
 * until TASK_DONE, the loop before and after; what both use is protected by the
 * lock of struct ssh2_shared.
 */
#ifndef HVD_TRANSPORT_SSH2_IMPL_H
#define HVD_TRANSPORT_SSH2_IMPL_H

#include "lib/base/buf.h"
#include "lib/ssh/keys/ssh_key.h"
#include "lib/ssh/known_hosts.h"
#include "lib/ssh/ssh2.h"
#include "lib/ssh/ssh2_session.h"

#include <pthread.h>
#include <stdint.h>

enum {
    SSH2_THREADS_MAX = 128,
    SSH2_STARTUPS = 16,              /* handshakes at a time, by default */
    SSH2_CONNECT_TIMEOUT_MS = 10000, /* default; also for the banner */
    SSH2_PHASE_TIMEOUT_MS = 60000,   /* key exchange, each other step */
};

enum ssh2_key_state {
    KEY_LOADING, /* a thread is reading the file */
    KEY_LOCKED,  /* its passphrase has not been asked for */
    KEY_ASKING,  /* a thread is asking */
    KEY_OPEN,    /* it can be used */
    KEY_REFUSED  /* no passphrase was given */
};

/* A private key file, read once. */
struct ssh2_key {
    struct ssh2_key *next;
    char *path;
    enum ssh2_key_state state; /* under the lock */
    int rc;                    /* result of ssh_key_load */
    int has_private;
    struct ssh_key key; /* its private part only in KEY_OPEN */
    char *passphrase;   /* likewise; NULL if none is needed */
    char trouble[192];  /* KEY_REFUSED: why it cannot be decrypted, or "" */
};

struct ssh2_shared {
    struct ssh2_shared_options options;
    int may_ask; /* on the terminal: CI is not set */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot, a key or a cancellation changed */
    /* Protected by the lock: */
    int refs;    /* its owner and tasks */
    int slots;   /* free places for handshakes */
    int threads; /* without abandoned ones */
    int asking;  /* a thread is at the prompt */
    int forget;  /* wipe keys when only the owner is left */
    /* whether this process was, before it had keys */
    int was_dumpable;
    struct ssh2_task *first, **last; /* tasks waiting for a thread */
    struct ssh2_key *keys;
};

enum ssh2_task_state {
    TASK_QUEUED,
    TASK_RESOLVING, /* cannot be interrupted, only abandoned */
    TASK_RUNNING,
    TASK_DONE,
    TASK_ABANDONED, /* nobody waits for it any more */
};

struct ssh2_task {
    struct ssh2_shared *shared;
    struct ssh_config config;
    struct ssh2_task *next;
    /* Protected by the lock: */
    enum ssh2_task_state state;
    int refs; /* held by the loop and the thread */
    int cancelled;
    /* becomes readable on cancellation; -1 while no thread has it */
    int cancel_fd;
    const char *stage; /* a constant */
    uv_async_t *async; /* wakes the loop: stage or state changed */
    /* The owner's: */
    int fd;                       /* the connection, or -1 */
    int has_slot;                 /* it counts as a handshake */
    struct ssh2_session *session; /* the result, or NULL and err */
    struct hb_error err;
    struct hb_strv notes; /* log lines, each after a digit for its level */
    uint64_t deadline_ns; /* of the current step */
    size_t received;      /* bytes received before the shell runs */
};

/* ---- ssh2_task.c ---- */

struct ssh2_shared *ssh2_shared_new(const struct ssh2_shared_options *o);
void ssh2_shared_free(struct ssh2_shared *s);
void ssh2_shared_forget_keys(struct ssh2_shared *s);

/* Starts a task; takes fd over in any case.  0, or -HVD_ENOMEM or -HVD_ESYSTEM
 * with err set. */
int ssh2_task_start(struct ssh2_shared *s, const struct ssh_config *config,
                    int fd, uv_async_t *async, struct ssh2_task **out,
                    struct hb_error *err);
/* Cancels from the loop.  1: abandoned, no more events will come; 0: async will
 * come, with state DONE. */
int ssh2_task_cancel(struct ssh2_task *t);
enum ssh2_task_state ssh2_task_look(struct ssh2_task *t, const char **stage);
void ssh2_task_unref(struct ssh2_task *t);

/* Makes the task notice cancellation from now on; called on the thread when the
 * name is resolved.  0 or -HVD_ESHUTDOWN. */
int ssh2_task_interruptible(struct ssh2_task *t);
/* Sets the stage, a constant string. */
void ssh2_task_stage(struct ssh2_task *t, const char *stage);
void ssh2_task_note(struct ssh2_task *t, enum hb_log_level level,
                    const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Waits for a slot.  0, or -HVD_ESHUTDOWN if the task was cancelled. */
int ssh2_task_take_slot(struct ssh2_task *t);
void ssh2_task_give_slot(struct ssh2_task *t);
/* Waits for a change of what the lock, which the caller holds, protects.  0 or
 * -HVD_ESHUTDOWN. */
int ssh2_task_wait_locked(struct ssh2_task *t);

/* ---- ssh2_connect.c ---- */

/* Makes the connection: fills session or err. */
void ssh2_connect(struct ssh2_task *t);
/* Begins a step that may take at most timeout_ms. */
void ssh2_step(struct ssh2_task *t, const char *stage, int timeout_ms);
/* Sends what is queued and waits for input, after LIBSSH2_ERROR_EAGAIN.
 * - 0: call libssh2 again
 * - negative with err set: -HVD_ETIMEOUT, -HVD_ECLOSED, -HVD_EPROTO, or
 *   -HVD_ESHUTDOWN if the task was cancelled */
int ssh2_wait(struct ssh2_task *t, struct hb_error *err);
/* Sets err to libssh2's error in the current step, and returns its status. */
int ssh2_failed(struct ssh2_task *t, const char *doing, struct hb_error *err);

/* ---- ssh2_hostkey.c ---- */

struct ssh2_hosts {
    struct known_hosts known; /* under the name in use */
    /* the same without the port; empty for port 22 */
    struct known_hosts by_host;
    struct hb_buf name; /* with its final 0 */
};

int ssh2_hosts_read(struct ssh2_task *t, struct ssh2_hosts *h,
                    struct hb_error *err);
void ssh2_hosts_free(struct ssh2_hosts *h);
/* Sets the host key algorithms, before the key exchange. */
int ssh2_hosts_prepare(struct ssh2_task *t, const struct ssh2_hosts *h,
                       struct hb_error *err);
/* Checks the host's key, after the key exchange. */
int ssh2_hosts_check(struct ssh2_task *t, const struct ssh2_hosts *h,
                     struct hb_error *err);

/* ---- ssh2_auth.c ---- */

int ssh2_authenticate(struct ssh2_task *t, struct hb_error *err);

/* ---- ssh2_keys.c ---- */

/* Finds or loads a key file.  0 with *out, valid as long as shared, or
 * -HVD_ESHUTDOWN. */
int ssh2_key_get(struct ssh2_task *t, const char *path, struct ssh2_key **out);
/* Makes the private part usable, asking the user once.  0; -HVD_EPERM if no
 * passphrase was given or k->trouble says why not; -HVD_ESHUTDOWN. */
int ssh2_key_open(struct ssh2_task *t, struct ssh2_key *k);
/* Returns whether the private part is usable. */
int ssh2_key_is_open(struct ssh2_task *t, const struct ssh2_key *k);
/* Returns 1 after forget_keys: then no passphrase is asked any more. */
int ssh2_keys_forgotten(struct ssh2_shared *s);
/* Frees all keys; the caller holds the lock. */
void ssh2_keys_free(struct ssh2_shared *s);

#endif
