/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire-up by PMIx, for Open MPI: hvd-pmix serves the ranks of this host, and
 * this module lets it meet those of other hosts.
 *
 *     open    make a directory, start hvd-pmix, send SETUP; READY opens
 *     close   end hvd-pmix; when it is dead, remove the directory
 */
#include "lib/agent/wireup/pmix/pmix.h"

#include "lib/agent/wireup/pmix/pmix_env.h"
#include "lib/agent/wireup/pmix/pmix_modex.h"
#include "lib/agent/wireup/pmix/pmix_server.h"
#include "lib/agent/wireup/wireup_dir.h"

#include "lib/agent/guardian.h"
#include "lib/agent/trace_dir.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium/crypto_generichash_blake2b.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_LAUNCHER = 125,
    OPEN_MS = 30000,
    CLOSE_MS = 3000,
    DOOM_MS = 2000,
    MODEX_MS = 120000,
};

#define MODEX_LIMIT "HVD_PMIX_TIMEOUT"

struct pmix {
    struct wireup *wireup;
    struct pmix_server server;
    struct pmix_modex modex;
    struct pmix_ready ready;
    struct pmix_absent absent;
    char *dir;
    int dir_lock;
    int is_ready, closing, lost;
    struct hb_error failure; /* why it ends; not set: unexpectedly */
    int *slot_of;            /* by rank: local rank, or -1 */
    /* How long a rank waits for another one's data, and the timer for that,
     * which runs once a rank has asked for some. */
    int64_t modex_ms;
    uv_timer_t modex_timer;
    int modex_timed;
};

static const struct control_launch *job_of(const struct pmix *p)
{
    return p->wireup->config.job;
}

/* Sends a message to hvd-pmix. */
static void tell(struct pmix *p, enum pmix_wire_type type,
                 const struct pmix_wire_item *m)
{
    if (p->server.fd < 0)
        return;
    hb_must(pmix_wire_encode(pmix_server_out(&p->server), type, m));
    pmix_server_flush(&p->server);
}

static void tell_id(struct pmix *p, enum pmix_wire_type type, uint32_t id)
{
    const struct pmix_wire_item m = {.id = id};

    tell(p, type, &m);
}

/* Lets no fence succeed any more. */
static void lose(struct pmix *p, uint32_t rank)
{
    if (!p->lost)
        tell_id(p, PMIX_WIRE_LOST, rank);
    p->lost = 1;
}

/* ---- Opening ---------------------------------------------------------- */

static void make_dir_known(struct pmix *p, const char *path)
{
    char *shared = p->wireup->config.guarded_dir;

    if (shared)
        snprintf(shared, GUARDIAN_PATH_MAX, "%s", path);
}

static void remove_dir(struct pmix *p)
{
    if (!p->dir)
        return;
    if (wireup_dir_remove(AT_FDCWD, p->dir) == 0)
        make_dir_known(p, ""); /* else the guardian tries again */
    if (p->dir_lock >= 0)
        close(p->dir_lock);
    hb_free(p->dir);
    p->dir = NULL;
}

static void map_slots(struct pmix *p)
{
    const struct control_launch *job = job_of(p);

    p->slot_of = hb_xcalloc((size_t)job->size, sizeof(*p->slot_of));
    for (int i = 0; i < job->size; i++)
        p->slot_of[i] = -1;
    for (int i = 0; i < job->rank_count; i++)
        p->slot_of[job->ranks[i].rank] = i;
}

/* Names the host for PMIx: by the plan, where names differ. */
static void fill_hosts(const struct control_launch *job, struct hb_strv *out)
{
    if (job->host_names.count == 0)
        hb_must(hb_strv_add(out, job->host));
    for (size_t i = 0; i < job->host_names.count; i++)
        hb_must(hb_strv_add(out, job->host_names.items[i]));
}

/* Makes the job's name for PMIx, the same on all its hosts.  Who knows the name
 * can connect to hvd-pmix, so the name is a hash of the job's secret. */
static void name_job(const struct control_launch *job,
                     char name[PMIX_WIRE_NAME_MAX])
{
    static const unsigned char purpose[] = "pmix";
    unsigned char hash[crypto_generichash_blake2b_BYTES_MIN];
    char hex[2 * sizeof(hash) + 1];

    crypto_generichash_blake2b(hash, sizeof(hash), purpose, sizeof(purpose),
                               job->secret, sizeof(job->secret));
    sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
    snprintf(name, PMIX_WIRE_NAME_MAX, "hvdrun-%s", hex);
}

static int send_setup(struct pmix *p, struct hb_error *err)
{
    const struct control_launch *job = job_of(p);
    const char *library = hb_env_get(&job->env, "HVD_PMIX_LIBRARY");
    struct pmix_setup m = {
        .size = (uint32_t)job->size,
        .host_index = job->host_names.count ? (uint32_t)job->host_index : 0,
        .uid = geteuid(),
        .gid = getegid(),
    };
    int rc;

    if (library && strlen(library) >= sizeof(m.library))
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_PMIX_LIBRARY has more than %d bytes",
                            PMIX_WIRE_PATH_MAX - 1);
    name_job(job, m.nspace);
    if (!library || !*library)
        library = p->wireup->config.pmix;
    snprintf(m.library, sizeof(m.library), "%s",
             library ? library : "libpmix.so.2");
    snprintf(m.dir, sizeof(m.dir), "%s", p->dir);
    fill_hosts(job, &m.hosts);
    m.host_of = hb_xcalloc((size_t)job->size, sizeof(*m.host_of));
    for (int i = 0; i < job->size && job->host_names.count; i++)
        m.host_of[i] = (uint32_t)p->modex.hosts[i];
    rc = pmix_wire_encode_setup(pmix_server_out(&p->server), &m);
    pmix_setup_fini(&m);
    if (rc < 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "PMIx takes no host's name with a comma or a "
                            "semicolon, and at most %d bytes of it",
                            PMIX_WIRE_NAME_MAX - 1);
    pmix_server_flush(&p->server);
    return 0;
}

static int start_server(struct pmix *p, struct hb_error *err)
{
    struct wireup *w = p->wireup;
    struct hb_strv env = pmix_env_server(&job_of(p)->env, &p->absent);
    int rc = pmix_server_start(&p->server, w->config.loop, env.items,
                               &w->helper, err);

    hb_strv_free(&env);
    return rc;
}

static int on_frame(void *arg, const struct frame *f, struct hb_error *err);
static void on_error(void *arg, const struct hb_error *err);
static const struct pmix_modex_events modex_events;

static void pmix_fini(struct wireup *w)
{
    struct pmix *p = w->state;

    if (!p)
        return;
    pmix_server_close(&p->server);
    pmix_server_fini(&p->server);
    pmix_modex_close(&p->modex);
    pmix_ready_fini(&p->ready);
    pmix_absent_fini(&p->absent);
    remove_dir(p);
    hb_free(p->slot_of);
    hb_free(p);
    w->state = NULL;
}

static int read_limit(struct pmix *p, struct hb_error *err)
{
    const char *text = hb_env_get(&job_of(p)->env, MODEX_LIMIT);
    int rc;

    p->modex_ms = MODEX_MS;
    if (!text || !*text)
        return 0;
    rc = hb_parse_duration_ms(text, &p->modex_ms, err);
    if (rc == 0 && p->modex_ms < 1)
        rc = hb_error_set(err, HVD_EINVAL, "it must be positive");
    if (rc < 0)
        hb_error_context(err, MODEX_LIMIT);
    return rc;
}

static void look_at_host(struct pmix *p)
{
    const struct wireup_config *c = &p->wireup->config;

    pmix_absent_init(job_of(p), c->library, &p->absent);
    if (p->absent.fabric)
        hb_log(c->log, HB_LOG_INFO,
               "this host has no fabric such as InfiniBand, so none is "
               "looked for%s%s",
               p->absent.mtl ? "; OMPI_MCA_mtl=" : "",
               p->absent.mtl ? p->absent.mtl : "");
}

static int pmix_open(struct wireup *w, struct hb_error *err)
{
    struct pmix *p = w->state = hb_xcalloc(1, sizeof(*p));
    int rc;

    p->wireup = w;
    p->dir_lock = -1;
    p->server = (struct pmix_server){
        .on_frame = on_frame, .on_error = on_error, .arg = p, .fd = -1};
    p->modex = (struct pmix_modex){.relay = w->config.relay,
                                   .job = w->config.job,
                                   .events = &modex_events,
                                   .arg = p};
    rc = read_limit(p, err);
    if (rc == 0)
        rc = wireup_dir_make(job_of(p)->job_id, job_of(p)->host_index, &p->dir,
                             err);
    if (rc == 0) {
        make_dir_known(p, p->dir);
        p->dir_lock = trace_dir_hold(p->dir);
        map_slots(p);
        look_at_host(p);
        rc = start_server(p, err);
    }
    if (rc == 0) {
        pmix_modex_open(&p->modex);
        if (send_setup(p, err) < 0) {
            /* It is open, to be closed when its process has ended. */
            p->failure = *err;
            hb_error_clear(err);
            pmix_server_close(&p->server);
        }
        return WIREUP_LATER;
    }
    remove_dir(p);
    return rc;
}

/* ---- What hvd-pmix says ----------------------------------------------- */

/* Ends hvd-pmix because of a failure, which is told when it is dead. */
static void stop(struct pmix *p, const struct hb_error *err)
{
    if (!p->failure.status)
        p->failure = *err;
    pmix_server_close(&p->server);
    if (p->wireup->helper)
        kill(-p->wireup->helper, SIGKILL);
}

static void on_error(void *arg, const struct hb_error *err)
{
    stop(arg, err);
}

static int on_ready(struct pmix *p, const struct frame *f)
{
    struct pmix_ready m;
    int slot = 0, rc = pmix_wire_decode_ready(f->payload, f->len, &m);

    if (rc < 0)
        return rc;
    while (slot < (int)m.count && slot < job_of(p)->rank_count &&
           m.ranks[slot].rank == (uint32_t)job_of(p)->ranks[slot].rank)
        slot++;
    if (p->is_ready || slot != (int)m.count || slot != job_of(p)->rank_count) {
        pmix_ready_fini(&m);
        return -HVD_EPROTO;
    }
    p->ready = m;
    p->is_ready = 1;
    wireup_opened(p->wireup, NULL);
    return 0;
}

static int on_failed(struct pmix *p, const struct pmix_wire_item *m)
{
    struct hb_error err = HB_ERROR_INIT;

    hb_error_set(&err, HVD_ESYSTEM,
                 "%.*s; install libpmix2, or name it with -x "
                 "HVD_PMIX_LIBRARY=PATH, or use --mpi",
                 (int)m->len, (const char *)m->data);
    stop(p, &err);
    return 0;
}

static int on_abort(struct pmix *p, int slot, const struct pmix_wire_item *m)
{
    char text[64];
    struct wireup_abort abort = {.slot = slot, .text = text};

    snprintf(text, sizeof(text), "it called MPI_Abort with code %d",
             (int)m->status);
    /* What a shell would see of it, but never success. */
    abort.exit_code = m->status & 0xff ? m->status & 0xff : 1;
    wireup_abort(p->wireup, &abort);
    return 0;
}

/* Handles a message about one of this host's ranks. */
static int on_rank(struct pmix *p, uint8_t type, const struct pmix_wire_item *m)
{
    int slot = m->id < (uint32_t)job_of(p)->size ? p->slot_of[m->id] : -1;

    if (slot < 0)
        return -HVD_EPROTO;
    switch (type) {
    case PMIX_WIRE_CONNECTED:
        wireup_connected(p->wireup, slot);
        return 0;
    case PMIX_WIRE_FINALIZED:
        wireup_finished(p->wireup, slot);
        return 0;
    case PMIX_WIRE_ANSWER:
        pmix_modex_answer(&p->modex, m);
        return 0;
    case PMIX_WIRE_ABORT:
        return on_abort(p, slot, m);
    case PMIX_WIRE_SPAWN:
        wireup_refused_spawn(p->wireup, slot);
        return 0;
    default:
        return -HVD_EPROTO;
    }
}

/* Takes this host's part of a fence to the others, unless a rank has left it.
 */
static void give(struct pmix *p, const struct pmix_wire_item *m)
{
    if (m->status == PMIX_WIRE_OK) {
        pmix_modex_fence(&p->modex, m);
        return;
    }
    wireup_doom(p->wireup, 0,
                "another rank of its host has left PMIx before MPI_Finalize");
}

static void on_modex_time(uv_timer_t *timer)
{
    struct pmix *p = timer->data;
    uint64_t now = uv_now(timer->loop);
    uint64_t due = pmix_modex_expire(&p->modex, now);

    if (due)
        uv_timer_start(timer, on_modex_time, due - now, 0);
}

/* Asks another host for a rank's data. */
static void want(struct pmix *p, uint32_t rank)
{
    uv_loop_t *loop = p->wireup->config.loop;

    if (!p->modex_timed) {
        uv_timer_init(loop, &p->modex_timer);
        p->modex_timer.data = p;
        p->modex_timed = 1;
    }
    pmix_modex_want(&p->modex, rank, uv_now(loop) + (uint64_t)p->modex_ms);
    if (!uv_is_active((uv_handle_t *)&p->modex_timer))
        uv_timer_start(&p->modex_timer, on_modex_time, (uint64_t)p->modex_ms,
                       0);
}

static int on_item(struct pmix *p, uint8_t type, const struct pmix_wire_item *m)
{
    switch (type) {
    case PMIX_WIRE_FAILED:
        return p->is_ready ? -HVD_EPROTO : on_failed(p, m);
    case PMIX_WIRE_FENCE:
        give(p, m);
        return 0;
    case PMIX_WIRE_WANT:
        if (!p->is_ready)
            return -HVD_EPROTO;
        want(p, m->id);
        return 0;
    default:
        return on_rank(p, type, m);
    }
}

static int on_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct pmix_wire_item m;
    struct pmix *p = arg;
    int rc;

    if (f->type == PMIX_WIRE_READY) {
        rc = on_ready(p, f);
    } else {
        rc = pmix_wire_decode(f->type, f->payload, f->len, &m);
        if (rc == 0)
            rc = on_item(p, f->type, &m);
    }
    if (rc < 0)
        hb_error_set(err, HVD_EPROTO,
                     "hvd-pmix sent a malformed message of type %d", f->type);
    return rc;
}

/* ---- What other hosts say --------------------------------------------- */

static void on_fence(void *arg, const struct pmix_wire_item *m, int blames,
                     const char *text)
{
    struct pmix *p = arg;

    tell(p, PMIX_WIRE_FENCE_DONE, m);
    if (m->status == PMIX_WIRE_OK)
        return;
    lose(p, blames > 0 ? (uint32_t)blames - 1 : 0);
    wireup_doom(p->wireup, blames, text);
}

static void on_data(void *arg, const struct pmix_wire_item *m)
{
    tell(arg, PMIX_WIRE_WANTED, m);
}

/* Ends a rank that waits: with an answer, MPI would fail with less to say. */
static void on_late(void *arg, uint32_t rank)
{
    struct pmix *p = arg;
    char text[160];

    snprintf(text, sizeof(text),
             "rank %u did not give its addresses for direct modex within %g s "
             "(" MODEX_LIMIT "); is it in MPI_Init?",
             rank, (double)p->modex_ms / 1e3);
    wireup_doom(p->wireup, 0, text);
}

static void on_wanted(void *arg)
{
    struct pmix *p = arg;

    for (int i = 0; i < job_of(p)->rank_count; i++)
        tell_id(p, PMIX_WIRE_ASK, (uint32_t)job_of(p)->ranks[i].rank);
}

static const struct pmix_modex_events modex_events = {on_fence, on_data,
                                                      on_late, on_wanted};

/* ---- Ranks ------------------------------------------------------------ */

static void pmix_environment(struct wireup *w, int slot, struct hb_strv *out)
{
    struct pmix *p = w->state;

    hb_must(hb_strv_add_all(out, p->ready.ranks[slot].env.items));
    pmix_env_rank(job_of(p), slot, p->dir, &p->absent, out);
}

/* Reads first: a rank that finalized waited for hvd-pmix, so the message is
 * there by now. */
static int pmix_rank_ended(struct wireup *w, int slot)
{
    struct pmix *p = w->state;

    pmix_server_read(&p->server);
    if (w->slots[slot].connected && !w->slots[slot].finished)
        lose(p, (uint32_t)job_of(p)->ranks[slot].rank);
    return WIREUP_NOW;
}

/* ---- The end ---------------------------------------------------------- */

/* Describes the death of hvd-pmix, unless a better reason is known. */
static void describe_end(struct pmix *p, const siginfo_t *info)
{
    char name[HB_SIGNAL_NAME_MAX];

    if (info->si_code == CLD_EXITED)
        hb_error_set(&p->failure, HVD_ESYSTEM,
                     "hvd-pmix ended unexpectedly with exit code %d",
                     info->si_status);
    else
        hb_error_set(&p->failure, HVD_ESYSTEM,
                     "hvd-pmix was killed by signal %d (%s)", info->si_status,
                     hb_signal_name(info->si_status, name));
}

static void pmix_helper_ended(struct wireup *w, const siginfo_t *info)
{
    struct pmix *p = w->state;
    struct wireup_abort abort = {.slot = -1, .exit_code = EXIT_LAUNCHER};

    pmix_server_read(&p->server);
    pmix_server_close(&p->server);
    if (p->closing) {
        remove_dir(p);
        wireup_closed(w);
        return;
    }
    describe_end(p, info);
    if (!p->is_ready) { /* pmix_close may not follow */
        pmix_modex_close(&p->modex);
        remove_dir(p);
        hb_error_context(&p->failure, "--wireup pmix");
        wireup_opened(w, &p->failure);
        return;
    }
    abort.text = p->failure.text;
    wireup_abort(w, &abort);
}

static int pmix_close(struct wireup *w)
{
    struct pmix *p = w->state;

    p->closing = 1;
    if (p->modex_timed)
        uv_close((uv_handle_t *)&p->modex_timer, NULL);
    p->modex_timed = 0;
    pmix_server_close(&p->server);
    pmix_modex_close(&p->modex);
    if (w->helper) { /* it has nothing to finish */
        kill(-w->helper, SIGKILL);
        return WIREUP_LATER;
    }
    remove_dir(p);
    return WIREUP_NOW;
}

const struct wireup_kind wireup_pmix = {
    .name = "pmix",
    .what = "Open MPI",
    .open_ms = OPEN_MS,
    .close_ms = CLOSE_MS,
    .doom_ms = DOOM_MS,
    .open = pmix_open,
    .environment = pmix_environment,
    .rank_ended = pmix_rank_ended,
    .helper_ended = pmix_helper_ended,
    .close = pmix_close,
    .fini = pmix_fini,
};
