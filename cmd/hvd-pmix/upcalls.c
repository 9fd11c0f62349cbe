/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's functions that PMIx calls, and opening it; see server.h.
 *
 * A fence of all ranks, other ranks' data and MPI_Abort need other hosts.
 * Everything else PMIx answers by itself, or refuses, because the table of
 * functions has no entry for it.
 */
#include "cmd/hvd-pmix/server.h"

#include "cmd/hvd-pmix/keys.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <stdlib.h>
#include <string.h>

static int is_own(const pmix_proc_t *proc)
{
    return strncmp(proc->nspace, server.job.nspace, sizeof(proc->nspace)) == 0;
}

static int is_rank(const pmix_proc_t *proc)
{
    return is_own(proc) && proc->rank < server.job.size;
}

static int is_local(const pmix_proc_t *proc)
{
    return is_rank(proc) &&
           server.job.host_of[proc->rank] == server.job.host_index;
}

static void tell(enum pmix_wire_type type, uint32_t id)
{
    const struct pmix_wire_item m = {.id = id};

    server_send(type, &m);
}

/* ---- Beginning and end of a rank -------------------------------------- */

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object,
                                  pmix_op_cbfunc_t done, void *arg)
{
    (void)object;
    (void)done;
    (void)arg;
    if (is_local(proc))
        tell(PMIX_WIRE_CONNECTED, proc->rank);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_connected2(const pmix_proc_t *proc, void *object,
                                   pmix_info_t info[], size_t count,
                                   pmix_op_cbfunc_t done, void *arg)
{
    (void)info;
    (void)count;
    return on_connected(proc, object, done, arg);
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object,
                                  pmix_op_cbfunc_t done, void *arg)
{
    (void)object;
    (void)done;
    (void)arg;
    if (is_local(proc))
        tell(PMIX_WIRE_FINALIZED, proc->rank);
    return PMIX_OPERATION_SUCCEEDED;
}

/* Tells the agent of an MPI_Abort.  PMIx lets the rank end when this returns.
 */
static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status,
                              const char text[], pmix_proc_t procs[],
                              size_t count, pmix_op_cbfunc_t done, void *arg)
{
    char copy[PMIX_WIRE_TEXT_MAX] = "";
    struct pmix_wire_item m = {.id = proc->rank, .status = status};

    (void)object;
    (void)procs;
    (void)count;
    (void)done;
    (void)arg;
    if (!is_local(proc))
        return PMIX_ERR_NOT_SUPPORTED;
    if (text)
        strncpy(copy, text, sizeof(copy) - 1);
    hb_text_sanitize(copy);
    m.data = copy;
    m.len = strlen(copy);
    server_send(PMIX_WIRE_ABORT, &m);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_spawn(const pmix_proc_t *proc,
                              const pmix_info_t job_info[], size_t info_count,
                              const pmix_app_t apps[], size_t app_count,
                              pmix_spawn_cbfunc_t done, void *arg)
{
    (void)job_info;
    (void)info_count;
    (void)apps;
    (void)app_count;
    (void)done;
    (void)arg;
    if (is_local(proc))
        tell(PMIX_WIRE_SPAWN, proc->rank);
    return PMIX_ERR_NOT_SUPPORTED;
}

/* ---- Fences ----------------------------------------------------------- */

/* Returns whether a local rank has left the fence by its death.  PMIx calls the
 * fence all the same: without this, ranks elsewhere would end as if all were
 * well. */
static int is_broken(const pmix_info_t info[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(info[i].key, PMIX_LOCAL_COLLECTIVE_STATUS,
                    sizeof(info[i].key)) == 0 &&
            info[i].value.type == PMIX_STATUS)
            return info[i].value.data.status != PMIX_SUCCESS;
    return 0;
}

/* Takes part in a fence of all ranks; data are ours to free. */
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t proc_count,
                              const pmix_info_t info[], size_t info_count,
                              char *data, size_t len, pmix_modex_cbfunc_t done,
                              void *arg)
{
    struct pmix_wire_item m = {.data = data, .len = data ? len : 0};
    pmix_status_t rc = PMIX_SUCCESS;

    if (proc_count != 1 || !is_own(&procs[0]) ||
        procs[0].rank != PMIX_RANK_WILDCARD)
        rc = PMIX_ERR_NOT_SUPPORTED;
    else if (m.len > PMIX_WIRE_DATA_MAX)
        rc = PMIX_ERR_OUT_OF_RESOURCE;
    else if (is_broken(info, info_count) ||
             server_wait_fence(done, arg, &m.id) < 0)
        rc = PMIX_ERR_LOST_CONNECTION;
    if (rc == PMIX_ERR_LOST_CONNECTION)
        m = (struct pmix_wire_item){.status = PMIX_WIRE_PEER_LOST};
    if (rc == PMIX_SUCCESS || rc == PMIX_ERR_LOST_CONNECTION)
        server_send(PMIX_WIRE_FENCE, &m);
    free(data);
    return rc;
}

/* ---- Data of one rank ------------------------------------------------- */

/* Asks for the data of a rank on another host. */
static pmix_status_t on_want(const pmix_proc_t *proc, const pmix_info_t info[],
                             size_t count, pmix_modex_cbfunc_t done, void *arg)
{
    int rc;

    (void)info;
    (void)count;
    if (!is_rank(proc))
        return PMIX_ERR_NOT_FOUND;
    rc = server_wait_data(proc->rank, done, arg);
    if (rc == 0)
        tell(PMIX_WIRE_WANT, proc->rank);
    return rc < 0 ? PMIX_ERR_LOST_CONNECTION : PMIX_SUCCESS;
}

static void on_answer(pmix_status_t status, char *data, size_t len, void *arg)
{
    uint32_t *rank = arg;
    struct pmix_wire_item m = {.id = *rank, .data = data, .len = len};

    if (status != PMIX_SUCCESS || len > PMIX_WIRE_DATA_MAX) {
        m.status = PMIX_WIRE_NO_DATA;
        m.data = NULL;
        m.len = 0;
    }
    server_send(PMIX_WIRE_ANSWER, &m);
    hb_free(rank);
}

_Static_assert(sizeof(pmix_nspace_t) >= PMIX_WIRE_NAME_MAX,
               "a job's name must fit");

static void set_proc(pmix_proc_t *proc, uint32_t rank)
{
    memset(proc, 0, sizeof(*proc));
    memcpy(proc->nspace, server.job.nspace, sizeof(server.job.nspace));
    proc->rank = rank;
}

void server_ask(uint32_t rank)
{
    uint32_t *copy = hb_xmalloc(sizeof(*copy));
    pmix_status_t rc = PMIX_ERR_NOT_FOUND;
    pmix_proc_t proc;

    *copy = rank;
    set_proc(&proc, rank);
    if (is_local(&proc))
        rc = server.lib.dmodex_request(&proc, on_answer, copy);
    if (rc != PMIX_SUCCESS)
        on_answer(rc, NULL, 0, copy);
}

/* ---- Opening ---------------------------------------------------------- */

/* Larger than the table of this build's PMIx: a later library copies more
 * entries, which it must find to be NULL. */
static union {
    pmix_server_module_t table;
    void *room[128];
} module = {.table = {
                .client_connected = on_connected,
                .client_finalized = on_finalized,
                .abort = on_abort,
                .fence_nb = on_fence,
                .direct_modex = on_want,
                .spawn = on_spawn,
                .client_connected2 = on_connected2,
            }};

/* Returns whether a call of PMIx without a callback has failed: there are two
 * statuses for success. */
static int failed(pmix_status_t rc)
{
    return rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED;
}

static int start(struct hb_error *err)
{
    struct keys keys = KEYS_INIT;
    pmix_status_t rc;

    keys_of_server(&server.job, &keys);
    rc = server.lib.init(&module.table, keys.items, keys.count);
    keys_free(&keys);
    if (rc != PMIX_SUCCESS)
        return library_error(&server.lib, rc, "cannot start PMIx's server",
                             err);
    return 0;
}

static int add_job(struct hb_error *err)
{
    struct keys keys = KEYS_INIT;
    pmix_nspace_t nspace = {0};
    pmix_status_t rc;

    memcpy(nspace, server.job.nspace, sizeof(server.job.nspace));
    if (keys_of_job(&server.lib, &server.job, &keys, err) == 0) {
        rc = server.lib.register_nspace(nspace,
                                        (int)keys_local_count(&server.job),
                                        keys.items, keys.count, NULL, NULL);
        if (failed(rc))
            library_error(&server.lib, rc, "PMIx refuses the job", err);
    }
    keys_free(&keys);
    return err->status;
}

static int add_rank(uint32_t rank, struct hb_strv *env, struct hb_error *err)
{
    char **made = NULL;
    pmix_proc_t proc;
    pmix_status_t rc;

    set_proc(&proc, rank);
    rc = server.lib.register_client(&proc, server.job.uid, server.job.gid, NULL,
                                    NULL, NULL);
    if (!failed(rc))
        rc = server.lib.setup_fork(&proc, &made);
    if (failed(rc))
        return library_error(&server.lib, rc, "PMIx refuses a rank", err);
    hb_must(hb_strv_add_all(env, made));
    for (char **e = made; e && *e; e++)
        free(*e);
    free(made);
    return 0;
}

static int add_ranks(struct pmix_ready *ready, struct hb_error *err)
{
    int rc = 0;

    ready->ranks =
        hb_xcalloc(keys_local_count(&server.job) + 1, sizeof(*ready->ranks));
    for (uint32_t i = 0; i < server.job.size && rc == 0; i++) {
        if (server.job.host_of[i] != server.job.host_index)
            continue;
        ready->ranks[ready->count].rank = i;
        rc = add_rank(i, &ready->ranks[ready->count++].env, err);
    }
    return rc;
}

int server_open(struct hb_error *err)
{
    struct pmix_ready ready = {NULL, 0};
    struct hb_buf out = HB_BUF_INIT;
    int rc = library_open(server.job.library, &server.lib, err);

    if (rc == 0)
        rc = start(err);
    if (rc == 0)
        rc = add_job(err);
    if (rc == 0)
        rc = add_ranks(&ready, err);
    if (rc == 0 && pmix_wire_encode_ready(&out, &ready) < 0)
        rc = hb_error_set(err, HVD_EUNSUPPORTED,
                          "PMIx wants more variables than expected");
    if (rc == 0)
        server_send_buf(&out);
    hb_buf_free(&out);
    pmix_ready_fini(&ready);
    return rc;
}
