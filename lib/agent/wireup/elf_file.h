/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ELF file of this machine's kind (64 bits, little-endian) says about
 * the libraries that it needs.  Nothing in the file is trusted: each offset,
 * size and count is checked, and a file that breaks a rule is refused.
 */
#ifndef HVD_AGENT_ELF_FILE_H
#define HVD_AGENT_ELF_FILE_H

#include "lib/base/strv.h"

enum {
    ELF_HEADERS_MAX = 128,     /* program headers */
    ELF_DYNAMIC_MAX = 4096,    /* entries of the dynamic section */
    ELF_NEEDED_MAX = 512,      /* libraries that one file needs */
    ELF_NAME_BYTES_MAX = 256,  /* of a library, with the final 0 */
    ELF_PATHS_BYTES_MAX = 4096 /* of DT_RPATH or DT_RUNPATH, likewise */
};

struct elf_file {
    struct hb_strv needed; /* DT_NEEDED, in their order */
    char *rpath, *runpath; /* NULL: none */
};

/* Reads the file in fd.  1 with *out set (free it with elf_file_fini), or 0 for
 * any other file.  A static program needs nothing. */
int elf_file_read(int fd, struct elf_file *out);
void elf_file_fini(struct elf_file *f);

#endif
