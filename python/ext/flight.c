/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that were issued: what they hold until they are done, how Python
 * waits for them, and how they end.
 *
 * A flight is ended by hvd_wait for each of its operations, which frees
 * libhvd's requests.  libhvd allows one thread at a time per request: `busy`
 * says that one is in libhvd without the GIL.
 */
#include "python/ext/ext.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Python looks for signals this often. */
enum { SIGNAL_MS = 100 };

static struct flight *unused;
static int nunused;
enum { UNUSED_MAX = 64 };

/* Operations whose Request was dropped, oldest first. */
static struct flight *dropped, **dropped_end = &dropped;

/* ---- Making and freeing ------------------------------------------------- */

struct flight *flight_new(void)
{
    struct flight *f = unused;

    if (f) {
        unused = f->next;
        nunused--;
        memset(f, 0, sizeof(*f));
    } else {
        f = PyMem_Calloc(1, sizeof(*f));
        if (!f) {
            PyErr_NoMemory();
            return NULL;
        }
    }
    f->ops = &f->one;
    f->left = 1;
    f->generation = fork_generation;
    return f;
}

static void free_arrivals(struct flight *f)
{
    for (size_t i = 0; i < f->narrivals; i++)
        block_unref(f->arrivals[i].block);
    if (f->narrivals)
        PyMem_Free(f->arrivals[0].counts);
    PyMem_Free(f->arrivals);
    f->arrivals = NULL;
    f->narrivals = 0;
}

/* Lets go of the tensors. */
static void release(struct flight *f)
{
    struct hold *holds = f->holds;

    f->holds = NULL;
    holds_release(holds);
    Py_CLEAR(f->refs[0]);
    Py_CLEAR(f->refs[1]);
}

/* Frees a flight that has no operation under way. */
static void flight_free(struct flight *f)
{
    release(f);
    free_arrivals(f);
    Py_CLEAR(f->result);
    Py_CLEAR(f->text);
    if (f->ops != &f->one)
        PyMem_Free(f->ops);
    if (nunused < UNUSED_MAX) {
        f->next = unused;
        unused = f;
        nunused++;
    } else {
        PyMem_Free(f);
    }
}

/* Ends the operations, which are all done. */
static void finish(struct flight *f)
{
    for (int i = 0; i < f->nops; i++) {
        int rc = hvd_wait(f->ops[i]);

        if (rc < 0 && f->status == 0) {
            f->status = rc;
            f->text = status_text(rc);
        }
    }
    f->finished = true;
    release(f);
}

/* Tells whether every operation is done: 1, 0, or a negative status. */
static int all_done(const struct flight *f)
{
    for (int i = 0; i < f->nops; i++) {
        int done = 0;
        int rc = hvd_test(f->ops[i], &done);

        if (rc < 0 || !done)
            return rc;
    }
    return 1;
}

static bool in_child(const struct flight *f)
{
    return f->generation != fork_generation;
}

void flight_drop(struct flight *f)
{
    if (!f)
        return;
    if (f->finished || f->nops == 0) {
        flight_free(f);
        return;
    }
    if (in_child(f)) /* the parent's memory may still be in use */
        return;
    f->next = NULL;
    *dropped_end = f;
    dropped_end = &f->next;
}

/* Takes the oldest dropped flight off the list. */
static struct flight *take_dropped(void)
{
    struct flight *f = dropped;

    dropped = f->next;
    if (!dropped)
        dropped_end = &dropped;
    return f;
}

void flights_reap(bool all)
{
    for (int i = 0; (all || i < 4) && dropped; i++) {
        struct flight *f;

        if (!in_child(dropped) && all_done(dropped) != 1)
            return;
        f = take_dropped(); /* before anything is freed, which may run Python */
        if (in_child(f))    /* the parent's memory may still be in use */
            continue;
        finish(f);
        flight_free(f);
    }
}

void flight_attach(struct flight *f, struct hvd_options *opts)
{
    opts->done = flight_done;
    opts->done_arg = f;
    f->streamed = opts->stream;
}

void flight_keep(struct flight *f, int i, PyObject *obj)
{
    f->refs[i] = Py_NewRef(obj);
}

int flight_reserve(struct flight *f, size_t n)
{
    if (n <= 1)
        return 0;
    f->ops = PyMem_Calloc(n, sizeof(*f->ops));
    f->left = (int)n;
    if (f->ops)
        return 0;
    f->ops = &f->one;
    PyErr_NoMemory();
    return -1;
}

void *flight_alloc(void *arg, size_t member, size_t count,
                   const size_t *recvcounts)
{
    struct arrival *a = (struct arrival *)arg + member;

    (void)recvcounts; /* libhvd writes them to a->counts too */
    a->block = block_new(count, a->dtype);
    return a->block ? a->block->data : NULL;
}

int flight_add_arrivals(struct flight *f, size_t n, int process_set)
{
    int members = hvd_process_set_size(process_set);
    size_t *counts;

    if (members < 0) {
        raise_status(members);
        return -1;
    }
    f->members = members;
    counts = PyMem_Calloc(n * (size_t)members + 1, sizeof(*counts));
    f->arrivals = PyMem_Calloc(n, sizeof(*f->arrivals));
    if (!counts || !f->arrivals) {
        PyMem_Free(counts);
        PyErr_NoMemory();
        return -1;
    }
    f->narrivals = n;
    for (size_t i = 0; i < n; i++) {
        f->arrivals[i].counts = counts + i * (size_t)members;
        f->arrivals[i].place = i;
    }
    return 0;
}

/* ---- Waiting ------------------------------------------------------------ */

int flight_test(struct flight *f)
{
    int rc;

    if (f->finished)
        return 1;
    if (in_child(f))
        rc = -HVD_ENOTINIT;
    else if (f->busy) /* a request is for one thread at a time */
        return !f->streamed && f->left == 0;
    else
        rc = all_done(f);
    if (rc < 0) {
        raise_status(rc);
        return -1;
    }
    if (rc == 1)
        finish(f);
    return rc;
}

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits in libhvd until the flights are done or `until` has passed.  Without
 * the GIL. */
static void wait_in_library(struct flight *const *flights, size_t n,
                            int64_t until)
{
    for (size_t i = 0; i < n; i++) {
        const struct flight *f = flights[i];

        for (int k = 0; !f->finished && k < f->nops; k++) {
            int64_t left = until - now_ms();
            int done = 0;

            if (hvd_wait_for(f->ops[k], left > 0 ? (int)left : 0, &done) < 0 ||
                !done)
                return;
        }
    }
}

/* Waits without the GIL for flights that no other thread waits for; or, if one
 * waits for the first, a moment, for it to end that one. */
static void wait_without_gil(struct flight *const *flights, size_t n,
                             int64_t until)
{
    static const struct timespec moment = {0, 200000};
    PyThreadState *state;
    size_t own = 0;

    for (; own < n && !flights[own]->busy; own++)
        flights[own]->busy = true;
    state = PyEval_SaveThread();
    if (own)
        wait_in_library(flights, own, until);
    else
        nanosleep(&moment, NULL);
    PyEval_RestoreThread(state);
    for (size_t i = 0; i < own; i++)
        flights[i]->busy = false;
}

/* Ends the flights that are done, but for those that another thread waits for,
 * which ends them itself.  Returns how many at the beginning have ended, or -1
 * with an exception. */
static Py_ssize_t end_all(struct flight *const *flights, size_t n)
{
    Py_ssize_t ended = 0;

    for (size_t i = 0; i < n; i++) {
        int rc = flight_test(flights[i]);

        if (rc < 0)
            return -1;
        if (flights[i]->finished && ended == (Py_ssize_t)i)
            ended++;
    }
    return ended;
}

int flights_wait(struct flight *const *flights, size_t n, int64_t timeout_ms)
{
    int64_t end = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;

    for (;;) {
        Py_ssize_t ended = end_all(flights, n);
        int64_t now;

        if (ended < 0)
            return -1;
        if ((size_t)ended == n) {
            flights_reap(false);
            return 1;
        }
        now = now_ms();
        if (now >= end)
            return 0;
        wait_without_gil(flights + ended, n - (size_t)ended,
                         end - now > SIGNAL_MS ? now + SIGNAL_MS : end);
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
}

/* ---- Results ------------------------------------------------------------ */

/* Makes the tuple of rows that each rank sent. */
static PyObject *make_rows(const struct arrival *a, int members)
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

/* Makes (Buffer, rows) of an arrival, whose block the Buffer takes. */
static PyObject *make_gathered(struct arrival *a, int members)
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

static PyObject *make_list(struct flight *f)
{
    PyObject *list = PyList_New((Py_ssize_t)f->narrivals);

    for (size_t i = 0; list && i < f->narrivals; i++) {
        PyObject *pair = make_gathered(&f->arrivals[i], f->members);

        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)f->arrivals[i].place, pair);
    }
    return list;
}

/* Makes the result of a flight that succeeded, new. */
static PyObject *make_result(struct flight *f)
{
    switch (f->kind) {
    case RESULT_GATHER:
        return make_gathered(&f->arrivals[0], f->members);
    case RESULT_GATHERS:
        return make_list(f);
    case RESULT_RANK:
        return PyLong_FromLong(f->last_rank);
    default:
        return Py_NewRef(Py_None);
    }
}

PyObject *flight_result(struct flight *f)
{
    if (f->status < 0)
        return raise_text(f->status, f->text);
    if (!f->result) {
        f->result = make_result(f);
        free_arrivals(f);
    }
    if (!f->result) { /* what arrived is lost */
        f->status = -HVD_ENOMEM;
        return NULL;
    }
    return Py_NewRef(f->result);
}
