/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a server and of a job; see keys.h. */
#include "cmd/hvd-pmix/keys.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <stdlib.h>
#include <string.h>

/* Above this size of a job the library makes each rank's part from the maps:
 * 65536 ranks would take 200 MB. */
enum { PROC_DATA_MAX = 8192 };

/* ---- Lists ------------------------------------------------------------ */

static pmix_value_t *add(struct keys *keys, const char *key,
                         pmix_data_type_t type)
{
    pmix_info_t *info;

    if (keys->count == keys->cap) {
        keys->cap = keys->cap ? 2 * keys->cap : 16;
        keys->items =
            hb_xrealloc_array(keys->items, keys->cap, sizeof(*keys->items));
    }
    info = &keys->items[keys->count++];
    memset(info, 0, sizeof(*info));
    strncpy(info->key, key, PMIX_MAX_KEYLEN);
    info->value.type = type;
    return &info->value;
}

static void add_string(struct keys *keys, const char *key, const char *s)
{
    add(keys, key, PMIX_STRING)->data.string = hb_xstrdup(s);
}

static void add_u32(struct keys *keys, const char *key, uint32_t v)
{
    add(keys, key, PMIX_UINT32)->data.uint32 = v;
}

static void add_u16(struct keys *keys, const char *key, uint32_t v)
{
    add(keys, key, PMIX_UINT16)->data.uint16 = (uint16_t)v;
}

static void add_rank(struct keys *keys, const char *key, pmix_rank_t v)
{
    add(keys, key, PMIX_PROC_RANK)->data.rank = v;
}

static void add_true(struct keys *keys, const char *key)
{
    add(keys, key, PMIX_BOOL)->data.flag = 1;
}

static void free_items(pmix_info_t *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pmix_value_t *v = &items[i].value;

        if (v->type == PMIX_STRING)
            hb_free(v->data.string);
        else if (v->type == PMIX_REGEX)
            free(v->data.bo.bytes); /* the library's */
        else if (v->type == PMIX_DATA_ARRAY) {
            free_items(v->data.darray->array, v->data.darray->size);
            hb_free(v->data.darray);
        }
    }
    hb_free(items);
}

void keys_free(struct keys *keys)
{
    free_items(keys->items, keys->count);
    *keys = (struct keys)KEYS_INIT;
}

/* ---- The server ------------------------------------------------------- */

void keys_of_server(const struct pmix_setup *job, struct keys *keys)
{
    char name[PMIX_MAX_NSLEN + 1] = "hvdrun-server";

    add_string(keys, PMIX_SERVER_NSPACE, name);
    add_rank(keys, PMIX_SERVER_RANK, job->host_index);
    add_string(keys, PMIX_SERVER_TMPDIR, job->dir);
    add_string(keys, PMIX_SYSTEM_TMPDIR, job->dir);
    add_string(keys, PMIX_HOSTNAME, job->hosts.items[job->host_index]);
    /* The ranks then need not look at the machine by themselves. */
    add_true(keys, PMIX_SERVER_SHARE_TOPOLOGY);
}

/* ---- Maps ------------------------------------------------------------- */

/* Adds a map, which the library writes in a form of its own. */
static int add_map(const struct library *lib, struct keys *keys,
                   const char *key,
                   pmix_status_t (*make)(const char *, char **),
                   const struct hb_buf *plain, struct hb_error *err)
{
    char *made = NULL;
    pmix_status_t rc = make(hb_buf_data(plain), &made);
    pmix_value_t *value;

    if (rc != PMIX_SUCCESS)
        return library_error(lib, rc, "cannot describe the ranks to PMIx", err);
    value = add(keys, key, PMIX_REGEX);
    /* It may hold bytes of 0, and then only the library knows its length. */
    if (lib->value_load) {
        rc = lib->value_load(value, made, PMIX_REGEX);
        free(made);
    } else {
        value->data.bo.bytes = made;
        value->data.bo.size = strlen(made) + 1;
    }
    return rc == PMIX_SUCCESS
               ? 0
               : library_error(lib, rc, "cannot describe the ranks to PMIx",
                               err);
}

static void list_hosts(const struct pmix_setup *job, struct hb_buf *out)
{
    for (size_t i = 0; i < job->hosts.count; i++)
        hb_must(hb_buf_printf(out, "%s%s", i ? "," : "", job->hosts.items[i]));
}

static void list_ranks(const struct pmix_setup *job, uint32_t host,
                       struct hb_buf *out)
{
    const char *comma = "";

    for (uint32_t i = 0; i < job->size; i++)
        if (job->host_of[i] == host) {
            hb_must(hb_buf_printf(out, "%s%u", comma, i));
            comma = ",";
        }
}

/* Appends the ranks of each host: "0,1;2,3". */
static void list_all_ranks(const struct pmix_setup *job, struct hb_buf *out)
{
    struct hb_buf *lists = hb_xcalloc(job->hosts.count, sizeof(*lists));

    for (uint32_t i = 0; i < job->size; i++) {
        struct hb_buf *list = &lists[job->host_of[i]];

        hb_must(hb_buf_printf(list, "%s%u", hb_buf_len(list) ? "," : "", i));
    }
    for (size_t i = 0; i < job->hosts.count; i++) {
        hb_must(
            hb_buf_printf(out, "%s%s", i ? ";" : "", hb_buf_data(&lists[i])));
        hb_buf_free(&lists[i]);
    }
    hb_free(lists);
}

static int add_maps(const struct library *lib, const struct pmix_setup *job,
                    struct keys *keys, struct hb_error *err)
{
    struct hb_buf plain = HB_BUF_INIT;
    int rc;

    list_hosts(job, &plain);
    rc = add_map(lib, keys, PMIX_NODE_MAP, lib->generate_regex, &plain, err);
    hb_buf_clear(&plain);
    list_all_ranks(job, &plain);
    if (rc == 0)
        rc = add_map(lib, keys, PMIX_PROC_MAP, lib->generate_ppn, &plain, err);
    hb_buf_clear(&plain);
    list_ranks(job, job->host_index, &plain);
    add_string(keys, PMIX_LOCAL_PEERS, hb_buf_data(&plain));
    hb_buf_free(&plain);
    return rc;
}

/* ---- Ranks ------------------------------------------------------------ */

/* Adds what PMIx knows of one rank.  PMIX_RANK must come first; without one of
 * the others, ranks would hang in MPI_Init. */
static void add_proc(const struct pmix_setup *job, struct keys *keys,
                     uint32_t rank, uint32_t local_rank)
{
    uint32_t host = job->host_of[rank];
    struct keys one = KEYS_INIT;
    pmix_data_array_t *array = hb_xcalloc(1, sizeof(*array));

    add_rank(&one, PMIX_RANK, rank);
    add_rank(&one, PMIX_GLOBAL_RANK, rank);
    add_rank(&one, PMIX_APP_RANK, rank);
    add_u32(&one, PMIX_APPNUM, 0);
    add_u16(&one, PMIX_LOCAL_RANK, local_rank);
    add_u16(&one, PMIX_NODE_RANK, local_rank);
    add_u32(&one, PMIX_NODEID, host);
    add_string(&one, PMIX_HOSTNAME, job->hosts.items[host]);
    array->type = PMIX_INFO;
    array->array = one.items;
    array->size = one.count;
    add(keys, PMIX_PROC_DATA, PMIX_DATA_ARRAY)->data.darray = array;
}

static void add_procs(const struct pmix_setup *job, struct keys *keys)
{
    uint32_t *next = hb_xcalloc(job->hosts.count, sizeof(*next));

    for (uint32_t i = 0; i < job->size; i++)
        add_proc(job, keys, i, next[job->host_of[i]]++);
    hb_free(next);
}

uint32_t keys_local_count(const struct pmix_setup *job)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->size; i++)
        count += job->host_of[i] == job->host_index;
    return count;
}

static uint32_t lowest_local(const struct pmix_setup *job)
{
    uint32_t i = 0;

    while (i + 1 < job->size && job->host_of[i] != job->host_index)
        i++;
    return i;
}

int keys_of_job(const struct library *lib, const struct pmix_setup *job,
                struct keys *keys, struct hb_error *err)
{
    uint32_t local = keys_local_count(job);

    add_string(keys, PMIX_JOBID, job->nspace);
    add_u32(keys, PMIX_UNIV_SIZE, job->size);
    add_u32(keys, PMIX_JOB_SIZE, job->size);
    add_u32(keys, PMIX_MAX_PROCS, job->size);
    add_u32(keys, PMIX_JOB_NUM_APPS, 1);
    add_u32(keys, PMIX_NUM_NODES, (uint32_t)job->hosts.count);
    add_u32(keys, PMIX_LOCAL_SIZE, local);
    add_u32(keys, PMIX_NODE_SIZE, local);
    add_u32(keys, PMIX_NODEID, job->host_index);
    add_rank(keys, PMIX_LOCALLDR, lowest_local(job));
    /* MPI makes its files there, and leaves it to us to remove them. */
    add_string(keys, PMIX_TMPDIR, job->dir);
    add_string(keys, PMIX_NSDIR, job->dir);
    add_true(keys, PMIX_TDIR_RMCLEAN);
    if (add_maps(lib, job, keys, err) < 0)
        return err->status;
    if (job->size <= PROC_DATA_MAX)
        add_procs(job, keys);
    return 0;
}
