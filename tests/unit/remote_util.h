/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/remote/remote with stand-ins for hosts.  The shell is a local one,
 * reached by an --rsh template or a script named ssh.  The agent that is sent
 * is the test program itself, which does what FAKE_AGENT names: hello, cat,
 * brief (ends after its first message) or mute.
 */
#ifndef TESTS_REMOTE_UTIL_H
#define TESTS_REMOTE_UTIL_H

#include "lib/remote/remote_impl.h"
#include "tests/unit/unit.h"

enum { FAR_HOSTS = 40 };

extern char far_dir[]; /* private directory: HOME, TMPDIR, first in PATH */
extern uv_loop_t far_loop;
extern struct hb_log far_log;
extern struct remote *far_remote; /* made by the first far_open */
extern struct remote_options far_options;

/* What the caller of one transport saw. */
struct far_seen {
    struct transport *t;
    struct hb_buf in, errs, stages;
    int reads, ends, closes;
    struct hb_error why;
    const char *close_at; /* stage at which to close */
    int keep;             /* do not close at the first bytes */
};
extern struct far_seen far_seen[FAR_HOSTS];

void far_setup(void);
void far_teardown(void);

/* Writes a file in far_dir. */
void far_file(const char *name, mode_t mode, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns what a shell command prints, without its last newline. */
const char *far_shell(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Makes a script the ssh program; `ssh -G` prints the host's name and the file
 * `config`. */
void far_ssh(const char *body);

void far_open(int i, char *name); /* events go to far_seen[i] */
void far_run(void);               /* until all are closed */
void far_again(void);             /* prepares another start in this test */

void far_ran(int i); /* checks that its agent has spoken */
void far_failed(int i, int status, const char *text);
int far_said(int i, const char *stage);

void far_runs(void); /* opens, runs and checks host n1 */
void far_fails(int status, const char *text);

int far_main(int argc, char *argv[], Suite *(*suite)(void));

#endif
