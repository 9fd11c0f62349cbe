/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls Python functions when operations are done.
 *
 * libhvd tells of the end of an operation on a thread that must not wait for
 * the GIL.  So work_done() only notes it, and a thread of ours, the notifier,
 * runs the functions.  It is started by the first add_done_callback() and ended
 * by shutdown(); while nothing happens it sleeps.
 *
 * Work goes through these phases:
 *   QUIET    nobody asked to be told
 *   WATCHED  add_done_callback() was called before the end
 *   ENDED    all its operations are done
 * work_done() puts what was WATCHED into the queue.
 */
#include "python/ext/ext.h"

#include <pthread.h>
#include <stdatomic.h>

enum phase { QUIET, WATCHED, ENDED };

/* Protects queue, queue_end and wanted. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct work *queue, **queue_end = &queue;
/* The number of the notifier that is to run.  Others end: one whose function
 * called shutdown() may still run when the next one is started. */
static unsigned wanted;

/* With the GIL. */
static bool started;
static pthread_t notifier;

void work_done(void *arg, int status)
{
    struct work *w = arg;

    (void)status;
    if (atomic_fetch_sub(&w->left, 1) != 1)
        return;
    /* Release: the watcher that was set before is seen by the notifier, through
     * the mutex. */
    if (atomic_exchange(&w->phase, ENDED) != WATCHED)
        return;
    w->next = NULL;
    pthread_mutex_lock(&mutex);
    *queue_end = w;
    queue_end = &w->next;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

/* Calls the functions of work whose operations are done. */
static void run_callbacks(struct work *w)
{
    PyObject *request = w->watcher;
    PyObject *functions = w->callbacks;

    w->watcher = NULL;
    w->callbacks = NULL;
    /* libhvd's own note that it is done may come a moment later. */
    if (works_wait(&w, 1, -1) < 0)
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
 * `number` is to end.  Without the GIL. */
static struct work *take_queue(unsigned number)
{
    struct work *all;

    pthread_mutex_lock(&mutex);
    while (!queue && number == wanted)
        pthread_cond_wait(&changed, &mutex);
    all = queue;
    queue = NULL;
    queue_end = &queue;
    pthread_mutex_unlock(&mutex);
    return all;
}

static void *notify(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    PyGILState_STATE gil = PyGILState_Ensure();

    for (;;) {
        PyThreadState *state = PyEval_SaveThread();
        struct work *w = take_queue(number);

        PyEval_RestoreThread(state);
        if (!w)
            break;
        while (w) {
            struct work *next = w->next;

            run_callbacks(w);
            w = next;
        }
    }
    PyGILState_Release(gil);
    return NULL;
}

/* Starts the notifier if it does not run.  Returns 0, or -1 with an
 * exception. */
static int start(void)
{
    if (started)
        return 0;
    if (pthread_create(&notifier, NULL, notify, (void *)(uintptr_t)wanted)) {
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
    wanted++;
    pthread_cond_broadcast(&changed);
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

int work_watch(struct work *w, PyObject *request, PyObject *fn)
{
    int expected = QUIET;

    if (start() < 0)
        return -1;
    if (!w->callbacks)
        w->callbacks = PyList_New(0);
    if (!w->callbacks || PyList_Append(w->callbacks, fn) < 0)
        return -1;
    if (!w->watcher)
        w->watcher = Py_NewRef(request);
    if (!atomic_compare_exchange_strong(&w->phase, &expected, WATCHED) &&
        expected == ENDED) {
        /* The end came first, and has not seen that it is watched. */
        run_callbacks(w);
    }
    return 0;
}
