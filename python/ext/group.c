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
    int64_t (*rooms)[NDIM_MAX]; /* the dimensions of the shapes */
};

static void group_fini(struct group *g)
{
    PyMem_Free(g->dtypes);
    PyMem_Free(g->counts);
    PyMem_Free(g->row_elems);
    PyMem_Free(g->sends);
    PyMem_Free(g->recvs);
    PyMem_Free(g->shapes);
    PyMem_Free(g->rooms);
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
    g->rooms = PyMem_Malloc(n * sizeof(*g->rooms));
    if (g->dtypes && g->counts && g->row_elems && g->sends && g->recvs &&
        g->shapes && g->rooms)
        return 0;
    group_fini(g);
    PyErr_NoMemory();
    return -1;
}

/* Notes the shape of member i. */
static void group_shape(struct group *g, size_t i, const struct tensor *t)
{
    struct hvd_shape *shape = &g->shapes[i];

    tensor_shape(t, g->rooms[i], shape);
    if (shape->dims != g->rooms[i] && t->ndim > 0)
        memcpy(g->rooms[i], t->dims, sizeof(t->dims[0]) * (size_t)t->ndim);
    shape->dims = g->rooms[i];
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

/* Keeps sequences of tensors in a flight, as tuples.  The result is the list of
 * the second. Returns 0, or -1 with an exception. */
static int keep_sequences(struct flight *f, PyObject *sends, PyObject *recvs)
{
    f->refs[0] = PySequence_Tuple(sends);
    if (f->refs[0])
        f->refs[1] =
            sends == recvs ? Py_NewRef(f->refs[0]) : PySequence_Tuple(recvs);
    if (f->refs[1])
        f->result = PySequence_List(f->refs[1]);
    if (!f->result)
        return -1;
    if (PyTuple_Size(f->refs[0]) == PyTuple_Size(f->refs[1]) &&
        PyTuple_Size(f->refs[0]) > 0)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "sends has %zd tensors, recvs %zd; a group has at least one",
                 PyTuple_Size(f->refs[0]), PyTuple_Size(f->refs[1]));
    return -1;
}

/* Reads member i of a grouped allreduce. */
static int read_member(struct flight *f, size_t i, struct group *g)
{
    PyObject *send = PyTuple_GetItem(f->refs[0], (Py_ssize_t)i);
    PyObject *recv = PyTuple_GetItem(f->refs[1], (Py_ssize_t)i);
    struct pair p;
    struct tensor *from = &p.recv;

    if (tensor_read(recv, "recv", true, &p.recv, &f->holds) < 0)
        return -1;
    if (send != recv) {
        from = &p.send;
        if (tensor_read(send, "send", false, from, &f->holds) < 0)
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

/* Reads member i of a grouped reducescatter. */
static int read_rows(struct flight *f, size_t i, int process_set,
                     struct group *g)
{
    struct pair p;

    if (scatter_read(PyTuple_GetItem(f->refs[0], (Py_ssize_t)i),
                     PyTuple_GetItem(f->refs[1], (Py_ssize_t)i), process_set,
                     &p, &f->holds) < 0)
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

/* A grouped operation over members first .. first + n of a group. */
typedef int issue_part(const struct group *g, size_t first, size_t n,
                       const char *name, int op, struct common *c,
                       hvd_request **req);

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

/* Issues one operation per dtype of a sorted group.  Returns 0, a negative
 * status, or 1 with an exception. */
static int issue_parts(struct flight *f, const struct group *g, size_t kinds,
                       issue_part *issue, int op, struct common *c)
{
    char name[NAME_MAX_BYTES + 32];
    size_t first = 0;

    if (flight_reserve(f, kinds) < 0)
        return 1;
    flight_attach(f, &c->opts);
    while (first < g->n) {
        size_t n = 1;
        int rc;

        while (first + n < g->n && g->dtypes[first + n] == g->dtypes[first])
            n++;
        if (c->name && kinds > 1)
            name_part(c, name, (enum hvd_dtype)g->dtypes[first]);
        c->opts.shapes = g->shapes + first;
        rc = issue(g, first, n, c->name && kinds > 1 ? name : c->name, op, c,
                   &f->ops[f->nops]);
        if (rc < 0)
            return rc;
        f->nops++;
        first += n;
    }
    return 0;
}

/* Sorts a group by dtype and issues it. */
static PyObject *issue_group(struct flight *f, const struct group *g,
                             issue_part *issue, int op, struct common *c)
{
    struct group sorted;
    int rc = 1;

    if (group_init(&sorted, g->n) == 0) {
        rc = issue_parts(f, &sorted, group_sort(g, &sorted), issue, op, c);
        if (rc < 0)
            raise_status(rc);
        group_fini(&sorted);
    }
    return issue_end(f, rc < 0 ? 1 : rc);
}

PyObject *call_grouped_allreduce_async(PyObject *self, PyObject *const *args,
                                       Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("grouped_allreduce_async", 3, "sends", "recvs", REDUCE_NAMES,
                  "wire", "live_average", COMMON_NAMES);
    PyObject *v[PARAMS_MAX], *request = NULL;
    struct common c;
    struct group g;
    struct flight *f;
    size_t i = 0;
    int op = 0;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 7, &c) < 0 || reduce_read(v + 2, &op, &c.opts) < 0 ||
        arg_int(v[5], "wire", &c.opts.wire) < 0 ||
        arg_int(v[6], "live_average", &c.opts.live_average) < 0)
        return NULL;
    f = flight_new();
    if (!f)
        return NULL;
    if (keep_sequences(f, v[0], v[1]) < 0 ||
        group_init(&g, (size_t)PyTuple_Size(f->refs[0])) < 0) {
        flight_drop(f);
        return NULL;
    }
    while (i < g.n && read_member(f, i, &g) == 0)
        i++;
    if (i < g.n)
        flight_drop(f);
    else
        request = issue_group(f, &g, issue_allreduce, op, &c);
    group_fini(&g);
    return request;
}

PyObject *call_grouped_reducescatter_async(PyObject *self,
                                           PyObject *const *args,
                                           Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("grouped_reducescatter_async", 3, "sends", "recvs",
                  REDUCE_NAMES, COMMON_NAMES);
    PyObject *v[PARAMS_MAX], *request = NULL;
    struct common c;
    struct group g;
    struct flight *f;
    size_t i = 0;
    int op = 0;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 5, &c) < 0 || reduce_read(v + 2, &op, &c.opts) < 0)
        return NULL;
    f = flight_new();
    if (!f)
        return NULL;
    if (keep_sequences(f, v[0], v[1]) < 0 ||
        group_init(&g, (size_t)PyTuple_Size(f->refs[0])) < 0) {
        flight_drop(f);
        return NULL;
    }
    while (i < g.n && read_rows(f, i, c.opts.process_set, &g) == 0)
        i++;
    if (i < g.n)
        flight_drop(f);
    else
        request = issue_group(f, &g, issue_reducescatter, op, &c);
    group_fini(&g);
    return request;
}
