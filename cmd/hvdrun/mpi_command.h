/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun --mpi: from options and plan to a command line for mpirun.  Pure.
 *
 * No value of the environment is on that command line: it names the
 * variables, and mpirun takes the values from its own environment, into
 * which the options' go as well.  Hosts come with as many slots as the plan
 * has ranks there, so that mpirun places ranks as hvdrun would.
 *
 * What only hvdrun's own agents can do is refused by the option's name:
 * those with OPTION_AGENT when options are parsed, here what one of the two
 * MPIs cannot do, or a value cannot be.
 */
#ifndef HVDRUN_MPI_COMMAND_H
#define HVDRUN_MPI_COMMAND_H

#include "cmd/hvdrun/mpi_find.h"
#include "cmd/hvdrun/options.h"
#include "lib/base/buf.h"
#include "lib/hosts/plan.h"

struct mpi_job {
    const struct options *options;
    const struct mpi_launcher *launcher;
    const struct plan *plan; /* NULL: on the hosts that mpirun's batch system
                                gives it */
    const char *hostname;    /* of this machine */
    char *const *inherited;  /* hvdrun's environ */
    int root;                /* the user is */
};

struct mpi_command {
    struct hb_strv argv;
    struct hb_strv env;      /* of mpirun, complete */
    struct hb_strv settings; /* NAME=VALUE: those of env that mpirun reads */
    int no_stdin;            /* mpirun shall read /dev/null */
};

/* clang-format off */
#define MPI_COMMAND_INIT { HB_STRV_INIT, HB_STRV_INIT, HB_STRV_INIT, 0 }
/* clang-format on */

/* 0, -HVD_EINVAL or -HVD_EUNSUPPORTED with a line that names the option, or
 * -HVD_ENOMEM.  `out` must be MPI_COMMAND_INIT; free it either way. */
int mpi_compose(const struct mpi_job *job, struct mpi_command *out,
                struct hb_error *err);
void mpi_command_fini(struct mpi_command *c);

/* One line for a shell, without values that -x or --env-file gave. */
int mpi_command_text(const struct options *o, const struct mpi_command *c,
                     struct hb_buf *out);

/* 1 when a batch system has given this process hosts that mpirun will find
 * by itself: Slurm, PBS, LSF, Grid Engine, Cobalt. */
int mpi_in_allocation(char *const *env);

/* ---- For mpi_openmpi.c and mpi_mpich.c ---- */

/* What both know before they begin. */
struct mpi_parts {
    int ranks;
    struct hb_strv hosts;   /* "a:2"; none in an allocation */
    struct hb_strv names;   /* of variables to pass on, sorted */
    struct hb_strv ssh;     /* arguments for ssh */
    struct hb_strv extra;   /* --mpi-args */
    struct hb_strv binding; /* --binding-args */
};

/* Appends mpirun's own arguments, up to the program. */
int mpi_openmpi_args(const struct mpi_job *job, const struct mpi_parts *parts,
                     struct mpi_command *out, struct hb_error *err);
int mpi_mpich_args(const struct mpi_job *job, const struct mpi_parts *parts,
                   struct mpi_command *out, struct hb_error *err);

/* Appends strings.  0 or -HVD_ENOMEM. */
#define mpi_add(argv, ...) \
    mpi_add_words(argv, (const char *const[]){__VA_ARGS__, NULL})
int mpi_add_words(struct hb_strv *argv, const char *const *words);
/* Joined with sep, as one string. */
int mpi_add_joined(struct hb_strv *argv, const struct hb_strv *items, char sep);
int64_t mpi_seconds(int64_t ms); /* rounded up */

#endif
