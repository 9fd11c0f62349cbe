/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun --mpi: mpirun starts the ranks, and libhvd asks MPI who they are. */
#ifndef HVDRUN_MPI_H
#define HVDRUN_MPI_H

#include "cmd/hvdrun/options/options.h"
#include "lib/base/log.h"

/* Executes mpirun in place of hvdrun, so that exit status, signals and
 * terminal are mpirun's.  Returns only if that fails: prints one line and
 * returns hvdrun's exit code. */
int mpi_run(const struct options *o, const struct hb_log *log);

/* Prints the command that mpi_run would execute, as one line; returns hvdrun's
 * exit code. */
int mpi_dry(const struct options *o, const struct hb_log *log);

#endif
