/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that were issued: what they hold until they are done, how Python
 * waits for them, and how they end.
 *
 * Work is ended by hvd_wait for each of its operations, which frees
 * libhvd's requests.  libhvd allows one thread at a time per request: `busy`
 * says that one is in libhvd without the GIL.
 */
#include "python/ext/ext.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Python looks for signals this often. */
enum { SIGNAL_MS = 100 };

static struct work *unused;
static int nunused;
enum { UNUSED_MAX = 64 };

/* Operations whose Request was dropped, oldest first. */
static struct work *dropped, **dropped_end = &dropped;

/* ---- Making and freeing ------------------------------------------------- */

struct work *work_new(void)
{
    struct work *w = unused;

    if (w) {
        unused = w->next;
        nunused--;
        memset(w, 0, sizeof(*w));
    } else {
        w = PyMem_Calloc(1, sizeof(*w));
        if (!w) {
            PyErr_NoMemory();
            return NULL;
        }
    }
    w->ops = &w->one;
    w->left = 1;
    w->generation = fork_generation;
    return w;
}

struct work *issue_begin(void)
{
    PyObject *request = request_new();
    struct work *w = request ? work_new() : NULL;

    if (w)
        w->request = request;
    else
        Py_XDECREF(request);
    return w;
}

static void free_gathered(struct work *w)
{
    for (size_t i = 0; i < w->ngathered; i++)
        block_unref(w->gathered[i].block);
    if (w->ngathered)
        PyMem_Free(w->gathered[0].counts);
    PyMem_Free(w->gathered);
    w->gathered = NULL;
    w->ngathered = 0;
}

/* Lets go of the tensors. */
static void release(struct work *w)
{
    struct hold *holds = w->holds;

    w->holds = NULL;
    holds_release(holds);
    Py_CLEAR(w->refs[0]);
    Py_CLEAR(w->refs[1]);
}

/* Frees work that has no operation under way. */
static void work_free(struct work *w)
{
    release(w);
    free_gathered(w);
    Py_CLEAR(w->result);
    Py_CLEAR(w->text);
    Py_CLEAR(w->request);
    Py_CLEAR(w->callbacks); /* left if there was no memory to watch */
    if (w->ops != &w->one)
        PyMem_Free(w->ops);
    if (nunused < UNUSED_MAX) {
        w->next = unused;
        unused = w;
        nunused++;
    } else {
        PyMem_Free(w);
    }
}

/* Ends the operations, which are all done. */
static void finish(struct work *w)
{
    for (int i = 0; i < w->nops; i++) {
        int rc = hvd_wait(w->ops[i]);

        if (rc < 0 && w->status == 0) {
            w->status = rc;
            w->text = status_text(rc);
        }
    }
    w->finished = true;
    release(w);
}

/* Tells whether every operation is done: 1, 0, or a negative status. */
static int all_done(const struct work *w)
{
    for (int i = 0; i < w->nops; i++) {
        int done = 0;
        int rc = hvd_test(w->ops[i], &done);

        if (rc < 0 || !done)
            return rc;
    }
    return 1;
}

static bool in_child(const struct work *w)
{
    return w->generation != fork_generation;
}

void work_drop(struct work *w)
{
    if (!w)
        return;
    if (w->finished || w->nops == 0) {
        work_free(w);
        return;
    }
    if (in_child(w)) /* the parent's memory may still be in use */
        return;
    w->next = NULL;
    *dropped_end = w;
    dropped_end = &w->next;
}

/* Takes the oldest dropped work off the list. */
static struct work *take_dropped(void)
{
    struct work *w = dropped;

    dropped = w->next;
    if (!dropped)
        dropped_end = &dropped;
    return w;
}

void works_reap(bool all)
{
    for (int i = 0; (all || i < 4) && dropped; i++) {
        struct work *w;

        if (!in_child(dropped) && all_done(dropped) != 1)
            return;
        w = take_dropped(); /* before anything is freed, which may run Python */
        if (in_child(w))    /* the parent's memory may still be in use */
            continue;
        finish(w);
        work_free(w);
    }
}

void work_attach(struct work *w, struct hvd_options *opts)
{
    opts->done = work_done;
    opts->done_arg = w;
    w->streamed = opts->stream;
}

void work_keep(struct work *w, int i, PyObject *obj)
{
    w->refs[i] = Py_NewRef(obj);
}

int work_reserve(struct work *w, size_t n)
{
    if (n <= 1)
        return 0;
    w->ops = PyMem_Calloc(n, sizeof(hvd_request *));
    w->left = (int)n;
    if (w->ops)
        return 0;
    w->ops = &w->one;
    PyErr_NoMemory();
    return -1;
}

void *work_alloc(void *arg, size_t member, size_t count,
                 const size_t *recvcounts)
{
    struct gathered *a = (struct gathered *)arg + member;

    (void)recvcounts; /* libhvd writes them to a->counts too */
    a->block = block_new(count, a->dtype);
    return a->block ? a->block->data : NULL;
}

int work_add_gathered(struct work *w, size_t n, int process_set)
{
    int members = hvd_process_set_size(process_set);
    size_t *counts;

    if (members < 0) {
        raise_status(members);
        return -1;
    }
    w->members = members;
    counts = PyMem_Calloc(n * (size_t)members + 1, sizeof(*counts));
    w->gathered = PyMem_Calloc(n, sizeof(*w->gathered));
    if (!counts || !w->gathered) {
        PyMem_Free(counts);
        PyErr_NoMemory();
        return -1;
    }
    w->ngathered = n;
    for (size_t i = 0; i < n; i++) {
        w->gathered[i].counts = counts + i * (size_t)members;
        w->gathered[i].index = i;
    }
    return 0;
}

/* ---- Waiting ------------------------------------------------------------ */

int work_test(struct work *w)
{
    int rc;

    if (w->finished)
        return 1;
    if (in_child(w))
        rc = -HVD_ENOTINIT;
    else if (w->busy) /* a request is for one thread at a time */
        return !w->streamed && w->left == 0;
    else
        rc = all_done(w);
    if (rc < 0) {
        raise_status(rc);
        return -1;
    }
    if (rc == 1)
        finish(w);
    return rc;
}

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits in libhvd until all `works` are done or `until` has passed.  Without
 * the GIL. */
static void wait_in_library(struct work *const *works, size_t n, int64_t until)
{
    for (size_t i = 0; i < n; i++) {
        const struct work *w = works[i];

        for (int k = 0; !w->finished && k < w->nops; k++) {
            int64_t left = until - now_ms();
            int done = 0;

            if (hvd_wait_for(w->ops[k], left > 0 ? (int)left : 0, &done) < 0 ||
                !done)
                return;
        }
    }
}

/* Waits, without the GIL, for the works that no other thread waits for.  If
 * another thread waits for the first one, waits only a moment, in which that
 * thread may end it. */
static void wait_without_gil(struct work *const *works, size_t n, int64_t until)
{
    static const struct timespec moment = {0, 200000};
    PyThreadState *state;
    size_t own = 0;

    for (; own < n && !works[own]->busy; own++)
        works[own]->busy = true;
    state = PyEval_SaveThread();
    if (own)
        wait_in_library(works, own, until);
    else
        nanosleep(&moment, NULL);
    PyEval_RestoreThread(state);
    for (size_t i = 0; i < own; i++)
        works[i]->busy = false;
}

/* Ends what is done, but for those that another thread waits for,
 * which ends them itself.  Returns how many at the beginning have ended, or -1
 * with an exception. */
static Py_ssize_t end_all(struct work *const *works, size_t n)
{
    Py_ssize_t ended = 0;

    for (size_t i = 0; i < n; i++) {
        int rc = work_test(works[i]);

        if (rc < 0)
            return -1;
        if (works[i]->finished && ended == (Py_ssize_t)i)
            ended++;
    }
    return ended;
}

int works_wait(struct work *const *works, size_t n, int64_t timeout_ms)
{
    int64_t end = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;

    for (;;) {
        Py_ssize_t ended = end_all(works, n);
        int64_t now;

        if (ended < 0)
            return -1;
        if ((size_t)ended == n) {
            works_reap(false);
            return 1;
        }
        now = now_ms();
        if (now >= end)
            return 0;
        wait_without_gil(works + ended, n - (size_t)ended,
                         end - now > SIGNAL_MS ? now + SIGNAL_MS : end);
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
}

/* ---- Results ------------------------------------------------------------ */

/* Makes the tuple of rows that each rank sent. */
static PyObject *make_rows(const struct gathered *a, int members)
{
    PyObject *rows = PyTuple_New(members);

    for (int i = 0; rows && i < members; i++) {
        size_t elems = a->row_elems ? a->row_elems : 1;
        PyObject *n = PyLong_FromSize_t(a->counts[i] / elems);

        if (!n)
            Py_CLEAR(rows);
        else
            PyTuple_SetItem(rows, i, n);
    }
    return rows;
}

/* Makes (Buffer, rows) of what one member gathered, whose block the Buffer
 * takes. */
static PyObject *make_gathered(struct gathered *a, int members)
{
    size_t elems = a->row_elems ? a->row_elems : 1;
    PyObject *rows = make_rows(a, members);
    PyObject *buffer = NULL;
    PyObject *pair = NULL;

    if (rows && !a->block)
        a->block = block_new(0, a->dtype);
    if (rows && !a->block)
        PyErr_NoMemory();
    if (rows && a->block) {
        block_set_shape(a->block, (int64_t)(a->block->count / elems), a->ndim,
                        a->dims);
        buffer = buffer_new(a->block);
        a->block = NULL;
    }
    if (buffer)
        pair = PyTuple_New(2);
    if (!pair) {
        Py_XDECREF(rows);
        Py_XDECREF(buffer);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, buffer);
    PyTuple_SetItem(pair, 1, rows);
    return pair;
}

static PyObject *make_list(struct work *w)
{
    PyObject *list = PyList_New((Py_ssize_t)w->ngathered);

    for (size_t i = 0; list && i < w->ngathered; i++) {
        PyObject *pair = make_gathered(&w->gathered[i], w->members);

        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)w->gathered[i].index, pair);
    }
    return list;
}

/* Makes the result of work that succeeded, new. */
static PyObject *make_result(struct work *w)
{
    switch (w->kind) {
    case RESULT_GATHER:
        return make_gathered(&w->gathered[0], w->members);
    case RESULT_GATHERS:
        return make_list(w);
    case RESULT_RANK:
        return PyLong_FromLong(w->last_rank);
    default:
        return Py_NewRef(Py_None);
    }
}

PyObject *work_result(struct work *w)
{
    if (w->status < 0)
        return raise_text(w->status, w->text);
    if (!w->result) {
        w->result = make_result(w);
        free_gathered(w);
    }
    if (!w->result) { /* what arrived is lost */
        w->status = -HVD_ENOMEM;
        return NULL;
    }
    return Py_NewRef(w->result);
}
