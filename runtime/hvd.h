/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhvd: collectives for data-parallel training, in C.
 *
 *     #include <hvd.h>
 *
 *     hvd_init();
 *     hvd_allreduce(grad, grad, n, HVD_FLOAT32, HVD_AVERAGE, NULL);
 *     hvd_shutdown();
 *
 * Started by `hvdrun -np N ./train`, the N processes are ranks 0..N-1 of
 * one world; started alone, a process is a world of one.
 *
 * Return values: 0, or the negative of an enum hvd_status.  The text of
 * the last failure in the calling thread, with the rank and host that
 * caused it, is hvd_error_message().
 *
 * Buffers: contiguous arrays of `count` elements of `dtype`, aligned to
 * the element size, owned by the caller.  A buffer given to an _async call
 * is lent to the library until the request is done (hvd_wait returned, or
 * hvd_test said so): meanwhile the caller neither writes the send buffer
 * nor reads or writes the receive buffer.  sendbuf == recvbuf is in place;
 * buffers that overlap otherwise are HVD_EINVAL, except where a function
 * says more.  A NULL buffer is allowed with count 0, and where a function
 * says so.  Counts are in elements and 64-bit throughout; 0 is a count.
 *
 * Order: all ranks issue the same collectives in the same order.  A rank
 * that differs in kind, name, count, dtype, op, root or scale makes that
 * operation fail with HVD_EMISMATCH on every rank; the message names two
 * ranks and both values, and later operations work.
 *
 * Failures that last: once a peer has died (HVD_EPEER) or has left
 * (HVD_ESHUTDOWN), or the agent is gone (HVD_ECLOSED), every operation
 * fails so until hvd_shutdown.  An operation that a peer had joined before
 * it left still completes.  HVD_EMISMATCH and HVD_EINVAL do not last.  A
 * connection between hosts that breaks, without the agents knowing of a
 * death, is HVD_EPEER too, after 2 s.
 *
 * Threads: every function may be called from any thread.  Collectives
 * belong between the return of hvd_init and the call of hvd_shutdown:
 * outside they return -HVD_ENOTINIT, and none may begin while hvd_shutdown
 * runs.  hvd_init, hvd_shutdown, hvd_is_initialized, the topology
 * functions (outside, they return -HVD_ENOTINIT) and those that only return
 * texts, names or sizes may be called at any time; hvd_wait and hvd_test
 * as long as there is a request, also after hvd_shutdown.
 *
 * Collectives of several threads are ordered as they enter the library, so
 * the threads of a rank must themselves agree on an order that is the same
 * on all ranks.  No function is async-signal-safe.  The library has no
 * thread, handler or output before hvd_init and after hvd_shutdown, and no
 * thread before the first _async call.
 *
 * Fork: a child of an initialised process cannot use the library: it
 * looks uninitialised there, and hvd_init is HVD_EUNSUPPORTED.  The parent
 * is not disturbed.  A child that executes another program is not
 * concerned.
 *
 * The same bits: the result of a reduction is bitwise the same on every
 * rank.
 */
#ifndef HVD_H
#define HVD_H

#include "hvd_status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))

enum hvd_dtype {
    HVD_UINT8 = 0,
    HVD_INT8 = 1,
    HVD_UINT16 = 2,
    HVD_INT16 = 3,
    HVD_INT32 = 4,
    HVD_INT64 = 5,
    HVD_FLOAT16 = 6, /* IEEE 754 binary16 */
    HVD_FLOAT32 = 7,
    HVD_FLOAT64 = 8,
    HVD_BOOL = 9, /* one byte; 0 is false, anything else true */
    HVD_BFLOAT16 = 10
};

/* Numbers as Horovod's; 2 is Adasum's there. */
enum hvd_op {
    HVD_AVERAGE = 0, /* the sum divided by the number of ranks */
    HVD_SUM = 1,
    HVD_MIN = 3,
    HVD_MAX = 4,
    HVD_PRODUCT = 5,
    HVD_BAND = 6, /* bitwise and: integers and bool */
    HVD_BOR = 7   /* bitwise or: integers and bool */
};

/*
 * Options of one call.  Make one with HVD_OPTIONS_INIT and change what you
 * need; `size` tells the library which fields the caller's header had.
 * Fields that a later version adds mean their default when 0, and a
 * library that does not know one refuses it (HVD_EUNSUPPORTED) only when
 * it is set.  Read during the call, not kept.
 */
struct hvd_options {
    size_t size;
    double prescale;  /* factor on every input before a reduction */
    double postscale; /* factor on its result; both are finite */
};

/* clang-format off */
#define HVD_OPTIONS_INIT { sizeof(struct hvd_options), 1.0, 1.0 }
/* clang-format on */

typedef struct hvd_request hvd_request;

/* ---- Life ---------------------------------------------------------- */

/*
 * Joins the world that hvdrun started this process in, or makes a world of
 * one when HVD_RENDEZVOUS is not set.
 *
 * Returns 0, also when already initialised (and then does nothing); or the
 * negative of HVD_EINVAL (the HVD_ variables contradict each other or
 * hvdrun), HVD_ENOENT, HVD_ESYSTEM (no agent, no shared memory, no way to a
 * rank on another host), HVD_EPERM (the agent is another user's, or refuses
 * this rank), HVD_ETIMEOUT (the other ranks did not come within
 * HVD_START_TIMEOUT, 30 s by default), HVD_EPEER (a rank died meanwhile),
 * HVD_ECLOSED, HVD_EPROTO (the agent, or another release of libhvd on
 * another host), HVD_EUNSUPPORTED (more than 64 ranks on one host, hosts of
 * different byte order, or a forked child), HVD_ENOMEM.  On failure nothing
 * is held and it may be called again.
 * Order: every rank calls it, the n-th call of one with the n-th of all.
 * Threads: any; blocks until all ranks have called.
 * Between hosts it opens TCP connections, at most one per other host; the
 * ranks prove to each other with the job's secret that they belong to it.
 * After hvd_shutdown it may be called again, any number of times.
 * Source: Horovod's init; unlike MPI_Init (MPI 4.0, 11.2.1) not only once.
 */
HVD_API int hvd_init(void);

/*
 * Leaves the world and gives back everything that hvd_init took.
 *
 * Operations in flight, blocking ones of other threads included, complete
 * with HVD_ESHUTDOWN; requests stay the caller's, and each must still be
 * given to hvd_wait, before or after this call.  Peers that wait for this
 * rank get HVD_ESHUTDOWN naming it.
 * Returns 0, also when not initialised (and then does nothing).
 * Order: none; usually after the last operation on every rank.
 * Threads: any; no collective may begin while it runs.  Does not wait
 * for peers.
 * A process that exits without it leaves in order too.
 * Source: Horovod's shutdown.
 */
HVD_API int hvd_shutdown(void);

/*
 * 1 between a successful hvd_init and hvd_shutdown, else 0.
 *
 * Order: none.  Threads: any; never blocks; so for the next three too.
 */
HVD_API int hvd_is_initialized(void);

/* The library's version, "0.1.0"; a constant string. */
HVD_API const char *hvd_version(void);

/*
 * The text of the calling thread's last failure: one line without a
 * newline, "" if nothing failed yet.  Success does not clear it.
 *
 * Owned by the library; valid until the next failure in this thread, or
 * its end.
 */
HVD_API const char *hvd_error_message(void);

/* A short phrase for a status of either sign; a constant string. */
HVD_API const char *hvd_status_text(int status);

/* ---- Topology ------------------------------------------------------ */

/*
 * This process's place: rank and number of ranks in the world, on its host
 * (local), and among the ranks of its local rank on all hosts (cross).
 *
 * Each returns the value, or -HVD_ENOTINIT.
 * Order: none.  Threads: any; never blocks.
 * Source: Horovod's rank, size, local_rank, local_size, cross_rank,
 * cross_size.
 */
HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);

/* ---- Collectives --------------------------------------------------- */

/*
 * What the calls below have in common.
 *
 * Blocking form: returns when this rank's part is done and its buffers are
 * its own again; that the other ranks are done is not implied.
 *
 * Asynchronous form (_async): queues the operation and returns.
 *   name  in; at most 255 bytes, copied; NULL or "": none.  Compared
 *         between ranks.  A name must not be in flight already.
 *   req   out; a request on success, untouched on failure.  The caller
 *         owns it and ends it with hvd_wait, exactly once.
 * Both forms may be mixed; the order of issue counts, not of waiting.
 *
 * opts    in; NULL: defaults.  Scales other than 1 are for reductions.
 *
 * Statuses of the blocking form, and of hvd_wait for the other:
 *   0; or the negative of HVD_ENOTINIT; HVD_EINVAL (an argument, named in
 *   the message); HVD_EUNSUPPORTED (an option); HVD_EMISMATCH (the buffers
 *   are as they were); HVD_EPEER, HVD_ESHUTDOWN, HVD_ECLOSED (the receive
 *   buffer's contents are undefined).
 * Statuses of the asynchronous form itself:
 *   0; or the negative of HVD_ENOTINIT, HVD_EINVAL, HVD_EUNSUPPORTED,
 *   HVD_EDUPNAME, HVD_ESHUTDOWN, HVD_ENOMEM, HVD_ESYSTEM (no thread).
 *   Then nothing was queued.
 *
 * Order: all ranks issue the same operations in the same order.
 * Threads: any.  The blocking form allocates nothing; it spins briefly,
 * then yields, then sleeps.
 */

/*
 * Reduces `count` elements over all ranks; every rank gets the result.
 *
 *   sendbuf  in; count elements of dtype
 *   recvbuf  out; count elements of dtype; may be sendbuf
 *   count    the same on all ranks
 *   dtype    the same on all ranks
 *   op       the same on all ranks; HVD_BAND and HVD_BOR are not defined
 *            for floats, HVD_AVERAGE not for HVD_BOOL (HVD_EINVAL)
 *   opts     prescale and postscale, the same on all ranks
 *
 * result = reduce(input * prescale) * postscale, and divided by the number
 * of ranks for HVD_AVERAGE.  float16 and bfloat16 are accumulated in
 * float32 and rounded to nearest even, once on one host; on several, the
 * sum of each host and what goes on to the next is.  Integers wrap; scaled ones
 * go through double and truncate toward zero; an average of integers
 * truncates toward zero.  Bool: sum and max are or, product and min are
 * and; results are 0 or 1.  A NaN in any input of a float min or max gives
 * NaN.  Operands are taken in rank order on each host, and in an order of
 * the hosts that depends on count and dtype only: all ranks get the same
 * bits.  The same ranks on other hosts may get others.
 *
 * Statuses, order, threads: above.
 * Source: MPI_Allreduce (MPI 4.0, 6.9.6); scales as in Horovod.
 */
HVD_API int hvd_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                          enum hvd_dtype dtype, enum hvd_op op,
                          const struct hvd_options *opts);
HVD_API int hvd_allreduce_async(const char *name, const void *sendbuf,
                                void *recvbuf, size_t count,
                                enum hvd_dtype dtype, enum hvd_op op,
                                const struct hvd_options *opts,
                                hvd_request **req);

/*
 * Copies root's `count` elements to every rank.
 *
 *   sendbuf  in; count elements of dtype on root; elsewhere not looked at,
 *            and may be NULL
 *   recvbuf  out; count elements of dtype, on root too; may be sendbuf
 *   count    the same on all ranks
 *   dtype    the same on all ranks
 *   root     a rank, 0 .. size - 1, the same on all ranks
 *
 * Statuses, order, threads: above.
 * Source: ncclBroadcast; MPI_Bcast (MPI 4.0, 6.4).
 */
HVD_API int hvd_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                          enum hvd_dtype dtype, int root,
                          const struct hvd_options *opts);
HVD_API int hvd_broadcast_async(const char *name, const void *sendbuf,
                                void *recvbuf, size_t count,
                                enum hvd_dtype dtype, int root,
                                const struct hvd_options *opts,
                                hvd_request **req);

/*
 * Gathers every rank's elements, in rank order, on every rank; ranks may
 * contribute different counts.
 *
 *   sendbuf    in; sendcount elements of dtype; may lie anywhere in
 *              recvbuf
 *   sendcount  this rank's; ranks may differ, 0 is allowed
 *   recvbuf    out; the elements of rank 0, of rank 1, ...  NULL with
 *              recvcap 0 asks for the counts only
 *   recvcap    room in recvbuf, in elements; ranks may differ
 *   recvcounts out; size entries, what each rank sent; or NULL; lent to
 *              the library as the buffers are
 *   dtype      the same on all ranks
 *
 * A rank whose recvcap is too small gets HVD_EINVAL alone: its recvbuf is
 * untouched, its recvcounts are filled, and the other ranks succeed.
 *
 * Statuses, order, threads: above.
 * Source: MPI_Allgatherv (MPI 4.0, 6.7) without counts known beforehand;
 * Horovod's allgather.
 */
HVD_API int hvd_allgather(const void *sendbuf, size_t sendcount, void *recvbuf,
                          size_t recvcap, size_t *recvcounts,
                          enum hvd_dtype dtype, const struct hvd_options *opts);
HVD_API int hvd_allgather_async(const char *name, const void *sendbuf,
                                size_t sendcount, void *recvbuf, size_t recvcap,
                                size_t *recvcounts, enum hvd_dtype dtype,
                                const struct hvd_options *opts,
                                hvd_request **req);

/*
 * Completes on a rank when every rank has issued it (and so everything
 * before it).
 *
 * Statuses, order, threads: above.
 * Source: MPI_Barrier (MPI 4.0, 6.3).
 */
HVD_API int hvd_barrier(const struct hvd_options *opts);
HVD_API int hvd_barrier_async(const char *name, const struct hvd_options *opts,
                              hvd_request **req);

/* ---- Requests ------------------------------------------------------ */

/*
 * Waits for an operation, frees its request, and returns its status.
 *
 *   req  in; from an _async call; gone on return.  NULL is HVD_EINVAL.
 *
 * Order: none; requests may be waited for in any order.
 * Threads: any, one per request.  While it waits, the calling thread does
 * the library's work, for earlier operations too.  Works after
 * hvd_shutdown as well.  In a forked child, HVD_ENOTINIT for a request that
 * was in flight, which stays as it is.
 * Source: MPI_Wait (MPI 4.0, 3.7.3); Horovod's synchronize.
 */
HVD_API int hvd_wait(hvd_request *req);

/*
 * Tells whether an operation is done, without blocking; helps a little
 * with the work if it is not.
 *
 *   req   in; stays the caller's.  NULL is HVD_EINVAL.
 *   done  out; 1: hvd_wait will not block and the buffers are the caller's
 *         again; 0: not yet
 *
 * Returns 0, -HVD_EINVAL or, in a forked child, -HVD_ENOTINIT; the
 * operation's own status comes from hvd_wait.
 * Order: none.  Threads: any, not with hvd_wait on the same request; never
 * blocks.
 * Source: MPI_Test (MPI 4.0, 3.7.3), which frees the request; Horovod's
 * poll, which does not.
 */
HVD_API int hvd_test(hvd_request *req, int *done);

/* ---- Types --------------------------------------------------------- */

/*
 * Bytes of one element; 0 for what is no enum hvd_dtype.
 *
 * Order: none.  Threads: any; never blocks; so for the next two too.
 */
HVD_API size_t hvd_dtype_size(enum hvd_dtype dtype);
/* "float32", "sum"; "?" for what is none; constant strings. */
HVD_API const char *hvd_dtype_name(enum hvd_dtype dtype);
HVD_API const char *hvd_op_name(enum hvd_op op);

#ifdef __cplusplus
}
#endif

#endif
