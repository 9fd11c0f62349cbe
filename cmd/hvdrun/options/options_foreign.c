/* SPDX-License-Identifier: Apache-2.0 */
/* The options of other launchers; see options_foreign.h. */
#include "cmd/hvdrun/options/options_foreign.h"

#include <stddef.h>
#include <string.h>

enum { FOREIGN_NAMES_MAX = 10 };

/* No name may be one of hvdrun's, or an abbreviation of one. */
static const struct foreign {
    const char *names[FOREIGN_NAMES_MAX]; /* as in the option, `-` for `_` */
    const char *program, *advice;
} table[] = {
    {{"--nproc-per-node"}, "torchrun", "use -np N for the number of all ranks"},
    {{"--nnodes", "--node-rank"},
     "torchrun",
     "name all hosts with -H n1:4,n2:4, and call hvdrun once"},
    {{"--standalone", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id",
      "--rdzv-conf", "--local-addr"},
     "torchrun",
     "leave it out, hvdrun needs no address for the start"},
    {{"--master-addr", "--master-port"},
     "torchrun",
     "leave it out, or use -x MASTER_ADDR=... or -x MASTER_PORT=..."},
    {{"--max-restarts", "--monitor-interval"},
     "torchrun",
     "leave it out, a rank that fails ends the job"},
    {{"--no-python", "--run-path"},
     "torchrun",
     "leave it out, and name the program with python before a script"},
    {{"-m", "--module"}, "torchrun", "use python -m MODULE as the command"},
    {{"--log-dir", "--redirects", "--tee", "--local-ranks-filter"},
     "torchrun",
     "use --output-filename DIR"},
    {{"-machinefile", "--machinefile", "-hosts", "-f"},
     "mpiexec",
     "use --hostfile FILE or -H HOSTS"},
    {{"-N", "--ntasks-per-node", "--tasks-per-node"},
     "mpirun or srun",
     "use --npernode N"},
    {{"-env", "-genv", "-envlist", "-genvlist", "--export"},
     "mpiexec or srun",
     "use -x NAME or -x NAME=VALUE"},
    {{"-mca", "--mca", "-gmca", "--gmca", "--prtemca", "--pmixmca"},
     "mpirun",
     "use -x OMPI_MCA_NAME=VALUE"},
    {{"--allow-run-as-root", "--use-hwthread-cpus", "--report-bindings"},
     "mpirun",
     "leave it out; --dry-run shows where ranks run"},
};

/* Returns whether the word is that name, if `_` counts as `-`. */
static int same_name(const char *name, const char *word)
{
    for (; *name && (*name == *word || (*name == '-' && *word == '_'));
         name++, word++)
        ;
    return *name == *word;
}

int foreign_option(const char *word, const char **program, const char **advice)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        for (int n = 0; n < FOREIGN_NAMES_MAX && table[i].names[n]; n++)
            if (same_name(table[i].names[n], word)) {
                *program = table[i].program;
                *advice = table[i].advice;
                return 1;
            }
    return 0;
}

const char *foreign_option_name(size_t index)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        for (int n = 0; n < FOREIGN_NAMES_MAX && table[i].names[n]; n++)
            if (index-- == 0)
                return table[i].names[n];
    return NULL;
}
