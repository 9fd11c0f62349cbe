/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world that MPI started, and the table of functions that libhvd.so asks
 * for.  MPI is begun once at most in a process, and the duplicate of
 * MPI_COMM_WORLD is made once.  Who its ranks are: ranks.c.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"

#include <limits.h>
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

/* The MPI that the plug-in was built with; for hvdrun --check-build. */
HVD_API extern const char hvd_mpi_library[];
const char hvd_mpi_library[] = LIBRARY;

struct mp_world mp_world = {.lock = PTHREAD_MUTEX_INITIALIZER,
                            .comm = MPI_COMM_NULL,
                            .broken = HB_ERROR_INIT,
                            .chunk_elems = INT_MAX};

/* ---- Beginning MPI ------------------------------------------------------ */

static const char *level_name(int level)
{
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

/* By default MPI ends the process at errors of calls on the world or on no
 * communicator.  This makes it return them: for good if this plug-in
 * initialised MPI, else only while the world is made; *held keeps the
 * program's handlers. */
struct handlers {
    MPI_Errhandler world, self;
};

static void hold_handlers(struct handlers *held)
{
    if (!mp_world.ours) {
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &held->world);
        MPI_Comm_get_errhandler(MPI_COMM_SELF, &held->self);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static void release_handlers(struct handlers *held)
{
    if (mp_world.ours)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, held->world);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, held->self);
    MPI_Errhandler_free(&held->world);
    MPI_Errhandler_free(&held->self);
}

static int begin(struct hb_error *err)
{
    int flag = 0, rc = 0;

    MPI_Finalized(&flag);
    if (flag)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "MPI has been finalised; call MPI_Finalize after "
                            "hvd_shutdown");
    MPI_Initialized(&flag);
    if (!flag) {
        rc = mp_init(err);
        mp_world.ours = rc == 0;
    }
    return rc;
}

static int check_level(struct hb_error *err)
{
    int level = MPI_THREAD_SINGLE, rc = MPI_Query_thread(&level);

    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Query_thread");
    mp_world.view.has_threads = level == MPI_THREAD_MULTIPLE;
    if (level >= MPI_THREAD_SERIALIZED)
        return 0;
    return hb_error_set(
        err, HVD_EUNSUPPORTED, "MPI runs at thread level %s; %s",
        level_name(level),
        mp_world.ours
            ? "it must be built for MPI_THREAD_SERIALIZED"
            : "call MPI_Init_thread with MPI_THREAD_SERIALIZED before "
              "hvd_init");
}

static int read_world(struct hb_error *err)
{
    struct hvd__mpi_world *w = &mp_world.view;
    int rc = MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);

    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Comm_rank");
    rc = MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Comm_size");
}

/* ---- Opening ---------------------------------------------------------------
 */

static int make_comm(struct hb_error *err)
{
    MPI_Request req;
    int rc = mp_finish(MPI_Comm_idup(MPI_COMM_WORLD, &mp_world.comm, &req),
                       "MPI_Comm_idup", &req, err);

    if (rc < 0)
        return rc;
    rc = MPI_Comm_set_errhandler(mp_world.comm, MPI_ERRORS_RETURN);
    return rc == MPI_SUCCESS ? 0
                             : mp_error_own(err, rc, "MPI_Comm_set_errhandler");
}

/* Frees the communicator; not after an error, as requests may still use it. */
static void free_comm(void)
{
    if (!mp_world.failed && mp_world.comm != MPI_COMM_NULL)
        MPI_Comm_free(&mp_world.comm);
}

/* Runs inside MPI_Finalize, whoever calls it.  Waits for the peers' farewells,
 * which come soon, as MPI_Finalize does not return before all ranks call it.
 * Keeps what is known of the ranks, as libhvd may not be shut down yet. */
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
    while (mp_reap(hb_now_ns() > until) > 0)
        nanosleep(&step, NULL);
    mp_types_close();
    free_comm();
    mp_world.up = 0;
    mp_unlock();
    return MPI_SUCCESS;
}

static int watch_finalize(struct hb_error *err)
{
    int rc = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, clean_up,
                                    &mp_world.keyval, NULL);

    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Comm_create_keyval");
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

static int make_world(struct hb_error *err)
{
    int rc = check_level(err);

    if (rc == 0)
        rc = read_world(err);
    if (rc == 0)
        rc = make_comm(err);
    if (rc == 0)
        rc = mp_types_open(err);
    if (rc == 0)
        rc = mp_find_ranks(err);
    if (rc == 0)
        rc = watch_finalize(err);
    return mp_keep_failure(rc, err);
}

static int open_world(struct hb_error *err)
{
    struct handlers held;
    int rc = mp_keep_failure(begin(err), err);

    if (rc < 0 || mp_world.up)
        return rc;
    hold_handlers(&held);
    read_library();
    rc = make_world(err);
    release_handlers(&held);
    if (rc == 0) {
        /* Open MPI yields the core while it waits; others may not. */
        if (mp_world.crowded &&
            strncmp(mp_world.library, "Open MPI", strlen("Open MPI")) != 0)
            mp_world.may_block = 0;
        mp_world.up = 1;
    } else if (!mp_world.failed) {
        mp_forget_ranks();
        mp_types_close();
        free_comm();
    }
    return rc;
}

static int mp_open(struct hvd__mpi_world *world, uint64_t deadline_ns,
                   struct hb_error *err)
{
    int rc;

    mp_lock();
    mp_world.deadline_ns = deadline_ns;
    mp_world.patience_ns = deadline_ns - hb_now_ns();
    if (mp_world.broken.status)
        *err = mp_world.broken;
    rc = mp_world.broken.status ? mp_world.broken.status : open_world(err);
    if (rc == 0)
        *world = mp_world.view;
    mp_unlock();
    return rc;
}

static void mp_close(void)
{
    mp_lock();
    mp_reap(0);
    mp_unlock();
}

static void mp_finalize(void)
{
    int finalized = 1;

    if (mp_lock_at_exit() != 0)
        return;
    if (mp_world.ours)
        mp_wait_at_exit();
    if (mp_world.ours && !mp_world.failed)
        MPI_Finalized(&finalized);
    mp_unlock();
    if (!finalized)
        MPI_Finalize();
}

/* ---- Before there is a plane ------------------------------------------- */

/* Ends a call that all ranks make: keeps its failure, and copies it to err. */
static int end_call(int rc, const struct hb_error *why, struct hb_error *err)
{
    mp_keep_failure(rc, why);
    mp_unlock();
    if (rc < 0 && err)
        *err = *why;
    return rc;
}

static int mp_allgather_bytes(const void *mine, size_t len, void *all,
                              struct hb_error *err)
{
    struct hb_error why;
    int rc;

    mp_lock();
    why = mp_world.broken;
    rc = why.status ? why.status : mp_gather(mine, len, all, &why);
    return end_call(rc, &why, err);
}

static int mp_agree(int failed, int *who, struct hb_error *err)
{
    struct hb_error why;
    int rc;

    *who = -1;
    mp_lock();
    why = mp_world.broken;
    rc = why.status ? why.status : mp_find_failed(failed, who, &why);
    return end_call(rc, &why, err);
}

/* ---- The table -------------------------------------------------------------
 */

HVD_API hvd__plugin_fn hvd_plugin;

const void *hvd_plugin(const char *abi, struct hb_error *err)
{
    static const struct hvd__mpi table = {
        .name = "mpi",
        .open = mp_open,
        .close = mp_close,
        .finalize = mp_finalize,
        .allgather = mp_allgather_bytes,
        .agree = mp_agree,
        .plane = mp_plane_new,
        .comm_ranks = mp_comm_ranks,
    };

    return hvd__plugin_table(&table, "libhvd-mpi.so", abi, err);
}
