/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between hvdrun and an agent on the control connection.
 *
 * Rare messages are JSON objects (jansson), frequent ones binary.  Every decode
 * function checks types and ranges and refuses unknown or missing fields with
 * one line; the structs own their strings and are released by the matching
 * _fini.  A conversation:
 *
 *     agent  -> HELLO                     version, build, host, pid
 *     hvdrun -> LAUNCH                    everything the ranks need
 *     agent  -> STARTED                   pids (after all spawned)
 *     agent  -> OUTPUT ...                at most CONTROL_OUTPUT_WINDOW
 *     hvdrun -> OUTPUT_ACK ...            bytes not yet acknowledged
 *     agent  -> EXITED ...                one per rank, in order of death
 *     hvdrun -> KILL                      end the whole tree
 *     agent  -> DONE                      nothing of the job is left here
 *
 * JSON fields have the names of the struct members below.  A string that is
 * UTF-8 is a JSON string; any other (argv, environment, paths and output may
 * hold every byte but 0) is {"hex":"..."}, two digits a byte.  The secret is
 * always 64 hex digits in a JSON string.  NULL strings travel as empty ones.
 *
 * jansson's parser does not survive a failed allocation: programs that decode
 * give it hb_xmalloc with json_set_alloc_funcs when they start.
 *
 * The window lets a slow terminal stop the workers' output without delaying
 * EXITED: control messages never wait behind output.  End-of-file from hvdrun
 * at any time means: kill everything, exit.
 */
#ifndef HVD_PROTOCOL_CONTROL_H
#define HVD_PROTOCOL_CONTROL_H

#include "lib/base/error.h"
#include "lib/base/strv.h"
#include "lib/protocol/control/control_generation.h"
#include "lib/protocol/control/control_route.h"
#include "lib/protocol/control/control_stall.h"
#include "lib/protocol/frame.h"

#include <sys/types.h>

enum control_type {
    /* agent to hvdrun */
    CONTROL_HELLO = 1,
    CONTROL_STARTED = 2,
    /* u32 rank, u8 stream (1 stdout, 2 stderr), bytes; no bytes: the stream has
     * ended */
    CONTROL_OUTPUT = 3,
    CONTROL_EXITED = 4,
    CONTROL_DONE = 5,          /* no payload */
    CONTROL_LOG = 6,           /* u8 hb_log_level, text */
    CONTROL_FAILED = 7,        /* the launch failed; nothing runs */
    CONTROL_STDIN_ACK = 8,     /* u32 rank, u32 bytes taken */
    CONTROL_QUITTING = 9,      /* text: why the agent ends its ranks unasked;
                                  EXITED and DONE follow */
    CONTROL_PONG = 10,         /* u64 of the PING, u64 agent's clock in ns */
    CONTROL_ROUTE_PORT = 11,   /* the probe listener's port */
    CONTROL_ROUTE_RESULT = 12, /* which addresses connected */
    CONTROL_RENDEZVOUS = 13,   /* requests of workers, merged */
    CONTROL_ANSWER = 14,       /* JSON, to QUERY */
    CONTROL_STALLED = 15,      /* control_stall.h */
    CONTROL_STALL_RANKS = 16,
    CONTROL_STALL_STACK = 17,
    CONTROL_TRACE = 18, /* u32 rank, bytes of its timeline; none: its end */
    CONTROL_STATS = 19, /* u32 rank, worker_stats.h */
    CONTROL_LATE = 20,  /* control_stall.h */
    CONTROL_READY = 21, /* u32 rank, u32 ready: control_generation.h */
    /* u32 generation: its ranks have committed a state.  Before READY. */
    CONTROL_PROGRESS = 22,
    CONTROL_GOING = 23,     /* control_generation.h */
    CONTROL_COUNTS = 24,    /* control_counts.h */
    CONTROL_NO_ANSWER = 25, /* control_stall.h */
    /* hvdrun to agent */
    CONTROL_LAUNCH = 32,
    CONTROL_STDIN = 33,      /* u32 rank, bytes; no bytes: end of file */
    CONTROL_OUTPUT_ACK = 34, /* u32 bytes of OUTPUT data written out */
    CONTROL_SIGNAL = 35,     /* u32 signal number, for every rank's group */
    CONTROL_KILL = 36,       /* u32 grace in ms; 0: KILL at once */
    CONTROL_ABORT = 37,      /* u32 culprit rank, text: tell every local rank
                                that a rank elsewhere died */
    /* u64 hvdrun's clock in ns, u32 ms: silence after which the agent ends the
     * job; 0: no limit */
    CONTROL_PING = 38,
    CONTROL_ROUTE_LISTEN = 39, /* open a probe listener */
    CONTROL_ROUTE_PROBE = 40,  /* addresses to try */
    CONTROL_RENDEZVOUS_REPLY = 41,
    CONTROL_QUERY = 42, /* JSON: ps, kill, clean, doctor; instead of LAUNCH */
    CONTROL_STALL_ASK = 43,
    CONTROL_STALL_END = 44,   /* as ABORT: HVD_ETIMEOUT for every local rank */
    CONTROL_TRACE_TAKEN = 45, /* u32: 1 if all of it was written, else 0 */
    CONTROL_STALL_BLAME = 46, /* as ABORT: a report has named that rank */
    CONTROL_GENERATION = 47,  /* control_generation.h */
    /* u32 generation: its ranks meet again at their next commit, because others
     * wait to be members, or some are to leave */
    CONTROL_CHANGE = 48,
    /* u32 rank: start it; it has failed or was idle.  If that cannot be done,
     * EXITED says why.  Only with `restart`. */
    CONTROL_RESTART = 49,
    /* JSON, three fields of LAUNCH: the job's hosts have changed.  Only in
     * elastic jobs. */
    CONTROL_HOSTS = 52,
    /* as ABORT, with the rank that is removed: control_generation.h */
    CONTROL_REMOVED = 53,
    CONTROL_EVICT = 54,      /* as ABORT: kill that rank, and why */
    CONTROL_NOTICE = 55,     /* control_generation.h */
    CONTROL_COUNTS_ASK = 56, /* control_counts.h */
};

enum {
    CONTROL_RANKS_MAX = 65536,            /* ranks of a job */
    CONTROL_LOCAL_MAX = 1024,             /* ranks of one host */
    CONTROL_GPUS_MAX = 1024,              /* of one rank */
    CONTROL_GRACE_MAX_MS = 86400000,      /* a day */
    CONTROL_OUTPUT_WINDOW = 512 << 10,    /* bytes in flight per agent */
    CONTROL_OUTPUT_WINDOW_MIN = 16 << 10, /* where there are many agents */
    CONTROL_OUTPUT_CHUNK = 64 << 10,      /* bytes per OUTPUT frame at most */
    CONTROL_STDIN_WINDOW = 256 << 10,     /* bytes in flight per rank */
    CONTROL_TAIL_BYTES = 16 << 10,        /* stderr tail kept for EXITED */
    CONTROL_MESSAGE_MAX = 1 << 20,        /* bytes of an agent's message, */
    /* bytes of a LOG's or QUITTING's text */
    CONTROL_WORDS_MAX = 64 << 10,
};

struct control_hello {
    char *version; /* HVD_VERSION of the agent */
    char *host;    /* gethostname */
    char *cpu;     /* uname machine */
    pid_t pid;
    int cpus; /* in the affinity mask */
    /* Equal for agents that share a network stack, and only for them; "" if
     * that cannot be told. */
    char *machine;
    /* Pid and mount namespaces, and the user.  Agents with the same `machine`,
     * `namespaces` and `host` are on one host, whatever names it was reached
     * by; "" as above. */
    char *namespaces;
    struct control_interfaces interfaces;
};

/* hvdrun's own limits that its ranks should have, too. */
enum control_limit {
    CONTROL_LIMIT_NOFILE,
    CONTROL_LIMIT_MEMLOCK,
    CONTROL_LIMIT_CORE,
    CONTROL_LIMIT_COUNT
};

struct control_soft_limit {
    int given;      /* 0: leave the host's limit */
    uint64_t value; /* RLIM_INFINITY, or at most INT64_MAX */
};

enum control_bind { CONTROL_BIND_NONE, CONTROL_BIND_CORE, CONTROL_BIND_NUMA };

/* How the agent lets the ranks of an MPI program find each other. */
enum control_wireup {
    CONTROL_WIREUP_AUTO, /* by what the program needs */
    CONTROL_WIREUP_PMIX, /* Open MPI */
    CONTROL_WIREUP_PMI1, /* MPICH, Intel MPI */
    CONTROL_WIREUP_NONE,
};

/*
 * What the user asked of the agents, a row for each member: its type, name,
 * default, kind (control_json.h), least and greatest value; of a word, the
 * greatest index.  Options, the job and LAUNCH hold the same struct.  A member
 * that is absent from LAUNCH has its default.
 */
/* clang-format off */
#define CONTROL_SPEC(X) \
    X(enum control_bind, bind, CONTROL_BIND_NONE, WORD, 0, CONTROL_BIND_NUMA) \
    X(int, gpus_per_rank, 1, INT, 1, CONTROL_GPUS_MAX) \
    /* Set CUDA_VISIBLE_DEVICES per rank, by UUID. */ \
    X(int, bind_gpu, 0, BOOL, 0, 1) \
    /* Bound ranks may share GPUs if there are too few. */ \
    X(int, share_gpus, 0, BOOL, 0, 1) \
    X(enum control_wireup, wireup, CONTROL_WIREUP_AUTO, WORD, 0, \
      CONTROL_WIREUP_NONE) \
    /* From SIGTERM to SIGKILL. */ \
    X(int64_t, grace_ms, 5000, INT, 0, CONTROL_GRACE_MAX_MS) \
    /* The job goes on without ranks that fail: control_generation.h. */ \
    X(int, elastic, 0, BOOL, 0, 1) \
    /* Ranks may be started later, so an agent ends only by KILL if one of its \
     * ranks has failed, or none has run. */ \
    X(int, restart, 0, BOOL, 0, 1)

#define CONTROL_SPEC_MEMBER(type, name, ...) type name;
struct control_spec { CONTROL_SPEC(CONTROL_SPEC_MEMBER) };

#define CONTROL_SPEC_DEFAULT(type, name, value, ...) .name = value,
#define CONTROL_SPEC_INIT { CONTROL_SPEC(CONTROL_SPEC_DEFAULT) }
/* clang-format on */

/* `count` consecutive ranks of one host. */
struct control_run {
    int host; /* index; -1: the numbers are free */
    int count;
};

/* What differs from the job's common part. */
struct control_rank {
    int rank, local_rank, local_size, cross_rank, cross_size;
    struct hb_strv env; /* NAME=VALUE added to, or replacing, the common */
    int stdin_open;     /* 0: /dev/null */
    int is_idle;        /* not to be started before RESTART */
};

struct control_launch {
    char *job_id; /* 32 lower-case hex digits */
    char *host;   /* this host's name in the plan */
    int host_index;
    /* By host: the numeric address by which this host reaches it; for its own
     * index, where to listen, or "" for any address.  Empty if the job has one
     * host. */
    struct hb_strv peers;
    /* By host: its name in the plan; and which host each rank of the job is on,
     * from rank 0 on.  Both empty if the job has one host. */
    struct hb_strv host_names;
    struct control_run *runs;
    int run_count;
    unsigned char secret[32];
    int size; /* world size */
    char *cwd;
    struct hb_strv argv;
    struct hb_strv env;         /* complete; nothing is inherited */
    struct control_rank *ranks; /* in order of local rank, and of rank */
    int rank_count;
    struct control_spec spec;
    int output_window; /* bytes of OUTPUT in flight */
    int trace;         /* ranks write timelines, which the agent sends */
    struct control_soft_limit limits[CONTROL_LIMIT_COUNT];
};

struct control_started {
    pid_t *pids; /* by local rank; 0: does not run */
    int count;
};

/* Exit causes, as far as the system tells. */
enum control_cause {
    CONTROL_CAUSE_EXIT, /* by itself: exit status */
    /* by a signal of its own or from an unknown sender */
    CONTROL_CAUSE_SIGNAL,
    CONTROL_CAUSE_OOM,    /* by the out-of-memory killer */
    CONTROL_CAUSE_HVDRUN, /* by hvdrun's own TERM or KILL */
    CONTROL_CAUSE_COUNT
};

struct control_exited {
    int rank;
    pid_t pid;
    int exit_code; /* as in a shell: 0..255, 128+n for a signal */
    int signal;    /* 0 unless killed by one */
    int core_dumped;
    enum control_cause cause;
    char *detail;      /* "" or one phrase: "not sent by hvdrun",
                          "out of memory: cgroup limit 2 GiB", ... */
    char *stderr_tail; /* last bytes the rank wrote to stderr, may be "" */
    uint64_t when_ns;  /* agent's monotonic clock at the reaping */
    /* 1 + the rank whose death or leaving made it fail, as it said itself; 0:
     * none */
    int blames;
};

struct control_failed {
    int exit_code; /* 125 launcher, 126 / 127 as in a shell */
    char *text;    /* one line */
};

/* Appends the message to out as a whole frame, as all encoders do: 0,
 * -HVD_ENOMEM, or -HVD_EINVAL if it would exceed FRAME_PAYLOAD_MAX; on failure
 * out is unchanged.  All decoders take a payload and return 0, -HVD_EPROTO or
 * -HVD_ENOMEM; on failure *m is empty: _fini is allowed, not needed. */
int control_encode_hello(struct hb_buf *out, const struct control_hello *m);
int control_decode_hello(const void *p, size_t len, struct control_hello *m,
                         struct hb_error *err);
void control_hello_fini(struct control_hello *m);

int control_encode_launch(struct hb_buf *out, const struct control_launch *m);
int control_decode_launch(const void *p, size_t len, struct control_launch *m,
                          struct hb_error *err);
void control_launch_fini(struct control_launch *m);
/* Encodes HOSTS: peers, host_names and runs. */
int control_encode_hosts(struct hb_buf *out, const struct control_launch *m);
/* Replaces these in m, a decoded LAUNCH; on failure m is unchanged. */
int control_decode_hosts(const void *p, size_t len, struct control_launch *m,
                         struct hb_error *err);
/* Sets hosts[0 .. m->size - 1] to the index of each rank's host, or -1. */
void control_rank_hosts(const struct control_launch *m, int *hosts);

int control_encode_started(struct hb_buf *out, const struct control_started *m);
int control_decode_started(const void *p, size_t len, struct control_started *m,
                           struct hb_error *err);
void control_started_fini(struct control_started *m);

int control_encode_exited(struct hb_buf *out, const struct control_exited *m);
int control_decode_exited(const void *p, size_t len, struct control_exited *m,
                          struct hb_error *err);
void control_exited_fini(struct control_exited *m);
/* Appends how the rank has ended: "exit code 7", or "killed by signal 9
 * (SIGKILL), core dumped", and after a colon the detail, cleaned.  0 or
 * -HVD_ENOMEM. */
int control_exited_phrase(struct hb_buf *out, const struct control_exited *m);

int control_encode_failed(struct hb_buf *out, const struct control_failed *m);
int control_decode_failed(const void *p, size_t len, struct control_failed *m,
                          struct hb_error *err);
void control_failed_fini(struct control_failed *m);

/* Encodes a binary message. */
int control_encode_output(struct hb_buf *out, int rank, int stream,
                          const void *bytes, size_t len);
int control_encode_stdin(struct hb_buf *out, int rank, const void *bytes,
                         size_t len);
/* Encodes a TRACE or STATS message. */
int control_encode_bytes(struct hb_buf *out, enum control_type type, int rank,
                         const void *bytes, size_t len);
int control_encode_stdin_ack(struct hb_buf *out, int rank, uint32_t bytes);
int control_encode_u32(struct hb_buf *out, enum control_type type,
                       uint32_t v); /* OUTPUT_ACK, SIGNAL, KILL, TRACE_TAKEN */
int control_encode_log(struct hb_buf *out, int level, const char *text);
int control_encode_abort(struct hb_buf *out, int rank, const char *text);
int control_encode_removed(struct hb_buf *out, int rank, const char *text);
int control_encode_evict(struct hb_buf *out, int rank, const char *text);
int control_encode_ping(struct hb_buf *out, uint64_t sent_ns,
                        uint32_t silence_ms);
int control_encode_pong(struct hb_buf *out, uint64_t ping_ns, uint64_t now_ns);

/* Returns the largest payload that hvdrun accepts for the message of an agent
 * that begins `in`: see frame_decode.  It is small before HELLO (`greeted`
 * 0). */
size_t control_frame_max(const struct hb_buf *in, int greeted);

struct control_bytes {
    int rank;
    int stream;        /* OUTPUT only */
    const void *bytes; /* borrowed from the payload */
    size_t len;
};

int control_decode_output(const void *p, size_t len, struct control_bytes *m,
                          struct hb_error *err);
int control_decode_stdin(const void *p, size_t len, struct control_bytes *m,
                         struct hb_error *err);
int control_decode_bytes(const void *p, size_t len, struct control_bytes *m,
                         struct hb_error *err); /* TRACE, STATS */
int control_decode_stdin_ack(const void *p, size_t len, int *rank,
                             uint32_t *bytes, struct hb_error *err);
int control_decode_u32(const void *p, size_t len, uint32_t *v,
                       struct hb_error *err);
int control_decode_ping(const void *p, size_t len, uint64_t *sent_ns,
                        uint32_t *silence_ms, struct hb_error *err);
int control_decode_pong(const void *p, size_t len, uint64_t *ping_ns,
                        uint64_t *now_ns, struct hb_error *err);
/* Decodes a message with a text.  The text is cut to fit text_size with its
 * final 0; 0 bytes in it become '?'. */
int control_decode_log(const void *p, size_t len, int *level, char *text,
                       size_t text_size, struct hb_error *err);
int control_decode_abort(const void *p, size_t len, int *rank, char *text,
                         size_t text_size, struct hb_error *err);

#endif
