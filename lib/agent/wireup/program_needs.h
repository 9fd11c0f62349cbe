/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program needs from the launcher to start as an MPI program, judged by
 * its files before it runs.
 *
 * Followed: the libraries that a program is linked with; scripts with `#!`; a
 * Python program's own import of mpi4py; the commands of a shell script that
 * stand alone on a line, such as `exec ./prog "$@"`; and programs that start
 * another one, such as env, numactl and timeout.  A program that is linked
 * statically with an MPI, or loads one with dlopen, is not recognized.
 */
#ifndef HVD_AGENT_PROGRAM_NEEDS_H
#define HVD_AGENT_PROGRAM_NEEDS_H

#include "lib/base/strv.h"

enum program_need { NEED_NOTHING, NEED_PMIX, NEED_PMI1 };

struct program_needs_config {
    const char *root;    /* "", or a fixture with /etc/ld.so.cache */
    const char *program; /* resolved, absolute */
    char *const *argv;
    const char *cwd;
    const struct hb_strv *env; /* of all ranks of the host */
    /* Of the rank; overrides env.  May be NULL. */
    const struct hb_strv *rank_env;
};

struct program_needs_result {
    enum program_need need;
    char *reason;  /* "./hello needs libmpi.so.40 (Open MPI)" */
    char *library; /* the file of that library; NULL: none is found */
    char *pmix;    /* the file of PMIx that this MPI uses, or NULL */
};

/* Judges the program; out->reason is always set.  What cannot be read or is
 * damaged needs nothing. */
void program_needs(const struct program_needs_config *c,
                   struct program_needs_result *out);
void program_needs_free(struct program_needs_result *r);

#endif
