/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds mpirun and identifies it by its --version.  HVD_MPIRUN names it, as a
 * path or as a name to look for in PATH; otherwise it is mpirun, else mpiexec.
 */
#ifndef HVDRUN_MPI_FIND_H
#define HVDRUN_MPI_FIND_H

#include "lib/base/error.h"

enum mpi_kind { MPI_OPENMPI, MPI_MPICH };

struct mpi_launcher {
    char *path; /* file of the program */
    char *name; /* its argv[0], as the user would type it: an absolute path
                   there means --prefix to Open MPI */
    enum mpi_kind kind;
    int major;
    char *version; /* "4.1.4" */
};

void mpi_launcher_fini(struct mpi_launcher *m);

/* Returns the file that a shell would run for `name`; a heap string, or
 * NULL. */
char *mpi_program_path(const char *name);

/* Sets kind, major and version from what `PROGRAM --version` printed.  0, or
 * -HVD_EUNSUPPORTED with err set. */
int mpi_identify(const char *name, const char *text, struct mpi_launcher *m,
                 struct hb_error *err);

/* Finds and identifies mpirun.  0, or with err set -HVD_EUNSUPPORTED (none
 * found, or neither Open MPI nor MPICH) or -HVD_ESYSTEM (it cannot be run). */
int mpi_find(struct mpi_launcher *m, struct hb_error *err);

/* Returns "Open MPI" or "MPICH". */
const char *mpi_kind_name(enum mpi_kind kind);

#endif
