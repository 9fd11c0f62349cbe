/* SPDX-License-Identifier: Apache-2.0 */
/* A world that an MPI launcher started; see mpi_context.h. */
#include "runtime/core/set/mpi_context.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/protocol/segment_fd.h"
#include "lib/protocol/worker.h"
#include "runtime/core/set/connect.h"
#include "runtime/core/world/launcher.h"
#include "runtime/core/world/plugin_load.h"
#include "runtime/core/world/segment_map.h"
#include "runtime/plane/shm/shm.h"
#include "runtime/plugins/mpi_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Global, as MPI's own plug-ins look for MPI's symbols. */
static struct hvd__plugin plugin = {"libhvd-mpi.so", "an MPI", RTLD_GLOBAL,
                                    NULL};

enum choice { CHOICE_AUTO, CHOICE_NATIVE, CHOICE_MPI, CHOICE_NONE };

static const char *const choice_names[] = {"auto", "native", "mpi"};

/* What each rank tells all others. */
struct card {
    uint32_t choice;
    int32_t pid, fd; /* of a host's leader; fd -1: no segment */
    uint64_t arena_bytes;
    unsigned char nonce[SEGMENT_NONCE_BYTES];
};

static struct {
    struct hvd__launcher launcher;
    const struct hvd__mpi *mpi; /* NULL: not open */
    struct hvd__mpi_world world;
    enum choice choice;
    struct card *cards;    /* [world.size] */
    unsigned char *shares; /* [world.size]: ranks of its host share memory */
    struct segment_head *head;
    int failed; /* MPI has failed */
} mpi;

/* Notes a failure in a status returned by the plug-in. */
static int note_failure(int rc)
{
    mpi.failed |= rc < 0;
    return rc;
}

static pid_t began;              /* process that initialised MPI; 0: none */
static void (*tell_peers)(void); /* that this rank leaves; if began */

/* ---- Which plane --------------------------------------------------------- */

static int read_choice(enum choice *choice, struct hb_error *err)
{
    const char *text = hb_knob("CPU_PLANE");
    const char *operations = hb_knob("CPU_OPERATIONS");

    *choice = CHOICE_AUTO;
    if (!text && operations && strcasecmp(operations, "mpi") == 0)
        *choice = CHOICE_MPI;
    if (!text && operations && strcasecmp(operations, "gloo") == 0)
        *choice = CHOICE_NATIVE;
    if (!text)
        return 0;
    for (int i = CHOICE_AUTO; i <= (int)CHOICE_MPI; i++)
        if (strcmp(text, choice_names[i]) == 0) {
            *choice = (enum choice)i;
            return 0;
        }
    return hb_error_set(err, HVD_EINVAL,
                        "HVD_CPU_PLANE: \"%s\" is not one of auto, native, mpi",
                        text);
}

static int refuse(struct hb_error *err)
{
    enum choice choice;
    int rc = read_choice(&choice, err);

    if (rc == 0 && choice == CHOICE_MPI)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "HVD_CPU_PLANE: mpi needs an MPI launcher; use "
                            "hvdrun --mpi or --wireup, or mpirun");
    return rc;
}

/* Returns whether the n world ranks `ranks` are to use the native plane: they
 * share a host and memory. */
static int is_native(const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (mpi.world.host_of[ranks[i]] != mpi.world.host_of[ranks[0]])
            return 0;
    return mpi.shares[ranks[0]];
}

static int host_index(int rank)
{
    return mpi.world.host_of[rank];
}

static const char *host_name(int rank)
{
    return mpi.world.hosts[mpi.world.host_of[rank]];
}

/* ---- The ranks ----------------------------------------------------------- */

/* Compares all ranks' choices: all see the same cards, so all reach the same
 * verdict. */
static int compare_choices(struct hb_error *err)
{
    for (int r = 0; r < mpi.world.size; r++)
        if (mpi.cards[r].choice >= CHOICE_NONE)
            return hb_error_set(err, HVD_EINVAL,
                                "HVD_CPU_PLANE of rank %d is not one of auto, "
                                "native, mpi",
                                r);
    for (int r = 1; r < mpi.world.size; r++)
        if (mpi.cards[r].choice != mpi.cards[0].choice)
            return hb_error_set(
                err, HVD_EMISMATCH,
                "HVD_CPU_PLANE is %s on rank 0 and %s on rank %d",
                choice_names[mpi.cards[0].choice],
                choice_names[mpi.cards[r].choice], r);
    return 0;
}

static int agree_on_status(int rc, struct hb_error *err)
{
    const struct hvd__mpi_world *m = &mpi.world;
    int who,
        heard = note_failure(mpi.mpi->agree(rc < 0, &who, rc < 0 ? NULL : err));

    if (rc < 0 || heard < 0)
        return rc < 0 ? rc : heard;
    if (who < 0)
        return 0;
    if (err) {
        err->rank = who;
        snprintf(err->host, sizeof(err->host), "%s", m->hosts[m->host_of[who]]);
    }
    return hb_error_set(err, HVD_ESHUTDOWN,
                        "rank %d on host %s has failed in hvd_init", who,
                        m->hosts[m->host_of[who]]);
}

static int ranks_on(int host)
{
    int n = 0;

    for (int r = 0; r < mpi.world.size; r++)
        n += mpi.world.host_of[r] == host;
    return n;
}

/* Finds this rank's place among the hosts that have its local rank. */
static void find_cross(struct worker_welcome *w)
{
    const struct hvd__mpi_world *m = &mpi.world;

    for (int host = 0; host < m->cross_size; host++)
        if (ranks_on(host) > m->local_rank) {
            w->cross_rank += host < m->cross_rank;
            w->cross_size++;
        }
}

/* Fills in what an agent would tell. */
static void fill_in(struct worker_welcome *w)
{
    const struct hvd__mpi_world *m = &mpi.world;

    memset(w, 0, sizeof(*w));
    w->rank = (uint32_t)m->rank;
    w->size = (uint32_t)m->size;
    w->local_rank = (uint32_t)m->local_rank;
    w->local_size = w->local_count = (uint32_t)m->local_size;
    w->host_index = (uint32_t)m->cross_rank;
    w->host_count = (uint32_t)m->cross_size;
    find_cross(w);
    w->cpus = (uint32_t)m->cpus;
    snprintf(w->host, sizeof(w->host), "%s", m->hosts[m->cross_rank]);
    for (int i = 0; i < m->local_size && i < HVD__SHM_LOCAL_MAX; i++)
        w->local_ranks[i] = (uint32_t)m->local_ranks[i];
}

static void say_left(void)
{
    if (mpi.head)
        atomic_store(&mpi.head->wake[mpi.world.local_rank].left, 1);
}

/* Leaves the world when the process exits, and finalises MPI.  With an exit
 * status other than 0 it does not finalise, so that the launcher ends the
 * others at once, as it would for any program. */
static void at_exit(int status, void *table)
{
    const struct hvd__mpi *m = table;

    if (began != getpid()) /* a forked child */
        return;
    tell_peers();
    if (status == 0)
        m->finalize();
}

/* Registers at_exit, which then runs before the destructors of this library and
 * of MPI. */
static int finalize_at_exit(void (*leave)(void), struct hb_error *err)
{
    if (began)
        return 0;
    if (on_exit(at_exit, (void *)(uintptr_t)mpi.mpi) != 0)
        return hb_error_set(err, HVD_ENOMEM, "no memory for an exit handler");
    tell_peers = leave;
    began = getpid();
    return 0;
}

/* Adds to err which ranks have not come; the plug-in does not know that. */
static int tell_missing(struct hvd__roll *roll, struct hb_error *err)
{
    char text[256];

    hvd__roll_text(roll, text, sizeof(text));
    return hb_error_context(err, "%s", text);
}

static int open_ranks(uint64_t deadline_ns, struct hb_error *err)
{
    const struct hvd__launcher *l = &mpi.launcher;
    int rc = note_failure(mpi.mpi->open(&mpi.world, deadline_ns, err));
    size_t n = (size_t)mpi.world.size;

    if (rc < 0)
        return rc;
    if (mpi.world.size == 1 && hvd__launcher_several(l))
        return hb_error_set(err, HVD_EINVAL,
                            "%s is %lld and %s finds one rank: libhvd-mpi.so "
                            "was built with another MPI than the launcher's; "
                            "HVD_SIZE=1 makes worlds of one",
                            l->variable, (long long)l->value,
                            mpi.world.library);
    mpi.cards = hb_calloc(n, sizeof(*mpi.cards));
    mpi.shares = hb_calloc(n, 1);
    if (!mpi.cards || !mpi.shares)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for %zu ranks", n);
    return agree_on_status(rc, err);
}

static void close_mpi(void)
{
    if (!mpi.mpi)
        return;
    mpi.head = NULL;
    if (!mpi.failed) { /* else MPI may still write to them */
        hb_free(mpi.cards);
        hb_free(mpi.shares);
    }
    mpi.cards = NULL;
    mpi.shares = NULL;
    mpi.mpi->close();
    mpi.mpi = NULL;
}

static int open_world(struct worker_welcome *w, uint64_t deadline_ns,
                      void (*leave)(void), struct hb_error *err)
{
    struct hvd__roll roll;
    int rc;

    mpi.failed = 0;
    mpi.mpi = hvd__plugin_load(&plugin, err);
    if (!mpi.mpi)
        return hb_error_context(err, "started by MPI (%s is %lld)",
                                mpi.launcher.variable,
                                (long long)mpi.launcher.value);
    hvd__roll_open(&roll, &mpi.launcher);
    rc = finalize_at_exit(leave, err);
    if (rc == 0)
        rc = open_ranks(deadline_ns, err);
    if (rc == -HVD_ETIMEOUT)
        tell_missing(&roll, err);
    hvd__roll_close(&roll);
    if (rc == 0)
        fill_in(w);
    else
        close_mpi();
    return rc;
}

static int started(struct hb_error *err)
{
    int rc = hvd__launcher_read(&mpi.launcher, err);

    return rc == 2 ? hvd__plugin_load(&plugin, NULL) != NULL : rc;
}

/* Leaves a wrong choice to refuse(), by which all ranks learn of it; also an
 * MPI that is not hvdrun's: one without a launcher tells each rank that it is
 * alone.
 */
static int wanted(struct hb_error *err)
{
    enum choice choice;
    int64_t size = 0;
    int rc;

    if (read_choice(&choice, NULL) < 0 || choice != CHOICE_MPI ||
        hb_knob_i64("SIZE", 1, INT32_MAX, &size, NULL) < 0)
        return 0;
    rc = started(err);
    return rc > 0 ? mpi.launcher.size == size : rc;
}

int hvd__mpi_is_built(void)
{
    return hvd__plugin_ask(&plugin, NULL);
}

int hvd__mpi_has_threads(void)
{
    return mpi.world.has_threads;
}

int hvd__mpi_is_open(void)
{
    return mpi.mpi != NULL;
}

/* ---- Memory that ranks of a host share ----------------------------------- */

/* Makes the segment of this host.  Returns its descriptor, or -1 with err
 * set. */
static int make(uint32_t epoch, uint64_t bytes, unsigned char *nonce,
                struct hb_error *err)
{
    uint32_t n = (uint32_t)mpi.world.local_size;
    struct segment_head *head;
    int fd;

    if (segment_fd_make(epoch, n, bytes, &fd, &head, err) < 0)
        return -1;
    if (getrandom(head->nonce, SEGMENT_NONCE_BYTES, 0) == SEGMENT_NONCE_BYTES) {
        memcpy(nonce, head->nonce, SEGMENT_NONCE_BYTES);
    } else {
        hb_error_sys(err, errno, "getrandom");
        close(fd);
        fd = -1;
    }
    segment_fd_unmap(head, n);
    return fd;
}

/* Opens the leader's segment; only a process of the same user can. */
static int open_offer(const struct card *o, struct hb_error *err)
{
    char path[64];
    int fd;

    if (o->fd < 0) {
        hb_error_set(err, HVD_ESYSTEM, "rank %d could not make it",
                     mpi.world.local_ranks[0]);
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", o->pid, o->fd);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        hb_error_sys(err, errno, "%s", path);
        return -1;
    }
    /* Only memfds have seals: in another PID namespace, the process of that
     * number may have any file there. */
    if (fcntl(fd, F_GET_SEALS) >= 0)
        return fd;
    hb_error_set(err, HVD_EPROTO, "%s is no shared segment", path);
    close(fd);
    return -1;
}

/* Checks that all ranks of a host use the same arena size.  Every rank checks
 * all hosts, so all reach the same verdict. */
static int compare_arenas(struct hb_error *err)
{
    const struct hvd__mpi_world *m = &mpi.world;

    for (int r = 0; r < m->size; r++) {
        int first = 0;

        while (m->host_of[first] != m->host_of[r])
            first++;
        if (mpi.cards[r].arena_bytes != mpi.cards[first].arena_bytes)
            return hb_error_set(
                err, HVD_EMISMATCH,
                "HVD_ALLOC_BYTES, or the address space, makes %llu bytes on "
                "rank %d and %llu on rank %d of host %s",
                (unsigned long long)mpi.cards[first].arena_bytes, first,
                (unsigned long long)mpi.cards[r].arena_bytes, r,
                m->hosts[m->host_of[r]]);
    }
    return 0;
}

/* Exchanges cards, and makes this host's segment (on its leader) or opens it.
 * *fd -1: its ranks share no memory; `why` may tell the reason.  Returns
 * negative with err set when the exchange fails or ranks differ. */
static int share(const struct hvd__world_memory *memory, int *fd,
                 struct hb_error *why, struct hb_error *err)
{
    static struct card own;
    struct hb_error bad = HB_ERROR_INIT;
    int chosen = read_choice(&mpi.choice, &bad), n = mpi.world.local_size, rc;
    int leads = mpi.world.local_rank == 0;
    int shares = mpi.choice != CHOICE_MPI && n > 1 && n <= HVD__SHM_LOCAL_MAX;

    own = (struct card){.choice = chosen < 0 ? CHOICE_NONE : mpi.choice,
                        .pid = (int32_t)getpid(),
                        .fd = -1,
                        .arena_bytes = memory->arena_bytes};
    if (leads && shares)
        own.fd = *fd = make(memory->epoch, memory->bytes, own.nonce, why);
    rc = note_failure(mpi.mpi->allgather(&own, sizeof(own), mpi.cards, err));
    if (rc == 0 && chosen < 0)
        *err = bad;
    if (rc == 0)
        rc = chosen < 0 ? chosen : compare_choices(err);
    if (rc == 0 && mpi.choice != CHOICE_MPI)
        rc = compare_arenas(err);
    if (rc == 0 && !leads && shares)
        *fd = open_offer(&mpi.cards[mpi.world.local_ranks[0]], why);
    return rc;
}

/* Maps the segment.  The nonce tells that it is the leader's, not another
 * process's with the same number. */
static void map(const struct hvd__world_memory *memory, int fd,
                struct segment_head **head, struct hb_error *why)
{
    int first = mpi.world.local_ranks[0];

    if (hvd__segment_map(fd, memory->epoch, (uint32_t)mpi.world.local_size,
                         memory->bytes, head, why) < 0)
        return;
    if (memcmp((*head)->nonce, mpi.cards[first].nonce, SEGMENT_NONCE_BYTES) ==
        0)
        return;
    munmap(*head, memory->bytes);
    *head = NULL;
    hb_error_set(why, HVD_EPROTO,
                 "shared memory: it is not the segment of rank %d", first);
}

/* Agrees on which hosts share memory: those all of whose ranks have mapped
 * it. */
static int agree_on_shares(int mapped, struct hb_error *err)
{
    const struct hvd__mpi_world *m = &mpi.world;
    static unsigned char own;
    unsigned char *all = mpi.shares;
    int rc;

    own = (unsigned char)mapped;
    rc = note_failure(mpi.mpi->allgather(&own, 1, all, err));

    for (int r = 0; rc == 0 && r < m->size; r++)
        for (int s = 0; s < m->size && all[r]; s++)
            if (m->host_of[s] == m->host_of[r] && !all[s])
                all[r] = 0;
    return rc;
}

/* Checks that the world can use shared memory if HVD_CPU_PLANE is native. */
static int check_native(const struct hb_error *why, struct hb_error *err)
{
    const struct hvd__mpi_world *m = &mpi.world;

    if (mpi.choice != CHOICE_NATIVE)
        return 0;
    if (m->cross_size > 1)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "HVD_CPU_PLANE: native serves one host, and the "
                            "ranks are on %d; use mpi, auto, or hvdrun",
                            m->cross_size);
    for (int r = 0; r < m->size; r++)
        if (!mpi.shares[r])
            return hb_error_set(err, HVD_EUNSUPPORTED,
                                "HVD_CPU_PLANE: native: no shared memory%s%s",
                                why->status ? ": " : "", why->text);
    return 0;
}

static int make_segment(const struct hvd__world_memory *memory,
                        struct segment_head **head, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    int fd = -1, rc = share(memory, &fd, &why, err);

    *head = NULL;
    if (rc == 0 && fd >= 0)
        map(memory, fd, head, &why);
    if (rc == 0)
        rc = agree_on_shares(*head != NULL || mpi.world.local_size == 1, err);
    if (fd >= 0) /* all ranks have opened it */
        close(fd);
    if (rc == 0)
        rc = check_native(&why, err);
    if (*head && (rc < 0 || !mpi.shares[mpi.world.rank])) {
        munmap(*head, memory->bytes);
        *head = NULL;
    }
    mpi.head = *head;
    return rc;
}

static int find_lost(void *arg, struct hb_error *err)
{
    (void)arg;
    for (int i = 0; mpi.head && i < mpi.world.local_size; i++) {
        struct pollfd p = {.fd = mpi.world.pidfds[i], .events = POLLIN};
        int rank = mpi.world.local_ranks[i];

        if (p.fd < 0 || poll(&p, 1, 0) < 1)
            continue;
        /* Read in this order: a rank sets the flag before its process ends. */
        if (atomic_load(&mpi.head->wake[i].left))
            continue;
        segment_abort(mpi.head, (uint32_t)mpi.world.local_size, (uint32_t)rank,
                      HVD_EPEER, "its process has ended");
        return hb_error_set(err, HVD_EPEER,
                            "rank %d on host %s: its process has ended", rank,
                            mpi.world.hosts[mpi.world.cross_rank]);
    }
    return 0;
}

/* ---- Planes -------------------------------------------------------------- */

static int make_plane(const struct hvd__host *h, struct hvd__set *s,
                      const int *ranks, int n, int me, struct hb_error *err)
{
    const struct hvd__mpi_plane_config config = {.ranks = ranks,
                                                 .n = n,
                                                 .me = me,
                                                 .tag = h->group,
                                                 .deadline_ns = h->deadline_ns};

    if (n == 1 || !mpi.mpi || is_native(ranks, n))
        return 0;
    s->plane = mpi.mpi->plane(&config, err);
    return s->plane ? 1 : err->status;
}

static const struct hvd__world_ops world_ops = {
    .started = started,
    .wanted = wanted,
    .refuse = refuse,
    .open = open_world,
    .is_open = hvd__mpi_is_open,
    .agree = agree_on_status,
    .segment = make_segment,
    .host = host_index,
    .host_name = host_name,
    .lost = find_lost,
};

const struct hvd__provider hvd__mpi_provider = {
    .world = &world_ops,
    .plane = make_plane,
    .leave = say_left,
    .close = close_mpi,
};

int hvd__mpi_comm_ranks(const void *comm, int *ranks, struct hb_error *err)
{
    return mpi.mpi->comm_ranks(comm, ranks, err);
}
