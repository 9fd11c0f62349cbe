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
 * Buffers: contiguous arrays of `count` elements of `dtype`, aligned to the
 * element size, owned by the caller.  A buffer given to an _async call is lent
 * to the library until the request is done (hvd_wait has returned, or hvd_test
 * said so): meanwhile the caller neither writes the send buffer nor reads or
 * writes the receive buffer.  sendbuf == recvbuf is in place; buffers that
 * overlap otherwise are HVD_EINVAL, except where a function says more.  A NULL
 * buffer is allowed with count 0, and where a function says so.  Counts are in
 * elements, 64-bit throughout, and may be 0.
 *
 * Order: each rank of a process set issues the same operations.  Operations
 * with a name may be issued in any order, and from any thread.  The library
 * predicts which one comes next from what came before, which costs no message;
 * if the prediction fails, the ranks exchange messages to agree.  Operations
 * without a name, blocking calls among them, are matched by their order: the
 * n-th such operation of one rank with the n-th of all others.  Matched
 * operations that differ in kind, count, dtype, op, root, scale, live_average,
 * wire or shapes fail with HVD_EMISMATCH on every rank; the message names two
 * ranks and both values, and later operations work.
 *
 * A rank that leaves out an operation without a name, or issues one too many,
 * is not detected where the next one has the same arguments, or is an allgather
 * or alltoall, whose counts may differ: the ranks then take the data of one
 * operation for that of another.  With HVD_CHECK=1 (hvd-env(7)) operations
 * without a name must also be called from the same place of the program; else
 * they fail with HVD_EMISMATCH, and the message names both places.
 *
 * Failures that last: after one of these, every operation fails with the same
 * status until hvd_shutdown; in an elastic job the first three are HVD_ERESIZED
 * if another rank has caused them, and last until hvd_sync.
 *   HVD_EPEER      a peer has died; or a connection between hosts broke, and
 *                  for 2 s no agent told of a death
 *   HVD_ESHUTDOWN  a peer has left
 *   HVD_ECLOSED    the agent is gone
 *   HVD_ETIMEOUT   ranks wait longer than the stall check allows
 *   HVD_ENOMEM     this rank had no memory for its part of an HVD_ADASUM or of
 *                  a join, or to agree on what comes next; or, in device memory
 *                  or on the MPI plane, to receive what options.alloc refused;
 *                  the others then get HVD_ESHUTDOWN
 * An operation that a peer had taken part in before it left still completes.
 * HVD_EMISMATCH and HVD_EINVAL do not last, nor does HVD_ENOMEM where
 * options.alloc returned NULL and the data could be received nevertheless.
 *
 * Threads: every function may be called from any thread.  Collectives
 * belong between the return of hvd_init and the call of hvd_shutdown:
 * outside they return -HVD_ENOTINIT, and none may begin while hvd_shutdown
 * runs.  hvd_init, hvd_shutdown, hvd_is_initialized, the topology
 * functions (outside, they return -HVD_ENOTINIT) and those that only return
 * texts, names or sizes may be called at any time; hvd_wait, hvd_wait_for and
 * hvd_test as long as there is a request, also after hvd_shutdown.
 *
 * Threads that issue operations without a name are ordered as they enter
 * the library: they must themselves agree on an order that is the same on
 * all ranks, or use names or process sets.  No function is async-signal-safe.
 * The library has no thread, handler or output before hvd_init and after
 * hvd_shutdown, and no thread before the first call that is _async, of a
 * group, or hvd_join, except a timeline's.
 *
 * Fork: a child of an initialised process cannot use the library: there it
 * looks uninitialised, and hvd_init is HVD_EUNSUPPORTED.  The parent is not
 * disturbed.  A child that executes another program is not affected.
 *
 * The same bits: the result of a reduction is bitwise the same on every
 * rank.
 *
 * Device memory: where the NCCL plug-in, NCCL and a CUDA driver are available,
 * buffers may lie in the memory of a GPU: all buffers of a call on the same
 * one, and on all ranks or on none (HVD_EMISMATCH).  Managed memory counts as
 * device memory, pinned memory as host memory.  The collective starts after all
 * work that the caller's stream (options.stream; NULL: CUDA's default stream)
 * held when the call was made.
 *   stream NULL      as with host memory: done means that the result is there
 *   stream not NULL  the host does not wait for the GPU: the blocking form
 *                    returns when all ranks have issued the operation and it
 *                    was launched; work put on the stream afterwards comes
 *                    after it.  A later failure is the status of the next
 *                    operation, and the stream goes on with undefined
 *                    contents.  hvd_wait waits for the result in any case;
 *                    hvd_wait_on_stream does not.
 * A stream that is being captured into a CUDA graph, and HVD_ADASUM, are
 * HVD_EUNSUPPORTED.  Further statuses: HVD_ESYSTEM (CUDA or NCCL failed; the
 * message has their text), and HVD_ETIMEOUT after HVD_NCCL_TIMEOUT; both last.
 * NCCL rounds sums of floats differently from host memory.  A rank that passes
 * no buffer at all, for example one without data in an allgather, passes a
 * stream to tell that it is in device memory; cudaStreamLegacy is the handle of
 * the default stream.
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
    HVD_BFLOAT16 = 10,
    HVD_FLOAT8_E4M3 = 11, /* reduced in device memory only, unscaled, */
    HVD_FLOAT8_E5M2 = 12  /* where GPU and NCCL support it */
};

/* The same numbers as Horovod's. */
enum hvd_op {
    HVD_AVERAGE = 0, /* the sum divided by the number of ranks */
    HVD_SUM = 1,
    HVD_ADASUM = 2, /* floats; see hvd_allreduce */
    HVD_MIN = 3,
    HVD_MAX = 4,
    HVD_PRODUCT = 5,
    HVD_BAND = 6, /* bitwise and: integers and bool */
    HVD_BOR = 7   /* bitwise or: integers and bool */
};

/* The shape of a tensor, row-major: ndim dimensions, 0 .. HVD_NDIM_MAX, each
 * >= 0.  Their product is the count given in the call; for a reducescatter,
 * dims[0] is rows and the product rows * row_elems. */
enum { HVD_NDIM_MAX = 64 };
struct hvd_shape {
    int ndim;
    const int64_t *dims; /* [ndim]; may be NULL if ndim is 0 */
};

/*
 * Takes note that an operation is done: options.done, for _async forms.
 *
 *   arg     options.done_arg
 *   status  the operation's status, as hvd_wait will return it; in device
 *           memory with a stream, its status when it was launched: then
 *           hvd_wait_on_stream will not block, and a later failure is the
 *           status of hvd_wait and of the next operation
 *
 * Called exactly once for each operation that was queued, also for one that
 * fails or that hvd_shutdown or hvd_process_set_remove ends; before hvd_wait,
 * hvd_wait_for or hvd_test say that it is done; in no particular order, but in
 * one thread at a time for the operations of one process set.  The thread is
 * the one that carried the operation out: one that is inside the library, or
 * the library's own.  All operations of the set wait until it returns: it must
 * not block, and must not call the library.  No lock of the library is held
 * meanwhile, but for those of hvd_shutdown and hvd_process_set_remove while one
 * of these runs.  In a forked child it is not called.
 */
typedef void hvd_done_fn(void *arg, int status);

/*
 * Returns memory for what arrives, of a caller that cannot know its size
 * before: options.alloc, for hvd_allgather and hvd_alltoall.
 *
 *   arg         options.alloc_arg
 *   member      of a group; else 0
 *   count       elements that arrive, of all ranks
 *   recvcounts  size entries, what each rank sent here; valid during the call
 *
 * Called once per member, members in order, by the thread that carries the
 * operation out: one that waits in the library, or the library's own.  Never
 * called if the operation fails before its counts are known.  Other ranks may
 * wait until it returns.  It must not block, and must not call the library, of
 * which no lock is held meanwhile.
 *
 * Returns memory of the caller's for count elements, aligned to the element
 * size and apart from sendbuf (HVD_EINVAL on this rank alone); it takes the
 * place of recvbuf.  NULL with a count that is not 0: this rank alone gets
 * HVD_ENOMEM, the other ranks succeed, and later operations work.  The caller
 * owns the memory, also if the operation fails later; its contents are then
 * undefined.
 *
 * Device memory: where the operation takes place there, so must the memory lie,
 * on the same GPU (HVD_EINVAL on this rank alone), whose context is current
 * during the call.  No earlier work may still use it.
 * Source: none; Horovod allocates a gather's result through its framework.
 */
typedef void *hvd_alloc_fn(void *arg, size_t member, size_t count,
                           const size_t *recvcounts);

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
    int process_set;  /* 0: the world; see hvd_process_set_add */
    int wire;         /* enum hvd_wire: how an allreduce of float32 or float64
                         travels; ignored for other dtypes and HVD_ADASUM */
    int live_average; /* 1: HVD_AVERAGE divides by the number of ranks that
                         have not joined */
    int priority;     /* operations that are first seen together are carried out
                         in the order of priority, the highest first; -2^31 ..
                         2^31-1 */
    void *stream;     /* device memory: a cudaStream_t; see below */
    /* The shape of this rank's tensor, in a group one for each member; NULL:
     * not given.  The ranks must agree on it, but for dims[0] of an allgather
     * or alltoall, and on whether it is given.  A barrier or a join has none
     * (HVD_EINVAL). */
    const struct hvd_shape *shapes;
    hvd_alloc_fn *alloc; /* allgather, alltoall: is asked for the memory of what
                            arrives; recvbuf is NULL and recvcap 0 */
    void *alloc_arg;
    hvd_done_fn *done; /* _async forms: is called when the operation is done; in
                          a blocking form it is HVD_EINVAL */
    void *done_arg;
};

/* clang-format off */
#define HVD_OPTIONS_INIT \
    { sizeof(struct hvd_options), 1.0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

enum hvd_wire {
    HVD_WIRE_FULL = 0,    /* as the dtype */
    HVD_WIRE_FLOAT16 = 1, /* inputs, after prescale, are rounded to float16;
                             results once more */
    HVD_WIRE_BFLOAT16 = 2
};

typedef struct hvd_request hvd_request;

/* ---- Life ---------------------------------------------------------- */

/*
 * Joins the world in which hvdrun or an MPI launcher started this process; or
 * makes a world of one.
 *
 * Returns 0, also when already initialised (and then does nothing); or the
 * negative of
 *   HVD_EINVAL        the HVD_ variables contradict each other or hvdrun, one
 *                     has no valid value, or HVD_TCP_MAC differs
 *   HVD_ENOENT, HVD_ESYSTEM
 *                     no agent, no shared memory, no way to a rank on another
 *                     host, or a file that a variable names cannot be opened
 *   HVD_EPERM         a file that a variable names cannot be opened; or the
 *                     agent is another user's, or refuses this rank
 *   HVD_ETIMEOUT      the other ranks did not come within HVD_START_TIMEOUT,
 *                     30 s by default
 *   HVD_EPEER         a rank has died, now or earlier, in a job that is not
 *                     elastic
 *   HVD_EREMOVED      this rank of an elastic job was asked to leave
 *   HVD_ECLOSED       the agent is gone
 *   HVD_EPROTO        a malformed message of the agent, or another release of
 *                     libhvd on another host
 *   HVD_EUNSUPPORTED  more than 512 ranks on one host, hosts of different byte
 *                     order, a forked child, or an MPI that cannot be used: no
 *                     plug-in, finalised, or its thread level is below
 *                     MPI_THREAD_SERIALIZED
 *   HVD_EMISMATCH     HVD_CPU_PLANE is not the same on all ranks, or under an
 *                     MPI launcher HVD_ALLOC_BYTES on those of one host
 *   HVD_ENOMEM        in an elastic job on this rank alone: the others go on
 * On failure nothing is held and it may be called again, except that hvdrun
 * ends the job after HVD_ETIMEOUT, and that under an MPI launcher an MPI call
 * that failed, or did not return in time, fails again.
 * Order: every rank calls it, the n-th call of one with the n-th of all.
 * Threads: any; blocks until all ranks have called.
 *
 * Ranks of different hosts are connected by TCP: a rank opens at most one
 * connection to each other host.  Both
 * ranks first prove with the job's secret that they belong to it.  What they
 * tell each other later about operations is authenticated; tensor data is not,
 * and nothing is encrypted.
 *
 * Under an MPI launcher it initialises MPI with MPI_THREAD_SERIALIZED, unless
 * the program has done so.  MPI is finalised when the process exits with status
 * 0, unless the program does that.
 *
 * After hvd_shutdown it may be called again, any number of times; in a job that
 * is not elastic, as long as no rank has ended.  Source: Horovod's init; unlike
 * MPI_Init (MPI 4.0, 11.2.1) not only once.
 */
HVD_API int hvd_init(void);

/*
 * Leaves the world and gives back everything that hvd_init took.
 *
 * Operations in flight, blocking ones of other threads included, complete with
 * HVD_ESHUTDOWN.  Requests remain the caller's, and each must still be given to
 * hvd_wait, before or after this call.  Peers that wait for this rank get
 * HVD_ESHUTDOWN naming it.
 * Returns 0, also when not initialised (and then does nothing).
 * Order: none; usually after the last operation on every rank.
 * Threads: any; no collective may begin while it runs.  Does not wait for
 * peers.  A process that exits without calling it leaves in order too.
 * Source: Horovod's shutdown.
 */
HVD_API int hvd_shutdown(void);

/*
 * Returns 1 between a successful hvd_init and hvd_shutdown, else 0.
 *
 * Order: none.  Threads: any; never blocks.  The same holds for the next three
 * functions.
 */
HVD_API int hvd_is_initialized(void);

/* Returns the library's version, "0.1.0"; a constant string. */
HVD_API const char *hvd_version(void);

/*
 * Returns the text of the calling thread's last failure: one line without a
 * newline, "" if nothing has failed yet.  Success does not clear it.
 *
 * Owned by the library; valid until the next failure in this thread, or
 * its end.
 */
HVD_API const char *hvd_error_message(void);

/* Returns a short phrase for a status of either sign; a constant string. */
HVD_API const char *hvd_status_text(int status);

/* ---- Topology ------------------------------------------------------ */

/*
 * Returns this process's place: rank and number of ranks in the world, on its
 * host (local), or among the ranks with its local rank on all hosts (cross);
 * or -HVD_ENOTINIT.
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

/*
 * Returns the GPU that hvdrun gave this rank, as a CUDA device ordinal for
 * cudaSetDevice: the first of its --gpus-per-rank among those that the process
 * may see; ranks share when there are fewer GPUs than ranks.  It is the value
 * of HVD_GPU at the time of hvd_init.
 *
 * Returns the ordinal, or the negative of HVD_ENOTINIT, HVD_ENOENT (this host
 * has no NVIDIA GPU, or hvdrun did not start this process: most launchers then
 * mean hvd_local_rank() modulo the number of devices).
 * Order: none.  Threads: any; never blocks.
 */
HVD_API int hvd_local_gpu(void);

/*
 * Returns what this installation and this world can do.
 *
 *   name  in; one of
 *     mpi_built              1: the MPI plug-in and its MPI can be loaded
 *     mpi_enabled            1: an MPI launcher has started this world
 *     mpi_threads_supported  1: mpi_enabled, and MPI grants
 *                            MPI_THREAD_MULTIPLE
 *     gloo_built             1: jobs work without MPI, over shared memory and
 *                            TCP
 *     gloo_enabled           1: this world works without MPI
 *     nccl_built             the version code of NCCL on this host, 21805 for
 *                            2.18.5, if the plug-in for device memory can be
 *                            loaded and use it; a GPU is not needed
 *     cuda_built             1: that plug-in can be loaded
 *     rocm_built, ddl_built, ccl_built
 *                            0
 *     is_homogeneous         1: all hosts have the same number of ranks
 *
 * Returns the value, 0 where something is missing; or the negative of
 * HVD_EINVAL (name is NULL or another one), HVD_ENOTINIT
 * (mpi_threads_supported, is_homogeneous).  mpi_enabled and gloo_enabled are 0
 * outside of a world.
 * Order: none.  Threads: any.  mpi_built, nccl_built and cuda_built load
 * libraries, and look for them at each call; the others never block.
 * Source: Horovod's mpi_built, mpi_enabled and so on.
 */
HVD_API int hvd_feature(const char *name);

/* ---- Collectives --------------------------------------------------- */

/*
 * What the calls below have in common.
 *
 * Blocking form: returns when this rank's part is done and its buffers belong
 * to the caller again.  That other ranks are done is not implied.
 *
 * Asynchronous form (_async): queues the operation and returns.
 *   name  in; at most 255 bytes, copied; NULL or "": none.  A name must
 *         not be in flight already in the same process set.  A set keeps what
 *         it has learned of each name (about 120 bytes, of the last 2^20
 *         names), so use the same names in every step.
 *   req   out; a request on success, untouched on failure.  The caller
 *         owns it and ends it with hvd_wait, exactly once.
 * Both forms may be mixed.
 *
 * opts    in; NULL: defaults.  Scales other than 1 are HVD_EINVAL but for
 *         reductions, and alloc but for allgather and alltoall; live_average
 *         applies to reductions only, wire to allreduce only.
 *
 * Statuses of the blocking form, and of hvd_wait for the other:
 *   0; or the negative of HVD_ENOTINIT; HVD_EINVAL (an argument, named in
 *   the message); HVD_EUNSUPPORTED (an option); HVD_ENOSET; HVD_ENOTMEMBER;
 *   HVD_EMISMATCH (the buffers are as they were); HVD_EPEER, HVD_ESHUTDOWN,
 *   HVD_ECLOSED, HVD_ETIMEOUT, HVD_EPROTO (a message from another host was
 *   changed on its way) (the receive buffer's contents are undefined);
 *   HVD_ENOMEM.
 * Statuses of the asynchronous form itself:
 *   0; or the negative of HVD_ENOTINIT, HVD_EINVAL, HVD_EUNSUPPORTED,
 *   HVD_ENOSET, HVD_ENOTMEMBER, HVD_EDUPNAME, HVD_ESHUTDOWN, HVD_ENOMEM,
 *   HVD_ESYSTEM (no thread).  Then nothing was queued.
 *
 * Order: at the top of this file.
 * Threads: any.  The blocking form spins briefly, then yields, then sleeps.  A
 * blocking call that repeats an earlier one allocates nothing, except for a
 * group, a join, or an alltoall without sendcounts in a set of more than 64
 * ranks.
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
 * result = reduce(input * prescale) * postscale, divided by the number of ranks
 * for HVD_AVERAGE.
 *   float16, bfloat16  are accumulated in float32 and rounded to nearest even:
 *                      once on one host; on several, each host's sum and each
 *                      partial result that is passed on
 *   integers           wrap; scaled inputs and results go through double,
 *                      truncate toward zero and saturate; an average truncates
 *                      toward zero
 *   bool               sum and max are or, product and min are and; results
 *                      are 0 or 1; nothing is scaled
 *   float min and max  give NaN if any input is NaN
 * Operands are taken in rank order on each host, and in an order of the hosts
 * that depends on count and dtype only: all ranks get the same bits.  The same
 * ranks on other hosts may get others.
 *
 * HVD_ADASUM (float16, bfloat16, float32, float64) combines the vectors a and b
 * of two ranks to (1 - a.b / 2a.a) a + (1 - a.b / 2b.b) b, those results again
 * in pairs, and so on; a vector left over in a level enters the next level
 * unchanged.  Dot products are taken over a tensor, in a group over each of its
 * tensors, and in double.
 *
 * Statuses, order, threads: above.
 * Source: MPI_Allreduce (MPI 4.0, 6.9.6); scales as in Horovod; Maleki et
 * al., Scaling Distributed Training with Adaptive Summation (MLSys 2021).
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
 *   root     a rank of the world, in the process set; the same on all ranks
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
 *   sendbuf    in; sendcount elements of dtype; may overlap recvbuf
 *   sendcount  this rank's; ranks may differ, 0 is allowed
 *   recvbuf    out; the elements of rank 0, of rank 1, ...  NULL with
 *              recvcap 0 asks for the counts only, or, if opts has an alloc,
 *              for memory: see hvd_alloc_fn
 *   recvcap    room in recvbuf, in elements; ranks may differ
 *   recvcounts out; size entries, what each rank sent; or NULL; lent to
 *              the library as the buffers are
 *   dtype      the same on all ranks
 *
 * A rank whose recvcap is too small gets HVD_EINVAL alone: its recvbuf is
 * untouched, its recvcounts are filled, and the other ranks succeed.  The same
 * holds for one whose alloc returns NULL, with HVD_ENOMEM.  Some ranks may use
 * alloc and others not.
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
 * Completes on a rank when every rank has issued it (and thus everything before
 * it).
 *
 * Statuses, order, threads: above.
 * Source: MPI_Barrier (MPI 4.0, 6.3).
 */
HVD_API int hvd_barrier(const struct hvd_options *opts);
HVD_API int hvd_barrier_async(const char *name, const struct hvd_options *opts,
                              hvd_request **req);

/*
 * Splits every rank's elements and sends the j-th split to rank j, which
 * gets the splits of rank 0, of rank 1, ... in order.
 *
 *   sendbuf    in; the sum of sendcounts elements of dtype
 *   sendcounts in; one entry per rank of the set; 0 is allowed.  NULL:
 *              count / size each, and count must divide evenly (HVD_EINVAL)
 *   count      in; elements in sendbuf; with sendcounts, at least their sum,
 *              and what is beyond it is not sent
 *   recvbuf    out; must not overlap sendbuf.  NULL with recvcap 0 asks for
 *              the counts only, or for memory, as in hvd_allgather
 *   recvcap    room in recvbuf, in elements; ranks may differ
 *   recvcounts out; one entry per rank: what each one sent here; or NULL;
 *              lent to the library as the buffers are (sendcounts is copied)
 *   dtype      the same on all ranks
 *
 * A rank whose recvcap is too small gets HVD_EINVAL alone, and one whose alloc
 * returns NULL HVD_ENOMEM, as in hvd_allgather.
 *
 * Statuses, order, threads: above.
 * Source: MPI_Alltoallv (MPI 4.0, 6.8); Horovod's alltoall.
 */
HVD_API int hvd_alltoall(const void *sendbuf, const size_t *sendcounts,
                         size_t count, void *recvbuf, size_t recvcap,
                         size_t *recvcounts, enum hvd_dtype dtype,
                         const struct hvd_options *opts);
HVD_API int hvd_alltoall_async(const char *name, const void *sendbuf,
                               const size_t *sendcounts, size_t count,
                               void *recvbuf, size_t recvcap,
                               size_t *recvcounts, enum hvd_dtype dtype,
                               const struct hvd_options *opts,
                               hvd_request **req);

/*
 * Reduces `rows` rows of `row_elems` elements over all ranks; each rank gets
 * its rows of the result: rows / size, the first (rows mod size) ranks one
 * more.
 *
 *   sendbuf    in; rows * row_elems elements of dtype
 *   recvbuf    out; hvd_reducescatter_rows(rows, set) * row_elems elements;
 *              must not overlap sendbuf
 *   rows, row_elems  the same on all ranks; row_elems at least 1
 *   dtype, op, opts  as in hvd_allreduce; HVD_ADASUM is HVD_EINVAL
 *
 * Statuses, order, threads: above.
 * Source: MPI_Reduce_scatter (MPI 4.0, 6.10); Horovod's reducescatter.
 */
HVD_API int hvd_reducescatter(const void *sendbuf, void *recvbuf, size_t rows,
                              size_t row_elems, enum hvd_dtype dtype,
                              enum hvd_op op, const struct hvd_options *opts);
HVD_API int hvd_reducescatter_async(const char *name, const void *sendbuf,
                                    void *recvbuf, size_t rows,
                                    size_t row_elems, enum hvd_dtype dtype,
                                    enum hvd_op op,
                                    const struct hvd_options *opts,
                                    hvd_request **req);
/* Returns the number of rows that this rank gets; 0 if it is not in the set.
 * Order: none.  Threads: any; never blocks. */
HVD_API size_t hvd_reducescatter_rows(size_t rows, int process_set);

/*
 * Carries out a group: n operations of one kind that start together and
 * complete as one.  Each array has n entries, read during the call; the rest is
 * as in the call for one.  A group is never split and never merged with others,
 * so the same calls give the same bits from run to run.
 *
 *   n            at least 1, the same on all ranks, as is each count that has
 *                to be the same in the call for one
 *   recvcounts   n times size entries, or NULL
 *   recvbufs, recvcaps  may be NULL if opts has an alloc; its NULL for one
 *                member leaves the other members' results as they are
 *
 * Statuses: those of the call for one; the first failure of a member is that of
 * the group.
 * Order, threads: above.
 * Source: Horovod's grouped_allreduce, grouped_allgather,
 * grouped_reducescatter.
 */
HVD_API int hvd_grouped_allreduce(size_t n, const void *const *sendbufs,
                                  void *const *recvbufs, const size_t *counts,
                                  enum hvd_dtype dtype, enum hvd_op op,
                                  const struct hvd_options *opts);
HVD_API int hvd_grouped_allreduce_async(
    const char *name, size_t n, const void *const *sendbufs,
    void *const *recvbufs, const size_t *counts, enum hvd_dtype dtype,
    enum hvd_op op, const struct hvd_options *opts, hvd_request **req);
HVD_API int hvd_grouped_allgather(size_t n, const void *const *sendbufs,
                                  const size_t *sendcounts,
                                  void *const *recvbufs, const size_t *recvcaps,
                                  size_t *recvcounts, enum hvd_dtype dtype,
                                  const struct hvd_options *opts);
HVD_API int hvd_grouped_allgather_async(
    const char *name, size_t n, const void *const *sendbufs,
    const size_t *sendcounts, void *const *recvbufs, const size_t *recvcaps,
    size_t *recvcounts, enum hvd_dtype dtype, const struct hvd_options *opts,
    hvd_request **req);
HVD_API int hvd_grouped_reducescatter(size_t n, const void *const *sendbufs,
                                      void *const *recvbufs, const size_t *rows,
                                      const size_t *row_elems,
                                      enum hvd_dtype dtype, enum hvd_op op,
                                      const struct hvd_options *opts);
HVD_API int hvd_grouped_reducescatter_async(
    const char *name, size_t n, const void *const *sendbufs,
    void *const *recvbufs, const size_t *rows, const size_t *row_elems,
    enum hvd_dtype dtype, enum hvd_op op, const struct hvd_options *opts,
    hvd_request **req);

/*
 * Says that this rank has no more data, and helps the others until all ranks
 * of the set have said so.
 *
 *   last_rank  out; the world rank that joined last, of several at once the
 *              highest; may be NULL; lent to the library
 *   opts       process_set
 *
 * Meanwhile the other ranks' operations go on without this one: it contributes
 * nothing to an allgather or alltoall, and the identity element to a reduction
 * (a Min, Max or Product is that of the others; HVD_AVERAGE divides by the size
 * of the set, or see live_average).  It must have nothing in flight in that set
 * (HVD_EINVAL), and issues nothing there until the join is done.  While a rank
 * has joined, a broadcast from it is HVD_EINVAL for the others, and so is
 * making or removing a process set if it has joined in the world.
 *
 * Statuses, order, threads: above; HVD_ENOMEM: no memory for a contribution,
 * on this rank; the others then get HVD_ESHUTDOWN.
 * Source: Horovod's join.
 */
HVD_API int hvd_join(int *last_rank, const struct hvd_options *opts);
HVD_API int hvd_join_async(int *last_rank, const struct hvd_options *opts,
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
 * Waits until an operation in device memory was launched, makes all later work
 * on a stream wait for it, frees its request, and returns its status so far.
 *
 *   req     in; as in hvd_wait.  For host memory, the call equals hvd_wait.
 *   stream  in; a cudaStream_t of any context of the device, or NULL: CUDA's
 *           default stream
 *
 * The host does not wait for the device; all ranks must have issued the
 * operation.
 * Statuses, order, threads: as hvd_wait; -HVD_ESYSTEM when CUDA refuses the
 * stream.
 * Source: Work.wait of PyTorch's ProcessGroupNCCL; cudaStreamWaitEvent.
 */
HVD_API int hvd_wait_on_stream(hvd_request *req, void *stream);

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

/*
 * Waits for an operation for a limited time, and tells whether it is done.
 *
 *   req         in; stays the caller's.  NULL is HVD_EINVAL.
 *   timeout_ms  in; how long, in milliseconds; 0: as hvd_test; negative:
 *               without a limit
 *   done        out; as in hvd_test
 *
 * Returns 0, also when the time was over first, or as hvd_test.
 * Order: none.  Threads: any, one per request.  While it waits, the calling
 * thread does the library's work as in hvd_wait, and sleeps when there is none;
 * a time that is over ends the sleep.  It returns late by as much as the work
 * at hand takes, such as the reduction of one piece of a tensor.
 * Source: Work.wait(timeout) of PyTorch's process groups.
 */
HVD_API int hvd_wait_for(hvd_request *req, int timeout_ms, int *done);

/* ---- Elastic jobs ---------------------------------------------------- */

/*
 * In an elastic job (hvdrun --min-np) the death of a rank ends neither the job
 * nor the other ranks.  The world between two changes of its ranks is a
 * generation.  When one ends, operations in flight and later ones return
 * -HVD_ERESIZED on all remaining ranks until they call hvd_sync, which gives
 * each of them its rank in the next generation and the newest state:
 *
 *     hvd_state *s;
 *     hvd_init();
 *     hvd_state_new(&s);
 *     hvd_state_add(s, "weights", w, sizeof(w), 0);
 *     hvd_state_add(s, "step", &step, sizeof(step), 0);
 *     rc = hvd_sync(s);
 *     while (rc == 0 && step < steps) {
 *         compute(grad, w, step, hvd_rank(), hvd_size());
 *         rc = hvd_allreduce(grad, grad, n, HVD_FLOAT32, HVD_AVERAGE, NULL);
 *         if (rc == 0) {
 *             update(w, grad);
 *             step++;
 *             rc = hvd_commit(s);
 *         }
 *         if (rc == -HVD_ERESIZED)
 *             rc = hvd_sync(s);
 *     }
 *
 * An operation that a rank died in may have succeeded on some of the remaining
 * ranks and failed on others.  hvd_sync therefore gives all ranks the state of
 * one that has got furthest: the highest version (hvd_commit), and among these
 * the most operations of the world since.  That state is complete if the
 * program changes it only after the last operation of a step, as above.  A
 * program that changes its state between two operations of a step adds it with
 * HVD_STATE_SNAPSHOT, and calls hvd_restore before hvd_sync.
 *
 * In the next generation the ranks are numbered from 0 again, in the same
 * order.  Requests still have to be waited for.  Process sets keep their
 * numbers, with the members that are left; one without any has the size 0,
 * until it is removed.  Ranks that have come are in no set but the world.
 * Memory from hvd_alloc stays valid, but is then ordinary memory: what is
 * allocated anew is faster.
 *
 * All of this works in other jobs, too, where the world never changes.
 */

typedef struct hvd_state hvd_state;

enum {
    HVD_STATE_SNAPSHOT = 1, /* hvd_commit copies the memory, and hvd_restore
                               copies it back */
    HVD_STATE_SHARDED = 2   /* each rank has a part of its own, the shard */
};

/*
 * Sharded memory differs between ranks: a part of the optimiser's moments
 * (ZeRO), or positions in the data.  The shards of all ranks, one after the
 * other by rank, make up one array of bytes.  They may have different sizes.
 *
 * hvd_commit also copies the shard of each rank to the memory of another one,
 * its keeper, on another host if there is one.  When ranks were lost, have left
 * or have joined, hvd_sync deals the array of the last commit out anew, in
 * order, by the sizes that the memory of the ranks has then.  In all they are
 * the same; else it is HVD_EMISMATCH:
 *
 *     static int on_resize(void *arg, const struct hvd_change *c)
 *     {
 *         size_t first = total * c->rank / c->size;
 *         size_t end = total * (c->rank + 1) / c->size;
 *
 *         m = realloc(m, (end - first) * sizeof(*m));
 *         return hvd_state_resize(s, "m", m, (end - first) * sizeof(*m));
 *     }
 *
 * So a rank in a world as large as before gets the shard of the rank that had
 * its number.  Padding does not belong to a shard: a rank adds the bytes in use
 * only, which may be 0.
 *
 * All memory of a state that has a shard is as if it was added with
 * HVD_STATE_SNAPSHOT, and hvd_sync itself does what hvd_restore does: it gives
 * all ranks the state of the last commit that is complete on one of them.  If a
 * rank dies in hvd_commit, that is either this commit or the one before, the
 * same for all.
 *
 * A shard is lost if its rank and its keeper both end between two commits, or
 * before hvd_sync has returned; then hvd_sync is HVD_ENOENT on all ranks.  So
 * it is if a rank ends before the first hvd_sync has returned, and the function
 * of hvd_on_resize then replaces memory that held start values.  If all hosts
 * have as many ranks as the others, they keep each other's shards in pairs, the
 * last three in a circle if their number is odd; on one host the ranks do.  A
 * rank that leaves (HVD_EREMOVED) has handed its shard to one that stays.  If
 * the job stops at a commit, each rank gets HVD_EREMOVED, and writes its own
 * shard to a checkpoint.
 *
 * Memory: besides its own, a rank holds two copies of its shard and two of each
 * that it keeps: one, unless one host has more ranks than all others together,
 * or ranks leave.  hvd_sync needs more for a moment, for one name at a time: as
 * much as all that this rank holds of it once, and its new shard.
 */

enum { HVD_STATE_NAME_MAX = 64 }; /* bytes of a name, with its final 0 */

/*
 * Makes an empty state.  One may exist before hvd_init and after hvd_shutdown.
 *
 *   s  out: owned by the caller, released by hvd_state_free
 *
 * Returns 0, -HVD_EINVAL (s is NULL) or -HVD_ENOMEM.
 * Order: none.  Threads: any; never blocks.
 */
HVD_API int hvd_state_new(hvd_state **s);
HVD_API void hvd_state_free(hvd_state *s); /* NULL is allowed */

/*
 * Adds memory to a state.
 *
 *   name   in; 1 to 63 bytes, unique in the state; copied
 *   p      borrowed until hvd_state_free; in host memory
 *   bytes  at least 1; with HVD_STATE_SHARDED, this rank's own, and 0 is
 *          allowed, with a p of NULL or not
 *   flags  0, HVD_STATE_SNAPSHOT or HVD_STATE_SHARDED
 *
 * All ranks add the same names, sizes and flags in the same order, except for
 * sizes of shards; hvd_sync checks it.
 * Returns 0, -HVD_EINVAL (an argument; the name was added before; a shard after
 * the first hvd_sync) or -HVD_ENOMEM.
 * Order: before the first hvd_sync, or between a successful hvd_commit and the
 * next operation, on all ranks alike.  Threads: one at a time; never blocks.
 */
HVD_API int hvd_state_add(hvd_state *s, const char *name, void *p, size_t bytes,
                          unsigned flags);

/*
 * Gives a shard another address, another size, or both: in the function of
 * hvd_on_resize, before hvd_sync fills it; or at any other time, after which
 * the next hvd_commit copies what is there.
 *
 *   s      the state
 *   name   of memory that was added with HVD_STATE_SHARDED
 *   p      as in hvd_state_add; the memory before is not used any more
 *   bytes  this rank's own; 0 is allowed
 *
 * Returns 0, or -HVD_EINVAL (no such shard; p is NULL).
 * Order: none; ranks need not call it alike.  Threads: one at a time; never
 * blocks.
 */
HVD_API int hvd_state_resize(hvd_state *s, const char *name, void *p,
                             size_t bytes);

/*
 * Tells the sizes of the shards of which hvd_sync or hvd_commit has last found
 * or made copies.  After an hvd_sync that returned HVD_EMISMATCH, because the
 * memory has other sizes in all, they are those that it has found: the program
 * may then call hvd_state_resize and hvd_sync again.
 *
 *   s      the state
 *   name   of memory that was added with HVD_STATE_SHARDED
 *   bytes  out [count]: by rank, as in hvd_state_add; further ranks are left
 *          out.  NULL if count is 0
 *   count  room in bytes
 *
 * Returns the number of shards, or negative: -HVD_EINVAL (no such shard; bytes
 * is NULL; count is negative) or -HVD_ENOENT (no hvd_sync yet).
 * Order: none.  Threads: one at a time; never blocks.
 */
HVD_API int hvd_state_shards(const hvd_state *s, const char *name,
                             size_t *bytes, int count);

/*
 * Joins the next generation if the present one has ended, and gives every rank
 * the newest state.
 *
 *   s  the state; the first time, all ranks get rank 0's, except for shards,
 *      which each has its own.  NULL: there is none
 *
 * Blocks until all remaining ranks have called it.  If a rank dies meanwhile,
 * begins again by itself.  No other thread may be in the library, but for
 * hvd_wait and hvd_test of requests that have ended.
 * Returns 0, or negative, and then the world cannot be used: -HVD_ENOTINIT,
 * -HVD_EINVAL (the state has shards, and hvdrun has --np-multiple; or they are
 * too large in all),
 * -HVD_EREMOVED (this rank was asked to leave at its last hvd_commit: it exits
 * with 0 after what it still has to do; hvd_init returns this, too),
 * -HVD_EMISMATCH (ranks have added different memory, and the message names two;
 * or the ranks' memory for shards is larger or smaller in all than the shards:
 * then the world can still be used, and see hvd_state_shards),
 * -HVD_ENOENT (the only rank with the newest state died while it gave it out;
 * or the only two with a shard have ended, and the message names them; or the
 * start values of shards are lost),
 * -HVD_ENOMEM (on this rank alone, which cannot go on), or as hvd_init.
 * After a failure the contents of the state's memory are undefined.
 * Order: an operation of the world without a name.
 * Source: Elastic Horovod's State.sync; ULFM's MPIX_Comm_shrink.
 */
HVD_API int hvd_sync(hvd_state *s);

/*
 * Ends a step: the state is complete, and its version grows by 1.
 *
 *   s  the state, not NULL
 *
 * Returns 0, or the negative of HVD_EINVAL (s is NULL; or hvd_sync, which with
 * several states is called for each, has not returned 0 for it in this
 * generation; but a state without shards that it never had is allowed),
 * HVD_ENOTINIT, or
 *   HVD_ERESIZED  the generation has ended; or it is to end here, because
 *                 ranks wait to join, or some are to leave: then the step
 *                 counts
 * or as hvd_barrier; with shards also HVD_ENOMEM, on this rank alone, which
 * cannot go on.  Without a change it costs one small operation in an elastic
 * job, and none in others; with shards, two in all jobs, and in elastic ones
 * the copies.
 * Order: an operation of the world without a name.  Threads: one at a time;
 * blocks.
 * Source: Elastic Horovod's State.commit.
 */
HVD_API int hvd_commit(hvd_state *s);

/*
 * Copies back what the last hvd_commit or hvd_sync has copied of memory with
 * HVD_STATE_SNAPSHOT.  A shard that was resized since is left as it is.
 *
 * Returns 0, or -HVD_EINVAL (s is NULL, or was never synchronised).
 * Order: none.  Threads: one at a time; never blocks.
 */
HVD_API int hvd_restore(hvd_state *s);

/* Returns the number of this rank's generation: from 1 in an elastic job, 0 in
 * others; or -HVD_ENOTINIT.  Order: none.  Threads: any; never blocks. */
HVD_API int hvd_generation(void);

/* The last change of the world. */
struct hvd_change {
    int generation;
    int old_rank, old_size; /* -1 and 0: this rank has just started */
    int rank, size;
    /* numbers of ranks: lost by their end, removed because they were asked to
     * leave.  0 lost: the change was planned, and happened at a commit. */
    int lost, removed, joined;
    int source;    /* the rank whose state the last hvd_sync took; -1: all
                      had the same */
    char why[256]; /* why the generation before ended, one line; or "" */
};

/* Writes what the last hvd_init or hvd_sync has changed.  Returns 0,
 * -HVD_EINVAL (c is NULL) or -HVD_ENOTINIT.
 * Order: none.  Threads: any but beside hvd_sync; never blocks. */
HVD_API int hvd_change(struct hvd_change *c);

/*
 * Tells whether this rank is asked to leave the job, because its host will go
 * away or the job stops: it leaves at its next hvd_commit.
 *
 *   ms_left  out: milliseconds until the rank is killed, if it has not left by
 *            then; INT64_MAX: that is not limited; -1: it is not asked to leave
 *
 * Returns 0, -HVD_EINVAL (ms_left is NULL) or -HVD_ENOTINIT.
 * Order: none.  Threads: any but beside hvd_sync; never blocks.
 * Source: the notices of clouds and batch systems before they take a host.
 */
HVD_API int hvd_notice(int64_t *ms_left);

typedef int hvd_resize_fn(void *arg, const struct hvd_change *c);

/*
 * Sets a function that hvd_sync calls when the world has changed, before it
 * gives out the state: to make memory for the new size, or process sets of the
 * present ranks.
 *
 *   fn   called in the thread of hvd_sync; it may use the library, except
 *        hvd_sync, hvd_init and hvd_shutdown; its result is 0 or a negative
 *        status, which hvd_sync returns, or, for HVD_ERESIZED, begins again.
 *        It is not called for the world of hvd_init, also in a rank that enters
 *        a job that runs: that rank carries out the same operations after
 *        hvd_init and before its first hvd_sync.
 *        NULL: none
 *   arg  passed on
 *
 * Returns 0.  Order: none.  Threads: any but beside hvd_sync; never blocks.
 */
HVD_API int hvd_on_resize(hvd_resize_fn *fn, void *arg);

/*
 * Runs `step` until it says that the work is done: synchronises first, and
 * after each -HVD_ERESIZED calls hvd_restore and hvd_sync.
 *
 *   s     the state
 *   step  does one step and its hvd_commit; returns 0 to be called again, 1
 *         when all is done, or a negative status
 *   arg   passed on
 *
 * Returns 0, or negative: what step, hvd_sync or hvd_restore returned, or
 * -HVD_EINVAL (a pointer is NULL).
 * Order, threads: as hvd_sync.
 * Source: Elastic Horovod's run.
 */
HVD_API int hvd_elastic_run(hvd_state *s, int (*step)(void *arg), void *arg);

/* ---- Process sets --------------------------------------------------- */

/*
 * A process set is a subset of the world's ranks; operations with its number in
 * their options concern its members only.  Number 0 is the world.  Sets may
 * overlap; operations of different sets are not ordered with each other, and
 * those of disjoint sets run at the same time.  Ranks in a set are numbered in
 * the order of their world ranks.
 */

enum { HVD_WORLD = 0, HVD_PROCESS_SETS_MAX = 256 }; /* the world included */

/*
 * Makes a process set.
 *
 *   ranks  in; count distinct world ranks, any order
 *   count  1 .. hvd_size()
 *   set    out; its number, the same on all ranks; numbers of removed sets
 *          are used again; with HVD_EEXIST that of the set that exists
 *
 * Returns 0, or the negative of HVD_ENOTINIT, HVD_EINVAL (ranks or set, here
 * or on another rank; too many sets; a rank has joined), HVD_EEXIST (there is
 * a set with the same members; *set is its number), HVD_EMISMATCH
 * (ranks disagree on the members; the message names two), HVD_EPEER,
 * HVD_ESHUTDOWN, HVD_ECLOSED, HVD_ETIMEOUT, HVD_ESYSTEM, HVD_ENOMEM.  On
 * failure there is no new set, on any rank, and the message names the rank that
 * has failed, if it is another; but other ranks may have got one if
 * a rank died in an elastic job (HVD_ERESIZED), until they call hvd_sync.  What
 * hvd_process_set_size returns for a number is then the same on all ranks.
 * Order: all ranks of the world, members or not, call it as one of the
 * world's operations.  Threads: any; blocks.
 * Source: Horovod's add_process_set.
 */
HVD_API int hvd_process_set_add(const int *ranks, size_t count, int *set);

/*
 * Adds a process set of the ranks in an MPI communicator, in a job that an
 * MPI launcher started (mpirun, srun, hvdrun --mpi).
 *
 *   comm  points to an MPI_Comm; to MPI_COMM_NULL on ranks that are not in it
 *   set   out: the number of the set
 *
 * The communicator only tells who the members are: nothing is sent on it, and
 * it may be freed afterwards.
 * Returns as hvd_process_set_add, or the negative of
 *   HVD_EUNSUPPORTED  no MPI launcher started the job
 *   HVD_EINVAL        no rank gave a communicator, or it has ranks that are not
 *                     in the world
 *   HVD_EMISMATCH     the communicators have different ranks, or a member gave
 *                     MPI_COMM_NULL
 * Order, threads: as hvd_process_set_add.
 * Source: Horovod's ProcessSet(MPI.Comm).
 */
HVD_API int hvd_process_set_add_mpi(const void *comm, int *set);

/*
 * Makes a process set that only its members know of, while the other ranks do
 * something else.
 *
 *   ranks  in; count distinct world ranks, any order, this rank among them
 *   count  1 .. hvd_size()
 *   tag    in; 1 to 64 printable ASCII bytes, the same on all members; copied.
 *          Calls under way at the same time whose ranks have the lowest one in
 *          common need different tags; after a failure, use another tag.
 *   set    out; its number, which may be another one on each member
 *
 * Another set may have the same members.  Later operations in it, queries, and
 * hvd_process_set_remove, are the members' alone.  hvdrun does not report ranks
 * that wait too long in it, as it does for other sets.
 * Returns 0, or the negative of HVD_ENOTINIT, HVD_EINVAL (an argument; or too
 * many sets, here or on another member's host), HVD_EMISMATCH (this tag is in
 * use with other ranks; a member that came before those that disagree with it
 * has to wait for HVD_ETIMEOUT), HVD_ETIMEOUT (a member did not come within
 * HVD_START_TIMEOUT, 30 s by default), HVD_EPEER (a member has died or left),
 * HVD_ESHUTDOWN, HVD_ECLOSED, HVD_EPROTO, HVD_ESYSTEM, HVD_ENOMEM,
 * HVD_EUNSUPPORTED (more than one rank under an MPI launcher).  A member that
 * gets a failure has no set.
 * Order: none with operations of the world or of other sets.
 * Threads: any, several at the same time; blocks until all members have called.
 * Source: MPI_Comm_create_group (MPI 4.0, 7.4.2); new_group of PyTorch with
 * use_local_synchronization.
 */
HVD_API int hvd_process_set_add_members(const int *ranks, size_t count,
                                        const char *tag, int *set);

/*
 * Removes a process set.  Operations in flight in it complete with
 * HVD_ENOSET, and so do later ones.  The world cannot be removed
 * (HVD_EINVAL).
 *
 * Returns 0, -HVD_ENOSET, or as the function that made it.  Order, threads: as
 * there.
 * Source: Horovod's remove_process_set.
 */
HVD_API int hvd_process_set_remove(int set);

/*
 * Returns this rank's place in a set, or the number of its members; _ranks also
 * writes their world ranks, ascending, as many as fit into cap entries.
 *
 * Each returns its value, or the negative of HVD_ENOTINIT, HVD_ENOSET, and, for
 * the place, HVD_ENOTMEMBER.  The size is 0 if the members of a set were lost
 * in an elastic job. Order: none.  Threads: any; never blocks.
 */
HVD_API int hvd_process_set_rank(int set);
HVD_API int hvd_process_set_size(int set);
HVD_API int hvd_process_set_ranks(int set, int *ranks, size_t cap);

/* Writes the numbers of all sets, ascending, as many as fit into cap entries.
 * Returns how many sets there are, or -HVD_ENOTINIT.
 * Order: none.  Threads: any; never blocks. */
HVD_API int hvd_process_sets(int *sets, size_t cap);

/*
 * Calls hvd_init, and then hvd_process_set_add for each of n sets of ranks,
 * which get the numbers 1 .. n.
 *
 *   ranks   in; n arrays of world ranks, the same on all ranks
 *   counts  in; n entries; n is the same on all ranks
 *
 * Returns as both; on failure the library is not initialised.  -HVD_EINVAL
 * when it was before.  In an elastic job no set is added if a rank of the world
 * has been in an earlier generation: a rank that enters it finds the sets that
 * the others have, whatever it names.  If a rank dies or leaves meanwhile, the
 * others begin again with the next generation.
 * Order, threads: as hvd_init. Source: Horovod's init(process_sets=[...]).
 */
HVD_API int hvd_init_sets(const int *const *ranks, const size_t *counts,
                          size_t n);

/* ---- Memory --------------------------------------------------------- */

/*
 * Allocates and frees memory that operations inside one host use without
 * copying it.
 *
 *   bytes  at least 1; aligned to 4096
 *   p      out; zeroed memory
 *
 * Any buffer of any call may lie in it; that is faster and otherwise changes
 * nothing.  It belongs to the caller until hvd_free or hvd_shutdown, after
 * which it must not be touched; hvd_free while an operation uses it is an error
 * that is not detected.  Where ranks share no memory it is ordinary memory.
 * Where they do, two rules apply: after a failure that lasts, the operation's
 * buffers in it may still change until hvd_shutdown; and a forked child writes
 * to the same memory, not to a copy.
 *
 * hvd_alloc returns 0, or the negative of HVD_ENOTINIT, HVD_EINVAL, HVD_ENOMEM
 * (also: more than HVD_ALLOC_BYTES in all).  hvd_free takes NULL, and returns
 * 0, -HVD_EINVAL for a pointer that hvd_alloc did not return, or -HVD_ENOTINIT.
 * Order: none, ranks need not do the same.  Threads: any.
 * Source: ncclMemAlloc; MPI_Alloc_mem (MPI 4.0, 9.2).
 */
HVD_API int hvd_alloc(size_t bytes, void **p);
HVD_API int hvd_free(void *p);

/* ---- Watching -------------------------------------------------------- */

/*
 * Starts and stops a timeline: a Chrome trace (JSON array) of what the
 * library does, valid at any moment; chrome://tracing and Perfetto open it.
 *
 *   path   in; the file of this rank; replaced if it exists
 *   flags  HVD_TIMELINE_CYCLES: marks each operation's start on all lanes
 *
 * HVD_TIMELINE in the environment starts one at hvd_init, with ".RANK" before
 * the last dot or at the end of the name; hvd_shutdown stops it.  If it is not
 * set, HOROVOD_TIMELINE starts one on rank 0 alone, in the file of exactly that
 * name.  With the value DYNAMIC neither starts one.
 * Start returns 0, or the negative of HVD_ENOTINIT, HVD_EINVAL (path NULL or
 * empty, unknown flags, one is running), HVD_ESYSTEM, HVD_ENOMEM; stop 0,
 * also when none runs, or -HVD_ENOTINIT, -HVD_ESYSTEM (the file is not
 * complete: disk full).
 * Order: none.  Threads: any; does not wait for peers.
 * Source: Horovod's start_timeline; the Trace Event Format.
 */
enum { HVD_TIMELINE_CYCLES = 1 };
HVD_API int hvd_timeline_start(const char *path, unsigned flags);
HVD_API int hvd_timeline_stop(void);

/* The counters of one kind and size class. */
struct hvd_stats_row {
    uint64_t count;   /* requests */
    uint64_t bytes;   /* of their inputs */
    uint64_t time_ns; /* from issue to completion */
    uint64_t wait_ns; /* part of it until all ranks had issued */
};

enum {
    HVD_STATS_KINDS = 6,   /* allreduce, broadcast, allgather, barrier,
                              alltoall, reducescatter */
    HVD_STATS_CLASSES = 8, /* bytes below 64, 1 Ki, 16 Ki, 256 Ki, 4 Mi,
                              64 Mi, 1 Gi, and above */
};

struct hvd_stats {
    size_t size; /* set by the caller: sizeof(struct hvd_stats) */
    struct hvd_stats_row rows[HVD_STATS_KINDS][HVD_STATS_CLASSES];
    uint64_t operations;   /* carried out by planes */
    uint64_t fused;        /* requests that were fused with others */
    uint64_t learned;      /* operations that began as predicted, without any
                              message to agree on them */
    uint64_t guessed;      /* operations that began without a prediction */
    uint64_t cuts;         /* operations begun again with fewer requests */
    uint64_t negotiations; /* exchanges of what all ranks wait for */
    uint64_t errors;       /* requests that failed */
    uint64_t device_timed; /* operations timed by the device: all of 16 KiB and
                              more, asynchronous, or in a timeline, and some of
                              the others */
    uint64_t device_ns;    /* how long the device worked on these */
};

/*
 * Copies the counters of what this rank has done since hvd_init, in all process
 * sets.
 *
 *   stats  out; size is set by the caller; fields of later versions beyond
 *          it are not written
 *
 * Returns 0, -HVD_ENOTINIT or -HVD_EINVAL.
 * Order: none.  Threads: any; never blocks; numbers of operations in flight
 * may be counted in part.
 */
HVD_API int hvd_stats(struct hvd_stats *stats);

/* ---- Types --------------------------------------------------------- */

/*
 * Returns the bytes of one element; 0 if dtype is not an enum hvd_dtype.
 *
 * Order: none.  Threads: any; never blocks.  The same holds for the next two
 * functions.
 */
HVD_API size_t hvd_dtype_size(enum hvd_dtype dtype);
/* Returns "float32", "sum"; "?" for an invalid value; constant strings. */
HVD_API const char *hvd_dtype_name(enum hvd_dtype dtype);
HVD_API const char *hvd_op_name(enum hvd_op op);

#ifdef __cplusplus
}
#endif

#endif
