/* SPDX-License-Identifier: Apache-2.0 */
/* A world that an MPI launcher started; see mpi.h. */
#include "runtime/core/mpi.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/protocol/segment_fd.h"
#include "runtime/core/context.h"
#include "runtime/core/plugin.h"
#include "runtime/core/segment.h"
#include "runtime/plane/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum choice { CHOICE_AUTO, CHOICE_NATIVE, CHOICE_MPI, CHOICE_NONE };

static const char *const choice_names[] = {"auto", "native", "mpi"};

/* What ranks tell each other at first. */
struct card {
    uint32_t choice;
    int32_t pid;
    cpu_set_t cpus; /* it may use */
};

static struct {
    const struct hvd__mpi *mpi; /* NULL: not open */
    struct hvd__mpi_world world;
    enum choice choice;
    struct card *cards;    /* [world.size] */
    unsigned char *shares; /* [world.size]: its host's ranks share memory */
    struct segment_head *head;
    int local;                      /* pids below */
    int pidfds[HVD__SHM_LOCAL_MAX]; /* -1: not watched */
    uint32_t world_ranks[HVD__SHM_LOCAL_MAX];
} mpi;

/* The process that began MPI; 0: nobody did. */
static pid_t began;

/* ---- The launcher -------------------------------------------------------- */

static int64_t number(const char *name)
{
    const char *text = hb_variable(name);
    int64_t n = 0;

    if (text && hb_parse_i64(text, 0, INT32_MAX, &n, NULL) < 0)
        n = 0;
    return n;
}

/* The variable in which a launcher says how many processes it started, or
 * NULL. */
static const char *size_variable(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "MV2_COMM_WORLD_SIZE"};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (hb_variable(sizes[i]))
            return sizes[i];
    return hb_variable("SLURM_STEP_ID") ? "SLURM_STEP_NUM_TASKS" : NULL;
}

/* srun --mpi=... */
static int has_pmi(void)
{
    return hb_variable("PMIX_RANK") || hb_variable("PMI_RANK") ||
           hb_variable("PMI_FD");
}

int hvd__mpi_started(struct hb_error *err)
{
    const char *variable = size_variable();

    /* HVD_SIZE=1: alone, whatever started it. */
    if (!variable || number(variable) < 2 || hb_knob("SIZE"))
        return 0;
    if (strcmp(variable, "SLURM_STEP_NUM_TASKS") == 0 && !has_pmi())
        return hb_error_set(err, HVD_EINVAL,
                            "srun started %lld processes that do not know of "
                            "each other; use srun --mpi=pmix, or hvdrun, or "
                            "set HVD_SIZE=1 for worlds of one",
                            (long long)number(variable));
    return 1;
}

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

int hvd__mpi_refuse(struct hb_error *err)
{
    enum choice choice;
    int rc = read_choice(&choice, err);

    if (rc == 0 && choice == CHOICE_MPI)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "HVD_CPU_PLANE: mpi needs an MPI launcher; use "
                            "hvdrun --mpi, or mpirun");
    return rc;
}

int hvd__mpi_native(const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (mpi.world.host_of[ranks[i]] != mpi.world.host_of[ranks[0]])
            return 0;
    return mpi.shares[ranks[0]];
}

int hvd__mpi_host(int rank)
{
    return mpi.world.host_of[rank];
}

const char *hvd__mpi_host_name(int rank)
{
    return mpi.world.hosts[mpi.world.host_of[rank]];
}

/* ---- The ranks ----------------------------------------------------------- */

/* All ranks see the same, and so conclude the same. */
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

static int exchange_cards(struct hb_error *err)
{
    struct card own = {.pid = (int32_t)getpid()};
    size_t n = (size_t)mpi.world.size;
    int chosen = read_choice(&mpi.choice, err), rc;

    own.choice = chosen < 0 ? CHOICE_NONE : mpi.choice;
    sched_getaffinity(0, sizeof(own.cpus), &own.cpus);
    mpi.cards = hb_calloc(n, sizeof(*mpi.cards));
    mpi.shares = hb_calloc(n, 1);
    if (!mpi.cards || !mpi.shares)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %zu ranks", n);
    rc = mpi.mpi->allgather(&own, sizeof(own), mpi.cards,
                            chosen < 0 ? NULL : err);
    if (chosen < 0)
        return chosen;
    return rc < 0 ? rc : compare_choices(err);
}

int hvd__mpi_all(int rc, struct hb_error *err)
{
    const struct hvd__mpi_world *m = &mpi.world;
    unsigned char failed = rc < 0, *all = mpi.shares;
    int told = mpi.mpi->allgather(&failed, 1, all, rc < 0 ? NULL : err);

    if (rc < 0 || told < 0)
        return rc < 0 ? rc : told;
    for (int r = 0; r < m->size; r++)
        if (all[r])
            return hb_error_set(err, HVD_ESHUTDOWN,
                                "rank %d on host %s has failed in hvd_init", r,
                                m->hosts[m->host_of[r]]);
    return 0;
}

/* Cores that the ranks of this host have between them. */
static uint32_t count_cpus(void)
{
    cpu_set_t all;

    CPU_ZERO(&all);
    for (int i = 0; i < mpi.world.local_size; i++)
        CPU_OR(&all, &all, &mpi.cards[mpi.world.local_ranks[i]].cpus);
    return (uint32_t)CPU_COUNT(&all);
}

static int ranks_on(int host)
{
    int n = 0;

    for (int r = 0; r < mpi.world.size; r++)
        n += mpi.world.host_of[r] == host;
    return n;
}

/* Among the hosts that have this local rank. */
static void find_cross(struct worker_welcome *w)
{
    const struct hvd__mpi_world *m = &mpi.world;

    for (int host = 0; host < m->cross_size; host++)
        if (ranks_on(host) > m->local_rank) {
            w->cross_rank += host < m->cross_rank;
            w->cross_size++;
        }
}

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
    w->cpus = count_cpus();
    snprintf(w->host, sizeof(w->host), "%s", m->hosts[m->cross_rank]);
    for (int i = 0; i < m->local_size && i < HVD__SHM_LOCAL_MAX; i++)
        w->local_ranks[i] = (uint32_t)m->local_ranks[i];
}

void hvd__mpi_leave(void)
{
    if (mpi.head)
        atomic_store(&mpi.head->wake[mpi.world.local_rank].left, 1);
}

/* The process exits, and this rank has left.  With another status than 0 MPI
 * is not finalised, so that its launcher ends the others at once, as it would
 * for any program. */
static void at_exit(int status, void *table)
{
    const struct hvd__mpi *m = table;

    if (began != getpid()) /* a child that was forked */
        return;
    hvd__leave();
    if (status == 0)
        m->finalize();
}

/* Before what this library's destructors and MPI's own do. */
static int finalize_at_exit(struct hb_error *err)
{
    if (began)
        return 0;
    if (on_exit(at_exit, (void *)(uintptr_t)mpi.mpi) != 0)
        return hb_error_set(err, HVD_ENOMEM, "no memory for an exit handler");
    began = getpid();
    return 0;
}

int hvd__mpi_open(struct worker_welcome *w, struct hb_error *err)
{
    const char *variable = size_variable();
    int rc;

    mpi.mpi = hvd__plugin_mpi(err);
    if (!mpi.mpi)
        return hb_error_context(err, "started by MPI (%s is %lld)", variable,
                                (long long)number(variable));
    for (int i = 0; i < HVD__SHM_LOCAL_MAX; i++)
        mpi.pidfds[i] = -1;
    rc = finalize_at_exit(err);
    if (rc == 0)
        rc = mpi.mpi->open(&mpi.world, err);
    if (rc < 0) {
        mpi.mpi = NULL;
        return rc;
    }
    if (mpi.world.size == 1)
        rc = hb_error_set(err, HVD_EINVAL,
                          "%s is %lld and %s finds one rank: libhvd-mpi.so "
                          "was built with another MPI than the launcher's",
                          variable, (long long)number(variable),
                          mpi.world.library);
    if (rc == 0)
        rc = exchange_cards(err);
    if (rc == 0)
        fill_in(w);
    else
        hvd__mpi_close();
    return rc;
}

int hvd__mpi_is_open(void)
{
    return mpi.mpi != NULL;
}

void hvd__mpi_close(void)
{
    if (!mpi.mpi)
        return;
    for (int i = 0; i < mpi.local; i++)
        if (mpi.pidfds[i] >= 0)
            close(mpi.pidfds[i]);
    mpi.local = 0;
    mpi.head = NULL;
    hb_free(mpi.cards);
    hb_free(mpi.shares);
    mpi.cards = NULL;
    mpi.shares = NULL;
    mpi.mpi->close();
    mpi.mpi = NULL;
}

/* ---- Memory that ranks of a host share ------------------------------------
 */

/* What the lowest rank of a host tells the others. */
struct offer {
    int32_t pid, fd; /* fd -1: it could not make one */
};

static int make(uint32_t epoch, uint64_t bytes, struct hb_error *err)
{
    uint32_t n = (uint32_t)mpi.world.local_size;
    struct segment_head *head;
    int fd;

    if (segment_fd_make(epoch, n, bytes, &fd, &head, err) < 0)
        return -1;
    segment_fd_unmap(head, n);
    return fd;
}

/* The leader's descriptor: only a process of the same user may open it. */
static int open_offer(const struct offer *o, struct hb_error *err)
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
    /* Nothing but such memory has seals; a process of that number in another
     * PID namespace may have anything there. */
    if (fcntl(fd, F_GET_SEALS) >= 0)
        return fd;
    hb_error_set(err, HVD_EPROTO, "%s is no shared segment", path);
    close(fd);
    return -1;
}

/* All ranks of this host. */
static int share(uint32_t epoch, uint64_t bytes, int *fd, struct hb_error *why,
                 struct hb_error *err)
{
    struct offer o = {(int32_t)getpid(), -1};
    int leads = mpi.world.local_rank == 0, rc;

    if (leads)
        o.fd = *fd = make(epoch, bytes, why);
    rc = mpi.mpi->local_bcast(&o, sizeof(o), err);
    if (rc == 0 && !leads)
        *fd = open_offer(&o, why);
    return rc;
}

/* A host shares memory when all of its ranks have mapped it. */
static int agree(int mapped, struct hb_error *err)
{
    const struct hvd__mpi_world *m = &mpi.world;
    unsigned char own = (unsigned char)mapped, *all = mpi.shares;
    int rc = mpi.mpi->allgather(&own, 1, all, err);

    for (int r = 0; rc == 0 && r < m->size; r++)
        for (int s = 0; s < m->size && all[r]; s++)
            if (m->host_of[s] == m->host_of[r] && !all[s])
                all[r] = 0;
    return rc;
}

static void watch_local(void)
{
    mpi.local = mpi.world.local_size;
    for (int i = 0; i < mpi.local; i++) {
        int rank = mpi.world.local_ranks[i];

        mpi.world_ranks[i] = (uint32_t)rank;
        /* -1 where the kernel cannot: then the launcher ends the job. */
        if (i != mpi.world.local_rank)
            mpi.pidfds[i] =
                (int)syscall(SYS_pidfd_open, (pid_t)mpi.cards[rank].pid, 0);
    }
}

/* With HVD_CPU_PLANE=native, the world must be able to. */
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

int hvd__mpi_segment(const struct worker_welcome *w, uint32_t epoch,
                     uint64_t bytes, struct segment_head **head,
                     struct hb_error *err)
{
    int n = mpi.world.local_size, fd = -1, rc = 0;
    struct hb_error why = HB_ERROR_INIT;

    *head = NULL;
    if (n > 1 && n <= HVD__SHM_LOCAL_MAX && mpi.choice != CHOICE_MPI)
        rc = share(epoch, bytes, &fd, &why, err);
    if (rc == 0 && fd >= 0)
        hvd__segment_map(fd, epoch, w->local_size, bytes, head, &why);
    if (rc == 0)
        rc = agree(*head != NULL || n == 1, err);
    if (fd >= 0) /* all have opened it */
        close(fd);
    if (rc == 0)
        rc = check_native(&why, err);
    if (*head && (rc < 0 || !mpi.shares[mpi.world.rank])) {
        munmap(*head, bytes);
        *head = NULL;
    }
    mpi.head = *head;
    if (mpi.head)
        watch_local();
    return rc;
}

int hvd__mpi_lost(void *arg, struct hb_error *err)
{
    (void)arg;
    for (int i = 0; i < mpi.local; i++) {
        struct pollfd p = {.fd = mpi.pidfds[i], .events = POLLIN};

        if (p.fd < 0 || poll(&p, 1, 0) < 1)
            continue;
        /* In this order: it set the flag before it ended. */
        if (atomic_load(&mpi.head->wake[i].left))
            continue;
        segment_abort(mpi.head, (uint32_t)mpi.local, mpi.world_ranks[i],
                      HVD_EPEER, "its process has ended");
        return hb_error_set(
            err, HVD_EPEER, "rank %u on host %s: its process has ended",
            mpi.world_ranks[i], mpi.world.hosts[mpi.world.cross_rank]);
    }
    return 0;
}

/* ---- Planes ----------------------------------------------------------------
 */

struct hvd__plane *hvd__mpi_plane(const struct hvd__mpi_plane_config *config,
                                  struct hb_error *err)
{
    return mpi.mpi->plane(config, err);
}

int hvd__mpi_comm_ranks(const void *comm, int *ranks, struct hb_error *err)
{
    return mpi.mpi->comm_ranks(comm, ranks, err);
}
