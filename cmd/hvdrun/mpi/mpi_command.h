/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun --mpi: from options and plan to a command line for mpirun.  Pure.
 *
 * The command line holds no values of variables, only their names: mpirun
 * takes the values from its own environment, to which those given by options
 * are added.  Each host is listed with as many slots as the plan has ranks
 * there, so that mpirun places ranks as hvdrun would.
 *
 * Options that only hvdrun's agents can carry out are refused by name: those
 * with OPTION_AGENT when options are parsed; options or values that one of the
 * two MPIs lacks, here.
 */
#ifndef HVDRUN_MPI_COMMAND_H
#define HVDRUN_MPI_COMMAND_H

#include "cmd/hvdrun/mpi/mpi_find.h"
#include "cmd/hvdrun/options/options.h"
#include "lib/base/buf.h"
#include "lib/hosts/slot_plan.h"

struct mpi_job {
    const struct options *options;
    const struct mpi_launcher *launcher;
    const struct plan *plan; /* NULL: on the hosts that mpirun's batch system
                                gives it */
    const char *hostname;    /* this machine's */
    char *const *inherited;  /* hvdrun's environ */
    int root;                /* the user is root */
    int cpus;                /* CPUs that ranks here may use; 0: unknown */
};

struct mpi_command {
    struct hb_strv argv;
    struct hb_strv env;      /* mpirun's complete environment */
    struct hb_strv settings; /* NAME=VALUE: the part of env that mpirun reads */
    int no_stdin;            /* mpirun's stdin is /dev/null */
};

/* clang-format off */
#define MPI_COMMAND_INIT { HB_STRV_INIT, HB_STRV_INIT, HB_STRV_INIT, 0 }
/* clang-format on */

/* Composes mpirun's command line and environment.  0, -HVD_ENOMEM, or
 * -HVD_EINVAL or -HVD_EUNSUPPORTED with err naming the option.  `out` must be
 * MPI_COMMAND_INIT; call mpi_command_fini even after an error. */
int mpi_compose(const struct mpi_job *job, struct mpi_command *out,
                struct hb_error *err);
void mpi_command_fini(struct mpi_command *c);

/* Appends the command as one line for a shell, without values that -x or
 * --env-file gave. */
int mpi_command_text(const struct options *o, const struct mpi_command *c,
                     struct hb_buf *out);

/* Returns whether a batch system (Slurm, PBS, LSF, Grid Engine, Cobalt) gave
 * this process hosts that mpirun will find by itself. */
int mpi_in_allocation(char *const *env);

/* ---- For mpi_openmpi.c and mpi_mpich.c ---- */

/* Input that both have in common. */
struct mpi_parts {
    int ranks;
    struct hb_strv hosts;   /* "a:2"; none in an allocation */
    struct hb_strv names;   /* names of variables to pass on, sorted */
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
/* Appends the items as one string, joined with sep. */
int mpi_add_joined(struct hb_strv *argv, const struct hb_strv *items, char sep);
int64_t mpi_seconds(int64_t ms); /* rounded up */

#endif
