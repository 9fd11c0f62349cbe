/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the MPI plug-in.
 *
 * MPI is used at thread level SERIALIZED: every MPI call is made with
 * mp_world's lock held.  Every plane has its own communicator.
 *
 * An operation begins with headers (header.c).  Once they are exchanged, every
 * rank knows that all have begun the operation and agree.  Its data then goes
 * through MPI's collectives (mpi_call.c).  The blocking form is faster, but
 * holds the lock.  With several planes this could deadlock: an operation on
 * another plane may wait for the lock on one rank while a second rank waits for
 * that operation.  So the blocking form is used only if each rank has said that
 * it has no other plane; otherwise the nonblocking form, which progress tests.
 * The nonblocking form is also used where ranks share cores and MPI
 * busy-waits.
 *
 * A rank that leaves tells all others (leave.c), with its error if it has one.
 * It tells over the planes it has, so those that wait for it while another
 * plane is made learn it over the world's.  While that one is made, the others
 * wait until the time limit of hvd_init, or until the launcher ends them.
 *
 * After an error, MPI is called only to tell the others.  Nothing is freed
 * that a request may still write to, and MPI is not finalised, which would
 * wait for ranks that cannot come.  When a process ends without MPI_Finalize,
 * the launcher ends the job.
 */
#ifndef HVD_PLUGINS_MPI_IMPL_H
#define HVD_PLUGINS_MPI_IMPL_H

#include "runtime/plugins/mpi/peer_counts.h"
#include "runtime/plugins/mpi_plugin.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    MP_TAG_HEADER = 1,
    MP_TAG_FAREWELL = 2,
    MP_TAG_MAKE = 16, /* plus a plane's tag, on the world's communicator */
    MP_TAGS = 16384,
    MP_SCRATCH_BYTES = 4 << 20,
    MP_WHY_BYTES = 256,
};

/* A round of the dissemination: the ranks that this one sends to and receives
 * from. */
struct mp_round {
    int to, from;
    uint64_t in[MP_WORDS], out[2][MP_WORDS]; /* out: by parity of seq */
    int arrived; /* `in` holds a message that is not merged yet */
};

enum mp_leaving { MP_STAYS, MP_LEAVING, MP_GONE };

/* The reason for which a rank leaves: hvd_shutdown; an error; the rank `first`
 * kept it waiting for too long; the ranks waited too long because they do not
 * agree on an operation. */
enum mp_reason { MP_SHUTDOWN, MP_ERROR, MP_TIMEOUT, MP_DISAGREEMENT };

/* What a leaving rank says. */
struct mp_farewell {
    uint64_t how;         /* enum mp_leaving; LEAVING: a GONE follows */
    uint64_t carried_out; /* operations that it has carried out or will */
    uint64_t first;  /* plane rank that left first, or kept others waiting */
    uint64_t reason; /* enum mp_reason; all but SHUTDOWN: text */
    char text[MP_WHY_BYTES];
};

/* What is known of a peer. */
struct mp_peer {
    uint64_t how, carried_out;
};

enum mp_stage { MP_IDLE, MP_AGREE, MP_HELD, MP_DATA };

struct mp_wait {
    uint64_t since_ns; /* 0: the clock was not read yet */
    long sleep_ns;
    int armed;
    uint32_t armed_word;
    int spins;
};

/* State of the operation in progress, after its headers. */
struct mp_run {
    int step;
    int flying; /* req is a nonblocking collective */
    MPI_Request req;
    const char *call;     /* its name, for errors */
    unsigned looks;       /* times that it was found incomplete */
    uint64_t deserted_ns; /* since then a peer is known not to take part; 0: no
                           peer */
    size_t at, block;     /* elements (rounds.c: rounds) done; in flight */
    struct mp_plan plan;
    const unsigned char *send;
    unsigned char *recv; /* allgather: recvbuf, or drain */
    int deliver;
    int asks; /* a thread is in the caller's alloc, without the lock */
};

struct mp_plane {
    struct hvd__plane plane;
    MPI_Comm comm;
    int n, me;
    int *ranks;                /* [n]: world ranks */
    uint64_t seq, carried_out; /* operations begun; completed */
    uint64_t solo_seq;  /* operation in progress if sent with MP_SOLO, else 0 */
    struct hvd__op *op; /* in progress */
    enum mp_stage stage;
    uint64_t head[MP_WORDS];
    int nrounds, round, sent;
    struct mp_round *rounds; /* [nrounds] */
    MPI_Request *recvs;      /* [nrounds + 1]: of each round; of farewells */
    MPI_Request *sends;      /* [2 * n + 2 * nrounds]: farewells, LEAVING and
                                then GONE; headers, two of each round */
    int solo;                /* this operation's collectives block */
    struct mp_run run;
    struct mp_wait wait;
    _Atomic uint32_t wake; /* a futex */
    struct mp_peer *peers; /* [n] */
    struct mp_farewell farewell_in, farewell_out[2];
    int first;                         /* rank that left first, -1: none */
    struct mp_farewell first_farewell; /* the first one that came */
    enum mp_leaving left;              /* what the others were told */
    int closed; /* no further operation starts: this rank leaves */
    int freed;
    struct mp_plane *next;  /* list of all planes */
    struct hb_error broken; /* every later operation fails with it */
    void *scratch;          /* [MP_SCRATCH_BYTES] */
    uint64_t *words;        /* [2 * n + 4] */
    int *ints;              /* [4 * n] */
    size_t *offset;         /* [n + 1] */
    void *drain; /* receives what alloc had no memory for; else NULL */
};

struct mp_world {
    pthread_mutex_t lock; /* held in every MPI call; protects what follows */
    int up, ours;
    int failed;             /* an MPI call has failed, here or on a peer */
    struct hb_error broken; /* failure outside of planes, kept */
    uint64_t deadline_ns;   /* of hvd_init, or for making a plane */
    uint64_t patience_ns;   /* time that hvd_init had */
    int unsure;             /* a peer may still wait in an operation that
                               this rank gave up */
    int crowded;            /* more ranks than cores here */
    int may_block;          /* blocking collectives are allowed */
    int keyval;             /* attribute whose deletion runs clean_up in
                               MPI_Finalize */
    MPI_Comm comm;
    struct hvd__mpi_world view;
    int planes;           /* number of planes, those being made included */
    struct mp_plane *all; /* plane of the whole world */
    int64_t chunk_elems;  /* most elements of one MPI call */
    char library[256];
};

extern struct mp_world mp_world;

static inline void mp_lock(void)
{
    pthread_mutex_lock(&mp_world.lock);
}

static inline void mp_unlock(void)
{
    pthread_mutex_unlock(&mp_world.lock);
}

/* ---- mpi_error.c ---- */

/* Sets err, HVD_EPEER, with MPI's text.  peer: the world rank that the call
 * involved; -1: several; then the local rank whose process has ended, if any,
 * is blamed. */
int mp_error(struct hb_error *err, int peer, int mpi_rc, const char *call);
/* Sets err, HVD_ESYSTEM, for a failure of this process itself. */
int mp_error_own(struct hb_error *err, int mpi_rc, const char *call);
/* Sets err as mp_error, when `test` reports the failure of what `call`
 * began. */
int mp_error_test(struct hb_error *err, int peer, int mpi_rc, const char *test,
                  const char *call);
/* Sets err, HVD_EPEER: the world rank `rank` has failed. */
int mp_error_peer(struct hb_error *err, int rank, const char *why);
/* Returns `why` if mp_error_peer has set err, else NULL. */
const char *mp_peer_reason(const struct hb_error *err);
/* Sets err's rank and host, unless err is set already. */
void mp_name_rank(struct hb_error *err, int rank);
const char *mp_host(int rank);

/* ---- start.c: calls outside of planes; the caller holds the lock ---- */

/* Calls MPI_Init_thread, which waits for all ranks. */
int mp_init(struct hb_error *err);
/* Sets *done to 1 if n requests are done, else to 0.  Returns an MPI code. */
int mp_test_all(MPI_Request *reqs, int n, int *done);
/* Waits for n requests, with the lock released in between.  peer: as in
 * mp_error.  Negative if MPI fails or mp_world.deadline_ns passes. */
int mp_await(const char *call, int peer, MPI_Request *reqs, int n,
             struct hb_error *err);
/* Waits for the request that `call` has begun, if mpi_rc, its result, is a
 * success. */
int mp_finish(int mpi_rc, const char *call, MPI_Request *req,
              struct hb_error *err);
/* Keeps err for good if rc is negative because MPI has failed.  Returns rc. */
int mp_keep_failure(int rc, const struct hb_error *err);

/* ---- ranks.c: the caller holds the lock, except of mp_comm_ranks ---- */

/* Fills mp_world.view; fails if any rank cannot go on. */
int mp_find_ranks(struct hb_error *err);
void mp_forget_ranks(void);
/* Gathers len bytes from each rank, by rank. */
int mp_gather(const void *mine, size_t len, void *all, struct hb_error *err);
/* Sets *who to the lowest rank that passed `failed`, -1 if none did. */
int mp_find_failed(int failed, int *who, struct hb_error *err);
int mp_comm_ranks(const void *comm, int *ranks, struct hb_error *err);

/* ---- header.c ---- */

/* Posts the receives for the first headers. */
int mp_headers_post(struct mp_plane *p, struct hb_error *err);
int mp_header_send(struct mp_plane *p, const struct hvd__op *op);
/* Returns 1 if all ranks have begun the operation, and p->head is merged from
 * all; 0: call again; or negative. */
int mp_header_agree(struct mp_plane *p, struct hvd__op *op);
/* Returns 1 if a peer has begun the next operation, 0 if none has; or
 * negative. */
int mp_header_arrived(struct mp_plane *p, struct hb_error *err);
/* Sets *value to the least over the members; blocks.  The caller holds the
 * lock, which is released while waiting. */
int mp_members_min(const struct hvd__mpi_plane_config *c, uint64_t *value,
                   struct hb_error *err);

/* ---- wait.c ---- */
void mp_wait_init(struct mp_plane *p);
void mp_wait_reset(struct mp_plane *p);
void mp_pause(struct hvd__plane *plane, uint64_t until_ns);
void mp_interrupt(struct hvd__plane *plane);

/* ---- leave.c ---- */

/* Posts the receive for the next farewell. */
int mp_farewell_post(struct mp_plane *p, struct hb_error *err);
/* Reads the farewells that have arrived: 0 or negative. */
int mp_farewells_read(struct mp_plane *p, struct hb_error *err);
/* Reads farewells as mp_farewells_read; also negative if a peer has left that
 * will not carry out the operation in progress. */
int mp_find_deserter(struct mp_plane *p, struct hb_error *err);
/* Returns 1 if operation `seq`, in progress or next, can still be agreed on; 0
 * if a leaving peer is about to say; negative with err set if it cannot. */
int mp_can_agree(struct mp_plane *p, uint64_t seq, struct hb_error *err);
void mp_farewell_send(struct mp_plane *p, enum mp_leaving how);
void mp_abandon(struct hvd__plane *plane);
void mp_give_up(struct hvd__plane *plane, const struct hb_error *why);
void mp_leave(struct hvd__plane *plane);
void mp_leave_locked(struct mp_plane *p); /* the caller holds the lock */
/* Takes the lock, with a time limit.  Not 0: another thread holds it in a
 * blocking call. */
int mp_lock_at_exit(void);
/* Waits until all peers have left, after giving up an operation that one of
 * them may still be in (`unsure`); on time-out sets `failed`, so that no MPI
 * call waits for them. */
void mp_wait_at_exit(void);

/* ---- mpi_plane.c ---- */

/* Disconnects planes that have left: those whose peers are all gone and whose
 * sends are done, or all of them at once; and frees those that libhvd has
 * freed.  Returns how many that have left remain; the caller holds the lock. */
int mp_reap(int at_once);
/* Leaves all planes that are not freed, because MPI is being finalised; the
 * caller holds the lock. */
void mp_leave_all(void);
struct hvd__plane *mp_plane_new(const struct hvd__mpi_plane_config *config,
                                struct hb_error *err);
/* Progresses an operation, as a plane does; the caller holds the lock. */
int mp_advance(struct mp_plane *p, struct hvd__op *op);
/* Notes that progress of `op` has returned rc, not 0.  Another thread, which
 * gave the operation up, may have noted its end before. */
void mp_operation_over(struct mp_plane *p, const struct hvd__op *op, int rc);

/* ---- mpi_call.c: begin one MPI collective of at most mp_max_elems ---- */

/* Returns 1 when the collective is over.  Those below return 0 or negative; on
 * 0, call mp_collective_done until it returns 1. */
int mp_collective_done(struct mp_plane *p, struct hvd__op *op);
size_t mp_max_elems(void);
int mp_allreduce(struct mp_plane *p, struct hb_error *err, void *buf,
                 const void *send, size_t count, MPI_Datatype type, MPI_Op op);
int mp_reduce_scatter(struct mp_plane *p, const struct hvd__op *op,
                      const void *send, void *recv, const int *counts);
int mp_bcast(struct mp_plane *p, const struct hvd__op *op, void *buf,
             size_t count);
/* Gathers `count` elements of each rank, in place. */
int mp_allgather(struct mp_plane *p, struct hb_error *err, void *buf,
                 size_t count, MPI_Datatype type);
int mp_allgatherv(struct mp_plane *p, const struct hvd__op *op, void *buf,
                  const int *counts, const int *displs);
int mp_alltoall(struct mp_plane *p, struct hb_error *err, const uint64_t *send,
                uint64_t *recv);
struct mp_splits {
    const void *send;
    void *recv;
    const int *sendcounts, *sdispls, *recvcounts, *rdispls;
};
int mp_alltoallv(struct mp_plane *p, const struct hvd__op *op,
                 const struct mp_splits *s);

/* ---- mpi_types.c ---- */
/* Returns a type for elements that are moved, not reduced. */
MPI_Datatype mp_plain_type(size_t elem_bytes);
MPI_Datatype mp_type(enum hvd_dtype dtype);
/* Returns the MPI operation for dtype and op: MPI's own where it does what
 * runtime/plane/kernels/reduce.h specifies, else one of ours. */
MPI_Op mp_op(enum hvd_dtype dtype, enum hvd_op op);
int mp_types_open(struct hb_error *err);
void mp_types_close(void);

/* ---- mpi_reduce.c, gather.c, alltoall.c: as progress, after the headers ----
 */
int mp_allreduce_advance(struct mp_plane *p, struct hvd__op *op);
int mp_scatter_advance(struct mp_plane *p, struct hvd__op *op);
int mp_broadcast_advance(struct mp_plane *p, struct hvd__op *op);
int mp_gather_advance(struct mp_plane *p, struct hvd__op *op);
int mp_alltoall_advance(struct mp_plane *p, struct hvd__op *op);

/* ---- rounds.c: what allgather and alltoall are made of ---- */
struct mp_moves {
    /* Each begins a collective whose results the plan needs; ends with NULL. */
    int (*ask[3])(struct mp_plane *p, struct hvd__op *op);
    /* Sets run.deliver and run.plan from those results.  0, or -HVD_EPROTO if
     * they are impossible, or -HVD_ENOMEM. */
    int (*plan)(struct mp_plane *p, struct hvd__op *op);
    /* Begins the collective of round run.at, after mp_cut_round of the
     * incoming elements into the first 2 * n of p->ints; it receives at the
     * start of scratch if run.plan.windowed. */
    int (*issue)(struct mp_plane *p, struct hvd__op *op);
};
int mp_run_rounds(struct mp_plane *p, struct hvd__op *op,
                  const struct mp_moves *m);
/* Returns as hvd__op_room whether there is room for `elems`.  Calls alloc
 * without the lock. */
int mp_room(struct mp_plane *p, struct hvd__op *op, size_t elems);
/* Returns how much room this rank announces, in elements.  With alloc it is as
 * much as can be needed. */
uint64_t mp_room_announced(const struct hvd__op *op);
/* Returns the limits of an operation, with `bytes` of scratch memory. */
struct mp_limits mp_limits(const struct mp_plane *p, const struct hvd__op *op,
                           size_t bytes);
/* Sets op->recvcounts, if wanted; rank r's is elems[r * step]. */
void mp_tell_counts(const struct mp_plane *p, const struct hvd__op *op,
                    const uint64_t *elems, int step);

#endif
