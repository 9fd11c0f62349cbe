/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of lib/job share: a job on hosts a, b, c and d with two ranks
 * each, whose agents are this program under the name hvd-agent and follow
 * scripts (fake_agent.h), and what it wrote.
 */
#ifndef TESTS_JOB_UTIL_H
#define TESTS_JOB_UTIL_H

#include "lib/job/job.h"
#include "tests/unit/unit.h"

#include "lib/base/buf.h"

enum { JOB_HOSTS = 4, JOB_RANKS = 8 };

extern uv_loop_t loop;
extern struct plan plan; /* one host, unless use_hosts was called */
extern struct plan_host hosts[JOB_HOSTS];
extern struct plan_rank ranks[JOB_RANKS];
extern struct job_config config;
extern struct job *job;
extern int done, exit_code;
extern int out_fd[2], err_fd[2];
extern struct hb_buf out, err; /* stdout; stderr and the log */

/* The first n hosts, rank by rank or with one rank each in turn. */
void use_hosts(int n);
void map_by_node(int n);

/* They are other machines, reached by a command (--rsh). */
void use_rsh(void);

/* What host `name` does: after LAUNCH, which is when an agent hears its name,
 * and with use_rsh from the start. */
void script_of(const char *name, const char *script);

/* The script of all agents until they know their names. */
void start(const char *script);
void finish(int code, const char *want_out, const char *want_err);
/* The same where only a part of stderr is known. */
void finish_saying(int code, const char *want_err_part);
void wait_for_output(const char *text);
void wait_for_message(const char *text); /* stdout is not read meanwhile */
/* Reads stdout until the job is done. */
void drain_output(void);

int job_util_main(const char *name, void (*add_tests)(TCase *tc), int argc,
                  char *argv[]);

#endif
