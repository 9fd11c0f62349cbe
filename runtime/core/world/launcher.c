/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of MPI's launchers, and the roll call; see launcher.h.
 *
 * The roll call: each rank listens on an abstract socket named after its job
 * and rank, and then connects to those of all ranks that have come before.  The
 * earlier ranks hear of it from their backlog, and it learns of them by
 * connecting.  The result only completes a message: a stranger who takes such a
 * name could falsify no more than that, and connections of other users are
 * ignored.
 */
#include "runtime/core/world/launcher.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

/* ---- The environment ----------------------------------------------------- */

typedef const char *variable_fn(const char *name);

/* Returns the first variable that is set, and its value as a number (0 if it is
 * not a number). */
static const char *find(const char *const *names, size_t count,
                        variable_fn *get, int64_t *value)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = get(names[i]);

        if (!text)
            continue;
        if (hb_parse_i64(text, 0, INT32_MAX, value, NULL) < 0)
            *value = 0;
        return names[i];
    }
    return NULL;
}

#define FIND(get, value, ...)                                              \
    find((const char *const[]){__VA_ARGS__},                               \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), get, \
         value)

static void read_all(struct hvd__launcher *l, variable_fn *get)
{
    const char *rank, *step = get("SLURM_STEP_ID");

    *l = (struct hvd__launcher){.rank = -1};
    l->variable = FIND(get, &l->size, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                       "MV2_COMM_WORLD_SIZE");
    if (!l->variable && step)
        l->variable = FIND(get, &l->size, "SLURM_STEP_NUM_TASKS");
    l->value = l->size;
    rank = FIND(get, &l->rank, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                "MV2_COMM_WORLD_RANK", "PALS_RANKID", "ALPS_APP_PE",
                "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK", "SLURM_PROCID");
    FIND(get, &l->local_size, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS");
    if (!l->variable) {
        l->variable = rank;
        l->value = l->rank;
    }
}

/* Returns whether there is a PMI, which srun gives with --mpi=... */
static int has_pmi(void)
{
    return hb_variable("PMIX_RANK") || hb_variable("PMI_RANK") ||
           hb_variable("PMI_FD");
}

int hvd__launcher_several(const struct hvd__launcher *l)
{
    return l->size ? l->size > 1 : l->rank > 0;
}

int hvd__launcher_read(struct hvd__launcher *l, struct hb_error *err)
{
    struct hvd__launcher ignored;

    read_all(&ignored, hb_ignored_variable);
    /* Without this, each rank of the job would be a world of one. */
    if (hb_ignored_variable("HVD_RENDEZVOUS") ||
        hvd__launcher_several(&ignored))
        return hb_error_set(err, HVD_EPERM,
                            "the program has more rights than its user "
                            "(setuid, setgid or file capabilities), so its "
                            "environment does not count, and it cannot join "
                            "the job; take them away with chmod ug-s or "
                            "setcap -r");
    read_all(l, hb_variable);
    /* HVD_SIZE=1 makes a world of one, whatever started the process.  hvdrun,
     * which may have wired up MPI, sets it, too. */
    if (hb_knob("SIZE") && !hb_knob("RENDEZVOUS"))
        return 0;
    /* PMIx tells rank 0 its rank but no size. */
    if (!hvd__launcher_several(l))
        return l->size == 0 && hb_variable("PMIX_NAMESPACE") ? 2 : 0;
    if (strncmp(l->variable, "SLURM_", strlen("SLURM_")) != 0 || has_pmi())
        return 1;
    if (l->size)
        return hb_error_set(err, HVD_EINVAL,
                            "srun started %lld processes that do not know of "
                            "each other; use srun --mpi=pmix, or hvdrun, or "
                            "set HVD_SIZE=1 for worlds of one",
                            (long long)l->size);
    return hb_error_set(err, HVD_EINVAL,
                        "%s is %lld, and the processes do not know of each "
                        "other; use srun --mpi=pmix, or hvdrun, or set "
                        "HVD_SIZE=1 for worlds of one",
                        l->variable, (long long)l->value);
}

/* ---- The roll ------------------------------------------------------------ */

/* Makes the socket name of a rank.  It contains PMIx's job name, or else the id
 * of the process that started this host's ranks. */
static socklen_t name_of(struct sockaddr_un *a, int64_t rank)
{
    const char *job = hb_variable("PMIX_NAMESPACE");
    int len;

    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    len = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1,
                   "hvd-roll-%u-%.60s-%d-%lld", (unsigned)geteuid(),
                   job ? job : "", job ? 0 : (int)getppid(), (long long)rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)len);
}

static void announce_to(struct hvd__roll *r, int64_t rank)
{
    struct sockaddr_un a;
    socklen_t len = name_of(&a, rank);
    int32_t mine = (int32_t)r->launcher->rank;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&a, len) == 0 &&
        send(fd, &mine, sizeof(mine), MSG_NOSIGNAL) == sizeof(mine))
        r->came[rank] = 1;
    close(fd);
}

void hvd__roll_open(struct hvd__roll *r, const struct hvd__launcher *l)
{
    struct sockaddr_un a;
    socklen_t len = name_of(&a, l->rank);

    *r = (struct hvd__roll){.fd = -1, .launcher = l};
    if (l->rank < 0 || l->rank >= l->size)
        return;
    r->came = hb_calloc((size_t)l->size, 1);
    r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (!r->came || r->fd < 0 || bind(r->fd, (struct sockaddr *)&a, len) < 0 ||
        listen(r->fd, BACKLOG) < 0) {
        hvd__roll_close(r);
        return;
    }
    r->came[l->rank] = 1;
    for (int64_t i = 0; i < l->size; i++)
        if (i != l->rank)
            announce_to(r, i);
}

/* Accepts at most as many connections as the backlog holds: any user of this
 * host could connect endlessly. */
static void hear(struct hvd__roll *r)
{
    for (int i = 0; i <= BACKLOG; i++) {
        int fd = accept4(r->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct ucred peer = {.uid = (uid_t)-1};
        socklen_t len = sizeof(peer);
        int32_t rank = -1;

        if (fd < 0)
            break;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
            peer.uid == geteuid() &&
            recv(fd, &rank, sizeof(rank), 0) == sizeof(rank) && rank >= 0 &&
            rank < r->launcher->size)
            r->came[rank] = 1;
        close(fd);
    }
}

/* Writes the missing ranks to `text`, as in ", missing: 1, 3-5". */
static void list_missing(const struct hvd__roll *r, char *text, size_t size)
{
    const char *mark = ", missing: ";
    size_t used = 0;

    for (int64_t i = 0; i < r->launcher->size && used < size; i++) {
        int64_t first = i;

        if (r->came[i])
            continue;
        while (i + 1 < r->launcher->size && !r->came[i + 1])
            i++;
        used += (size_t)(first == i
                             ? snprintf(text + used, size - used, "%s%lld",
                                        mark, (long long)i)
                             : snprintf(text + used, size - used, "%s%lld-%lld",
                                        mark, (long long)first, (long long)i));
        mark = ", ";
    }
}

void hvd__roll_text(struct hvd__roll *r, char *text, size_t size)
{
    const struct hvd__launcher *l = r->launcher;
    char missing[128] = "";
    int64_t count = 0;

    if (r->fd < 0) {
        snprintf(text, size, "not all ranks have come to hvd_init");
        return;
    }
    hear(r);
    for (int64_t i = 0; i < l->size; i++)
        count += r->came[i];
    if (l->local_size == l->size) {
        list_missing(r, missing, sizeof(missing));
        snprintf(text, size, "%lld of %lld ranks have come to hvd_init%s",
                 (long long)count, (long long)l->size, missing);
    } else {
        snprintf(text, size,
                 "%lld ranks of this host, of %lld in all, have come to "
                 "hvd_init",
                 (long long)count, (long long)l->size);
    }
}

void hvd__roll_close(struct hvd__roll *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    hb_free(r->came);
    r->came = NULL;
}
