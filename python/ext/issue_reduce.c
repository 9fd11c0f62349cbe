/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose result has a size known beforehand: reductions, broadcast,
 * barrier, join; groups are in issue_group.c. */
#include "python/ext/ext.h"

#include <string.h>

PyObject *issue_end(struct work *w, int rc)
{
    if (rc == 0) {
        PyObject *request = w->request;

        w->request = NULL;
        request_set(request, w);
        works_reap(false);
        return request;
    }
    if (rc < 0)
        raise_status(rc);
    work_drop(w);
    return NULL;
}

/* ---- Two tensors -------------------------------------------------------- */

/* Sets the shape of an operation to that of one of its tensors. */
static void set_shape(struct pair *p, const struct tensor *t,
                      struct hvd_options *opts)
{
    tensor_shape(t, p->dims, &p->shape);
    opts->shapes = &p->shape;
}

/* Reads send and recv, and keeps them in `w`, whose result is recv.
 * Returns 0, or -1 with an exception. */
static int pair_read(PyObject *send, PyObject *recv, struct pair *p,
                     struct work *w)
{
    if (tensor_read(recv, "recv", true, &p->recv, &w->holds) < 0)
        return -1;
    if (send != recv) {
        if (tensor_read(send, "send", false, &p->send, &w->holds) < 0)
            return -1;
        work_keep(w, 0, send);
    }
    work_keep(w, 1, recv);
    w->result = Py_NewRef(recv);
    return 0;
}

/* ---- Allreduce ---------------------------------------------------------- */

int reduce_read(PyObject *const *v, int *op, struct hvd_options *opts)
{
    if (arg_int(v[0], "op", op) < 0 ||
        arg_double(v[1], "prescale", &opts->prescale) < 0 ||
        arg_double(v[2], "postscale", &opts->postscale) < 0)
        return -1;
    return 0;
}

struct allreduce {
    struct pair pair;
    struct common common;
    int op;
};

/* Reads the arguments of an allreduce.  Returns its work, which `begin` makes,
 * or NULL with an exception. */
static struct work *allreduce_read(struct signature *s, PyObject *const *args,
                                   Py_ssize_t nargs, PyObject *kwnames,
                                   struct work *(*begin)(void),
                                   struct allreduce *a)
{
    PyObject *v[PARAMS_MAX];
    struct work *w;

    if (args_read(s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 7, &a->common) < 0 ||
        reduce_read(v + 2, &a->op, &a->common.opts) < 0 ||
        arg_int(v[5], "wire", &a->common.opts.wire) < 0 ||
        arg_int(v[6], "live_average", &a->common.opts.live_average) < 0)
        return NULL;
    w = begin();
    if (!w)
        return NULL;
    if (pair_read(v[0], v[1], &a->pair, w) < 0 ||
        tensor_demand_alike(v[0] == v[1] ? &a->pair.recv : &a->pair.send,
                            &a->pair.recv) < 0) {
        work_drop(w);
        return NULL;
    }
    if (v[0] == v[1])
        a->pair.send.data = a->pair.recv.data;
    set_shape(&a->pair, &a->pair.recv, &a->common.opts);
    return w;
}

#define ALLREDUCE_NAMES \
    "send", "recv", REDUCE_NAMES, "wire", "live_average", COMMON_NAMES

static int allreduce_issue(struct work *w, struct allreduce *a)
{
    int rc;

    work_attach(w, &a->common.opts);
    rc = hvd_allreduce_async(a->common.name, a->pair.send.data,
                             a->pair.recv.data, a->pair.recv.count,
                             (enum hvd_dtype)a->pair.recv.dtype,
                             (enum hvd_op)a->op, &a->common.opts, &w->one);

    w->nops = rc == 0;
    return rc;
}

PyObject *call_allreduce_async(PyObject *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("allreduce_async", 3, ALLREDUCE_NAMES);
    struct allreduce a;
    struct work *w = allreduce_read(&s, args, nargs, kwnames, issue_begin, &a);

    (void)self;
    return w ? issue_end(w, allreduce_issue(w, &a)) : NULL;
}

/* Waits for `w`, gives it up, and returns its result. */
static PyObject *wait_and_drop(struct work *w)
{
    PyObject *result = NULL;

    if (works_wait(&w, 1, -1) == 1)
        result = work_result(w);
    work_drop(w);
    return result;
}

/* Carries an allreduce out.  Without a name it uses the blocking form of
 * libhvd, which keeps its place in the order of operations without a name and
 * needs no other thread. */
PyObject *call_allreduce(PyObject *self, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("allreduce", 3, ALLREDUCE_NAMES);
    struct allreduce a;
    struct work *w = allreduce_read(&s, args, nargs, kwnames, work_new, &a);
    PyObject *result;
    int rc;

    (void)self;
    if (!w)
        return NULL;
    if (a.common.name) {
        rc = allreduce_issue(w, &a);
        if (rc == 0)
            return wait_and_drop(w);
    } else {
        PyThreadState *state = PyEval_SaveThread();

        rc = hvd_allreduce(a.pair.send.data, a.pair.recv.data,
                           a.pair.recv.count, (enum hvd_dtype)a.pair.recv.dtype,
                           (enum hvd_op)a.op, &a.common.opts);
        PyEval_RestoreThread(state);
        works_reap(false);
    }
    result = rc == 0 ? Py_NewRef(w->result) : raise_status(rc);
    work_drop(w);
    return result;
}

/* ---- Broadcast, reducescatter ------------------------------------------- */

PyObject *call_broadcast_async(PyObject *self, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("broadcast_async", 3, "send", "recv", "root", COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    struct pair p;
    struct work *w;
    int root = -1, rc = 1;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 3, &c) < 0 || arg_int(v[2], "root", &root) < 0)
        return NULL;
    w = issue_begin();
    if (!w)
        return NULL;
    if (v[0] == Py_None)
        v[0] = v[1];
    if (pair_read(v[0], v[1], &p, w) == 0 &&
        tensor_demand_alike(v[0] == v[1] ? &p.recv : &p.send, &p.recv) == 0) {
        work_attach(w, &c.opts);
        set_shape(&p, &p.recv, &c.opts);
        rc = hvd_broadcast_async(
            c.name, v[0] == v[1] ? p.recv.data : p.send.data, p.recv.data,
            p.recv.count, (enum hvd_dtype)p.recv.dtype, root, &c.opts, &w->one);
        w->nops = rc == 0;
    }
    return issue_end(w, rc);
}

/* Demands that send has rows, and that recv has room for this rank's.  Returns
 * 0, or -1 with ValueError. */
static int check_rows(const struct pair *p, int process_set)
{
    size_t rows, room;

    if (tensor_demand_c_order(&p->send, "send") < 0 ||
        tensor_demand_c_order(&p->recv, "recv") < 0)
        return -1;
    if (p->send.ndim == 0 || tensor_row_elems(&p->send) == 0) {
        PyErr_SetString(PyExc_ValueError, "send has no rows to scatter");
        return -1;
    }
    rows = hvd_reducescatter_rows((size_t)p->send.dims[0], process_set);
    room = rows * tensor_row_elems(&p->send);
    if (p->recv.count != room || p->recv.dtype != p->send.dtype) {
        PyErr_Format(PyExc_ValueError,
                     "recv has %zu elements of %s; %zu rows of send are %zu "
                     "of %s",
                     p->recv.count,
                     hvd_dtype_name((enum hvd_dtype)p->recv.dtype), rows, room,
                     hvd_dtype_name((enum hvd_dtype)p->send.dtype));
        return -1;
    }
    return 0;
}

int scatter_read(PyObject *send, PyObject *recv, int process_set,
                 struct pair *p, struct hold **holds)
{
    if (hvd_process_set_size(process_set) < 0) {
        raise_status(hvd_process_set_size(process_set));
        return -1;
    }
    if (tensor_read(send, "send", false, &p->send, holds) < 0 ||
        tensor_read(recv, "recv", true, &p->recv, holds) < 0)
        return -1;
    return check_rows(p, process_set);
}

PyObject *call_reducescatter_async(PyObject *self, PyObject *const *args,
                                   Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("reducescatter_async", 3, "send",
                                          "recv", REDUCE_NAMES, COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    struct pair p;
    struct work *w;
    int op = 0, rc = 1;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        common_read(v + 5, &c) < 0 || reduce_read(v + 2, &op, &c.opts) < 0)
        return NULL;
    w = issue_begin();
    if (!w)
        return NULL;
    if (scatter_read(v[0], v[1], c.opts.process_set, &p, &w->holds) == 0) {
        work_keep(w, 0, v[0]);
        work_keep(w, 1, v[1]);
        w->result = Py_NewRef(v[1]);
        work_attach(w, &c.opts);
        set_shape(&p, &p.send, &c.opts);
        rc = hvd_reducescatter_async(
            c.name, p.send.data, p.recv.data, (size_t)p.send.dims[0],
            tensor_row_elems(&p.send), (enum hvd_dtype)p.send.dtype,
            (enum hvd_op)op, &c.opts, &w->one);
        w->nops = rc == 0;
    }
    return issue_end(w, rc);
}

/* ---- Without tensors ----------------------------------------------------- */

PyObject *call_barrier_async(PyObject *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("barrier_async", 0, COMMON_NAMES);
    PyObject *v[PARAMS_MAX];
    struct common c;
    struct work *w;
    int rc;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 || common_read(v, &c) < 0)
        return NULL;
    w = issue_begin();
    if (!w)
        return NULL;
    w->result = Py_NewRef(Py_None);
    work_attach(w, &c.opts);
    rc = hvd_barrier_async(c.name, &c.opts, &w->one);
    w->nops = rc == 0;
    return issue_end(w, rc);
}

PyObject *call_join_async(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("join_async", 0, "process_set");
    struct hvd_options opts = HVD_OPTIONS_INIT;
    PyObject *v[PARAMS_MAX];
    struct work *w;
    int rc;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        arg_int(v[0], "process_set", &opts.process_set) < 0)
        return NULL;
    w = issue_begin();
    if (!w)
        return NULL;
    w->kind = RESULT_RANK;
    work_attach(w, &opts);
    rc = hvd_join_async(&w->last_rank, &opts, &w->one);
    w->nops = rc == 0;
    return issue_end(w, rc);
}
