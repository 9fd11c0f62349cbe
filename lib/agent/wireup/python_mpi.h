/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a Python program uses mpi4py, and where its mpi4py is, without
 * starting Python.  Only a statement of the program's own text counts, such as
 * `from mpi4py import MPI`; what other modules import is not followed.
 */
#ifndef HVD_AGENT_PYTHON_MPI_H
#define HVD_AGENT_PYTHON_MPI_H

#include "lib/base/strv.h"

#include <stddef.h>

enum {
    PYTHON_TEXT_MAX = 256 << 10, /* how much of a program is read */
    PYTHON_CFG_MAX = 16 << 10,   /* of pyvenv.cfg */
};

/* What an interpreter's arguments say that it runs. */
struct python_run {
    enum { PYTHON_NOTHING, PYTHON_FILE, PYTHON_MODULE, PYTHON_CODE } what;
    const char *arg; /* its name, or the code; borrowed from argv */
};

struct python_host {
    const char *interpreter; /* absolute, links not followed */
    const char *cwd;
    const char *python_path; /* PYTHONPATH; these may be NULL */
    const char *user_base;   /* PYTHONUSERBASE */
    const char *home;
    int no_user_site; /* PYTHONNOUSERSITE */
};

/* Returns whether `name`, the last part of a path, is a Python interpreter's:
 * python, python3, python3.11, pypy3. */
int python_is_interpreter(const char *name);
/* Reads the interpreter's arguments. */
struct python_run python_read_argv(char *const *argv);
/* Returns whether a statement of the text imports mpi4py. */
int python_imports_mpi(const char *text, size_t len);
/* Returns whether pyvenv.cfg lets a virtual environment use the packages of
 * the Python that it was made with. */
int python_venv_uses_system(const char *text);
/* Adds the directories of packages, in the order in which Python looks. */
void python_package_dirs(const struct python_host *host, struct hb_strv *out);
/* Adds the extensions in dir/mpi4py that may be mpi4py.MPI, sorted. */
void python_mpi_files(const char *dir, struct hb_strv *out);

#endif
