/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks, and the threads that run them; see ssh2_impl.h.
 *
 * A thread takes one task after another and ends when none is queued.  It
 * cannot be interrupted while it resolves a name: a task that is cancelled then
 * is abandoned, and when its thread returns, it notices that, frees the rest
 * and ends.  All other waits end on cancellation.
 */
#include "lib/ssh/ssh2_impl.h"

#include "lib/base/alloc.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 20, NOTE_MAX = 512 };

/* ---- What hosts share ---- */

struct ssh2_shared *ssh2_shared_new(const struct ssh2_shared_options *o)
{
    struct ssh2_shared *s = hb_xcalloc(1, sizeof(*s));
    struct hb_strv env = {environ, 0, 0};

    while (environ && environ[env.count])
        env.count++;
    s->options = *o;
    s->may_ask = hb_env_get(&env, "CI") == NULL;
    s->slots = o->max_startups > 0 ? o->max_startups : SSH2_STARTUPS;
    s->refs = 1;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    return s;
}

/* Drops a reference; called with the lock held, which it releases. */
static void unref_shared(struct ssh2_shared *s)
{
    int left = --s->refs;

    if (left == 0 || (left == 1 && s->forget))
        ssh2_keys_free(s);
    pthread_mutex_unlock(&s->lock);
    if (left > 0)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    hb_free(s);
}

/* Wipes the keys and drops the caller's reference: what abandoned threads still
 * hold contains no secrets. */
void ssh2_shared_free(struct ssh2_shared *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    ssh2_keys_free(s);
    unref_shared(s);
}

void ssh2_shared_forget_keys(struct ssh2_shared *s)
{
    pthread_mutex_lock(&s->lock);
    s->forget = 1;
    if (s->refs == 1)
        ssh2_keys_free(s);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Tasks ---- */

static void task_free(struct ssh2_task *t)
{
    ssh2_session_free(t->session);
    if (t->fd >= 0)
        close(t->fd);
    if (t->cancel_fd >= 0)
        close(t->cancel_fd);
    ssh_config_fini(&t->config);
    hb_strv_free(&t->notes);
    hb_free(t);
}

/* Drops a reference; called with the lock held, which it releases. */
static void unref_locked(struct ssh2_task *t)
{
    struct ssh2_shared *s = t->shared;
    int left = --t->refs;

    if (left > 0) {
        pthread_mutex_unlock(&s->lock);
        return;
    }
    unref_shared(s);
    task_free(t);
}

void ssh2_task_unref(struct ssh2_task *t)
{
    pthread_mutex_lock(&t->shared->lock);
    unref_locked(t);
}

enum ssh2_task_state ssh2_task_look(struct ssh2_task *t, const char **stage)
{
    enum ssh2_task_state state;

    pthread_mutex_lock(&t->shared->lock);
    state = t->state;
    *stage = t->stage;
    pthread_mutex_unlock(&t->shared->lock);
    return state;
}

static void dequeue(struct ssh2_task *t)
{
    struct ssh2_shared *s = t->shared;
    struct ssh2_task **p = &s->first;

    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
    if (s->last == &t->next)
        s->last = p;
}

int ssh2_task_cancel(struct ssh2_task *t)
{
    struct ssh2_shared *s = t->shared;
    int gone;

    pthread_mutex_lock(&s->lock);
    t->cancelled = 1;
    if (t->cancel_fd >= 0)
        eventfd_write(t->cancel_fd, 1);
    pthread_cond_broadcast(&s->changed);
    gone = t->state == TASK_QUEUED || t->state == TASK_RESOLVING;
    if (t->state == TASK_QUEUED)
        dequeue(t);
    if (t->state == TASK_RESOLVING)
        s->threads--;
    if (gone) {
        t->state = TASK_ABANDONED;
        t->async = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return gone;
}

/* ---- On a thread ---- */

void ssh2_task_stage(struct ssh2_task *t, const char *stage)
{
    pthread_mutex_lock(&t->shared->lock);
    t->stage = stage;
    if (t->async)
        uv_async_send(t->async);
    pthread_mutex_unlock(&t->shared->lock);
}

int ssh2_task_interruptible(struct ssh2_task *t)
{
    int cancelled;

    pthread_mutex_lock(&t->shared->lock);
    cancelled = t->cancelled;
    if (!cancelled)
        t->state = TASK_RUNNING;
    pthread_mutex_unlock(&t->shared->lock);
    return cancelled ? -HVD_ESHUTDOWN : 0;
}

void ssh2_task_note(struct ssh2_task *t, enum hb_log_level level,
                    const char *fmt, ...)
{
    char line[NOTE_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    /* Losing a note for lack of memory is not an error. */
    (void)hb_strv_addf(&t->notes, "%c%s", '0' + (int)level, line);
}

int ssh2_task_wait_locked(struct ssh2_task *t)
{
    if (!t->cancelled)
        pthread_cond_wait(&t->shared->changed, &t->shared->lock);
    return t->cancelled ? -HVD_ESHUTDOWN : 0;
}

int ssh2_task_take_slot(struct ssh2_task *t)
{
    struct ssh2_shared *s = t->shared;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    while (s->slots == 0 && rc == 0)
        rc = ssh2_task_wait_locked(t);
    if (rc == 0) {
        s->slots--;
        t->has_slot = 1;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void ssh2_task_give_slot(struct ssh2_task *t)
{
    struct ssh2_shared *s = t->shared;

    if (!t->has_slot)
        return;
    t->has_slot = 0;
    pthread_mutex_lock(&s->lock);
    s->slots++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Ends the task, with the lock held.  0: the lock is still held.  1: the task
 * was abandoned and is freed, the lock is released, and the thread must end. */
static int finish(struct ssh2_task *t)
{
    if (t->state == TASK_ABANDONED) {
        t->shared->refs--; /* the thread's; the task has one, too */
        unref_locked(t);
        return 1;
    }
    t->state = TASK_DONE;
    if (t->cancel_fd >= 0)
        close(t->cancel_fd);
    t->cancel_fd = -1;
    uv_async_send(t->async);
    t->async = NULL;
    t->refs--; /* the loop's remains */
    assert(t->refs > 0);
    return 0;
}

static void *thread_main(void *arg)
{
    struct ssh2_shared *s = arg;
    struct ssh2_task *t;

    pthread_mutex_lock(&s->lock);
    while ((t = s->first) != NULL) {
        dequeue(t);
        t->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        t->state = TASK_RESOLVING;
        t->refs++;
        pthread_mutex_unlock(&s->lock);
        ssh2_connect(t);
        pthread_mutex_lock(&s->lock);
        if (finish(t))
            return NULL;
    }
    s->threads--;
    unref_shared(s);
    return NULL;
}

/* Starts a thread with all signals blocked: the loop's thread handles them. */
static int start_thread(struct ssh2_shared *s)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, thread_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* ---- Starting ---- */

static int enqueue(struct ssh2_task *t)
{
    struct ssh2_shared *s = t->shared;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    s->refs++;
    *s->last = t;
    s->last = &t->next;
    if (s->threads < SSH2_THREADS_MAX) {
        rc = start_thread(s);
        if (!rc) {
            s->threads++;
            s->refs++;
        }
    }
    /* If there are other threads, one of them will take the task. */
    if (rc && s->threads == 0) {
        dequeue(t);
        s->refs--;
    } else {
        rc = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int ssh2_task_start(struct ssh2_shared *s, const struct ssh_config *config,
                    int fd, uv_async_t *async, struct ssh2_task **out,
                    struct hb_error *err)
{
    static const struct hb_error no_error = HB_ERROR_INIT;
    struct ssh2_task *t = hb_xcalloc(1, sizeof(*t));
    int rc;

    t->shared = s;
    t->fd = fd;
    t->cancel_fd = -1;
    t->async = async;
    t->refs = 1;
    t->err = no_error;
    t->stage = "waiting for a thread";
    if (ssh_config_copy(config, &t->config) < 0)
        hb_die_oom();
    rc = enqueue(t);
    if (rc) {
        task_free(t);
        return hb_error_sys(err, rc, "cannot start a thread for ssh");
    }
    *out = t;
    return 0;
}
