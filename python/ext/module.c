/* SPDX-License-Identifier: Apache-2.0 */
/* The module hvd._hvd: its functions and types.  What they do is described in
 * python/hvd/_hvd.pyi. */
#include "python/ext/ext.h"

#include <string.h>

static PyMethodDef call_methods[] = {
    FAST_METHOD("allreduce", call_allreduce, NULL),
    FAST_METHOD("allreduce_async", call_allreduce_async, NULL),
    FAST_METHOD("grouped_allreduce_async", call_grouped_allreduce_async, NULL),
    FAST_METHOD("broadcast_async", call_broadcast_async, NULL),
    FAST_METHOD("allgather_async", call_allgather_async, NULL),
    FAST_METHOD("grouped_allgather_async", call_grouped_allgather_async, NULL),
    FAST_METHOD("alltoall_async", call_alltoall_async, NULL),
    FAST_METHOD("reducescatter_async", call_reducescatter_async, NULL),
    FAST_METHOD("grouped_reducescatter_async", call_grouped_reducescatter_async,
                NULL),
    FAST_METHOD("barrier_async", call_barrier_async, NULL),
    FAST_METHOD("join_async", call_join_async, NULL),
    FAST_METHOD("empty_like", call_empty_like, NULL),
    FAST_METHOD("wait_all", request_wait_all, NULL),
    FAST_METHOD("register_dtype", tensor_register_dtype, NULL),
    {0},
};

static int add_all(PyObject *module)
{
    if (PyModule_AddFunctions(module, world_methods) < 0 ||
        PyModule_AddFunctions(module, generation_methods) < 0 ||
        PyModule_AddFunctions(module, call_methods) < 0)
        return -1;
    if (tensor_init(module) < 0 || buffer_type_init(module) < 0)
        return -1;
    return request_type_init(module);
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "hvd._hvd",
    .m_doc = "The functions of libhvd for Python.",
    .m_size = -1, /* libhvd is there once per process */
};

PyMODINIT_FUNC PyInit__hvd(void);

PyMODINIT_FUNC PyInit__hvd(void)
{
    PyObject *module;

    if (strcmp(hvd_version(), HVD_VERSION) != 0) {
        PyErr_Format(PyExc_ImportError,
                     "hvd " HVD_VERSION " found libhvd %s; install both anew",
                     hvd_version());
        return NULL;
    }
    module = PyModule_Create(&definition);
    if (module && add_all(module) < 0)
        Py_CLEAR(module);
    return module;
}
