/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded reader of ELF files; see elf_file.h, and elf(5). */
#include "lib/agent/wireup/elf_file.h"

#include "lib/base/alloc.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum {
#if defined(__x86_64__)
    MACHINE = EM_X86_64,
#elif defined(__aarch64__)
    MACHINE = EM_AARCH64,
#else
    MACHINE = EM_NONE, /* all are taken */
#endif
};

struct reader {
    int fd;
    Elf64_Ehdr head;
    Elf64_Phdr *segments; /* head.e_phnum of them */
    Elf64_Dyn *dynamic;
    size_t entries;
    uint64_t strings, strings_bytes; /* the strings' place in the file */
};

static int read_at(int fd, void *out, size_t len, uint64_t offset)
{
    return offset <= INT64_MAX &&
           pread(fd, out, len, (off_t)offset) == (ssize_t)len;
}

static int read_head(struct reader *r)
{
    const Elf64_Ehdr *h = &r->head;
    size_t count;

    if (!read_at(r->fd, &r->head, sizeof(r->head), 0) ||
        memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 ||
        h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_ident[EI_DATA] != ELFDATA2LSB ||
        (MACHINE != EM_NONE && h->e_machine != MACHINE) ||
        (h->e_type != ET_EXEC && h->e_type != ET_DYN) ||
        h->e_phentsize != sizeof(*r->segments))
        return 0;
    count = h->e_phnum;
    if (count < 1 || count > ELF_HEADERS_MAX)
        return 0;
    r->segments = hb_xcalloc(count, sizeof(*r->segments));
    return read_at(r->fd, r->segments, count * sizeof(*r->segments),
                   h->e_phoff);
}

/* Reads the dynamic section, up to its end mark.  A file without one is
 * static. */
static int read_dynamic(struct reader *r)
{
    const Elf64_Phdr *s = NULL;
    size_t count, n = 0;

    for (int i = 0; i < r->head.e_phnum && !s; i++)
        if (r->segments[i].p_type == PT_DYNAMIC)
            s = &r->segments[i];
    if (!s)
        return 1;
    count = s->p_filesz / sizeof(*r->dynamic);
    if (count < 1 || count > ELF_DYNAMIC_MAX)
        return 0;
    r->dynamic = hb_xcalloc(count, sizeof(*r->dynamic));
    if (!read_at(r->fd, r->dynamic, count * sizeof(*r->dynamic), s->p_offset))
        return 0;
    while (n < count && r->dynamic[n].d_tag != DT_NULL)
        n++;
    r->entries = n;
    return 1;
}

static const Elf64_Dyn *find_entry(const struct reader *r, int64_t tag)
{
    for (size_t i = 0; i < r->entries; i++)
        if (r->dynamic[i].d_tag == tag)
            return &r->dynamic[i];
    return NULL;
}

/* Finds the strings in the file: the dynamic section has their address in
 * memory. */
static int find_strings(struct reader *r)
{
    const Elf64_Dyn *address = find_entry(r, DT_STRTAB);
    const Elf64_Dyn *size = find_entry(r, DT_STRSZ);

    if (!address || !size)
        return 0;
    for (int i = 0; i < r->head.e_phnum; i++) {
        const Elf64_Phdr *s = &r->segments[i];
        uint64_t into = address->d_un.d_ptr - s->p_vaddr;

        if (s->p_type != PT_LOAD || address->d_un.d_ptr < s->p_vaddr ||
            into >= s->p_filesz)
            continue;
        if (size->d_un.d_val > s->p_filesz - into ||
            s->p_offset > UINT64_MAX - into)
            return 0;
        r->strings = s->p_offset + into;
        r->strings_bytes = size->d_un.d_val;
        return 1;
    }
    return 0;
}

/* Reads the string at `offset`, which must end within `size` bytes, into
 * out. */
static int read_string(const struct reader *r, uint64_t offset, char *out,
                       size_t size)
{
    size_t len;

    if (offset >= r->strings_bytes || r->strings > UINT64_MAX - offset)
        return 0;
    len = r->strings_bytes - offset < size ? (size_t)(r->strings_bytes - offset)
                                           : size;
    return read_at(r->fd, out, len, r->strings + offset) &&
           memchr(out, '\0', len);
}

static int read_paths(const struct reader *r, int64_t tag, char **out)
{
    const Elf64_Dyn *entry = find_entry(r, tag);
    char text[ELF_PATHS_BYTES_MAX];

    if (!entry)
        return 1;
    if (!read_string(r, entry->d_un.d_val, text, sizeof(text)))
        return 0;
    *out = hb_xstrdup(text);
    return 1;
}

static int read_needed(const struct reader *r, struct hb_strv *out)
{
    char name[ELF_NAME_BYTES_MAX];

    for (size_t i = 0; i < r->entries; i++) {
        if (r->dynamic[i].d_tag != DT_NEEDED)
            continue;
        if (out->count == ELF_NEEDED_MAX ||
            !read_string(r, r->dynamic[i].d_un.d_val, name, sizeof(name)))
            return 0;
        hb_must(hb_strv_add(out, name));
    }
    return 1;
}

int elf_file_read(int fd, struct elf_file *out)
{
    struct reader r = {.fd = fd};
    struct elf_file f = {HB_STRV_INIT, NULL, NULL};
    int ok = read_head(&r) && read_dynamic(&r);

    if (ok && r.entries > 0 && find_entry(&r, DT_NEEDED))
        ok = find_strings(&r) && read_needed(&r, &f.needed) &&
             read_paths(&r, DT_RPATH, &f.rpath) &&
             read_paths(&r, DT_RUNPATH, &f.runpath);
    hb_free(r.segments);
    hb_free(r.dynamic);
    if (ok)
        *out = f;
    else
        elf_file_fini(&f);
    return ok;
}

void elf_file_fini(struct elf_file *f)
{
    hb_strv_free(&f->needed);
    hb_free(f->rpath);
    hb_free(f->runpath);
    *f = (struct elf_file){HB_STRV_INIT, NULL, NULL};
}
