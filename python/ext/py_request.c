/* SPDX-License-Identifier: Apache-2.0 */
/* The type Request: an operation that was issued. */
#include "python/ext/ext.h"

#include <math.h>

struct request {
    PyObject_HEAD struct work *work;
};

static PyTypeObject *request_type;

PyObject *request_new(void)
{
    struct request *self = PyObject_GC_New(struct request, request_type);

    if (self)
        self->work = NULL;
    return (PyObject *)self;
}

void request_set(PyObject *request, struct work *w)
{
    ((struct request *)request)->work = w;
    PyObject_GC_Track(request);
}

static struct work *work_of(PyObject *self)
{
    return ((struct request *)self)->work;
}

static void request_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    work_drop(work_of(self));
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Shows the garbage collector the result of finished work.  It does not see
 * what unfinished work refers to, so it takes that as used from elsewhere: the
 * operations do use it. */
static int request_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    if (work_of(self)->finished)
        Py_VISIT(work_of(self)->result);
    return 0;
}

static int request_clear(PyObject *self)
{
    struct work *w = work_of(self);

    if (w->finished && w->result) {
        PyObject *result = w->result;

        w->result = Py_NewRef(Py_None);
        Py_DECREF(result);
    }
    return 0;
}

/* ---- Methods ------------------------------------------------------------- */

static PyObject *request_test(PyObject *self, PyObject *unused)
{
    int rc = work_test(work_of(self));

    (void)unused;
    return rc < 0 ? NULL : PyBool_FromLong(rc);
}

/* Reads seconds into milliseconds, rounded up; None and NULL are -1.  Returns
 * 0, or -1 with an exception. */
static int read_timeout(PyObject *v, int64_t *out)
{
    double s = -1;

    *out = -1;
    if (!v || v == Py_None)
        return 0;
    if (arg_double(v, "timeout", &s) < 0)
        return -1;
    if (!(s >= 0)) {
        PyErr_SetString(PyExc_ValueError, "timeout is negative");
        return -1;
    }
    *out = s > 1e9 ? -1 : (int64_t)ceil(s * 1000);
    return 0;
}

/* Waits for n works; 0, or -1 with an exception. */
static int wait_for(struct work *const *works, size_t n, int64_t timeout)
{
    int rc = works_wait(works, n, timeout);

    if (rc == 0)
        PyErr_SetString(PyExc_TimeoutError,
                        "the operation was not done within the timeout");
    return rc == 1 ? 0 : -1;
}

static PyObject *request_wait(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("wait", 0, "timeout");
    struct work *w = work_of(self);
    PyObject *v[PARAMS_MAX];
    int64_t timeout;

    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        read_timeout(v[0], &timeout) < 0)
        return NULL;
    if (wait_for(&w, 1, timeout) < 0)
        return NULL;
    return work_result(w);
}

static PyObject *request_result(PyObject *self, PyObject *unused)
{
    struct work *w = work_of(self);
    int rc = work_test(w);

    (void)unused;
    if (rc == 0)
        PyErr_SetString(PyExc_ValueError, "the operation is not done: wait()");
    if (rc < 1 || wait_for(&w, 1, -1) < 0)
        return NULL;
    return work_result(w);
}

static PyObject *request_add_done_callback(PyObject *self, PyObject *fn)
{
    struct work *w = work_of(self);
    int rc;

    if (!PyCallable_Check(fn)) {
        PyErr_SetString(PyExc_TypeError, "fn cannot be called");
        return NULL;
    }
    rc = work_test(w);
    if (rc < 0)
        return NULL;
    if (rc == 0) {
        if (work_watch(w, self, fn) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    fn = PyObject_CallFunctionObjArgs(fn, self, NULL);
    if (!fn)
        return NULL;
    Py_DECREF(fn);
    Py_RETURN_NONE;
}

static PyMethodDef request_methods[] = {
    {"test", request_test, METH_NOARGS,
     "test()\n--\n\n"
     "Tell whether the operation is done, without blocking."},
    FAST_METHOD("wait", request_wait,
                "wait(timeout=None)\n--\n\n"
                "Wait until the operation is done and return its result.\n\n"
                "timeout is in seconds; TimeoutError when it is over. May be\n"
                "called again, with the same result or error."),
    {"result", request_result, METH_NOARGS,
     "result()\n--\n\n"
     "Return the result of an operation that is done."},
    {"add_done_callback", request_add_done_callback, METH_O,
     "add_done_callback(fn)\n--\n\n"
     "Have fn(request) called when the operation is done: by a thread of hvd,\n"
     "or at once if it is done already."},
    {0},
};

static PyType_Slot request_slots[] = {
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},
    {Py_tp_methods, request_methods},
    {Py_tp_doc,
     "An operation that was issued. It holds its tensors until it is done,\n"
     "also if the Request is dropped."},
    {0, NULL},
};

static PyType_Spec request_spec = {
    .name = "hvd._hvd.Request",
    .basicsize = sizeof(struct request),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = request_slots,
};

int request_type_init(PyObject *module)
{
    request_type = (PyTypeObject *)PyType_FromSpec(&request_spec);
    return request_type ? PyModule_AddObjectRef(module, "Request",
                                                (PyObject *)request_type)
                        : -1;
}

/* ---- wait_all ------------------------------------------------------------ */

/* Collects the work of a tuple of Requests into an array for PyMem_Free. */
static struct work **collect(PyObject *requests)
{
    Py_ssize_t n = PyTuple_Size(requests);
    struct work **works = PyMem_Malloc((size_t)n * sizeof(struct work *) + 1);

    if (!works) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *r = PyTuple_GetItem(requests, i);

        if (Py_TYPE(r) != request_type) {
            PyErr_SetString(PyExc_TypeError, "requests: not all are Request");
            PyMem_Free(works);
            return NULL;
        }
        works[i] = work_of(r);
    }
    return works;
}

/* Makes the list of results, or raises the first failure. */
static PyObject *results_of(struct work *const *works, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);

    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *result = work_result(works[i]);

        if (!result)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, result);
    }
    return list;
}

PyObject *request_wait_all(PyObject *self, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("wait_all", 1, "requests", "timeout");
    PyObject *v[PARAMS_MAX], *requests, *list = NULL;
    struct work **works;
    int64_t timeout;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        read_timeout(v[1], &timeout) < 0)
        return NULL;
    requests = PySequence_Tuple(v[0]);
    works = requests ? collect(requests) : NULL;
    if (works && wait_for(works, (size_t)PyTuple_Size(requests), timeout) == 0)
        list = results_of(works, PyTuple_Size(requests));
    PyMem_Free(works);
    Py_XDECREF(requests);
    return list;
}
