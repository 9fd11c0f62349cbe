/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose result has a size that depends on all ranks: allgather and
 * alltoall. */
#include "python/ext/ext.h"

#include <string.h>

/* Notes what a tensor says about the rows that arrive. */
static void describe(struct gathered *a, const struct tensor *t)
{
    a->row_elems = tensor_row_elems(t);
    a->dtype = t->dtype;
    a->ndim = t->ndim;
    memcpy(a->dims, t->dims, sizeof(a->dims[0]) * (size_t)t->ndim);
}

/* Reads a tensor whose rows are sent.  Returns 0, or -1 with an exception. */
static int read_rows(PyObject *obj, const char *what, struct tensor *t,
                     struct hold **holds)
{
    if (tensor_read(obj, what, false, t, holds) < 0 ||
        tensor_demand_c_order(t, what) < 0)
        return -1;
    if (t->device) {
        PyErr_Format(PyExc_ValueError,
                     "%s is in the memory of a GPU, where hvd has no memory "
                     "for the result of a gather; copy it to the host first",
                     what);
        return -1;
    }
    if (t->ndim > 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has no dimension: it has no rows", what);
    return -1;
}

PyObject *call_empty_like(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("empty_like", 1, "x", "rows");
    PyObject *v[PARAMS_MAX];
    struct hold *holds = NULL;
    struct tensor t;
    struct block *b = NULL;
    int rows = -1;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        arg_int(v[1], "rows", &rows) < 0)
        return NULL;
    if (tensor_read(v[0], "x", false, &t, &holds) == 0) {
        if (t.ndim > 0 && rows >= 0) {
            t.dims[0] = rows;
            if (__builtin_mul_overflow((size_t)rows, tensor_row_elems(&t),
                                       &t.count))
                t.count = SIZE_MAX; /* refused by block_new() */
        }
        b = block_new(t.count, t.dtype);
        if (!b)
            PyErr_NoMemory();
    }
    holds_release(holds);
    if (!b)
        return NULL;
    block_set_shape(b, t.ndim > 0 ? t.dims[0] : 1, t.ndim, t.dims);
    return buffer_new(b);
}

/* Sets the options by which libhvd asks for memory for the results from
 * `first` on. */
static void ask_for_memory(struct hvd_options *opts, struct gathered *first)
{
    opts->alloc = work_alloc;
    opts->alloc_arg = first;
}

/* Issues the gather of one tensor.  Returns 0, a negative status, or 1 with an
 * exception. */
static int issue_gather(struct work *w, PyObject *send, struct common *c)
{
    struct gathered *a = w->gathered;
    struct hvd_shape shape;
    struct tensor t;
    int rc;

    if (read_rows(send, "send", &t, &w->holds) < 0)
        return 1;
    describe(a, &t);
    shape.ndim = t.ndim;
    shape.dims = t.dims;
    c->opts.shapes = &shape;
    ask_for_memory(&c->opts, a);
    rc = hvd_allgather_async(c->name, t.data, t.count, NULL, 0, a->counts,
                             (enum hvd_dtype)t.dtype, &c->opts, &w->one);
    w->nops = rc == 0;
    return rc;
}

PyObject *call_allgather_async(PyObject *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("allgather_async", 1, "send", COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    struct work *w;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 1, &c) < 0)
        return NULL;
    w = issue_begin();
    if (!w)
        return NULL;
    work_keep(w, 0, v[0]);
    w->kind = RESULT_GATHER;
    if (work_add_gathered(w, 1, c.opts.process_set) < 0)
        return issue_end(w, 1);
    work_attach(w, &c.opts);
    return issue_end(w, issue_gather(w, v[0], &c));
}

/* The members of a grouped allgather, in the order of w->gathered: one dtype
 * after the other. */
struct members {
    const void **sends;
    size_t *counts;
    struct hvd_shape *shapes;
};

/* Reads the members of one dtype, that of tensor `lead`, into w->gathered from
 * `n` on.  Returns how many there are then, or -1 with an exception. */
static Py_ssize_t read_dtype(struct work *w, const int *dtypes, size_t lead,
                             size_t n, struct members *m)
{
    for (size_t i = lead; i < w->ngathered; i++) {
        PyObject *send = PyTuple_GetItem(w->refs[0], (Py_ssize_t)i);
        struct tensor t;

        if (dtypes[i] != dtypes[lead])
            continue;
        if (read_rows(send, "a tensor", &t, &w->holds) < 0)
            return -1;
        describe(&w->gathered[n], &t);
        w->gathered[n].index = i;
        m->sends[n] = t.data;
        m->counts[n] = t.count;
        m->shapes[n].ndim = t.ndim;
        m->shapes[n].dims = w->gathered[n].dims;
        n++;
    }
    return (Py_ssize_t)n;
}

/* Finds the dtype of each tensor.  Returns how many differ, or -1 with an
 * exception. */
static Py_ssize_t find_dtypes(PyObject *sends, int *dtypes)
{
    Py_ssize_t n = PyTuple_Size(sends), kinds = 0;

    for (Py_ssize_t i = 0; i < n; i++) {
        struct hold *holds = NULL;
        struct tensor t;
        Py_ssize_t j = 0;
        int rc = tensor_read(PyTuple_GetItem(sends, i), "a tensor", false, &t,
                             &holds);

        holds_release(holds);
        if (rc < 0)
            return -1;
        dtypes[i] = t.dtype;
        while (dtypes[j] != dtypes[i])
            j++;
        kinds += j == i;
    }
    return kinds;
}

/* Issues one operation per dtype.  Returns 0, a negative status, or 1 with an
 * exception. */
static int issue_dtypes(struct work *w, const int *dtypes, Py_ssize_t kinds,
                        struct members *m, struct common *c)
{
    char name[NAME_MAX_BYTES + 32];
    size_t first = 0;

    for (size_t lead = 0; first < w->ngathered; lead++) {
        size_t j = 0;
        Py_ssize_t end;
        int rc;

        while (dtypes[j] != dtypes[lead])
            j++;
        if (j < lead) /* went with an earlier one */
            continue;
        end = read_dtype(w, dtypes, lead, first, m);
        if (end < 0)
            return 1;
        if (c->name)
            PyOS_snprintf(name, sizeof(name), "%.*s.%s", NAME_MAX_BYTES - 16,
                          c->name,
                          hvd_dtype_name((enum hvd_dtype)dtypes[lead]));
        c->opts.shapes = m->shapes + first;
        ask_for_memory(&c->opts, &w->gathered[first]);
        rc = hvd_grouped_allgather_async(
            c->name && kinds > 1 ? name : c->name, (size_t)end - first,
            m->sends + first, m->counts + first, NULL, NULL,
            w->gathered[first].counts, (enum hvd_dtype)dtypes[lead], &c->opts,
            &w->ops[w->nops]);
        if (rc < 0)
            return rc;
        w->nops++;
        first = (size_t)end;
    }
    return 0;
}

/* Issues the gather of a tuple, which the work holds. */
static int issue_gathers(struct work *w, struct common *c)
{
    size_t n = w->ngathered;
    int *dtypes = PyMem_Calloc(n, sizeof(*dtypes));
    struct members m = {PyMem_Calloc(n, sizeof(*m.sends)),
                        PyMem_Calloc(n, sizeof(*m.counts)),
                        PyMem_Calloc(n, sizeof(*m.shapes))};
    Py_ssize_t kinds = -1;
    int rc = 1;

    work_attach(w, &c->opts);
    if (!dtypes || !m.sends || !m.counts || !m.shapes)
        PyErr_NoMemory();
    else
        kinds = find_dtypes(w->refs[0], dtypes);
    if (kinds > 0 && work_reserve(w, (size_t)kinds) == 0)
        rc = issue_dtypes(w, dtypes, kinds, &m, c);
    if (rc < 0) {
        raise_status(rc);
        rc = 1;
    }
    PyMem_Free(dtypes);
    PyMem_Free(m.sends);
    PyMem_Free(m.counts);
    PyMem_Free(m.shapes);
    return rc;
}

PyObject *call_grouped_allgather_async(PyObject *self, PyObject *const *args,
                                       Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("grouped_allgather_async", 1, "sends", COMMON_NAMES);
    PyObject *v[PARAMS_MAX], *sends;
    struct common c;
    struct work *w;
    size_t n;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 1, &c) < 0)
        return NULL;
    sends = PySequence_Tuple(v[0]);
    w = sends ? issue_begin() : NULL;
    if (!w) {
        Py_XDECREF(sends);
        return NULL;
    }
    w->refs[0] = sends;
    w->kind = RESULT_GATHERS;
    n = (size_t)PyTuple_Size(sends);
    if (n == 0) {
        PyErr_SetString(PyExc_ValueError, "a group has at least one tensor");
        return issue_end(w, 1);
    }
    if (work_add_gathered(w, n, c.opts.process_set) < 0)
        return issue_end(w, 1);
    return issue_end(w, issue_gathers(w, &c));
}

/* ---- Alltoall ------------------------------------------------------------ */

/* Reads from `splits` how many rows go to each rank, and writes the numbers of
 * their elements to `counts`.  Returns 0, or -1 with an exception. */
static int read_splits(PyObject *splits, const struct tensor *t, int members,
                       size_t *counts)
{
    size_t row = tensor_row_elems(t);
    int64_t left = t->dims[0];
    PyObject *list = PySequence_Tuple(splits);

    if (!list)
        return -1;
    if (PyTuple_Size(list) != members) {
        PyErr_Format(PyExc_ValueError,
                     "splits has %zd entries; the process set has %d members",
                     PyTuple_Size(list), members);
        Py_DECREF(list);
        return -1;
    }
    for (int i = 0; i < members; i++) {
        int rows = -1;

        if (arg_int(PyTuple_GetItem(list, i), "an entry of splits", &rows) < 0)
            break;
        left -= rows;
        if (rows < 0 || left < 0) {
            PyErr_Format(PyExc_ValueError,
                         rows < 0 ? "splits: entry %d is negative"
                                  : "splits: up to entry %d, their sum exceeds "
                                    "the rows of send",
                         i);
            break;
        }
        counts[i] = (size_t)rows * row;
    }
    Py_DECREF(list);
    return PyErr_Occurred() ? -1 : 0;
}

/* Divides the rows of a tensor among the members. */
static int divide(const struct tensor *t, int members, size_t *counts)
{
    if (t->dims[0] % members) {
        PyErr_Format(PyExc_ValueError,
                     "send has %zd rows, which cannot be divided among %d "
                     "ranks; give splits",
                     (Py_ssize_t)t->dims[0], members);
        return -1;
    }
    for (int i = 0; i < members; i++)
        counts[i] = t->count / (size_t)members;
    return 0;
}

static int alltoall_issue(struct work *w, const struct tensor *t,
                          const size_t *splits, struct common *c)
{
    struct gathered *a = w->gathered;
    struct hvd_shape shape = {t->ndim, t->dims};
    int rc;

    work_attach(w, &c->opts);
    c->opts.shapes = &shape;
    ask_for_memory(&c->opts, a);
    rc = hvd_alltoall_async(c->name, t->data, splits, t->count, NULL, 0,
                            a->counts, (enum hvd_dtype)t->dtype, &c->opts,
                            &w->one);
    w->nops = rc == 0;
    return rc;
}

PyObject *call_alltoall_async(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("alltoall_async", 1, "send", "splits", COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    struct tensor t;
    struct work *w;
    size_t *splits = NULL;
    int rc = 1;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 2, &c) < 0)
        return NULL;
    w = issue_begin();
    if (!w)
        return NULL;
    work_keep(w, 0, v[0]);
    w->kind = RESULT_GATHER;
    if (read_rows(v[0], "send", &t, &w->holds) == 0 &&
        work_add_gathered(w, 1, c.opts.process_set) == 0) {
        splits = PyMem_Malloc((size_t)w->members * sizeof(*splits));
        if (!splits)
            PyErr_NoMemory();
    }
    if (splits) {
        describe(w->gathered, &t);
        rc = v[1] && v[1] != Py_None ? read_splits(v[1], &t, w->members, splits)
                                     : divide(&t, w->members, splits);
        rc = rc == 0 ? alltoall_issue(w, &t, splits, &c) : 1;
    }
    PyMem_Free(splits);
    return issue_end(w, rc);
}
