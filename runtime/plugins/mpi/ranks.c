/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of the world that MPI started: where each is, the settings that
 * must be equal on all, and which ranks a communicator has.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Who is where -------------------------------------------------------- */

/* What ranks tell each other.  Ranks of one kernel and one host name share
 * memory; MPI could tell, too, but not with a time limit. */
struct rank_info {
    char host[HVD__MPI_HOST_BYTES];
    char boot[64]; /* the kernel's boot id */
    char pids[64]; /* the pid namespace */
    int32_t pid;
    int32_t chunk;  /* HVD_MPI_CHUNK; 0: one of its settings makes no sense */
    cpu_set_t cpus; /* the cores it may use */
};

static int *host_of;
static int *local_ranks;
static int *pidfds;
static struct rank_info *infos;
static char (*hosts)[HVD__MPI_HOST_BYTES];

void mp_forget_ranks(void)
{
    for (int i = 0; pidfds && i < mp_world.view.local_size; i++)
        if (pidfds[i] >= 0)
            close(pidfds[i]);
    hb_free(host_of);
    hb_free(local_ranks);
    hb_free(pidfds);
    hb_free(infos);
    hb_free(hosts);
    host_of = local_ranks = pidfds = NULL;
    infos = NULL;
    hosts = NULL;
    memset(&mp_world.view, 0, sizeof(mp_world.view));
}

static void read_boot(char *to, size_t size)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, to, size - 1);

    to[n < 0 ? 0 : n] = 0;
    if (fd >= 0)
        close(fd);
}

static void fill_info(struct rank_info *own)
{
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    ssize_t n;
    int len;

    memset(own, 0, sizeof(*own));
    MPI_Get_processor_name(name, &len);
    snprintf(own->host, sizeof(own->host), "%.*s", HVD__MPI_HOST_BYTES - 1,
             name);
    read_boot(own->boot, sizeof(own->boot));
    n = readlink("/proc/self/ns/pid", own->pids, sizeof(own->pids) - 1);
    own->pids[n < 0 ? 0 : n] = 0;
    own->pid = (int32_t)getpid();
    sched_getaffinity(0, sizeof(own->cpus), &own->cpus);
}

/* Terminates the strings: they come from other processes. */
static void end_texts(int size)
{
    for (int r = 0; r < size; r++) {
        struct rank_info *p = &infos[r];

        p->host[sizeof(p->host) - 1] = '\0';
        p->boot[sizeof(p->boot) - 1] = '\0';
        p->pids[sizeof(p->pids) - 1] = '\0';
    }
}

/* Numbers the hosts in the order of their lowest ranks. */
static void number_hosts(struct hvd__mpi_world *w)
{
    int *lowest = local_ranks; /* of each host, for now */

    for (int r = 0; r < w->size; r++) {
        const struct rank_info *p = &infos[r];
        int h = 0;

        while (h < w->cross_size &&
               (strcmp(infos[lowest[h]].host, p->host) != 0 ||
                strcmp(infos[lowest[h]].boot, p->boot) != 0))
            h++;
        if (h == w->cross_size) {
            memcpy(hosts[h], p->host, sizeof(hosts[0]));
            lowest[w->cross_size++] = r;
        }
        host_of[r] = h;
    }
    w->cross_rank = host_of[w->rank];
    for (int r = 0; r < w->size; r++) {
        if (host_of[r] != w->cross_rank)
            continue;
        if (r == w->rank)
            w->local_rank = w->local_size;
        local_ranks[w->local_size++] = r;
    }
    w->host_of = host_of;
    w->local_ranks = local_ranks;
    w->hosts = (const char(*)[HVD__MPI_HOST_BYTES])hosts;
}

/* Opens the pidfds of this host's ranks and counts the cores that they
 * share. */
static void open_pidfds(struct hvd__mpi_world *w)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    for (int i = 0; i < w->local_size; i++) {
        const struct rank_info *p = &infos[local_ranks[i]];

        CPU_OR(&cpus, &cpus, &p->cpus);
        pidfds[i] = -1;
        if (i != w->local_rank && p->pids[0] &&
            strcmp(p->pids, infos[w->rank].pids) == 0)
            pidfds[i] = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);
    }
    w->pidfds = pidfds;
    w->cpus = CPU_COUNT(&cpus);
    mp_world.crowded = w->local_size > w->cpus;
}

/* Reads the settings.  Returns HVD_MPI_CHUNK, or 0 with err set. */
static int32_t read_settings(struct hb_error *err)
{
    int64_t chunk = INT_MAX;
    int rc = hb_knob_i64("MPI_CHUNK", 1, INT_MAX, &chunk, err);

    mp_world.may_block = 1;
    if (rc >= 0)
        rc = hb_knob_bool("MPI_BLOCKING", &mp_world.may_block, err);
    return rc < 0 ? 0 : (int32_t)chunk;
}

/* Checks the settings of all ranks.  Uses the smallest HVD_MPI_CHUNK of any
 * rank. */
static int take_settings(const struct hb_error *own, struct hb_error *err)
{
    const struct hvd__mpi_world *w = &mp_world.view;

    if (own->status) {
        *err = *own;
        return err->status;
    }
    mp_world.chunk_elems = INT_MAX;
    for (int r = 0; r < w->size; r++) {
        if (infos[r].chunk < 1)
            return hb_error_set(err, HVD_EINVAL,
                                "HVD_MPI_CHUNK or HVD_MPI_BLOCKING of rank %d "
                                "makes no sense",
                                r);
        if (infos[r].chunk < mp_world.chunk_elems)
            mp_world.chunk_elems = infos[r].chunk;
    }
    return 0;
}

int mp_gather(const void *mine, size_t len, void *all, struct hb_error *err)
{
    MPI_Request req;
    int rc;

    if (len > INT_MAX)
        return hb_error_set(err, HVD_EINVAL, "%zu bytes are too many", len);
    rc = MPI_Iallgather(mine, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE,
                        mp_world.comm, &req);
    return mp_finish(rc, "MPI_Iallgather", &req, err);
}

int mp_find_failed(int failed, int *who, struct hb_error *err)
{
    static int least; /* MPI may use it after a failure */
    MPI_Request req;
    int rc;

    least = failed ? mp_world.view.rank : mp_world.view.size;
    rc = MPI_Iallreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN,
                        mp_world.comm, &req);
    rc = mp_finish(rc, "MPI_Iallreduce", &req, err);
    *who = rc == 0 && least < mp_world.view.size ? least : -1;
    return rc;
}

int mp_find_ranks(struct hb_error *err)
{
    static struct rank_info own;
    struct hvd__mpi_world *w = &mp_world.view;
    struct hb_error bad = HB_ERROR_INIT;
    size_t n = (size_t)w->size;
    int rc, who;

    infos = hb_calloc(n, sizeof(*infos));
    host_of = hb_calloc(n, sizeof(*host_of));
    local_ranks = hb_calloc(n, sizeof(*local_ranks));
    pidfds = hb_calloc(n, sizeof(*pidfds));
    hosts = hb_calloc(n, sizeof(*hosts));
    rc = mp_find_failed(!infos || !host_of || !local_ranks || !pidfds || !hosts,
                        &who, err);
    if (rc == 0 && who >= 0)
        rc = hb_error_set(err, HVD_ENOMEM, "rank %d has no memory for %d ranks",
                          who, w->size);
    if (rc < 0)
        return rc;
    fill_info(&own);
    own.chunk = read_settings(&bad);
    rc = mp_gather(&own, sizeof(own), infos, err);
    if (rc < 0)
        return rc;
    end_texts(w->size);
    number_hosts(w);
    open_pidfds(w);
    return take_settings(&bad, err);
}

/* ---- Communicators ------------------------------------------------------- */

/* Sets ranks[i] to the world rank of comm's rank i; MPI_UNDEFINED if it has
 * none.  Returns an MPI code. */
static int translate(MPI_Comm comm, int *ranks, int n, int *order)
{
    MPI_Group theirs, ours;
    int rc = MPI_Comm_group(comm, &theirs);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Comm_group(mp_world.comm, &ours);
    if (rc == MPI_SUCCESS) {
        for (int i = 0; i < n; i++)
            order[i] = i;
        rc = MPI_Group_translate_ranks(theirs, n, order, ours, ranks);
        MPI_Group_free(&ours);
    }
    MPI_Group_free(&theirs);
    return rc;
}

static int ranks_of(MPI_Comm comm, int *ranks, struct hb_error *err)
{
    int n = 0, inter = 0, *order, rc;

    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return hb_error_set(err, HVD_EINVAL, "it is an intercommunicator");
    MPI_Comm_size(comm, &n);
    if (n > mp_world.view.size)
        return hb_error_set(err, HVD_EINVAL, "it has ranks of another world");
    order = hb_calloc((size_t)n, sizeof(*order));
    if (!order)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", n);
    rc = translate(comm, ranks, n, order);
    hb_free(order);
    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Group_translate_ranks");
    for (int i = 0; i < n; i++)
        if (ranks[i] == MPI_UNDEFINED)
            return hb_error_set(err, HVD_EINVAL,
                                "its rank %d is not in this world", i);
    return n;
}

int mp_comm_ranks(const void *comm, int *ranks, struct hb_error *err)
{
    MPI_Comm of = *(const MPI_Comm *)comm;
    int rc = 0;

    mp_lock();
    if (!mp_world.up)
        rc = hb_error_set(err, HVD_EUNSUPPORTED,
                          "MPI was finalised before hvd_shutdown");
    else if (of != MPI_COMM_NULL)
        rc = ranks_of(of, ranks, err);
    mp_unlock();
    return rc;
}
