/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See detach.h.  Writing to a page of a private mapping makes the kernel
 * replace it by a copy that belongs to no file: so the first byte of each page
 * is written back unchanged.
 */
#include "lib/agent/detach.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { MAPPINGS_MAX = 16 };

struct mapping {
    uintptr_t begin, end;
    int prot;
};

/* Returns whether other machines can write to the file system; see
 * statfs(2). */
static int is_shared(const struct statfs *fs)
{
    static const uint32_t types[] = {
        0x6969,     /* NFS */
        0x517b,     /* SMB */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x65735546, /* FUSE */
        0x00c36400, /* Ceph */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x19830326, /* BeeGFS */
        0x01021997, /* 9P */
        0x5346414f, /* AFS */
        0x6b414653, /* kAFS */
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if ((uint32_t)fs->f_type == types[i])
            return 1;
    return 0;
}

/* Parses "55d0c0a00000-55d0c0a50000 r-xp 00001000 fe:01 1234   /path\n": 1 if
 * it is a private, readable mapping of the file `exe`. */
static int parse(const char *line, const char *exe, struct mapping *m)
{
    const char *path;
    char prot[5];
    int at = 0;

    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %n", &m->begin,
               &m->end, prot, &at) != 3 ||
        at == 0)
        return 0;
    path = line + at;
    if (strncmp(path, exe, strlen(exe)) != 0 || path[strlen(exe)] != '\n')
        return 0;
    m->prot = (prot[0] == 'r' ? PROT_READ : 0) |
              (prot[1] == 'w' ? PROT_WRITE : 0) |
              (prot[2] == 'x' ? PROT_EXEC : 0);
    return prot[0] == 'r' && prot[3] == 'p';
}

/* Lists the mappings of the program's file.  None is touched before all are
 * read, because the list may change meanwhile. */
static int list(struct mapping out[MAPPINGS_MAX])
{
    char line[PATH_MAX + 128], exe[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    FILE *maps = fopen("/proc/self/maps", "re");
    int n = 0;

    exe[len > 0 ? len : 0] = '\0';
    while (maps && len > 0 && n < MAPPINGS_MAX &&
           fgets(line, sizeof(line), maps))
        n += parse(line, exe, &out[n]);
    if (maps)
        fclose(maps);
    return n;
}

/* Copies the pages of m.  ThreadSanitizer must not record the writes: its
 * record of a program's constants is read-only. */
__attribute__((noinline, no_sanitize_thread)) static int
copy_pages(const struct mapping *m)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)m->begin;
    size_t bytes = m->end - m->begin;
    int rc = mprotect(at, bytes, m->prot | PROT_WRITE);

    for (uintptr_t p = m->begin; rc == 0 && p < m->end; p += page) {
        volatile char *byte = (volatile char *)p;
        char same = *byte;

        *byte = same;
    }
    if (!(m->prot & PROT_WRITE) && mprotect(at, bytes, m->prot) < 0)
        return -1;
    return rc;
}

int detach_from_file(int always)
{
    struct mapping mappings[MAPPINGS_MAX];
    struct statfs fs;
    int n, rc = 0;

    if (!always && (statfs("/proc/self/exe", &fs) < 0 || !is_shared(&fs)))
        return 0;
    n = list(mappings);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = copy_pages(&mappings[i]);
    return n <= 0 ? -1 : rc;
}
