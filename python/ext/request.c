/* SPDX-License-Identifier: Apache-2.0 */
/* The type Request: an operation that was issued. */
#include "python/ext/ext.h"

#include <math.h>

struct request {
    PyObject_HEAD struct flight *flight;
};

static PyTypeObject *request_type;

PyObject *request_new(struct flight *f)
{
    struct request *self = PyObject_GC_New(struct request, request_type);

    if (!self) {
        flight_drop(f);
        return NULL;
    }
    self->flight = f;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static struct flight *flight_of(PyObject *self)
{
    return ((struct request *)self)->flight;
}

static void request_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    flight_drop(flight_of(self));
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Shows the garbage collector the result of what is done.  What is under way
 * is shown as used from elsewhere, as it is. */
static int request_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    if (flight_of(self)->finished)
        Py_VISIT(flight_of(self)->result);
    return 0;
}

static int request_clear(PyObject *self)
{
    struct flight *f = flight_of(self);

    if (f->finished && f->result) {
        PyObject *result = f->result;

        f->result = Py_NewRef(Py_None);
        Py_DECREF(result);
    }
    return 0;
}

/* ---- Methods ------------------------------------------------------------- */

static PyObject *request_test(PyObject *self, PyObject *unused)
{
    int rc = flight_test(flight_of(self));

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

/* Waits for flights; 0, or -1 with an exception. */
static int wait_for(struct flight *const *flights, size_t n, int64_t timeout)
{
    int rc = flights_wait(flights, n, timeout);

    if (rc == 0)
        PyErr_SetString(PyExc_TimeoutError,
                        "the operation was not done within the timeout");
    return rc == 1 ? 0 : -1;
}

static PyObject *request_wait(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("wait", 0, "timeout");
    struct flight *f = flight_of(self);
    PyObject *v[PARAMS_MAX];
    int64_t timeout;

    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        read_timeout(v[0], &timeout) < 0)
        return NULL;
    if (wait_for(&f, 1, timeout) < 0)
        return NULL;
    return flight_result(f);
}

static PyObject *request_result(PyObject *self, PyObject *unused)
{
    struct flight *f = flight_of(self);
    int rc = flight_test(f);

    (void)unused;
    if (rc == 0)
        PyErr_SetString(PyExc_ValueError, "the operation is not done: wait()");
    if (rc < 1 || wait_for(&f, 1, -1) < 0)
        return NULL;
    return flight_result(f);
}

static PyObject *request_add_done_callback(PyObject *self, PyObject *fn)
{
    struct flight *f = flight_of(self);
    int rc;

    if (!PyCallable_Check(fn)) {
        PyErr_SetString(PyExc_TypeError, "fn cannot be called");
        return NULL;
    }
    rc = flight_test(f);
    if (rc < 0)
        return NULL;
    if (rc == 0) {
        if (flight_watch(f, self, fn) < 0)
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

/* Collects the flights of a tuple of Requests into an array for PyMem_Free. */
static struct flight **collect(PyObject *requests)
{
    Py_ssize_t n = PyTuple_Size(requests);
    struct flight **flights = PyMem_Malloc((size_t)n * sizeof(*flights) + 1);

    if (!flights) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *r = PyTuple_GetItem(requests, i);

        if (Py_TYPE(r) != request_type) {
            PyErr_SetString(PyExc_TypeError, "requests: not all are Request");
            PyMem_Free(flights);
            return NULL;
        }
        flights[i] = flight_of(r);
    }
    return flights;
}

/* Makes the list of results, or raises the first failure. */
static PyObject *results_of(struct flight *const *flights, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);

    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *result = flight_result(flights[i]);

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
    struct flight **flights;
    int64_t timeout;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        read_timeout(v[1], &timeout) < 0)
        return NULL;
    requests = PySequence_Tuple(v[0]);
    flights = requests ? collect(requests) : NULL;
    if (flights &&
        wait_for(flights, (size_t)PyTuple_Size(requests), timeout) == 0)
        list = results_of(flights, PyTuple_Size(requests));
    PyMem_Free(flights);
    Py_XDECREF(requests);
    return list;
}
