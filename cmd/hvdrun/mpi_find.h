/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which mpirun there is, and what it says it is.  HVD_MPIRUN names it, as a
 * path or as a name to look for in PATH; else it is mpirun, else mpiexec.
 */
#ifndef HVDRUN_MPI_FIND_H
#define HVDRUN_MPI_FIND_H

#include "lib/base/error.h"

enum mpi_kind { MPI_OPENMPI, MPI_MPICH };

struct mpi_launcher {
    char *path; /* the program's file */
    char *name; /* its argv[0]: for Open MPI an absolute path there means
                   --prefix, so it is what the user would type */
    enum mpi_kind kind;
    int major;
    char *version; /* "4.1.4" */
};

void mpi_launcher_fini(struct mpi_launcher *m);

/* The program a shell would run for `name`; a heap string, or NULL. */
char *mpi_program_path(const char *name);

/* What `PROGRAM --version` printed: kind, major and version.  0, or
 * -HVD_EUNSUPPORTED with err set. */
int mpi_identify(const char *name, const char *text, struct mpi_launcher *m,
                 struct hb_error *err);

/* 0, -HVD_EUNSUPPORTED (none, or not one of the two) or -HVD_ESYSTEM (it
 * cannot be run) with err set. */
int mpi_find(struct mpi_launcher *m, struct hb_error *err);

/* "Open MPI" or "MPICH". */
const char *mpi_kind_name(enum mpi_kind kind);

#endif
