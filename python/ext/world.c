/* SPDX-License-Identifier: Apache-2.0 */
/* Functions about the world: life, topology, process sets, watching. */
#include "python/ext/ext.h"

#include <pthread.h>
#include <string.h>

unsigned fork_generation = 1;
unsigned init_generation;

/* ---- Life ---------------------------------------------------------------- */

static void after_fork(void)
{
    fork_generation++;
    notifier_after_fork();
}

/* Registers what is to be done at fork and at the interpreter's end, once.
 * Returns 0, or -1 with an exception. */
static int register_hooks(PyObject *module)
{
    static bool done;
    PyObject *atexit, *fn, *result = NULL;

    if (done)
        return 0;
    atexit = PyImport_ImportModule("atexit");
    fn = atexit ? PyObject_GetAttrString(module, "shutdown") : NULL;
    if (fn)
        result = PyObject_CallMethod(atexit, "register", "O", fn);
    Py_XDECREF(fn);
    Py_XDECREF(atexit);
    if (!result)
        return -1;
    Py_DECREF(result);
    if (pthread_atfork(NULL, NULL, after_fork) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    done = true;
    return 0;
}

/* Calls hvd_init_sets with sequences of ranks.  Returns its status, or 1 with
 * an exception. */
static int init_sets(PyObject *sets)
{
    Py_ssize_t n = PyTuple_Size(sets), i = 0;
    int **ranks = PyMem_Calloc((size_t)n + 1, sizeof(*ranks));
    size_t *counts = PyMem_Calloc((size_t)n + 1, sizeof(*counts));
    int rc = 1;

    if (!ranks || !counts)
        PyErr_NoMemory();
    for (; ranks && counts && i < n; i++) {
        Py_ssize_t count = arg_ranks(PyTuple_GetItem(sets, i), &ranks[i]);

        if (count < 0)
            break;
        counts[i] = (size_t)count;
    }
    if (ranks && counts && i == n) {
        PyThreadState *state = PyEval_SaveThread();

        rc = hvd_init_sets((const int *const *)ranks, counts, (size_t)n);
        PyEval_RestoreThread(state);
    }
    for (i = 0; ranks && i < n; i++)
        PyMem_Free(ranks[i]);
    PyMem_Free(ranks);
    PyMem_Free(counts);
    return rc;
}

static PyObject *world_init(PyObject *self, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("init", 0, "sets");
    PyObject *v[PARAMS_MAX], *sets = NULL;
    int rc;

    if (args_read(&s, args, nargs, kwnames, v) < 0 || register_hooks(self) < 0)
        return NULL;
    if (v[0] && v[0] != Py_None) {
        sets = PySequence_Tuple(v[0]);
        if (!sets)
            return NULL;
    }
    if (sets && PyTuple_Size(sets) > 0) {
        rc = init_sets(sets);
    } else {
        PyThreadState *state = PyEval_SaveThread();

        rc = hvd_init();
        PyEval_RestoreThread(state);
    }
    Py_XDECREF(sets);
    if (rc < 0)
        raise_status(rc);
    if (rc != 0)
        return NULL;
    init_generation = fork_generation;
    Py_RETURN_NONE;
}

static PyObject *world_shutdown(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    int rc = hvd_shutdown();

    (void)self;
    (void)unused;
    PyEval_RestoreThread(state);
    if (rc < 0)
        return raise_status(rc);
    notifier_stop();
    works_reap(true);
    Py_RETURN_NONE;
}

static PyObject *world_is_initialized(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(hvd_is_initialized());
}

static PyObject *world_version(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyUnicode_FromString(hvd_version());
}

/* ---- Topology ----------------------------------------------------------- */

/* Makes a number of what libhvd returned, or raises its failure. */
static PyObject *number(int rc)
{
    return rc < 0 ? raise_status(rc) : PyLong_FromLong(rc);
}

static PyObject *world_feature(PyObject *self, PyObject *arg)
{
    PyObject *name = PyUnicode_AsUTF8String(arg);
    int rc = name ? hvd_feature(PyBytes_AsString(name)) : 0;

    (void)self;
    if (!name)
        return NULL;
    Py_DECREF(name);
    return number(rc);
}

#define TOPOLOGY(name)                                              \
    static PyObject *world_##name(PyObject *self, PyObject *unused) \
    {                                                               \
        (void)self;                                                 \
        (void)unused;                                               \
        return number(hvd_##name());                                \
    }
TOPOLOGY(rank)
TOPOLOGY(size)
TOPOLOGY(local_rank)
TOPOLOGY(local_size)
TOPOLOGY(cross_rank)
TOPOLOGY(cross_size)

static PyObject *world_local_gpu(PyObject *self, PyObject *unused)
{
    int rc = hvd_local_gpu();

    (void)self;
    (void)unused;
    if (rc == -HVD_ENOENT)
        Py_RETURN_NONE;
    return number(rc);
}

/* ---- Process sets ------------------------------------------------------- */

static PyObject *set_add(PyObject *self, PyObject *arg)
{
    int *ranks = NULL;
    Py_ssize_t n = arg_ranks(arg, &ranks);
    PyThreadState *state;
    int set = 0, rc;

    (void)self;
    if (n < 0)
        return NULL;
    state = PyEval_SaveThread();
    rc = hvd_process_set_add(ranks, (size_t)n, &set);
    PyEval_RestoreThread(state);
    PyMem_Free(ranks);
    return number(rc < 0 ? rc : set);
}

static PyObject *set_add_members(PyObject *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("process_set_add_members", 2, "ranks", "tag");
    PyObject *v[PARAMS_MAX];
    PyThreadState *state;
    int *ranks = NULL;
    int set = 0, rc;
    const char *tag;
    Py_ssize_t n;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0)
        return NULL;
    tag = PyUnicode_AsUTF8AndSize(v[1], NULL);
    n = tag ? arg_ranks(v[0], &ranks) : -1;
    if (n < 0)
        return NULL;
    state = PyEval_SaveThread();
    rc = hvd_process_set_add_members(ranks, (size_t)n, tag, &set);
    PyEval_RestoreThread(state);
    PyMem_Free(ranks);
    return number(rc < 0 ? rc : set);
}

static PyObject *set_add_mpi(PyObject *self, PyObject *arg)
{
    void *comm = PyLong_AsVoidPtr(arg);
    PyThreadState *state;
    int set = 0, rc;

    (void)self;
    if (!comm) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "comm_address is 0");
        return NULL;
    }
    state = PyEval_SaveThread();
    rc = hvd_process_set_add_mpi(comm, &set);
    PyEval_RestoreThread(state);
    return number(rc < 0 ? rc : set);
}

static PyObject *set_remove(PyObject *self, PyObject *arg)
{
    PyThreadState *state;
    int set = 0, rc;

    (void)self;
    if (arg_int(arg, "id", &set) < 0)
        return NULL;
    state = PyEval_SaveThread();
    rc = hvd_process_set_remove(set);
    PyEval_RestoreThread(state);
    if (rc < 0)
        return raise_status(rc);
    Py_RETURN_NONE;
}

static PyObject *set_rank(PyObject *self, PyObject *arg)
{
    int set = 0;

    (void)self;
    return arg_int(arg, "id", &set) < 0 ? NULL
                                        : number(hvd_process_set_rank(set));
}

static PyObject *set_size(PyObject *self, PyObject *arg)
{
    int set = 0;

    (void)self;
    return arg_int(arg, "id", &set) < 0 ? NULL
                                        : number(hvd_process_set_size(set));
}

/* Makes a list of n numbers. */
static PyObject *list_of(const int *numbers, int n)
{
    PyObject *list = PyList_New(n);

    for (int i = 0; list && i < n; i++) {
        PyObject *v = PyLong_FromLong(numbers[i]);

        if (!v)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, v);
    }
    return list;
}

/* Lists the ranks of a set, or with set < 0 the sets. */
static PyObject *list_numbers(int set)
{
    int n = set < 0 ? hvd_process_sets(NULL, 0)
                    : hvd_process_set_ranks(set, NULL, 0);
    PyObject *list;
    int *numbers, got;

    if (n < 0)
        return raise_status(n);
    numbers = PyMem_Calloc((size_t)n, sizeof(*numbers));
    if (!numbers)
        return PyErr_NoMemory();
    got = set < 0 ? hvd_process_sets(numbers, (size_t)n)
                  : hvd_process_set_ranks(set, numbers, (size_t)n);
    list = got < 0 ? raise_status(got) : list_of(numbers, got < n ? got : n);
    PyMem_Free(numbers);
    return list;
}

static PyObject *set_ranks(PyObject *self, PyObject *arg)
{
    int set = 0;

    (void)self;
    if (arg_int(arg, "id", &set) < 0)
        return NULL;
    return set < 0 ? raise_status(hvd_process_set_size(set))
                   : list_numbers(set);
}

static PyObject *sets_list(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return list_numbers(-1);
}

static PyObject *scatter_rows(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s =
        SIGNATURE("reducescatter_rows", 1, "rows", "process_set");
    PyObject *v[PARAMS_MAX];
    size_t rows;
    int set = 0;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        arg_int(v[1], "process_set", &set) < 0)
        return NULL;
    rows = PyLong_AsSize_t(v[0]);
    if (rows == (size_t)-1 && PyErr_Occurred())
        return NULL;
    if (hvd_process_set_size(set) < 0)
        return raise_status(hvd_process_set_size(set));
    return PyLong_FromSize_t(hvd_reducescatter_rows(rows, set));
}

/* ---- Watching ------------------------------------------------------------ */

static PyObject *timeline_start(PyObject *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("timeline_start", 1, "path", "flags");
    PyObject *v[PARAMS_MAX], *path;
    const char *text;
    int flags = 0, rc = 1;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0 ||
        arg_int(v[1], "flags", &flags) < 0 ||
        !PyUnicode_FSConverter(v[0], &path))
        return NULL;
    text = PyBytes_AsString(path);
    if (text) {
        PyThreadState *state = PyEval_SaveThread();

        rc = hvd_timeline_start(text, (unsigned)flags);
        PyEval_RestoreThread(state);
    }
    if (rc < 0)
        raise_status(rc);
    Py_DECREF(path);
    if (rc != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *timeline_stop(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    int rc = hvd_timeline_stop();

    (void)self;
    (void)unused;
    PyEval_RestoreThread(state);
    if (rc < 0)
        return raise_status(rc);
    Py_RETURN_NONE;
}

/* In the order of the rows of hvd_stats. */
static const char *const kinds[] = {"allreduce", "broadcast", "allgather",
                                    "barrier",   "alltoall",  "reducescatter"};
_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == HVD_STATS_KINDS,
               "each kind has a name");

/* Sums the rows of a kind over its size classes. */
static struct hvd_stats_row sum_row(const struct hvd_stats_row *rows)
{
    struct hvd_stats_row sum = {0};

    for (int i = 0; i < HVD_STATS_CLASSES; i++) {
        sum.count += rows[i].count;
        sum.bytes += rows[i].bytes;
        sum.time_ns += rows[i].time_ns;
        sum.wait_ns += rows[i].wait_ns;
    }
    return sum;
}

/* Adds one kind of operation to the dict of counters. */
static int add_kind(PyObject *dict, const char *kind,
                    const struct hvd_stats_row *rows)
{
    struct hvd_stats_row sum = sum_row(rows);
    PyObject *v = Py_BuildValue("{s:K,s:K,s:K,s:K}", "count",
                                (unsigned long long)sum.count, "bytes",
                                (unsigned long long)sum.bytes, "time_ns",
                                (unsigned long long)sum.time_ns, "wait_ns",
                                (unsigned long long)sum.wait_ns);
    int rc = v ? PyDict_SetItemString(dict, kind, v) : -1;

    Py_XDECREF(v);
    return rc;
}

static PyObject *world_stats(PyObject *self, PyObject *unused)
{
    struct hvd_stats st = {.size = sizeof(st)};
    int rc = hvd_stats(&st);
    PyObject *dict;

    (void)self;
    (void)unused;
    if (rc < 0)
        return raise_status(rc);
    dict = Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "operations",
                         (unsigned long long)st.operations, "fused",
                         (unsigned long long)st.fused, "learned",
                         (unsigned long long)st.learned, "guessed",
                         (unsigned long long)st.guessed, "cuts",
                         (unsigned long long)st.cuts, "negotiations",
                         (unsigned long long)st.negotiations, "errors",
                         (unsigned long long)st.errors);
    for (int i = 0; dict && i < HVD_STATS_KINDS; i++)
        if (add_kind(dict, kinds[i], st.rows[i]) < 0)
            Py_CLEAR(dict);
    return dict;
}

PyMethodDef world_methods[] = {
    FAST_METHOD("init", world_init,
                "init(sets=None)\n--\n\nJoin the world; make process sets."),
    {"shutdown", world_shutdown, METH_NOARGS, "shutdown()\n--\n\nLeave."},
    {"is_initialized", world_is_initialized, METH_NOARGS, NULL},
    {"feature", world_feature, METH_O, NULL},
    {"version", world_version, METH_NOARGS, NULL},
    {"rank", world_rank, METH_NOARGS, NULL},
    {"size", world_size, METH_NOARGS, NULL},
    {"local_rank", world_local_rank, METH_NOARGS, NULL},
    {"local_size", world_local_size, METH_NOARGS, NULL},
    {"cross_rank", world_cross_rank, METH_NOARGS, NULL},
    {"cross_size", world_cross_size, METH_NOARGS, NULL},
    {"local_gpu", world_local_gpu, METH_NOARGS, NULL},
    {"process_set_add", set_add, METH_O, NULL},
    FAST_METHOD("process_set_add_members", set_add_members, NULL),
    {"process_set_add_mpi", set_add_mpi, METH_O, NULL},
    {"process_set_remove", set_remove, METH_O, NULL},
    {"process_set_rank", set_rank, METH_O, NULL},
    {"process_set_size", set_size, METH_O, NULL},
    {"process_set_ranks", set_ranks, METH_O, NULL},
    {"process_sets", sets_list, METH_NOARGS, NULL},
    FAST_METHOD("reducescatter_rows", scatter_rows, NULL),
    FAST_METHOD("timeline_start", timeline_start, NULL),
    {"timeline_stop", timeline_stop, METH_NOARGS, NULL},
    {"stats", world_stats, METH_NOARGS, NULL},
    {0},
};
