/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of reductions: several tensors that start and complete as one, one
 * operation of libhvd per dtype. */
#include "python/ext/ext.h"

#include <string.h>

/* The members of a group, in parallel arrays. */
struct group {
    size_t n;
    int *dtypes;
    size_t *counts; /* elements, or rows */
    size_t *row_elems;
    const void **sends;
    void **recvs;
    struct hvd_shape *shapes;
    int64_t (*dims)[NDIM_MAX]; /* the dimensions of the shapes */
};

static void group_fini(struct group *g)
{
    PyMem_Free(g->dtypes);
    PyMem_Free(g->counts);
    PyMem_Free(g->row_elems);
    PyMem_Free(g->sends);
    PyMem_Free(g->recvs);
    PyMem_Free(g->shapes);
    PyMem_Free(g->dims);
}

static int group_init(struct group *g, size_t n)
{
    g->n = n;
    g->dtypes = PyMem_Calloc(n, sizeof(*g->dtypes));
    g->counts = PyMem_Calloc(n, sizeof(*g->counts));
    g->row_elems = PyMem_Calloc(n, sizeof(*g->row_elems));
    g->sends = PyMem_Calloc(n, sizeof(*g->sends));
    g->recvs = PyMem_Calloc(n, sizeof(*g->recvs));
    g->shapes = PyMem_Calloc(n, sizeof(*g->shapes));
    g->dims = PyMem_Malloc(n * sizeof(*g->dims));
    if (g->dtypes && g->counts && g->row_elems && g->sends && g->recvs &&
        g->shapes && g->dims)
        return 0;
    group_fini(g);
    PyErr_NoMemory();
    return -1;
}

/* Notes the shape of member i. */
static void group_shape(struct group *g, size_t i, const struct tensor *t)
{
    struct hvd_shape *shape = &g->shapes[i];

    tensor_shape(t, g->dims[i], shape);
    if (shape->dims != g->dims[i] && t->ndim > 0)
        memcpy(g->dims[i], t->dims, sizeof(t->dims[0]) * (size_t)t->ndim);
    shape->dims = g->dims[i];
}

static void group_copy(struct group *g, size_t to, const struct group *from,
                       size_t i)
{
    g->dtypes[to] = from->dtypes[i];
    g->counts[to] = from->counts[i];
    g->row_elems[to] = from->row_elems[i];
    g->sends[to] = from->sends[i];
    g->recvs[to] = from->recvs[i];
    g->shapes[to] = from->shapes[i];
}

/* Writes the members of g in the order of `by_dtype`: those with the dtype of
 * the first one, those with the next dtype, ...  Returns how many dtypes. */
static size_t group_sort(const struct group *g, struct group *by_dtype)
{
    size_t done = 0, kinds = 0;

    for (size_t i = 0; i < g->n; i++) {
        size_t j = 0;

        while (g->dtypes[j] != g->dtypes[i])
            j++;
        if (j < i) /* went with an earlier one */
            continue;
        kinds++;
        for (j = i; j < g->n; j++)
            if (g->dtypes[j] == g->dtypes[i])
                group_copy(by_dtype, done++, g, j);
    }
    return kinds;
}

/* Makes a list of a tuple.  PySequence_List() of Python 3.11 does not let go of
 * the tuple if there is no memory for the list. */
static PyObject *list_of(PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    PyObject *list = PyList_New(n);

    for (Py_ssize_t i = 0; list && i < n; i++)
        PyList_SetItem(list, i, Py_NewRef(PyTuple_GetItem(tuple, i)));
    return list;
}

/* Keeps sequences of tensors in `w`, as tuples.  The result is the list of
 * the second. Returns 0, or -1 with an exception. */
static int keep_sequences(struct work *w, PyObject *sends, PyObject *recvs)
{
    w->refs[0] = PySequence_Tuple(sends);
    if (w->refs[0])
        w->refs[1] =
            sends == recvs ? Py_NewRef(w->refs[0]) : PySequence_Tuple(recvs);
    if (w->refs[1])
        w->result = list_of(w->refs[1]);
    if (!w->result)
        return -1;
    if (PyTuple_Size(w->refs[0]) == PyTuple_Size(w->refs[1]) &&
        PyTuple_Size(w->refs[0]) > 0)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "sends has %zd tensors, recvs %zd; a group has at least one",
                 PyTuple_Size(w->refs[0]), PyTuple_Size(w->refs[1]));
    return -1;
}

/* What differs between grouped operations. */
struct group_kind {
    /* Reads the tensors i of `w` into `g`.  Returns 0, or -1 with an
     * exception. */
    int (*read)(struct work *w, size_t i, int process_set, struct group *g);
    /* Issues the operation over members first .. first + n of `g`. */
    int (*issue)(const struct group *g, size_t first, size_t n,
                 const char *name, int op, struct common *c, hvd_request **req);
};

static int read_allreduce(struct work *w, size_t i, int process_set,
                          struct group *g)
{
    PyObject *send = PyTuple_GetItem(w->refs[0], (Py_ssize_t)i);
    PyObject *recv = PyTuple_GetItem(w->refs[1], (Py_ssize_t)i);
    struct pair p;
    struct tensor *from = &p.recv;

    (void)process_set;
    if (tensor_read(recv, "recv", true, &p.recv, &w->holds) < 0)
        return -1;
    if (send != recv) {
        from = &p.send;
        if (tensor_read(send, "send", false, from, &w->holds) < 0)
            return -1;
    }
    if (tensor_demand_alike(from, &p.recv) < 0)
        return -1;
    g->dtypes[i] = p.recv.dtype;
    g->counts[i] = p.recv.count;
    g->sends[i] = from->data;
    g->recvs[i] = p.recv.data;
    group_shape(g, i, &p.recv);
    return 0;
}

static int read_reducescatter(struct work *w, size_t i, int process_set,
                              struct group *g)
{
    struct pair p;

    if (scatter_read(PyTuple_GetItem(w->refs[0], (Py_ssize_t)i),
                     PyTuple_GetItem(w->refs[1], (Py_ssize_t)i), process_set,
                     &p, &w->holds) < 0)
        return -1;
    g->dtypes[i] = p.send.dtype;
    g->counts[i] = (size_t)p.send.dims[0];
    g->row_elems[i] = tensor_row_elems(&p.send);
    g->sends[i] = p.send.data;
    g->recvs[i] = p.recv.data;
    group_shape(g, i, &p.send);
    return 0;
}

/* Writes the name of the operation for one of several dtypes. */
static void name_part(struct common *c, char name[NAME_MAX_BYTES + 32],
                      enum hvd_dtype dtype)
{
    PyOS_snprintf(name, NAME_MAX_BYTES + 32, "%.*s.%s", NAME_MAX_BYTES - 16,
                  c->name, hvd_dtype_name(dtype));
}

static int issue_allreduce(const struct group *g, size_t first, size_t n,
                           const char *name, int op, struct common *c,
                           hvd_request **req)
{
    return hvd_grouped_allreduce_async(
        name, n, g->sends + first, g->recvs + first, g->counts + first,
        (enum hvd_dtype)g->dtypes[first], (enum hvd_op)op, &c->opts, req);
}

static int issue_reducescatter(const struct group *g, size_t first, size_t n,
                               const char *name, int op, struct common *c,
                               hvd_request **req)
{
    return hvd_grouped_reducescatter_async(
        name, n, g->sends + first, g->recvs + first, g->counts + first,
        g->row_elems + first, (enum hvd_dtype)g->dtypes[first], (enum hvd_op)op,
        &c->opts, req);
}

static const struct group_kind allreduce = {read_allreduce, issue_allreduce};
static const struct group_kind reducescatter = {read_reducescatter,
                                                issue_reducescatter};

/* Issues one operation per dtype of a sorted group.  Returns 0, a negative
 * status, or 1 with an exception. */
static int issue_parts(struct work *w, const struct group *g, size_t kinds,
                       const struct group_kind *kind, int op, struct common *c)
{
    char name[NAME_MAX_BYTES + 32];
    size_t first = 0;

    if (work_reserve(w, kinds) < 0)
        return 1;
    work_attach(w, &c->opts);
    while (first < g->n) {
        size_t n = 1;
        int rc;

        while (first + n < g->n && g->dtypes[first + n] == g->dtypes[first])
            n++;
        if (c->name && kinds > 1)
            name_part(c, name, (enum hvd_dtype)g->dtypes[first]);
        c->opts.shapes = g->shapes + first;
        rc = kind->issue(g, first, n, c->name && kinds > 1 ? name : c->name, op,
                         c, &w->ops[w->nops]);
        if (rc < 0)
            return rc;
        w->nops++;
        first += n;
    }
    return 0;
}

/* Sorts a group by dtype and issues it. */
static PyObject *issue_group(struct work *w, const struct group *g,
                             const struct group_kind *kind, int op,
                             struct common *c)
{
    struct group sorted;
    int rc = 1;

    if (group_init(&sorted, g->n) == 0) {
        rc = issue_parts(w, &sorted, group_sort(g, &sorted), kind, op, c);
        if (rc < 0)
            raise_status(rc);
        group_fini(&sorted);
    }
    return issue_end(w, rc < 0 ? 1 : rc);
}

/* Issues a grouped operation on two sequences of tensors; the other arguments
 * have been read. */
static PyObject *issue_sequences(PyObject *sends, PyObject *recvs,
                                 const struct group_kind *kind, int op,
                                 struct common *c)
{
    struct work *w = issue_begin();
    PyObject *request = NULL;
    struct group g;
    size_t i = 0;

    if (!w)
        return NULL;
    if (keep_sequences(w, sends, recvs) < 0 ||
        group_init(&g, (size_t)PyTuple_Size(w->refs[0])) < 0) {
        work_drop(w);
        return NULL;
    }
    while (i < g.n && kind->read(w, i, c->opts.process_set, &g) == 0)
        i++;
    if (i < g.n)
        work_drop(w);
    else
        request = issue_group(w, &g, kind, op, c);
    group_fini(&g);
    return request;
}

PyObject *call_grouped_allreduce_async(PyObject *self, PyObject *const *args,
                                       Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("grouped_allreduce_async", 3, "sends", "recvs", REDUCE_NAMES,
                  "wire", "live_average", COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    int op = 0;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 7, &c) < 0 || reduce_read(v + 2, &op, &c.opts) < 0 ||
        arg_int(v[5], "wire", &c.opts.wire) < 0 ||
        arg_int(v[6], "live_average", &c.opts.live_average) < 0)
        return NULL;
    return issue_sequences(v[0], v[1], &allreduce, op, &c);
}

PyObject *call_grouped_reducescatter_async(PyObject *self,
                                           PyObject *const *args,
                                           Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("grouped_reducescatter_async", 3, "sends", "recvs",
                  REDUCE_NAMES, COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    int op = 0;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 5, &c) < 0 || reduce_read(v + 2, &op, &c.opts) < 0)
        return NULL;
    return issue_sequences(v[0], v[1], &reducescatter, op, &c);
}
