/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of results, and the type Buffer, by which Python reads it: a row-major
 * array with the buffer protocol and DLPack. */
#include "python/ext/dlpack.h"
#include "python/ext/ext.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- Blocks ------------------------------------------------------------- */

enum { ALIGN = 64 };

struct block *block_new(size_t count, int dtype)
{
    size_t elem = hvd_dtype_size((enum hvd_dtype)dtype);
    struct block *b;
    void *data;

    if (count > (SIZE_MAX / 2) / elem)
        return NULL;
    b = malloc(sizeof(*b));
    if (!b)
        return NULL;
    if (posix_memalign(&data, ALIGN, count ? count * elem : 1) != 0) {
        free(b);
        return NULL;
    }
    b->refs = 1;
    b->dtype = dtype;
    b->ndim = 0;
    b->count = count;
    b->data = data;
    return b;
}

void block_unref(struct block *b)
{
    if (b && atomic_fetch_sub(&b->refs, 1) == 1) {
        free(b->data);
        free(b);
    }
}

void block_set_shape(struct block *b, int64_t rows, int ndim,
                     const int64_t *dims)
{
    int64_t stride = 1;

    b->ndim = ndim;
    for (int i = 1; i < ndim; i++)
        b->dims[i] = dims[i];
    if (ndim > 0)
        b->dims[0] = rows;
    for (int i = ndim - 1; i >= 0; i--) {
        b->strides[i] = stride;
        stride *= b->dims[i];
    }
}

/* ---- Buffer ------------------------------------------------------------- */

struct buffer {
    PyObject_HEAD struct block *block;
    Py_ssize_t byte_strides[NDIM_MAX];
};

static PyTypeObject *buffer_type;

PyObject *buffer_new(struct block *b)
{
    struct buffer *self = PyObject_New(struct buffer, buffer_type);
    size_t elem = hvd_dtype_size((enum hvd_dtype)b->dtype);

    if (!self) {
        block_unref(b);
        return NULL;
    }
    self->block = b;
    for (int i = 0; i < b->ndim; i++)
        self->byte_strides[i] = b->strides[i] * (Py_ssize_t)elem;
    return (PyObject *)self;
}

struct block *buffer_block(PyObject *obj)
{
    return Py_TYPE(obj) == buffer_type ? ((struct buffer *)obj)->block : NULL;
}

static void buffer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    block_unref(((struct buffer *)self)->block);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Returns the code of a dtype in the module struct, or NULL if it has none. */
static const char *format_of(int dtype)
{
    static const char *const formats[] = {
        [HVD_UINT8] = "B",   [HVD_INT8] = "b",    [HVD_UINT16] = "H",
        [HVD_INT16] = "h",   [HVD_INT32] = "i",   [HVD_INT64] = "q",
        [HVD_FLOAT16] = "e", [HVD_FLOAT32] = "f", [HVD_FLOAT64] = "d",
        [HVD_BOOL] = "?",
    };

    return (size_t)dtype < sizeof(formats) / sizeof(formats[0]) ? formats[dtype]
                                                                : NULL;
}

static int buffer_get(PyObject *obj, Py_buffer *view, int flags)
{
    struct buffer *self = (struct buffer *)obj;
    struct block *b = self->block;
    const char *format = format_of(b->dtype);

    if (!format && (flags & PyBUF_FORMAT)) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no format for %s; use DLPack",
                     hvd_dtype_name((enum hvd_dtype)b->dtype));
        view->obj = NULL;
        return -1;
    }
    view->obj = Py_NewRef(obj);
    view->buf = b->data;
    view->itemsize = (Py_ssize_t)hvd_dtype_size((enum hvd_dtype)b->dtype);
    view->len = (Py_ssize_t)b->count * view->itemsize;
    view->readonly = 0;
    view->format = (flags & PyBUF_FORMAT) ? (char *)(uintptr_t)format : NULL;
    view->ndim = b->ndim;
    view->shape = (flags & PyBUF_ND) ? b->dims : NULL;
    view->strides =
        (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->byte_strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static PyObject *get_shape(PyObject *self, void *unused)
{
    struct block *b = ((struct buffer *)self)->block;
    PyObject *shape = PyTuple_New(b->ndim);

    (void)unused;
    for (int i = 0; shape && i < b->ndim; i++) {
        PyObject *dim = PyLong_FromSsize_t(b->dims[i]);

        if (!dim)
            Py_CLEAR(shape);
        else
            PyTuple_SetItem(shape, i, dim);
    }
    return shape;
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((struct buffer *)self)->block->dtype);
}

static PyObject *get_data_ptr(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((struct buffer *)self)->block->data);
}

/* ---- DLPack ------------------------------------------------------------- */

/* Frees what another library was given: a DLPack structure, whose context is
 * the block. */
static void give_back(struct dl_managed *m)
{
    block_unref(m->context);
    free(m);
}

/* Frees what no library took over. */
static void capsule_end(PyObject *capsule)
{
    struct dl_managed *m;

    if (!PyCapsule_IsValid(capsule, DL_NAME))
        return;
    m = PyCapsule_GetPointer(capsule, DL_NAME);
    if (m)
        m->deleter(m);
}

static void set_dl_dtype(int dtype, struct dl_tensor *t)
{
    static const uint8_t codes[] = {
        [HVD_UINT8] = DL_UINT,
        [HVD_INT8] = DL_INT,
        [HVD_UINT16] = DL_UINT,
        [HVD_INT16] = DL_INT,
        [HVD_INT32] = DL_INT,
        [HVD_INT64] = DL_INT,
        [HVD_FLOAT16] = DL_FLOAT,
        [HVD_FLOAT32] = DL_FLOAT,
        [HVD_FLOAT64] = DL_FLOAT,
        [HVD_BOOL] = DL_BOOL,
        [HVD_BFLOAT16] = DL_BFLOAT,
        [HVD_FLOAT8_E4M3] = DL_FLOAT8_E4M3FN,
        [HVD_FLOAT8_E5M2] = DL_FLOAT8_E5M2,
    };

    t->dtype.code = codes[dtype];
    t->dtype.bits = (uint8_t)(hvd_dtype_size((enum hvd_dtype)dtype) * 8);
    t->dtype.lanes = 1;
}

static PyObject *to_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct block *b = ((struct buffer *)self)->block;
    struct dl_managed *m = calloc(1, sizeof(*m));
    PyObject *capsule;

    (void)args; /* stream, max_version, ...: nothing of them applies here */
    (void)kwargs;
    if (!m)
        return PyErr_NoMemory();
    m->tensor.data = b->data;
    m->tensor.device.type = DL_CPU;
    m->tensor.ndim = b->ndim;
    set_dl_dtype(b->dtype, &m->tensor);
    m->tensor.shape = b->dims;
    m->tensor.strides = b->strides;
    m->context = b;
    m->deleter = give_back;
    atomic_fetch_add(&b->refs, 1);
    capsule = PyCapsule_New(m, DL_NAME, capsule_end);
    if (!capsule)
        give_back(m);
    return capsule;
}

static PyObject *dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyMethodDef buffer_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))to_dlpack,
     METH_VARARGS | METH_KEYWORDS,
     "Lends the memory as a DLPack capsule; it outlives this object."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS,
     "Returns (1, 0): the memory of the host."},
    {0},
};

static PyGetSetDef buffer_getset[] = {
    {"shape", get_shape, NULL, "The dimensions, a tuple.", NULL},
    {"dtype", get_dtype, NULL, "The number of the dtype, as in hvd.h.", NULL},
    {"data_ptr", get_data_ptr, NULL, "The address of the first element.", NULL},
    {0},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_dealloc, buffer_dealloc},
    {Py_bf_getbuffer, buffer_get},
    {Py_tp_methods, buffer_methods},
    {Py_tp_getset, buffer_getset},
    {Py_tp_doc,
     "What an allgather or alltoall received: a row-major array in memory of\n"
     "the host that belongs to this object.  numpy.asarray(buffer) and\n"
     "torch.utils.dlpack.from_dlpack(buffer) use it without a copy and keep\n"
     "it."},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "hvd._hvd.Buffer",
    .basicsize = sizeof(struct buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};

int buffer_type_init(PyObject *module)
{
    buffer_type = (PyTypeObject *)PyType_FromSpec(&buffer_spec);
    return buffer_type ? PyModule_AddObjectRef(module, "Buffer",
                                               (PyObject *)buffer_type)
                       : -1;
}
