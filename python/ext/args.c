/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the arguments of calls, and turns statuses into exceptions. */
#include "python/ext/ext.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- Arguments ---------------------------------------------------------- */

/* Interns the names of a signature.  Returns 0, or -1 with MemoryError. */
static int prepare(struct signature *s)
{
    int n = 0;

    for (; n < PARAMS_MAX && s->names[n]; n++) {
        if (!s->keys[n])
            s->keys[n] = PyUnicode_InternFromString(s->names[n]);
        if (!s->keys[n])
            return -1;
    }
    s->count = n;
    return 0;
}

/* Returns the place of a keyword, or -1 with TypeError. */
static int find_key(const struct signature *s, PyObject *key)
{
    for (int i = 0; i < s->count; i++)
        if (s->keys[i] == key)
            return i;
    for (int i = 0; i < s->count; i++)
        if (PyUnicode_Compare(s->keys[i], key) == 0)
            return i;
    PyErr_Format(PyExc_TypeError, "%s() has no parameter '%U'", s->function,
                 key);
    return -1;
}

int args_read(struct signature *s, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, PyObject *out[PARAMS_MAX])
{
    Py_ssize_t nkeys = kwnames ? PyTuple_Size(kwnames) : 0;

    if (!s->count && prepare(s) < 0)
        return -1;
    if (nargs > s->count) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d arguments, %zd given",
                     s->function, s->count, nargs);
        return -1;
    }
    for (int i = 0; i < s->count; i++)
        out[i] = i < nargs ? args[i] : NULL;
    for (Py_ssize_t k = 0; k < nkeys; k++) {
        int i = find_key(s, PyTuple_GetItem(kwnames, k));

        if (i < 0)
            return -1;
        if (out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() got '%s' twice", s->function,
                         s->names[i]);
            return -1;
        }
        out[i] = args[nargs + k];
    }
    for (int i = 0; i < s->required; i++) {
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() needs '%s'", s->function,
                         s->names[i]);
            return -1;
        }
    }
    return 0;
}

int arg_int(PyObject *v, const char *what, int *out)
{
    int overflow;
    PyObject *number;
    long x;

    if (!v)
        return 0;
    if (!PyIndex_Check(v)) {
        PyErr_Format(PyExc_TypeError, "%s is not an integer", what);
        return -1;
    }
    number = PyNumber_Index(v);
    if (!number)
        return -1;
    x = PyLong_AsLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow || x < INT_MIN || x > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%s is out of range", what);
        return -1;
    }
    *out = (int)x;
    return 0;
}

int arg_double(PyObject *v, const char *what, double *out)
{
    double x;

    if (!v)
        return 0;
    x = PyFloat_AsDouble(v);
    if (x == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is not a number", what);
        return -1;
    }
    *out = x;
    return 0;
}

Py_ssize_t arg_ranks(PyObject *v, int **out)
{
    PyObject *list = PySequence_Tuple(v);
    Py_ssize_t n = list ? PyTuple_Size(list) : -1;
    int *ranks = NULL;

    if (n < 0)
        return -1;
    ranks = PyMem_Malloc((size_t)n * sizeof(*ranks) + 1);
    if (!ranks) {
        Py_DECREF(list);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (arg_int(PyTuple_GetItem(list, i), "a rank", &ranks[i]) < 0) {
            PyMem_Free(ranks);
            Py_DECREF(list);
            return -1;
        }
    }
    Py_DECREF(list);
    *out = ranks;
    return n;
}

/* Shortens a name: its beginning, '#', and a hash of the whole. */
static void shorten(const char *name, size_t len, char out[NAME_MAX_BYTES + 1])
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    int keep = 200;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    while ((name[keep] & 0xc0) == 0x80) /* whole characters of UTF-8 */
        keep--;
    snprintf(out, NAME_MAX_BYTES + 1, "%.*s#%016llx", keep, name,
             (unsigned long long)hash);
}

static int read_name(PyObject *v, struct common *c)
{
    const char *name;
    Py_ssize_t len;

    if (!PyUnicode_Check(v)) {
        PyErr_SetString(PyExc_TypeError, "name is not a str");
        return -1;
    }
    name = PyUnicode_AsUTF8AndSize(v, &len);
    if (!name)
        return -1;
    if (strlen(name) != (size_t)len) {
        PyErr_SetString(PyExc_ValueError, "name contains a null character");
        return -1;
    }
    if (len > NAME_MAX_BYTES) {
        shorten(name, (size_t)len, c->shortened);
        name = c->shortened;
    }
    c->name = name;
    return 0;
}

static int read_stream(PyObject *v, struct hvd_options *opts)
{
    void *stream = PyLong_AsVoidPtr(v);

    if (!stream && PyErr_Occurred())
        return -1;
    /* CUDA's default stream is 0 in Python; NULL would make the host wait. */
    opts->stream = stream ? stream : (void *)(uintptr_t)1;
    return 0;
}

int common_read(PyObject *const *v, struct common *c)
{
    static const struct hvd_options defaults = HVD_OPTIONS_INIT;

    c->opts = defaults;
    c->name = NULL;
    if (v[0] && v[0] != Py_None && read_name(v[0], c) < 0)
        return -1;
    if (v[1] && arg_int(v[1], "process_set", &c->opts.process_set) < 0)
        return -1;
    if (v[2] && arg_int(v[2], "priority", &c->opts.priority) < 0)
        return -1;
    if (v[3] && v[3] != Py_None && read_stream(v[3], &c->opts) < 0)
        return -1;
    return 0;
}

/* ---- Errors ------------------------------------------------------------- */

/* Returns hvd.exceptions.HorovodInternalError, borrowed. */
static PyObject *internal_error(void)
{
    static PyObject *cls;
    PyObject *module;

    if (cls)
        return cls;
    module = PyImport_ImportModule("hvd.exceptions");
    if (!module)
        return NULL;
    cls = PyObject_GetAttrString(module, "HorovodInternalError");
    Py_DECREF(module);
    return cls;
}

/* Tells whether a status says that the program made a mistake. */
static bool is_usage(int status)
{
    switch (-status) {
    case HVD_EINVAL:
    case HVD_EDUPNAME:
    case HVD_EEXIST:
    case HVD_ENOSET:
    case HVD_ENOTMEMBER:
    case HVD_ENOTINIT:
        return true;
    default:
        return false;
    }
}

static PyObject *raise_not_initialized(void)
{
    PyErr_SetString(
        PyExc_ValueError,
        init_generation && init_generation != fork_generation
            ? "a forked child cannot use hvd; start a new process instead"
            : "hvd has not been initialized; use hvd.init()");
    return NULL;
}

PyObject *raise_text(int status, PyObject *text)
{
    PyObject *cls, *exc, *code;

    if (status == -HVD_ENOTINIT)
        return raise_not_initialized();
    if (!text)
        return PyErr_NoMemory();
    if (is_usage(status)) {
        PyErr_SetObject(PyExc_ValueError, text);
        return NULL;
    }
    cls = internal_error();
    if (!cls)
        return NULL;
    exc = PyObject_CallFunctionObjArgs(cls, text, NULL);
    code = exc ? PyLong_FromLong(-status) : NULL;
    if (code && PyObject_SetAttrString(exc, "status", code) == 0)
        PyErr_SetObject(cls, exc);
    Py_XDECREF(code);
    Py_XDECREF(exc);
    return NULL;
}

PyObject *status_text(int status)
{
    const char *message = hvd_error_message();
    PyObject *text;

    if (!message[0])
        message = hvd_status_text(status);
    text =
        PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    if (!text)
        PyErr_Clear();
    return text;
}

PyObject *raise_status(int status)
{
    PyObject *text = status_text(status);

    raise_text(status, text);
    Py_XDECREF(text);
    return NULL;
}
