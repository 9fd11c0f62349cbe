/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun --mpi: mpirun starts the ranks, and libhvd learns from MPI who
 * they are. */
#ifndef HVDRUN_MPI_H
#define HVDRUN_MPI_H

#include "cmd/hvdrun/options.h"
#include "lib/base/log.h"

/* Becomes mpirun, so that its exit status, its signals and its terminal
 * are mpirun's.  Returns only when that failed: prints one line and returns
 * hvdrun's exit code. */
int mpi_run(const struct options *o, const struct hb_log *log);

/* Prints the command that mpi_run would run, as one line. */
int mpi_dry(const struct options *o, const struct hb_log *log);

#endif
