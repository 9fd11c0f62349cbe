/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd._hvd, the module through which Python programs use libhvd: what its files
 * share.
 *
 * Layers, each using those above it only:
 *   args            arguments of a call, errors
 *   block           memory of results, and the type Buffer
 *   dtype           dtypes of array libraries
 *   tensor          finds the memory, dtype and shape of what a caller passed
 *   py_work         operations that were issued: what they hold, how they end
 *   notify          calls of functions when operations are done
 *   py_request      the type Request
 *   issue_*, world, generation
 *                   the functions
 *
 * Threads: everything runs with the GIL held unless its comment says otherwise.
 * libhvd's threads never run Python; they call only work_done() and
 * work_alloc().
 *
 * The source keeps to the limited API of Python 3.11, and compiles without the
 * limit for 3.10.
 */
#ifndef HVD_PYTHON_EXT_H
#define HVD_PYTHON_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/hvd.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "64-bit Python only");

enum { NDIM_MAX = HVD_NDIM_MAX };

/* ---- args.c ------------------------------------------------------------- */

enum { PARAMS_MAX = 16 };

/* The parameters of a function; all may be given by position or by name. */
struct signature {
    const char *function;
    int required;
    const char *names[PARAMS_MAX];
    PyObject *keys[PARAMS_MAX]; /* the names, interned at first use */
    int count;                  /* of names; 0 before the first use */
};

#define SIGNATURE(fn, n, ...)                                       \
    {                                                               \
        .function = (fn), .required = (n), .names = { __VA_ARGS__ } \
    }

/* A method that gets its arguments as an array. */
typedef PyObject *fast_method(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames);

/* Writes the arguments of a call in the order of `s`, NULL for those left out;
 * borrowed.  Returns 0, or -1 with TypeError. */
int args_read(struct signature *s, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, PyObject *out[PARAMS_MAX]);

/* Reads a number into *out, which keeps its value if v is NULL.  Return 0, or
 * -1 with TypeError, or ValueError beyond the range of the type. */
int arg_int(PyObject *v, const char *what, int *out);
int arg_double(PyObject *v, const char *what, double *out);

/* Reads a sequence of ranks into an array for PyMem_Free.  Returns how many, or
 * -1 with an exception. */
Py_ssize_t arg_ranks(PyObject *v, int **out);

enum { NAME_MAX_BYTES = 255 };

/* What all operations take. */
struct common {
    struct hvd_options opts;
    const char *name; /* NULL: none */
    char shortened[NAME_MAX_BYTES + 1];
};

/* Reads the four arguments name, process_set, priority and stream into `c`,
 * which then refers to the memory of the name.  Returns 0, or -1 with an
 * exception. */
int common_read(PyObject *const *v, struct common *c);
#define COMMON_NAMES "name", "process_set", "priority", "stream"

/* Sets the exception of a status that libhvd has just returned in this thread.
 * Returns NULL. */
PyObject *raise_status(int status);
/* Sets the exception of a status with a text that was kept; NULL: with a
 * general one.  Returns NULL. */
PyObject *raise_text(int status, PyObject *text);
/* Returns libhvd's text of the last failure in this thread, or NULL without an
 * exception if there is no memory. */
PyObject *status_text(int status);

/* Counts forks: in a child it differs from what the parent had. */
extern unsigned fork_generation;
/* The generation in which the library was last initialised. */
extern unsigned init_generation;

/* ---- block.c: memory that C owns ---------------------------------------- */

/* A result in memory, shared by Buffer objects and DLPack's tensors; the last
 * one frees it.  Any thread, without the GIL. */
struct block {
    _Atomic int refs;
    int dtype;
    int ndim;
    size_t count;
    void *data;
    int64_t dims[NDIM_MAX];
    int64_t strides[NDIM_MAX];
};

/* Returns a block with room for count elements; NULL without memory.  The
 * caller sets its shape. */
struct block *block_new(size_t count, int dtype);
void block_unref(struct block *b);
/* Sets the shape: `rows` and then the dimensions after the first of dims. */
void block_set_shape(struct block *b, int64_t rows, int ndim,
                     const int64_t *dims);

/* Makes the Buffer of a block, whose reference it takes also on failure. */
PyObject *buffer_new(struct block *b);
/* Returns the block of a Buffer, or NULL if it is not one; no exception. */
struct block *buffer_block(PyObject *obj);
int buffer_type_init(PyObject *module);

/* ---- tensor.c ----------------------------------------------------------- */

/* What keeps a tensor's memory in place beside a reference to the tensor. */
struct hold;
void holds_release(struct hold *h);

struct tensor {
    void *data;
    size_t count;
    int dtype; /* enum hvd_dtype */
    int ndim;
    bool device;  /* the memory of a GPU */
    bool c_order; /* row-major without gaps */
    int64_t dims[NDIM_MAX];
    int64_t strides[NDIM_MAX]; /* in elements; set unless c_order */
};

/* Finds the memory of a tensor.  `what` is its name in errors; `write` demands
 * that it can be written.  What must be kept beside the object is put in front
 * of *holds.  Returns 0, or -1 with TypeError or ValueError. */
int tensor_read(PyObject *obj, const char *what, bool write, struct tensor *t,
                struct hold **holds);
/* Demands row-major memory.  Returns 0, or -1 with ValueError. */
int tensor_demand_c_order(const struct tensor *t, const char *what);
/* Demands that an elementwise operation can go over the memory of both, a
 * range without gaps in the same order.  Returns 0, or -1 with ValueError. */
int tensor_demand_alike(const struct tensor *send, const struct tensor *recv);
/* Writes the shape that ranks compare.  Of a tensor in another order than
 * row-major, it has the dimensions as they lie in memory, and then as many 1
 * as tell that order; `dims` holds them. */
void tensor_shape(const struct tensor *t, int64_t dims[NDIM_MAX],
                  struct hvd_shape *shape);
/* Returns the elements of all dimensions but the first. */
size_t tensor_row_elems(const struct tensor *t);

/* Returns the dtype that an object stands for, or -1 with an exception; `what`
 * is the tensor's name in errors. */
int dtype_of_key(PyObject *key, const char *what);
int dtypes_init(void);

int tensor_init(PyObject *module);
PyObject *tensor_register_dtype(PyObject *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames);

/* ---- py_work.c ---------------------------------------------------------- */

enum result_kind { RESULT_OBJECT, RESULT_GATHER, RESULT_GATHERS, RESULT_RANK };

/* What one member of a gather receives. */
struct gathered {
    struct block *block;
    size_t *counts; /* elements from each rank; one per member of the set */
    size_t index;   /* in the list of results */
    size_t row_elems;
    int dtype;
    int ndim;
    int64_t dims[NDIM_MAX];
};

/* Operations that one call issued, and all that they use until they are done.
 * Its address is known to libhvd, so it outlives a Request that is dropped. */
struct work {
    struct work *next; /* in the list of unused or dropped ones */
    hvd_request *one;
    hvd_request **ops; /* &one, or an array */
    int nops;          /* issued */
    unsigned generation;
    /* for the notifier, see notify.c */
    _Atomic int left;  /* operations that are not done */
    _Atomic int phase; /* enum phase */
    PyObject *request; /* until the operation is issued */
    PyObject *watcher; /* the Request */
    PyObject *callbacks;
    bool busy;     /* a thread waits in libhvd without the GIL */
    bool streamed; /* its end in libhvd is not that on the device */
    bool finished; /* libhvd's requests are gone */
    int status;
    PyObject *text; /* of the failure, or NULL */
    PyObject *refs[2];
    struct hold *holds;
    enum result_kind kind;
    PyObject *result; /* RESULT_OBJECT */
    int last_rank;
    struct gathered *gathered;
    size_t ngathered;
    int members; /* of the process set, for `gathered` */
};

/* Returns work without operations; NULL with MemoryError. */
struct work *work_new(void);
/* Makes the work of an operation, and the Request that will wait for it, so
 * that nothing can fail once the operation has been issued.  Returns NULL with
 * MemoryError. */
struct work *issue_begin(void);
/* Gives up `w`.  If operations are under way it lives on until they are
 * done.  NULL is allowed. */
void work_drop(struct work *w);
/* Sets the options by which libhvd tells of the end. */
void work_attach(struct work *w, struct hvd_options *opts);
/* Keeps a reference until the operations are done. */
void work_keep(struct work *w, int i, PyObject *obj);
/* Makes room for n operations instead of one.  Returns 0, or -1 with
 * MemoryError. */
int work_reserve(struct work *w, size_t n);
/* Returns memory for what arrives: hvd_options.alloc.  `arg` is the first of
 * the operation's `gathered`.  Any thread, without the GIL. */
hvd_alloc_fn work_alloc;
/* Makes the n results of a gather, each with room for counts.  Returns 0, or -1
 * with an exception. */
int work_add_gathered(struct work *w, size_t n, int process_set);

/* Tells whether all operations are done, and then ends them. Returns 1 or 0, or
 * -1 with an exception. */
int work_test(struct work *w);
/* Waits until the operations of n works are done, for at most timeout_ms
 * (negative: without limit) altogether, in one release of the GIL unless a
 * signal arrives.  Returns 1, or 0 after timeout_ms, or -1 with an exception:
 * that of a signal handler, not that of an operation. */
int works_wait(struct work *const *works, size_t n, int64_t timeout_ms);
/* Returns the result of finished work, or NULL with its exception. */
PyObject *work_result(struct work *w);
/* Ends the oldest dropped works that are done, a few or all.  This may carry
 * operations out, and frees their names; so it is called when an operation has
 * been issued or waited for, but not when one is dropped: a second operation
 * of the same name that follows at once gets an error. */
void works_reap(bool all);

/* ---- notify.c ----------------------------------------------------------- */

/* Notes that an operation of the work `arg` is done: hvd_options.done.  Any
 * thread, without the GIL. */
hvd_done_fn work_done;
/* Registers `fn`, to be called with `request` when `w` is done; at once if it
 * is. Returns 0, or -1 with an exception. */
int work_watch(struct work *w, PyObject *request, PyObject *fn);
/* Ends the notifier, after the functions of what is done. */
void notifier_stop(void);
/* Forgets the notifier, which a forked child does not have. */
void notifier_after_fork(void);

/* ---- py_request.c ------------------------------------------------------- */

/* Makes a Request without work, or returns NULL with MemoryError. */
PyObject *request_new(void);
/* Gives a new Request its work. */
void request_set(PyObject *request, struct work *w);
int request_type_init(PyObject *module);
fast_method request_wait_all;

/* ---- issue_reduce.c: what issue_group.c uses --------------------------- */

#define REDUCE_NAMES "op", "prescale", "postscale"

/* What a reduction of one tensor, or a broadcast, was called with. */
struct pair {
    struct tensor send;
    struct tensor recv;
    struct hvd_shape shape;
    int64_t dims[NDIM_MAX];
};

/* Reads the three arguments op, prescale and postscale.  Returns 0, or -1 with
 * an exception. */
int reduce_read(PyObject *const *v, int *op, struct hvd_options *opts);
/* Reads the send and recv of a reducescatter.  Returns 0, or -1 with an
 * exception. */
int scatter_read(PyObject *send, PyObject *recv, int process_set,
                 struct pair *p, struct hold **holds);

/* ---- issue_reduce.c, issue_group.c, issue_gather.c --------------------- */

fast_method call_allreduce, call_allreduce_async, call_grouped_allreduce_async,
    call_broadcast_async, call_reducescatter_async,
    call_grouped_reducescatter_async, call_barrier_async, call_join_async,
    call_allgather_async, call_grouped_allgather_async, call_alltoall_async,
    call_empty_like;

/* Ends what issue_begin() began: returns the Request, or drops `w` if rc is a
 * status, or 1 with an exception. */
PyObject *issue_end(struct work *w, int rc);

/* ---- world.c, generation.c ---------------------------------------------- */

extern PyMethodDef world_methods[], generation_methods[];

#define FAST(fn) ((PyCFunction)(void (*)(void))(fn))
#define FAST_METHOD(name, fn, doc)                         \
    {                                                      \
        name, FAST(fn), METH_FASTCALL | METH_KEYWORDS, doc \
    }

#endif
