/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of lib/agent share: fixture trees, and hvdrun's end of the
 * control connection to a real hvd-agent. */
#ifndef TESTS_UNIT_AGENT_UTIL_H
#define TESTS_UNIT_AGENT_UTIL_H

#include "lib/base/buf.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_counts.h"

#include <sys/types.h>

/* ---- Fixture trees below a temporary directory ---- */

/* For tcase_add_unchecked_fixture: also removes what a failing test leaves. */
void fixtures_setup(void);
void fixtures_teardown(void);

struct fixture {
    char root[96];
};

void fixture_open(struct fixture *f);
/* Writes a file and makes its directories. */
void fixture_file(struct fixture *f, const char *path, const char *text);
void fixture_close(struct fixture *f); /* removes the whole tree */

/* ---- An agent at the other end of a socketpair ---- */

enum {
    PEER_RANKS_MAX = 64,
    PEER_WAIT_MS = 30000,
    PEER_NARROW_BYTES = 4096,
};

struct peer {
    pid_t guardian;
    int guardian_pidfd;
    pid_t agent; /* from HELLO */
    int fd;
    int out_fd; /* the agent's output; fd, unless opened narrow */
    struct hb_buf in;
    int auto_ack; /* acknowledge output as it arrives */

    /* output received so far */
    struct hb_buf output[PEER_RANKS_MAX][2];
    int ended[PEER_RANKS_MAX][2];
    struct control_exited exited[PEER_RANKS_MAX]; /* in order of arrival */
    int exited_count;
    pid_t pids[PEER_RANKS_MAX];
    int started, done;
    struct control_failed failed; /* text NULL: no failure received */
    uint32_t stdin_acked, unacked;
    char log[4096];
    char quitting[256];
    uint64_t pong_ping_ns, pong_now_ns; /* of the last PONG */
    struct control_route_port route_port;
    int route_answers;                      /* in the last ROUTE_RESULT */
    struct control_stalled stalled;         /* the last one received */
    struct control_stall_ranks stall_ranks; /* likewise; the test frees it */
    struct control_stall_stack stack;       /* likewise */
    struct control_counts counts[PEER_RANKS_MAX]; /* of the last COUNTS */
    int count;
};

/* Starts bin/hvd-agent of this build and reads its HELLO. */
void peer_open(struct peer *p);
/* Like peer_open, but the agent's stdout is a pipe of PEER_NARROW_BYTES: like
 * sshd's, and unlike a socket, it accepts a little after every read. */
void peer_open_narrow(struct peer *p);
/* Closes the connection and waits for the guardian to exit; returns its status
 * as a shell has it. */
int peer_close(struct peer *p);

/* Run `script` with sh on `ranks` ranks.  peer_launch_init fills a launch that
 * may be changed before it is sent; peer_launch sends and releases it. */
void peer_launch_init(struct control_launch *m, const char *script, int ranks);
void peer_launch(struct peer *p, struct control_launch *m);
void peer_run(struct peer *p, const char *script, int ranks);

void peer_send(struct peer *p, struct hb_buf *frames); /* and clears `frames` */
void peer_send_u32(struct peer *p, enum control_type type, uint32_t v);

/* Handles the next frame and returns its type; 0 at end of file. */
int peer_next(struct peer *p);
void peer_until(struct peer *p, enum control_type type);
/* Handles frames until the rank's stdout contains `text`. */
void peer_until_output(struct peer *p, int rank, const char *text);

/* ---- The one agent of a test ---- */

extern struct peer peer;

/* For tcase_add_checked_fixture; the latter checks that nothing is left
 * over. */
void peer_setup(void);
void peer_teardown(void);
void peer_finish(int status); /* takes peer_close's result */
const struct control_exited *peer_exited(int rank);

/* Waits until no process has `pid` any more, without a time limit. */
void wait_gone(pid_t pid);
int process_lives(pid_t pid); /* exists and is no zombie */

#endif
