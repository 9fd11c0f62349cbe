/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of lib/job share: a job on hosts a, b, c and d with two ranks
 * each, and its output.  The agents are this program, run as hvd-agent; they
 * follow scripts (fake_agent.h).
 */
#ifndef TESTS_JOB_UTIL_H
#define TESTS_JOB_UTIL_H

#include "lib/job/job.h"
#include "tests/unit/unit.h"

#include "lib/base/buf.h"

enum { JOB_HOSTS = 4, JOB_RANKS = 8 };

extern uv_loop_t loop;
extern struct plan plan; /* one host unless use_hosts was called */
extern struct plan_host hosts[JOB_HOSTS];
extern struct plan_rank ranks[JOB_RANKS];
extern struct job_config config;
extern struct job *job;
extern int done, exit_code;
extern int out_fd[2], err_fd[2];
extern struct hb_buf out, err; /* stdout; stderr and the log */

/* Use the first n hosts, mapped by slot or (map_by_node) in turns. */
void use_hosts(int n);
void map_by_node(int n);

/* Makes the hosts remote, reached by a command (--rsh). */
void use_rsh(void);

/* Makes the hosts remote, reached by this shell script as ssh, with the host's
 * name in $host and a directory of its own in $dir. */
void use_ssh(const char *script);

/* Sets the script of host `name` after LAUNCH, which tells an agent its host's
 * name; with use_rsh, the whole script. */
void script_of(const char *name, const char *script);

/* Lets agents wait for one another, by their step `barrier`; comes there. */
void make_barrier(void);
void pass_barrier(void);

/* Starts the job; all agents follow `script` until they know their names. */
void start(const char *script);
void finish(int code, const char *want_out, const char *want_err);
/* Like finish, but checks only that stderr contains a text. */
void finish_saying(int code, const char *want_err_part);
void wait_for_output(const char *text);
void wait_for_message(const char *text); /* leaves stdout unread */
void read_messages(void);                /* those that have come */
/* Reads stdout until the job is done. */
void drain_output(void);

int job_util_main(const char *name, void (*add_tests)(TCase *tc), int argc,
                  char *argv[]);

#endif
