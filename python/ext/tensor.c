/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the memory, dtype and shape of a tensor, without the headers of any
 * array library:
 *   attributes  data_ptr(), dtype, shape: torch.Tensor
 *   buffer      the buffer protocol: numpy, memoryview, array, bytes
 *   dlpack      __dlpack__(): jax, cupy, tensorflow and others
 * The way is found once per type.
 */
#include "python/ext/dlpack.h"
#include "python/ext/ext.h"

#include <stdlib.h>
#include <string.h>

/* ---- What is held ------------------------------------------------------- */

struct hold {
    struct hold *next;
    struct dl_managed *dl; /* or NULL: view is set */
    Py_buffer view;
};

void holds_release(struct hold *h)
{
    while (h) {
        struct hold *next = h->next;

        if (h->dl) {
            if (h->dl->deleter)
                h->dl->deleter(h->dl);
        } else {
            PyBuffer_Release(&h->view);
        }
        PyMem_Free(h);
        h = next;
    }
}

static struct hold *hold_new(void)
{
    struct hold *h = PyMem_Calloc(1, sizeof(*h));

    if (!h)
        PyErr_NoMemory();
    return h;
}

/* ---- Shapes ------------------------------------------------------------- */

/* Computes count, and from strides whether the tensor is row-major.  Returns 0,
 * or -1 with ValueError. */
static int finish_shape(struct tensor *t, const char *what)
{
    int64_t expected = 1;

    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dims[i] < 0 ||
            __builtin_mul_overflow(expected, t->dims[i], &expected)) {
            PyErr_Format(PyExc_ValueError, "%s: its shape is too large", what);
            return -1;
        }
    }
    t->count = (size_t)expected;
    if (t->c_order || t->count <= 1) {
        t->c_order = true;
        return 0;
    }
    t->c_order = true;
    expected = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != expected)
            t->c_order = false;
        expected *= t->dims[i];
    }
    return 0;
}

static int too_many_dims(const char *what)
{
    PyErr_Format(PyExc_ValueError, "%s has more than %d dimensions", what,
                 NDIM_MAX);
    return -1;
}

int tensor_demand_c_order(const struct tensor *t, const char *what)
{
    if (t->c_order)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is not contiguous (row-major)", what);
    return -1;
}

/* Tells whether the elements fill a range of memory, each once. */
static bool is_dense(const struct tensor *t)
{
    bool used[NDIM_MAX] = {false};
    int64_t expected = 1;

    for (int n = 0; n < t->ndim; n++) {
        int found = -1;

        for (int i = 0; i < t->ndim && found < 0; i++)
            if (!used[i] && (t->dims[i] == 1 || t->strides[i] == expected))
                found = i;
        if (found < 0)
            return false;
        used[found] = true;
        expected *= t->dims[found];
    }
    return true;
}

int tensor_demand_alike(const struct tensor *send, const struct tensor *recv)
{
    if (send->count != recv->count || send->dtype != recv->dtype) {
        PyErr_Format(PyExc_ValueError,
                     "send has %zu elements of %s, recv %zu of %s", send->count,
                     hvd_dtype_name((enum hvd_dtype)send->dtype), recv->count,
                     hvd_dtype_name((enum hvd_dtype)recv->dtype));
        return -1;
    }
    if (send->c_order && recv->c_order)
        return 0;
    if (send->c_order != recv->c_order || send->ndim != recv->ndim) {
        PyErr_SetString(PyExc_ValueError,
                        "send and recv are not laid out alike in memory");
        return -1;
    }
    for (int i = 0; i < send->ndim; i++) {
        if (send->dims[i] != recv->dims[i] ||
            (send->dims[i] != 1 && send->strides[i] != recv->strides[i])) {
            PyErr_SetString(PyExc_ValueError,
                            "send and recv are not laid out alike in memory");
            return -1;
        }
    }
    if (is_dense(send))
        return 0;
    PyErr_SetString(PyExc_ValueError,
                    "the tensor has gaps in memory; make it contiguous first");
    return -1;
}

/* Writes the order of the dimensions in memory, the largest stride first.
 * Returns a number that tells this order from the others. */
static int memory_order(const struct tensor *t, int order[NDIM_MAX])
{
    int code = 0;

    for (int i = 0; i < t->ndim; i++) {
        int at = i;

        for (; at > 0 && t->strides[order[at - 1]] < t->strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        code = (code * (i + 1) + i - at) % 1000003;
    }
    return code;
}

void tensor_shape(const struct tensor *t, int64_t dims[NDIM_MAX],
                  struct hvd_shape *shape)
{
    int order[NDIM_MAX], code, ones;

    shape->ndim = t->ndim;
    shape->dims = t->dims;
    if (t->c_order || t->ndim == NDIM_MAX)
        return;
    code = memory_order(t, order);
    ones = 1 + code % (NDIM_MAX - t->ndim);
    for (int i = 0; i < t->ndim; i++)
        dims[i] = t->dims[order[i]];
    for (int i = 0; i < ones; i++)
        dims[t->ndim + i] = 1;
    shape->ndim = t->ndim + ones;
    shape->dims = dims;
}

size_t tensor_row_elems(const struct tensor *t)
{
    size_t n = 1;

    for (int i = 1; i < t->ndim; i++)
        n *= (size_t)t->dims[i];
    return n;
}

/* ---- Attributes --------------------------------------------------------- */

static PyObject *s_data_ptr, *s_dtype, *s_shape, *s_is_contiguous, *s_stride,
    *s_is_cpu, *s_is_cuda, *s_dlpack;

/* Returns 1 or 0 as an attribute is true, or -1 with an exception. */
static int flag(PyObject *obj, PyObject *name)
{
    PyObject *v = PyObject_GetAttr(obj, name);
    int yes = v ? PyObject_IsTrue(v) : -1;

    Py_XDECREF(v);
    return yes;
}

/* Reads a tuple of numbers.  Returns how many, or -1 with an exception. */
static int read_numbers(PyObject *tuple, const char *what, int64_t *out)
{
    Py_ssize_t n = PyTuple_Size(tuple);

    if (n < 0)
        return -1;
    if (n > NDIM_MAX)
        return too_many_dims(what);
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = PyLong_AsSsize_t(PyTuple_GetItem(tuple, i));
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

static int read_layout(PyObject *obj, const char *what, struct tensor *t)
{
    PyObject *v = PyObject_GetAttr(obj, s_shape);
    int yes;

    t->ndim = v ? read_numbers(v, what, t->dims) : -1;
    Py_XDECREF(v);
    if (t->ndim < 0)
        return -1;
    v = PyObject_CallMethodObjArgs(obj, s_is_contiguous, NULL);
    yes = v ? PyObject_IsTrue(v) : -1;
    Py_XDECREF(v);
    if (yes < 0)
        return -1;
    t->c_order = yes;
    if (!yes) {
        v = PyObject_CallMethodObjArgs(obj, s_stride, NULL);
        yes = v ? read_numbers(v, what, t->strides) : -1;
        Py_XDECREF(v);
        if (yes < 0)
            return -1;
    }
    return finish_shape(t, what);
}

static int read_attributes(PyObject *obj, const char *what, struct tensor *t)
{
    PyObject *v = PyObject_GetAttr(obj, s_dtype);
    int cpu;

    t->dtype = v ? dtype_of_key(v, what) : -1;
    Py_XDECREF(v);
    if (t->dtype < 0 || read_layout(obj, what, t) < 0)
        return -1;
    cpu = flag(obj, s_is_cpu);
    if (cpu < 0)
        return -1;
    t->device = !cpu;
    if (!cpu) {
        int cuda = flag(obj, s_is_cuda);

        if (cuda < 0)
            return -1;
        if (!cuda) {
            PyErr_Format(PyExc_ValueError,
                         "%s is neither in host memory nor on a CUDA device",
                         what);
            return -1;
        }
    }
    v = PyObject_CallMethodObjArgs(obj, s_data_ptr, NULL);
    if (!v)
        return -1;
    t->data = PyLong_AsVoidPtr(v);
    Py_DECREF(v);
    return !t->data && PyErr_Occurred() ? -1 : 0;
}

/* ---- The buffer protocol ------------------------------------------------ */

/* Returns the dtype of a format of the module struct, or -1. */
static int dtype_of_format(const char *f, Py_ssize_t size)
{
    static const int of_size[2][9] = {
        {[1] = HVD_INT8, [2] = HVD_INT16, [4] = HVD_INT32, [8] = HVD_INT64},
        {[1] = HVD_UINT8, [2] = HVD_UINT16, [4] = -1, [8] = -1},
    };

    if (!f)
        return HVD_UINT8;
    if (*f == '@' || *f == '=' || *f == '<')
        f++;
    if (!f[0] || f[1] || size < 1 || size > 8)
        return -1;
    switch (f[0]) {
    case '?':
        return HVD_BOOL;
    case 'e':
        return HVD_FLOAT16;
    case 'f':
        return HVD_FLOAT32;
    case 'd':
        return HVD_FLOAT64;
    case 'c':
        return HVD_UINT8;
    default:
        if (strchr("bhilqn", f[0]))
            return of_size[0][size];
        return strchr("BHILQN", f[0]) ? of_size[1][size] : -1;
    }
}

/* Copies what a view says.  Returns 0, or -1 with ValueError. */
static int read_view(const Py_buffer *view, const char *what, struct tensor *t)
{
    t->dtype = dtype_of_format(view->format, view->itemsize);
    if (t->dtype < 0) {
        PyErr_Format(PyExc_ValueError, "%s: hvd has no dtype for format '%s'",
                     what, view->format);
        return -1;
    }
    if (view->ndim > NDIM_MAX)
        return too_many_dims(what);
    t->data = view->buf;
    t->ndim = view->ndim;
    t->device = false;
    t->c_order = !view->strides;
    for (int i = 0; i < t->ndim; i++) {
        t->dims[i] = view->shape[i];
        if (view->strides && view->strides[i] % view->itemsize) {
            PyErr_Format(PyExc_ValueError,
                         "%s: its strides are not whole elements", what);
            return -1;
        }
        if (view->strides)
            t->strides[i] = view->strides[i] / view->itemsize;
    }
    return finish_shape(t, what);
}

static int read_buffer(PyObject *obj, const char *what, bool write,
                       struct tensor *t, struct hold **holds)
{
    struct hold *h = hold_new();
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0);

    if (!h)
        return -1;
    if (PyObject_GetBuffer(obj, &h->view, flags) < 0) {
        PyMem_Free(h);
        if (write && PyErr_ExceptionMatches(PyExc_MemoryError) == 0)
            PyErr_Format(PyExc_ValueError, "%s is read-only", what);
        return -1;
    }
    if (read_view(&h->view, what, t) < 0) {
        holds_release(h);
        return -1;
    }
    h->next = *holds;
    *holds = h;
    return 0;
}

/* ---- DLPack -------------------------------------------------------------- */

static int dtype_of_dlpack(const struct dl_tensor *d)
{
    unsigned bits = d->dtype.bits;

    if (d->dtype.lanes != 1)
        return -1;
    switch (d->dtype.code) {
    case DL_INT:
        return dtype_of_format("q", bits / 8);
    case DL_UINT:
        return dtype_of_format("Q", bits / 8);
    case DL_FLOAT:
        return bits == 16   ? HVD_FLOAT16
               : bits == 32 ? HVD_FLOAT32
               : bits == 64 ? HVD_FLOAT64
                            : -1;
    case DL_BFLOAT:
        return bits == 16 ? HVD_BFLOAT16 : -1;
    case DL_BOOL:
        return bits == 8 ? HVD_BOOL : -1;
    case DL_FLOAT8_E4M3FN:
        return HVD_FLOAT8_E4M3;
    case DL_FLOAT8_E5M2:
        return HVD_FLOAT8_E5M2;
    default:
        return -1;
    }
}

static int read_dl_tensor(const struct dl_tensor *d, const char *what,
                          struct tensor *t)
{
    t->dtype = dtype_of_dlpack(d);
    if (t->dtype < 0) {
        PyErr_Format(PyExc_ValueError,
                     "%s: hvd has no dtype for DLPack's (%d, %d, %d)", what,
                     d->dtype.code, d->dtype.bits, d->dtype.lanes);
        return -1;
    }
    if (d->ndim < 0 || d->ndim > NDIM_MAX)
        return too_many_dims(what);
    t->device = d->device.type == DL_CUDA || d->device.type == DL_CUDA_MANAGED;
    if (!t->device && d->device.type != DL_CPU &&
        d->device.type != DL_CUDA_HOST) {
        PyErr_Format(PyExc_ValueError,
                     "%s is neither in host memory nor on a CUDA device", what);
        return -1;
    }
    t->data = d->data ? (char *)d->data + d->byte_offset : NULL;
    t->ndim = d->ndim;
    t->c_order = !d->strides;
    for (int i = 0; i < t->ndim; i++) {
        t->dims[i] = d->shape[i];
        if (d->strides)
            t->strides[i] = d->strides[i];
    }
    return finish_shape(t, what);
}

static int read_dlpack(PyObject *obj, const char *what, struct tensor *t,
                       struct hold **holds)
{
    PyObject *capsule = PyObject_CallMethodObjArgs(obj, s_dlpack, NULL);
    struct hold *h = capsule ? hold_new() : NULL;

    if (h)
        h->dl = PyCapsule_GetPointer(capsule, DL_NAME);
    if (!h || !h->dl || PyCapsule_SetName(capsule, DL_NAME_USED) < 0) {
        PyMem_Free(h);
        Py_XDECREF(capsule);
        return -1;
    }
    Py_DECREF(capsule);
    if (read_dl_tensor(&h->dl->tensor, what, t) < 0) {
        holds_release(h);
        return -1;
    }
    h->next = *holds;
    *holds = h;
    return 0;
}

/* ---- The way per type --------------------------------------------------- */

enum { CACHE = 16 };

static unsigned slot_of(const void *p)
{
    return (unsigned)((uintptr_t)p >> 4) % CACHE;
}

enum way {
    WAY_ERROR = -1, /* with an exception */
    WAY_NONE,
    WAY_ATTRIBUTES,
    WAY_BUFFER,
    WAY_DLPACK,
    WAY_OWN
};

/* Types that were seen; referenced, so that none takes the address of
 * another. */
static struct {
    PyTypeObject *type;
    enum way way;
} ways[CACHE];

/* Tells whether an object has an attribute: 1 or 0, or -1 with MemoryError.
 * Other errors mean that it has none. */
static int has(PyObject *obj, PyObject *name)
{
    PyObject *v = PyObject_GetAttr(obj, name);

    Py_XDECREF(v);
    if (v)
        return 1;
    if (PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    return 0;
}

static int has_attributes(PyObject *obj)
{
    PyObject *const names[] = {s_data_ptr, s_is_contiguous, s_is_cpu};
    int yes = 1;

    for (size_t i = 0; yes == 1 && i < sizeof(names) / sizeof(names[0]); i++)
        yes = has(obj, names[i]);
    return yes;
}

static enum way find_way(PyObject *obj)
{
    int yes;

    if (buffer_block(obj))
        return WAY_OWN;
    yes = has_attributes(obj);
    if (yes)
        return yes < 0 ? WAY_ERROR : WAY_ATTRIBUTES;
    if (PyObject_CheckBuffer(obj))
        return WAY_BUFFER;
    yes = has(obj, s_dlpack);
    if (yes)
        return yes < 0 ? WAY_ERROR : WAY_DLPACK;
    return WAY_NONE;
}

static enum way way_of(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    unsigned slot = slot_of(type);
    enum way way;

    if (ways[slot].type == type)
        return ways[slot].way;
    way = find_way(obj);
    if (way > WAY_NONE) {
        /* What find_way() ran may have changed the slot. */
        PyTypeObject *old = ways[slot].type;

        Py_INCREF((PyObject *)type);
        ways[slot].type = type;
        ways[slot].way = way;
        Py_XDECREF((PyObject *)old);
    }
    return way;
}

static int read_own(PyObject *obj, struct tensor *t)
{
    struct block *b = buffer_block(obj);

    t->data = b->data;
    t->count = b->count;
    t->dtype = b->dtype;
    t->ndim = b->ndim;
    t->device = false;
    t->c_order = true;
    memcpy(t->dims, b->dims, sizeof(t->dims[0]) * (size_t)b->ndim);
    return 0;
}

int tensor_read(PyObject *obj, const char *what, bool write, struct tensor *t,
                struct hold **holds)
{
    switch (way_of(obj)) {
    case WAY_ATTRIBUTES:
        return read_attributes(obj, what, t);
    case WAY_BUFFER:
        return read_buffer(obj, what, write, t, holds);
    case WAY_DLPACK:
        return read_dlpack(obj, what, t, holds);
    case WAY_OWN:
        return read_own(obj, t);
    case WAY_ERROR:
        return -1;
    default:
        PyErr_Format(PyExc_TypeError,
                     "%s is not a tensor: it has neither data_ptr() nor the "
                     "buffer protocol nor __dlpack__()",
                     what);
        return -1;
    }
}

int tensor_init(PyObject *module)
{
    static const struct {
        PyObject **at;
        const char *text;
    } strings[] = {
        {&s_data_ptr, "data_ptr"}, {&s_dtype, "dtype"},
        {&s_shape, "shape"},       {&s_is_contiguous, "is_contiguous"},
        {&s_stride, "stride"},     {&s_is_cpu, "is_cpu"},
        {&s_is_cuda, "is_cuda"},   {&s_dlpack, "__dlpack__"},
    };

    (void)module;
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        *strings[i].at = PyUnicode_InternFromString(strings[i].text);
        if (!*strings[i].at)
            return -1;
    }
    return dtypes_init();
}
