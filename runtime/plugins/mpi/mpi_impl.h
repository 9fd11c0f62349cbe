/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the MPI plug-in.
 *
 * MPI is used at thread level SERIALIZED: whoever calls it holds mp_world's
 * lock.  Every plane has a communicator of its own.
 *
 * An operation begins with headers (header.c), which nothing waits for but
 * progress; after them every rank knows that all have begun it and agree.  Its
 * data then goes through MPI's own collectives (call.c).  These are called in
 * their blocking form, which is faster, where each rank has said that it has
 * no other plane: an operation of another one, or making one, might wait for
 * the lock on one rank while that rank is waited for.  Else in the other
 * form, and progress tests for it; also where ranks share cores and MPI keeps
 * them busy while it waits.
 *
 * A rank that leaves tells all others (leave.c), and with an error if it has
 * one.  One that cannot go on with an operation that it has begun first says
 * that it is leaving, and for a while still takes part if the others go on,
 * since a blocking collective on a peer could not be ended.
 *
 * After an error MPI is not called any more than it takes to tell the others,
 * nothing is freed that a request may still write to, and MPI is not
 * finalised, which would wait for ranks that cannot come: when a process ends
 * like that, the launcher ends the job.
 */
#ifndef HVD_PLUGINS_MPI_IMPL_H
#define HVD_PLUGINS_MPI_IMPL_H

#include "runtime/plugins/plugin.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    MP_TAG_HEADER = 1,
    MP_TAG_GONE = 2,
    /* Of the world's own communicator, and a plane's number more. */
    MP_TAG_NOTICE = 3,
    MP_TAG_MAKE = 16,
    MP_TAGS = 16384,
    MP_SCRATCH_BYTES = 4 << 20,
    MP_WHY_BYTES = 256,
};

/* A header's words. */
enum mp_word { MP_SIGNATURE, MP_FIRST, MP_LEAST, MP_FLAGS, MP_WORDS };

/* What is true of all ranks.  One flag of each kind is all the others'. */
enum mp_flag {
    MP_SAME = 1u << 0,       /* signature */
    MP_SAME_FIRST = 1u << 1, /* first_signature */
    MP_SOLO = 1u << 2,       /* its collectives may block */
    MP_IN_PLACE = 1u << 3,   /* sendbuf is recvbuf */
    MP_APART = 1u << 4,      /* it is not */
};

/* Of the dissemination: whom this rank sends to and hears from. */
struct mp_round {
    int to, from;
    uint64_t in[MP_WORDS], out[2][MP_WORDS]; /* out: by parity of seq */
    MPI_Request in_req, out_req[2];
    int arrived; /* `in` holds what was not merged yet */
};

enum mp_leaving { MP_STAYS, MP_LEAVING, MP_GONE };

/* Why a rank cannot go on. */
struct mp_why {
    int32_t status; /* enum hvd_status, 0: it is no failure */
    int32_t blamed; /* rank of the world */
    char host[64];  /* whose it is */
    char text[MP_WHY_BYTES];
};

/* What a rank that leaves tells. */
struct mp_farewell {
    uint64_t how;     /* enum mp_leaving; LEAVING: a GONE follows */
    uint64_t over;    /* operations that it has taken part in, or will */
    uint64_t because; /* the rank that left first; of the plane */
};

struct mp_goodbye {
    struct mp_farewell words;
    struct mp_why why; /* of the one that left first */
};

enum mp_stage { MP_IDLE, MP_AGREE, MP_HELD, MP_DATA };

struct mp_wait {
    uint64_t since_ns; /* 0: the clock was not read yet */
    long sleep_ns;
    int armed;
    uint32_t armed_word;
    int spins;
};

/* Where the data of the operation in progress stands. */
struct mp_run {
    int step;
    int flying; /* req is a collective */
    MPI_Request req;
    const char *call;   /* what is in flight */
    unsigned looks;     /* that it was not done */
    uint64_t doomed_ns; /* since when a peer will not take part; 0: none */
    size_t at, block;   /* elements done; those in flight */
    size_t piece, rounds;
    const unsigned char *send;
    int deliver, windowed;
};

struct mp_plane {
    struct hvd__plane plane;
    MPI_Comm comm;
    MPI_Group group; /* while it is made */
    int n, me;
    int *ranks;         /* [n]: of the world */
    uint64_t seq, over; /* operations begun, and carried out */
    uint64_t solo_seq;  /* the one in progress, if it said MP_SOLO; or 0 */
    struct hvd__op *op; /* in progress */
    enum mp_stage stage;
    uint64_t head[MP_WORDS];
    int nrounds, round, sent;
    struct mp_round *rounds;
    int solo; /* this operation's collectives block */
    struct mp_run run;
    struct mp_wait wait;
    _Atomic uint32_t wake; /* a futex */
    /* Farewells: */
    struct mp_farewell *gone; /* [n] */
    struct mp_goodbye gone_in, gone_out[2];
    MPI_Request gone_req, *gone_reqs; /* [2 * n] */
    int first_gone;                   /* rank, -1: nobody left */
    struct mp_why why;                /* of it */
    enum mp_leaving left;             /* what was told */
    int freed;
    struct mp_plane *next;  /* of all */
    struct hb_error broken; /* lasts */
    void *scratch;          /* [MP_SCRATCH_BYTES] */
    uint64_t *words;        /* [2 * n + 4] */
    int *ints;              /* [4 * n] */
    size_t *offset;         /* [n + 1] */
};

struct mp_world {
    pthread_mutex_t lock; /* held in every MPI call, and for what follows */
    int up, ours;
    int failed;             /* an MPI call has, here or on a peer */
    struct hb_error broken; /* outside of planes: lasts */
    uint64_t deadline_ns;   /* of hvd_init */
    uint64_t patience_ns;   /* that it had */
    int unsure;             /* a peer may wait for what this rank gave up */
    int crowded;            /* more ranks than cores here */
    int may_block;          /* MPI waits well enough */
    int keyval;             /* of what MPI_Finalize deletes first */
    MPI_Comm comm;
    int can_tell;             /* over comm, if a call fails */
    MPI_Request notice_req;   /* a rank has failed outside of planes */
    MPI_Request *notice_reqs; /* [view.size]: that this one has */
    struct mp_why notice_in, notice_out;
    struct hvd__mpi_world view;
    int planes;           /* there are, or are being made */
    struct mp_plane *all; /* the one of the whole world */
    int64_t chunk_elems;  /* most of one MPI call */
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

/* ---- error.c: with the text of an MPI error ----
 * peer: a rank of the world, whom the call was for; -1: it was for several,
 * and if a process of this host has ended, it is that one. */
int mp_error(struct hb_error *err, int peer, int mpi_rc, const char *call);
/* The same for what can only be this process's: HVD_ESYSTEM. */
int mp_error_own(struct hb_error *err, int mpi_rc, const char *call);
/* As mp_error, of a test whether what call began is done. */
int mp_error_test(struct hb_error *err, int peer, int mpi_rc, const char *test,
                  const char *call);
/* In err's rank and host, unless it is set. */
void mp_name_rank(struct hb_error *err, int rank);
const char *mp_host(int rank); /* "?" before they are known */
/* err as this rank tells it to others: its status 0 if that is none, or
 * HVD_ESHUTDOWN. */
void mp_explain(struct mp_why *why, const struct hb_error *err);
/* A peer, of the world, has failed: -HVD_EPEER. */
int mp_peer_failed(struct hb_error *err, int peer, const struct mp_why *why);

/* ---- start.c: what is outside of planes ----
 * MPI_Init_thread, which waits for all ranks to come; the caller holds the
 * lock. */
int mp_init(uint64_t deadline_ns, struct hb_error *err);
/* The caller holds the lock; others get it meanwhile.  peer as above.
 * Negative when a rank has told that it failed, or the time is over, too. */
struct mp_await {
    const char *call;
    int peer;
    uint64_t deadline_ns;
};
enum { MP_AWAIT_MOST = 2 }; /* requests */
int mp_await(const struct mp_await *a, MPI_Request *reqs, int n,
             struct hb_error *err);
/* From when there is a communicator for it. */
int mp_notices_open(struct hb_error *err);
/* A receive that nobody will send for: 0, or negative and it is still there,
 * and its memory has to be. */
int mp_withdraw(MPI_Request *req);
/* What a function outside of planes returns: an error of MPI's lasts, and the
 * others are told, unless they have told this rank or its time is over, as
 * theirs will be. */
int mp_over(int rc, const struct hb_error *err);

/* ---- ranks.c: the caller holds the lock, but for mp_comm_ranks ----
 * Fills mp_world.view; negative too when another rank cannot go on. */
int mp_find_ranks(struct hb_error *err);
void mp_forget_ranks(void);
/* len bytes of each rank, by rank. */
int mp_gather(const void *mine, size_t len, void *all, struct hb_error *err);
int mp_comm_ranks(const void *comm, int *ranks, struct hb_error *err);

/* ---- header.c ---- */
int mp_header_init(struct mp_plane *p);
int mp_header_open(struct mp_plane *p, struct hb_error *err);
int mp_header_close(struct mp_plane *p); /* as mp_withdraw */
int mp_header_send(struct mp_plane *p, const struct hvd__op *op);
/* 1: all have begun it, and head is of all; 0; or negative. */
int mp_header_agree(struct mp_plane *p, struct hvd__op *op);
/* 1: a peer has begun the next operation; 0; or negative. */
int mp_header_arrived(struct mp_plane *p, struct hb_error *err);
/* The least value of n ranks of the world, among them; blocks, but not with
 * the lock, which the caller has. */
int mp_least(const struct hvd__mpi_plane_config *c, uint64_t *value,
             struct hb_error *err);

/* ---- wait.c ---- */
void mp_wait_init(struct mp_plane *p);
void mp_wait_reset(struct mp_plane *p);
void mp_pause(struct hvd__plane *plane);
void mp_interrupt(struct hvd__plane *plane);

/* ---- leave.c ---- */
int mp_leave_init(struct mp_plane *p);
int mp_leave_open(struct mp_plane *p, struct hb_error *err);
int mp_leave_close(struct mp_plane *p); /* as mp_withdraw */
/* Takes in the farewells that have arrived: 0 or negative. */
int mp_farewells(struct mp_plane *p, struct hb_error *err);
/* The same, and negative when a peer is gone that has not carried out the
 * operation, whose data is under way: it will not. */
int mp_deserted(struct mp_plane *p, struct hb_error *err);
/* Whether the operation in progress, or the next one, can still be agreed on:
 * 1, 0: a peer is about to say, or negative: it cannot. */
int mp_prospect(struct mp_plane *p, uint64_t seq, struct hb_error *err);
void mp_tell(struct mp_plane *p, enum mp_leaving how);
/* Where MPI may not be called again: until these have gone out, or a while. */
void mp_push_out(MPI_Request *reqs, int n);
void mp_abandon(struct hvd__plane *plane);
void mp_leave(struct hvd__plane *plane);
void mp_leave_now(struct mp_plane *p); /* the caller holds the lock */
/* Not 0: another thread has it, in the midst of a call that blocks. */
int mp_lock_at_exit(void);
/* After giving up what a peer may be in: until all have left, or none of MPI's
 * calls is to be waited for. */
void mp_settle_at_exit(void);

/* ---- plane.c ---- */
/* Disconnects planes that were freed, or also those that have left, if all of
 * their peers are gone, or in any case.  How many are left; the caller holds
 * the lock. */
enum mp_reap { MP_REAP_FREED, MP_REAP_LEFT, MP_REAP_ALL };
int mp_reap(enum mp_reap how);
/* Leaves what was not freed, for good: MPI ends; the caller holds the lock. */
void mp_leave_all(void);
struct hvd__plane *mp_plane_new(const struct hvd__mpi_plane_config *config,
                                struct hb_error *err);
/* As progress; the caller holds the lock. */
int mp_advance(struct mp_plane *p, struct hvd__op *op);

/* ---- call.c: one MPI collective; counts of at most mp_most ----
 * 0 or negative; then mp_landed until it is 1. */
int mp_landed(struct mp_plane *p, struct hvd__op *op);
size_t mp_most(void);
int mp_allreduce(struct mp_plane *p, struct hb_error *err, void *buf,
                 const void *send, size_t count, MPI_Datatype type, MPI_Op op);
int mp_reduce_scatter(struct mp_plane *p, const struct hvd__op *op,
                      const void *send, void *recv, const int *counts);
int mp_bcast(struct mp_plane *p, const struct hvd__op *op, void *buf,
             size_t count);
/* In place; counts NULL: `count` of each. */
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

/* ---- types.c ---- */
/* Elements that are moved, not reduced. */
MPI_Datatype mp_plain_type(size_t elem_bytes);
MPI_Datatype mp_type(enum hvd_dtype dtype);
/* The operation of dtype and op: MPI's own where that gives what
 * runtime/plane/reduce.h says. */
MPI_Op mp_op(enum hvd_dtype dtype, enum hvd_op op);
int mp_types_open(struct hb_error *err);
void mp_types_close(void);

/* ---- reduce.c, gather.c, alltoall.c: as progress, after the headers ---- */
int mp_allreduce_advance(struct mp_plane *p, struct hvd__op *op);
int mp_scatter_advance(struct mp_plane *p, struct hvd__op *op);
int mp_broadcast_advance(struct mp_plane *p, struct hvd__op *op);
int mp_gather_advance(struct mp_plane *p, struct hvd__op *op);
int mp_alltoall_advance(struct mp_plane *p, struct hvd__op *op);

/* ---- rounds.c: what allgather and alltoall are made of ---- */
struct mp_moves {
    /* One collective each, whose results every rank plans from; then NULL. */
    int (*ask[3])(struct mp_plane *p, struct hvd__op *op);
    /* After them: sets run.deliver, windowed, piece and rounds. */
    void (*plan)(struct mp_plane *p, const struct hvd__op *op);
    /* Begins the collective of round run.at, after mp_cut of what comes into
     * the first 2 * n of p->ints; if run.windowed, to the start of scratch. */
    int (*issue)(struct mp_plane *p, struct hvd__op *op);
};
int mp_rounds(struct mp_plane *p, struct hvd__op *op, const struct mp_moves *m);
/* Elements for each rank in a piece, if so many bytes hold one for each; and
 * the rounds, none if no rank has room. */
void mp_plan_pieces(struct mp_plane *p, const struct hvd__op *op, size_t bytes,
                    size_t longest, int has_room);
/* Each rank's part of this round, one after the other: n counts, and n
 * displacements.  Its elements are every `step`th word. */
void mp_cut(const struct mp_plane *p, const uint64_t *elems, int step,
            int *counts);

#endif
