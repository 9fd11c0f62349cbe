/* SPDX-License-Identifier: Apache-2.0 */
/* Other launchers' options and commands; see options_foreign.h. */
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
     "use --restart-failed N, or leave it out"},
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

/* Commands that start ranks themselves, with a word that must follow, or NULL.
 * Python runs the same ones as modules. */
static const struct launcher {
    const char *name, *next, *module, *advice;
} launchers[] = {
    {"torchrun", NULL, "torch.distributed.run", "python SCRIPT"},
    {NULL, NULL, "torch.distributed.launch", "python SCRIPT"},
    {"accelerate", "launch", "accelerate.commands.launch", "python SCRIPT"},
    {"deepspeed", NULL, "deepspeed.launcher.runner", "python SCRIPT"},
    {"horovodrun", NULL, "horovod.runner.launch", "the program"},
    {"mpirun", NULL, NULL, "the program"},
    {"mpiexec", NULL, NULL, "the program"},
    {"mpiexec.hydra", NULL, NULL, "the program"},
    {"srun", NULL, NULL, "the program"},
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

/* Returns the module that a command of Python runs with -m, or NULL. */
static const char *python_module(const char *program, char *const *words)
{
    if (strncmp(program, "python", 6) != 0)
        return NULL;
    for (; *words && (*words)[0] == '-'; words++)
        if (!strcmp(*words, "-m"))
            return words[1];
    return NULL;
}

static int same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

const char *foreign_launcher(char *const *command, const char **advice)
{
    const char *slash = strrchr(command[0], '/');
    const char *program = slash ? slash + 1 : command[0];
    const char *module = python_module(program, command + 1);

    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const struct launcher *l = &launchers[i];

        *advice = l->advice;
        if (same(l->module, module))
            return l->module;
        if (same(l->name, program) && (!l->next || same(l->next, command[1])))
            return l->name;
    }
    return NULL;
}
