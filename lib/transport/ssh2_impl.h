/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the SSH plug-in: ssh2.c has the transport on the loop,
 * ssh2_task.c the threads, ssh2_connect.c the steps that run on them,
 * ssh2_hostkey.c and ssh2_auth.c two of those steps, ssh2_keys.c the keys
 * that hosts share, ssh2_session.c one libssh2 session.
 *
 * A task is a connection that is being made.  A thread owns it from
 * TASK_RESOLVING until TASK_DONE, the loop before and after; what both touch
 * is under the lock of struct ssh2_shared.
 */
#ifndef HVD_TRANSPORT_SSH2_IMPL_H
#define HVD_TRANSPORT_SSH2_IMPL_H

#include "lib/base/buf.h"
#include "lib/transport/known_hosts.h"
#include "lib/transport/ssh2.h"
#include "lib/transport/ssh2_session.h"
#include "lib/transport/ssh_key.h"

#include <pthread.h>
#include <stdint.h>

enum {
    SSH2_THREADS_MAX = 128,
    SSH2_STARTUPS = 16, /* handshakes at a time, unless told otherwise */
    SSH2_CONNECT_TIMEOUT_MS = 10000, /* likewise; also for the banner */
    SSH2_PHASE_TIMEOUT_MS = 60000,   /* key exchange, each other step */
};

enum ssh2_key_state {
    KEY_LOADING, /* a thread is reading the file */
    KEY_LOCKED,  /* its passphrase was not asked yet */
    KEY_ASKING,  /* a thread is asking */
    KEY_OPEN,    /* it can be used */
    KEY_REFUSED  /* nobody gave the passphrase */
};

/* A private key file, read once. */
struct ssh2_key {
    struct ssh2_key *next;
    char *path;
    enum ssh2_key_state state; /* under the lock */
    int rc;                    /* of ssh_key_load */
    int has_private;
    struct ssh_key key; /* its private part only in state OPEN */
    char *passphrase;   /* likewise; NULL where none is needed */
};

struct ssh2_shared {
    struct ssh2_shared_options options;
    int may_ask; /* on the terminal: CI is not set */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot, a key, a cancellation */
    /* All below is under the lock. */
    int refs;                        /* its owner and tasks */
    int slots;                       /* free places for handshakes */
    int threads;                     /* without those that were abandoned */
    int asking;                      /* somebody is at the prompt */
    struct ssh2_task *first, **last; /* tasks that wait for a thread */
    struct ssh2_key *keys;
};

enum ssh2_task_state {
    TASK_QUEUED,
    TASK_RESOLVING, /* cannot be interrupted, but abandoned */
    TASK_RUNNING,
    TASK_DONE,
    TASK_ABANDONED, /* nobody waits for it */
};

struct ssh2_task {
    struct ssh2_shared *shared;
    struct ssh_config config;
    struct ssh2_task *next;
    /* Under the lock: */
    enum ssh2_task_state state;
    int refs; /* the loop's and the thread's */
    int cancelled;
    int cancel_fd;     /* becomes readable then; -1 while no thread has it */
    const char *stage; /* a constant */
    uv_async_t *async; /* tells the loop about stage and state */
    /* The owner's: */
    int fd;                       /* the connection, or -1 */
    int has_slot;                 /* counts as handshake */
    struct ssh2_session *session; /* the result, or NULL and err */
    struct hb_error err;
    struct hb_strv notes; /* for the log: a level's letter, then a line */
    uint64_t deadline_ns; /* of the present step */
    size_t received;      /* bytes, until the shell runs */
};

/* ---- ssh2_task.c ---- */

struct ssh2_shared *ssh2_shared_new(const struct ssh2_shared_options *o);
void ssh2_shared_free(struct ssh2_shared *s);

/* Takes fd, in any case; 0, -HVD_ENOMEM or -HVD_ESYSTEM with err set. */
int ssh2_task_start(struct ssh2_shared *s, const struct ssh_config *config,
                    int fd, uv_async_t *async, struct ssh2_task **out,
                    struct hb_error *err);
/* On the loop.  1: it is out of reach now, nothing more will come; 0: async
 * will come, with state DONE. */
int ssh2_task_cancel(struct ssh2_task *t);
enum ssh2_task_state ssh2_task_look(struct ssh2_task *t, const char **stage);
void ssh2_task_unref(struct ssh2_task *t);

/* On the thread.  The name is resolved: from now on cancellation is heard.
 * 0 or -HVD_ESHUTDOWN. */
int ssh2_task_interruptible(struct ssh2_task *t);
/* A constant. */
void ssh2_task_stage(struct ssh2_task *t, const char *stage);
void ssh2_task_note(struct ssh2_task *t, enum hb_log_level level,
                    const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* 0; -HVD_ESHUTDOWN when the task was cancelled. */
int ssh2_task_take_slot(struct ssh2_task *t);
void ssh2_task_give_slot(struct ssh2_task *t);
/* Waits for a change of what is under the lock, which the caller holds: 0 or
 * -HVD_ESHUTDOWN. */
int ssh2_task_wait_locked(struct ssh2_task *t);

/* ---- ssh2_connect.c ---- */

/* Fills session or err. */
void ssh2_connect(struct ssh2_task *t);
/* Begins a step that may take so long. */
void ssh2_step(struct ssh2_task *t, const char *stage, int timeout_ms);
/*
 * After LIBSSH2_ERROR_EAGAIN: sends what waits and waits for more.  0 to go
 * on; negative with err set: -HVD_ETIMEOUT, -HVD_ECLOSED, -HVD_EPROTO, or
 * -HVD_ESHUTDOWN when the task was cancelled.
 */
int ssh2_wait(struct ssh2_task *t, struct hb_error *err);
/* What libssh2 failed with in the present step. */
int ssh2_failed(struct ssh2_task *t, const char *doing, struct hb_error *err);

/* ---- ssh2_hostkey.c ---- */

struct ssh2_hosts {
    struct known_hosts known;   /* under the name that is used */
    struct known_hosts by_host; /* without the port, if it has one */
    struct hb_buf name;         /* with its final 0 */
};

int ssh2_hosts_read(struct ssh2_task *t, struct ssh2_hosts *h,
                    struct hb_error *err);
void ssh2_hosts_free(struct ssh2_hosts *h);
/* Before the key exchange. */
int ssh2_hosts_prepare(struct ssh2_task *t, const struct ssh2_hosts *h,
                       struct hb_error *err);
/* After it: may this be the host? */
int ssh2_hosts_check(struct ssh2_task *t, const struct ssh2_hosts *h,
                     struct hb_error *err);

/* ---- ssh2_auth.c ---- */

int ssh2_authenticate(struct ssh2_task *t, struct hb_error *err);

/* ---- ssh2_keys.c ---- */

/* *out is valid as long as shared; 0 or -HVD_ESHUTDOWN. */
int ssh2_key_get(struct ssh2_task *t, const char *path, struct ssh2_key **out);
/* Makes its private part usable, asking the user once: 0; -HVD_EPERM when
 * nobody gave the passphrase; -HVD_ESHUTDOWN. */
int ssh2_key_open(struct ssh2_task *t, struct ssh2_key *k);
/* Is it so already? */
int ssh2_key_is_open(struct ssh2_task *t, const struct ssh2_key *k);
/* Called with the lock. */
void ssh2_keys_free(struct ssh2_shared *s);

#endif
