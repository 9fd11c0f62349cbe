/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of elastic jobs.  What a state is, and which rank has the newest,
 * is decided in Python (hvd/elastic.py). */
#include "python/ext/ext.h"

#include <string.h>

/* ---- sync ---------------------------------------------------------------- */

/* A call of sync(), while libhvd runs without the GIL. */
struct sync_call {
    PyObject *on_change; /* borrowed */
    PyThreadState *state;
    bool raised; /* an exception of on_change is set */
};

/* Calls on_change in the new generation: hvd_resize_fn. */
static int call_on_change(void *arg, const struct hvd_change *c)
{
    struct sync_call *call = arg;
    PyObject *result;

    (void)c;
    PyEval_RestoreThread(call->state);
    result = PyObject_CallFunctionObjArgs(call->on_change, NULL);
    call->raised = !result;
    Py_XDECREF(result);
    call->state = PyEval_SaveThread();
    /* Any status but HVD_ERESIZED, for which libhvd would begin again. */
    return call->raised ? -HVD_EINVAL : 0;
}

static PyObject *elastic_sync(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static struct signature s = SIGNATURE("sync", 0, "on_change");
    PyObject *v[PARAMS_MAX];
    struct sync_call call = {.on_change = NULL};
    int rc;

    (void)self;
    if (args_read(&s, args, nargs, kwnames, v) < 0)
        return NULL;
    call.on_change = v[0] == Py_None ? NULL : v[0];
    works_reap(true);
    hvd_on_resize(call.on_change ? call_on_change : NULL, &call);
    call.state = PyEval_SaveThread();
    rc = hvd_sync(NULL);
    PyEval_RestoreThread(call.state);
    hvd_on_resize(NULL, NULL);
    if (call.raised)
        return NULL;
    if (rc < 0)
        return raise_status(rc);
    Py_RETURN_NONE;
}

/* ---- commit -------------------------------------------------------------- */

static PyObject *elastic_commit(PyObject *self, PyObject *unused)
{
    PyThreadState *state;
    hvd_state *s = NULL;
    PyObject *text, *result = NULL;
    int rc = hvd_state_new(&s);

    (void)self;
    (void)unused;
    if (rc < 0)
        return raise_status(rc);
    state = PyEval_SaveThread();
    rc = hvd_commit(s);
    PyEval_RestoreThread(state);
    text = rc < 0 ? status_text(rc) : NULL;
    /* The state is new, so it can be restored only if this commit counts:
     * then the world is to change, but has not lost a rank. */
    if (rc == 0 || (rc == -HVD_ERESIZED && hvd_restore(s) == 0))
        result = PyBool_FromLong(rc < 0);
    else
        raise_text(rc, text);
    Py_XDECREF(text);
    hvd_state_free(s);
    return result;
}

/* ---- What has changed ---------------------------------------------------- */

static PyObject *elastic_generation(PyObject *self, PyObject *unused)
{
    int rc = hvd_generation();

    (void)self;
    (void)unused;
    return rc < 0 ? raise_status(rc) : PyLong_FromLong(rc);
}

static PyObject *elastic_change(PyObject *self, PyObject *unused)
{
    struct hvd_change c;
    int rc = hvd_change(&c);
    PyObject *why, *dict;

    (void)self;
    (void)unused;
    if (rc < 0)
        return raise_status(rc);
    why = PyUnicode_DecodeUTF8(c.why, (Py_ssize_t)strlen(c.why), "replace");
    if (!why)
        return NULL;
    dict = Py_BuildValue("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:N}", "generation",
                         c.generation, "old_rank", c.old_rank, "old_size",
                         c.old_size, "rank", c.rank, "size", c.size, "lost",
                         c.lost, "removed", c.removed, "joined", c.joined,
                         "why", why);
    return dict;
}

static PyObject *elastic_notice(PyObject *self, PyObject *unused)
{
    int64_t ms_left = -1;
    int rc = hvd_notice(&ms_left);

    (void)self;
    (void)unused;
    if (rc < 0)
        return raise_status(rc);
    return PyLong_FromLongLong(ms_left);
}

PyMethodDef generation_methods[] = {
    FAST_METHOD("sync", elastic_sync,
                "sync(on_change=None)\n--\n\nJoin the next generation."),
    {"commit", elastic_commit, METH_NOARGS,
     "commit()\n--\n\nTell whether ranks wait to join."},
    {"generation", elastic_generation, METH_NOARGS,
     "generation()\n--\n\nReturn the number of the generation."},
    {"change", elastic_change, METH_NOARGS,
     "change()\n--\n\nTell what the last change of the world was."},
    {"notice", elastic_notice, METH_NOARGS,
     "notice()\n--\n\nTell how long this rank may stay."},
    {0},
};
