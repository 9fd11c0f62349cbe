/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/transport/remote with stand-ins for hosts: the shell is a local one,
 * reached through an --rsh template or a script named ssh, and the agent
 * that is sent is the test program itself, which plays the part that
 * FAKE_AGENT names: hello, cat, brief (ends after its first words) or mute.
 */
#ifndef TESTS_REMOTE_UTIL_H
#define TESTS_REMOTE_UTIL_H

#include "lib/transport/remote_impl.h"
#include "tests/unit/unit.h"

enum { FAR_HOSTS = 40 };

extern char far_dir[]; /* private: HOME, TMPDIR, first in PATH */
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
    const char *close_at; /* stage */
    int keep;             /* does not close at the first bytes */
};
extern struct far_seen far_seen[FAR_HOSTS];

void far_setup(void);
void far_teardown(void);

/* A file in far_dir. */
void far_file(const char *name, mode_t mode, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What a shell command prints, without its last newline. */
const char *far_shell(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* A script as the ssh program; `ssh -G` prints the host's name and the file
 * config. */
void far_ssh(const char *body);

void far_open(int i, char *name); /* far_seen[i] */
void far_run(void);               /* until all is closed */
void far_again(void);             /* for the next start of the same test */

void far_ran(int i); /* its agent has spoken */
void far_failed(int i, int status, const char *text);
int far_said(int i, const char *stage);

void far_runs(void); /* host n1 alone */
void far_fails(int status, const char *text);

int far_main(int argc, char *argv[], Suite *(*suite)(void));

#endif
