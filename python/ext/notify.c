/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls Python functions when operations are done.
 *
 * libhvd tells of the end of an operation on a thread that must not wait for
 * the GIL.  So flight_done() only notes it, and a thread of ours, the notifier,
 * runs the functions.  It is started by the first add_done_callback() and ended
 * by shutdown(); while nothing happens it sleeps.
 *
 * A flight goes through these phases:
 *   QUIET    nobody asked to be told
 *   WATCHED  add_done_callback() was called before the end
 *   ENDED    all its operations are done
 * flight_done() puts what was WATCHED into the queue.
 */
#include "python/ext/ext.h"

#include <pthread.h>
#include <stdatomic.h>

enum phase { QUIET, WATCHED, ENDED };

/* Protects queue, queue_end and stopping. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct flight *queue, **queue_end = &queue;
static bool stopping;

/* With the GIL. */
static bool started;
static pthread_t notifier;

void flight_done(void *arg, int status)
{
    struct flight *f = arg;

    (void)status;
    if (atomic_fetch_sub(&f->left, 1) != 1)
        return;
    /* Release: the watcher that was set before is seen by the notifier, through
     * the mutex. */
    if (atomic_exchange(&f->phase, ENDED) != WATCHED)
        return;
    f->next = NULL;
    pthread_mutex_lock(&mutex);
    *queue_end = f;
    queue_end = &f->next;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

/* Calls the functions of a flight whose operations are done. */
static void run_callbacks(struct flight *f)
{
    PyObject *request = f->watcher;
    PyObject *functions = f->callbacks;

    f->watcher = NULL;
    f->callbacks = NULL;
    /* libhvd's own note that it is done may come a moment later. */
    if (flights_wait(&f, 1, -1) < 0)
        PyErr_Clear();
    for (Py_ssize_t i = 0; i < PyList_Size(functions); i++) {
        PyObject *fn = PyList_GetItem(functions, i);
        PyObject *result = PyObject_CallFunctionObjArgs(fn, request, NULL);

        if (!result)
            PyErr_WriteUnraisable(fn);
        Py_XDECREF(result);
    }
    Py_DECREF(functions);
    Py_DECREF(request);
}

/* Takes the queue, and waits while it is empty.  Returns NULL when the notifier
 * is to end.  Without the GIL. */
static struct flight *take_queue(void)
{
    struct flight *all;

    pthread_mutex_lock(&mutex);
    while (!queue && !stopping)
        pthread_cond_wait(&changed, &mutex);
    all = queue;
    queue = NULL;
    queue_end = &queue;
    pthread_mutex_unlock(&mutex);
    return all;
}

static void *notify(void *unused)
{
    PyGILState_STATE gil = PyGILState_Ensure();

    for (;;) {
        PyThreadState *state = PyEval_SaveThread();
        struct flight *f = take_queue();

        PyEval_RestoreThread(state);
        if (!f)
            break;
        while (f) {
            struct flight *next = f->next;

            run_callbacks(f);
            f = next;
        }
    }
    PyGILState_Release(gil);
    return unused;
}

/* Starts the notifier if it does not run.  Returns 0, or -1 with an
 * exception. */
static int start(void)
{
    if (started)
        return 0;
    stopping = false;
    if (pthread_create(&notifier, NULL, notify, NULL) != 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "hvd cannot start the thread for callbacks");
        return -1;
    }
    started = true;
    return 0;
}

void notifier_stop(void)
{
    PyThreadState *state;

    if (!started)
        return;
    started = false;
    pthread_mutex_lock(&mutex);
    stopping = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    if (pthread_equal(pthread_self(), notifier)) {
        pthread_detach(notifier); /* a callback calls shutdown() */
        return;
    }
    state = PyEval_SaveThread();
    pthread_join(notifier, NULL);
    PyEval_RestoreThread(state);
}

void notifier_after_fork(void)
{
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&changed, NULL);
    queue = NULL;
    queue_end = &queue;
    started = false;
}

int flight_watch(struct flight *f, PyObject *request, PyObject *fn)
{
    int expected = QUIET;

    if (start() < 0)
        return -1;
    if (!f->callbacks)
        f->callbacks = PyList_New(0);
    if (!f->callbacks || PyList_Append(f->callbacks, fn) < 0)
        return -1;
    if (!f->watcher)
        f->watcher = Py_NewRef(request);
    if (!atomic_compare_exchange_strong(&f->phase, &expected, WATCHED) &&
        expected == ENDED) {
        /* The end came first, and has not seen that it is watched. */
        run_callbacks(f);
    }
    return 0;
}
