/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which MPI an ELF file is linked with, directly or by way of other libraries.
 * Libraries are looked for where the loader looks: DT_RPATH, LD_LIBRARY_PATH,
 * DT_RUNPATH, its cache, the usual directories.  Not followed: LD_PRELOAD,
 * dlopen, $LIB and $PLATFORM in paths, directories for special processors
 * (glibc-hwcaps).
 */
#ifndef HVD_AGENT_NEEDED_LIBS_H
#define HVD_AGENT_NEEDED_LIBS_H

enum needed_mpi {
    NEEDED_NO_MPI,
    NEEDED_PMIX,    /* Open MPI, or another one that uses PMIx */
    NEEDED_PMI1,    /* MPICH and its relatives */
    NEEDED_UNKNOWN, /* Cray MPICH, whose start-up hvdrun does not know */
};

enum {
    NEEDED_FILES_MAX = 512, /* libraries that are looked at */
    NEEDED_NAME_MAX = 256,
    NEEDED_PATH_MAX = 4096,
};

struct needed_search {
    const char *root;         /* "", or where a fixture's cache and usual
                                 directories are */
    const char *cwd;          /* absolute */
    const char *library_path; /* LD_LIBRARY_PATH; NULL: none */
};

struct needed_result {
    enum needed_mpi mpi;
    char library[NEEDED_NAME_MAX]; /* "libmpi.so.40"; "" without an MPI */
    char path[NEEDED_PATH_MAX];    /* its file; "" if it is not on this host */
    const char *family;            /* "Open MPI"; static */
    /* The library of PMIx that an Open MPI is linked with, itself or by its
     * plug-in for PMIx; "": none is found, or it has one within itself. */
    char pmix[NEEDED_PATH_MAX];
};

/* Judges the file; 0 if it is no ELF file of this machine's kind, else 1 with
 * *out set. */
int needed_libs(const struct needed_search *s, const char *path,
                struct needed_result *out);

#endif
