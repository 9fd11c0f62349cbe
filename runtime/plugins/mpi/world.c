/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world that MPI started, and the table of functions that libhvd.so asks
 * for.  MPI is begun once at most in a process, and so are the communicators
 * made once: a duplicate of MPI_COMM_WORLD, and one for each host.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PATIENCE_NS UINT64_C(5000000000)

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#if defined(OMPI_MAJOR_VERSION)
#define LIBRARY                                    \
    "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT( \
        OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define LIBRARY "MPICH " MPICH_VERSION
#else
#define LIBRARY "MPI " TEXT(MPI_VERSION) "." TEXT(MPI_SUBVERSION)
#endif

/* What it was built with; for hvdrun --check-build. */
HVD_API extern const char hvd_mpi_library[];
const char hvd_mpi_library[] = LIBRARY;

struct mp_world mp_world = {.lock = PTHREAD_MUTEX_INITIALIZER,
                            .comm = MPI_COMM_NULL,
                            .local = MPI_COMM_NULL,
                            .chunk_elems = INT_MAX};

/* ---- Beginning MPI ------------------------------------------------------ */

static const char *level_name(int level)
{
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

static int begin(struct hb_error *err)
{
    int flag = 0, level = MPI_THREAD_SINGLE, rc;

    MPI_Finalized(&flag);
    if (flag)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "MPI has been finalised; call MPI_Finalize after "
                            "hvd_shutdown");
    MPI_Initialized(&flag);
    if (!flag) {
        rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (rc != MPI_SUCCESS)
            return mp_error_own(err, rc, "MPI_Init_thread");
        mp_world.ours = 1;
    }
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_SERIALIZED)
        return 0;
    return hb_error_set(
        err, HVD_EUNSUPPORTED, "MPI runs at thread level %s; %s",
        level_name(level),
        flag ? "call MPI_Init_thread with MPI_THREAD_SERIALIZED before hvd_init"
             : "it must be built for MPI_THREAD_SERIALIZED");
}

/* ---- Who is where -------------------------------------------------------- */

/* What ranks tell each other. */
struct place {
    int leader; /* the lowest rank of its host */
    char host[HVD__MPI_HOST_BYTES];
};

static int *host_of;
static int *local_ranks;
static char (*hosts)[HVD__MPI_HOST_BYTES];

static void forget(void)
{
    hb_free(host_of);
    hb_free(local_ranks);
    hb_free(hosts);
    host_of = local_ranks = NULL;
    hosts = NULL;
}

/* Hosts are numbered in the order of their lowest ranks. */
static void number_hosts(struct hvd__mpi_world *w, const struct place *places)
{
    for (int r = 0; r < w->size; r++) {
        int leader = places[r].leader;

        if (leader == r) {
            memcpy(hosts[w->cross_size], places[r].host, sizeof(hosts[0]));
            host_of[r] = w->cross_size++;
        } else {
            host_of[r] = host_of[leader];
        }
        if (leader == places[w->rank].leader)
            local_ranks[w->local_size++] = r;
    }
    w->cross_rank = host_of[w->rank];
    for (int i = 0; i < w->local_size; i++)
        if (local_ranks[i] == w->rank)
            w->local_rank = i;
    w->host_of = host_of;
    w->local_ranks = local_ranks;
    w->hosts = (const char(*)[HVD__MPI_HOST_BYTES])hosts;
}

static int exchange_places(struct place *places, struct hb_error *err)
{
    struct place own = {.leader = mp_world.view.rank};
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int len, rc;

    MPI_Get_processor_name(name, &len);
    snprintf(own.host, sizeof(own.host), "%.*s", HVD__MPI_HOST_BYTES - 1, name);
    rc = MPI_Bcast(&own.leader, 1, MPI_INT, 0, mp_world.local);
    if (rc == MPI_SUCCESS)
        rc = MPI_Allgather(&own, (int)sizeof(own), MPI_BYTE, places,
                           (int)sizeof(own), MPI_BYTE, mp_world.comm);
    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Allgather");
}

/* Whether the ranks of this host have less than a core each. */
static int count_cores(struct hb_error *err)
{
    cpu_set_t cpus;
    int rc;

    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    rc = MPI_Allreduce(MPI_IN_PLACE, &cpus, (int)sizeof(cpus), MPI_BYTE,
                       MPI_BOR, mp_world.local);
    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Allreduce");
    mp_world.crowded = mp_world.view.local_size > CPU_COUNT(&cpus);
    return 0;
}

/* All ranks must cut alike: the least that one was given.  A rank that was
 * given nonsense tells the others. */
static int agree_on_chunk(struct hb_error *err)
{
    int64_t least = INT_MAX;
    int given = hb_knob_i64("MPI_CHUNK", 1, INT_MAX, &least, err);
    int rc;

    if (given < 0)
        least = 0;
    rc = MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT64_T, MPI_MIN,
                       mp_world.comm);
    if (given < 0)
        return given;
    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Allreduce");
    if (least < 1)
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_MPI_CHUNK of another rank is no number of "
                            "elements");
    mp_world.chunk_elems = least;
    return 0;
}

static int find_ranks(struct hb_error *err)
{
    struct hvd__mpi_world *w = &mp_world.view;
    struct place *places;
    size_t n;
    int rc;

    memset(w, 0, sizeof(*w));
    MPI_Comm_rank(mp_world.comm, &w->rank);
    MPI_Comm_size(mp_world.comm, &w->size);
    n = (size_t)w->size;
    places = hb_calloc(n, sizeof(*places));
    host_of = hb_calloc(n, sizeof(*host_of));
    local_ranks = hb_calloc(n, sizeof(*local_ranks));
    hosts = hb_calloc(n, sizeof(*hosts));
    rc = places && host_of && local_ranks && hosts
             ? exchange_places(places, err)
             : hb_error_set(err, HVD_ENOMEM, "no memory for %zu ranks", n);
    if (rc == 0)
        number_hosts(w, places);
    hb_free(places);
    if (rc == 0)
        rc = count_cores(err);
    return rc == 0 ? agree_on_chunk(err) : rc;
}

/* ---- Opening ---------------------------------------------------------------
 */

static int make_comms(struct hb_error *err)
{
    int rc = MPI_Comm_dup(MPI_COMM_WORLD, &mp_world.comm);

    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(mp_world.comm, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_split_type(mp_world.comm, MPI_COMM_TYPE_SHARED, 0,
                                 MPI_INFO_NULL, &mp_world.local);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(mp_world.local, MPI_ERRORS_RETURN);
    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Comm_dup");
}

static void free_comms(void)
{
    if (mp_world.local != MPI_COMM_NULL)
        MPI_Comm_free(&mp_world.local);
    if (mp_world.comm != MPI_COMM_NULL)
        MPI_Comm_free(&mp_world.comm);
}

/* MPI_Finalize, whoever calls it: peers are about to say that they leave, as it
 * does not return before they come.  What is known of the ranks stays: libhvd
 * may not be shut down yet. */
static int clean_up(MPI_Comm comm, int keyval, void *value, void *extra)
{
    const struct timespec step = {0, 100 * 1000};
    uint64_t until = hb_now_ns() + PATIENCE_NS;

    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    mp_lock();
    mp_leave_all();
    while (mp_reap(hb_now_ns() > until ? MP_REAP_ALL : MP_REAP_LEFT) > 0)
        nanosleep(&step, NULL);
    mp_types_close();
    free_comms();
    mp_world.up = 0;
    mp_unlock();
    return MPI_SUCCESS;
}

static int watch_finalize(struct hb_error *err)
{
    int rc = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, clean_up,
                                    &mp_world.keyval, NULL);

    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_attr(MPI_COMM_SELF, mp_world.keyval, NULL);
    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Comm_set_attr");
}

static void read_library(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;

    MPI_Get_library_version(text, &len);
    /* MPICH's first line is "MPICH Version:	4.0.2". */
    text[strcspn(text, "\n,")] = 0;
    snprintf(mp_world.library, sizeof(mp_world.library), "%.200s", text);
    for (char *c = mp_world.library; *c; c++)
        if (*c == '\t')
            *c = ' ';
    mp_world.view.library = mp_world.library;
}

static int open_world(struct hb_error *err)
{
    int rc = begin(err);

    if (rc < 0 || mp_world.up)
        return rc;
    rc = make_comms(err);
    if (rc == 0)
        rc = mp_types_open(err);
    if (rc == 0)
        rc = find_ranks(err);
    if (rc == 0)
        rc = watch_finalize(err);
    if (rc == 0) {
        read_library();
        /* Open MPI gives way to others while it waits. */
        mp_world.may_block =
            !mp_world.crowded ||
            strncmp(mp_world.library, "Open MPI", strlen("Open MPI")) == 0;
        mp_world.up = 1;
    } else {
        forget();
        mp_types_close();
        free_comms();
    }
    return rc;
}

static int mp_open(struct hvd__mpi_world *world, struct hb_error *err)
{
    int rc;

    mp_lock();
    rc = open_world(err);
    if (rc == 0)
        *world = mp_world.view;
    mp_unlock();
    return rc;
}

static void mp_close(void)
{
    mp_lock();
    mp_reap(MP_REAP_FREED);
    mp_unlock();
}

static void mp_finalize(void)
{
    int finalized = 1;

    if (mp_lock_at_exit() != 0)
        return;
    MPI_Finalized(&finalized);
    finalized |= mp_world.failed || !mp_world.ours;
    mp_unlock();
    if (!finalized)
        MPI_Finalize();
}

/* ---- Before there is a plane ------------------------------------------- */

static int mp_allgather_bytes(const void *mine, size_t len, void *all,
                              struct hb_error *err)
{
    int rc;

    if (len > INT_MAX)
        return hb_error_set(err, HVD_EINVAL, "%zu bytes are too many", len);
    mp_lock();
    rc = MPI_Allgather(mine, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE,
                       mp_world.comm);
    rc = rc == MPI_SUCCESS ? 0 : mp_error(err, -1, rc, "MPI_Allgather");
    mp_unlock();
    return rc;
}

static int mp_local_bcast(void *bytes, size_t len, struct hb_error *err)
{
    int rc;

    if (len > INT_MAX)
        return hb_error_set(err, HVD_EINVAL, "%zu bytes are too many", len);
    mp_lock();
    rc = MPI_Bcast(bytes, (int)len, MPI_BYTE, 0, mp_world.local);
    rc = rc == MPI_SUCCESS ? 0 : mp_error(err, -1, rc, "MPI_Bcast");
    mp_unlock();
    return rc;
}

/* ranks[i]: of its rank i, in the world, if it is there. */
static int translate(MPI_Comm comm, int *ranks, int *places)
{
    MPI_Group theirs, ours;
    int n, rc = MPI_Comm_group(comm, &theirs);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Comm_group(mp_world.comm, &ours);
    if (rc == MPI_SUCCESS) {
        MPI_Group_size(theirs, &n);
        for (int i = 0; i < n; i++)
            places[i] = i;
        rc = MPI_Group_translate_ranks(theirs, n, places, ours, ranks);
        MPI_Group_free(&ours);
    }
    MPI_Group_free(&theirs);
    return rc;
}

static int ranks_of(MPI_Comm comm, int *ranks, struct hb_error *err)
{
    int n = 0, inter = 0, *places, rc;

    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return hb_error_set(err, HVD_EINVAL, "it is an intercommunicator");
    MPI_Comm_size(comm, &n);
    if (n > mp_world.view.size)
        return hb_error_set(err, HVD_EINVAL, "it has ranks of another world");
    places = hb_calloc((size_t)n, sizeof(*places));
    if (!places)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", n);
    rc = translate(comm, ranks, places);
    hb_free(places);
    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Group_translate_ranks");
    for (int i = 0; i < n; i++)
        if (ranks[i] == MPI_UNDEFINED)
            return hb_error_set(err, HVD_EINVAL,
                                "its rank %d is not in this world", i);
    return n;
}

static int mp_comm_ranks(const void *comm, int *ranks, struct hb_error *err)
{
    MPI_Comm of = *(const MPI_Comm *)comm;
    int rc = 0;

    mp_lock();
    if (of != MPI_COMM_NULL)
        rc = ranks_of(of, ranks, err);
    mp_unlock();
    return rc;
}

/* ---- The table -------------------------------------------------------------
 */

HVD_API hvd__plugin_fn hvd_plugin;

const struct hvd__mpi *hvd_plugin(const char *abi, struct hb_error *err)
{
    static const struct hvd__mpi table = {
        .name = "mpi",
        .open = mp_open,
        .close = mp_close,
        .finalize = mp_finalize,
        .allgather = mp_allgather_bytes,
        .local_bcast = mp_local_bcast,
        .plane = mp_plane_new,
        .comm_ranks = mp_comm_ranks,
    };

    if (strcmp(abi, HVD__PLUGIN_ABI) == 0)
        return &table;
    hb_error_set(err, HVD_EPROTO,
                 "libhvd-mpi.so is of version \"%s\" and libhvd.so of \"%s\"",
                 HVD__PLUGIN_ABI, abi);
    return NULL;
}
