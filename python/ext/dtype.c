/* SPDX-License-Identifier: Apache-2.0 */
/* Dtypes of array libraries: objects like torch.float32, known by their name or
 * by register_dtype(). */
#include "python/ext/ext.h"

#include <string.h>

static PyObject *dtypes; /* dict: object -> int */

/* The last dtypes that were looked up, by identity; referenced, so that none
 * takes the address of another. */
enum { CACHE = 16 };
static struct {
    PyObject *key;
    int dtype;
} cache[CACHE];

static unsigned slot_of(const void *p)
{
    return (unsigned)((uintptr_t)p >> 4) % CACHE;
}

static const struct {
    const char *name;
    int dtype;
} names[] = {
    {"uint8", HVD_UINT8},
    {"int8", HVD_INT8},
    {"uint16", HVD_UINT16},
    {"int16", HVD_INT16},
    {"int32", HVD_INT32},
    {"int64", HVD_INT64},
    {"float16", HVD_FLOAT16},
    {"float32", HVD_FLOAT32},
    {"float64", HVD_FLOAT64},
    {"bool", HVD_BOOL},
    {"bfloat16", HVD_BFLOAT16},
    {"float8_e4m3fn", HVD_FLOAT8_E4M3},
    {"float8_e5m2", HVD_FLOAT8_E5M2},
};

/* Reads "torch.float32", "float32".  Returns the dtype, or -1 with ValueError.
 */
static int dtype_by_name(PyObject *key, const char *what)
{
    PyObject *text = PyObject_Str(key);
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const char *dot = name ? strrchr(name, '.') : NULL;
    int dtype = -1;

    for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(dot ? dot + 1 : name, names[i].name) == 0)
            dtype = names[i].dtype;
    if (name && dtype < 0)
        PyErr_Format(PyExc_ValueError, "%s: hvd has no dtype %s", what, name);
    Py_XDECREF(text);
    return dtype;
}

static int remember(PyObject *key, int dtype)
{
    PyObject *number = PyLong_FromLong(dtype);
    int rc = number ? PyDict_SetItem(dtypes, key, number) : -1;

    Py_XDECREF(number);
    return rc;
}

/* Returns what dtype_of_key() does, without its cache. */
static int dtype_by_key(PyObject *key, const char *what)
{
    PyObject *number = PyDict_GetItemWithError(dtypes, key);
    int dtype;

    if (number)
        return (int)PyLong_AsLong(number);
    if (PyErr_Occurred())
        return -1;
    dtype = dtype_by_name(key, what);
    return dtype < 0 || remember(key, dtype) < 0 ? -1 : dtype;
}

int dtype_of_key(PyObject *key, const char *what)
{
    unsigned slot = slot_of(key);
    PyObject *old;
    int dtype;

    if (cache[slot].key == key)
        return cache[slot].dtype;
    dtype = dtype_by_key(key, what);
    if (dtype < 0)
        return -1;
    old = cache[slot].key; /* now, as what looked it up may have changed it */
    cache[slot].key = Py_NewRef(key);
    cache[slot].dtype = dtype;
    Py_XDECREF(old);
    return dtype;
}

PyObject *tensor_register_dtype(PyObject *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("register_dtype", 2, "key", "dtype");
    PyObject *v[PARAMS_MAX];
    int dtype = -1;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        arg_int(v[1], "dtype", &dtype) < 0)
        return NULL;
    if (dtype < 0 || hvd_dtype_size((enum hvd_dtype)dtype) == 0) {
        PyErr_Format(PyExc_ValueError, "dtype: there is no dtype %d", dtype);
        return NULL;
    }
    if (remember(v[0], dtype) < 0)
        return NULL;
    for (int i = 0; i < CACHE; i++)
        Py_CLEAR(cache[i].key);
    Py_RETURN_NONE;
}

int dtypes_init(void)
{
    dtypes = PyDict_New();
    return dtypes ? 0 : -1;
}
