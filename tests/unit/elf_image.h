/* SPDX-License-Identifier: Apache-2.0 */
/* Small ELF files for tests: a header, two segments, a dynamic section and its
 * strings. */
#ifndef TESTS_UNIT_ELF_IMAGE_H
#define TESTS_UNIT_ELF_IMAGE_H

#include <elf.h>
#include <string.h>

enum {
    ELF_IMAGE_MAX = 2048,
    ELF_IMAGE_BASE = 0x400000,
    ELF_IMAGE_ENTRIES = 12
};

struct elf_image {
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr segments[2];
        Elf64_Dyn dynamic[ELF_IMAGE_ENTRIES];
        char strings[ELF_IMAGE_MAX];
    } file;
    size_t entries, strings; /* used */
};

static inline void elf_image_add(struct elf_image *e, int64_t tag, uint64_t v)
{
    e->file.dynamic[e->entries++] =
        (Elf64_Dyn){.d_tag = tag, .d_un = {.d_val = v}};
}

/* Adds an entry whose value is a string: DT_NEEDED, DT_RPATH, DT_RUNPATH. */
static inline void elf_image_add_text(struct elf_image *e, int64_t tag,
                                      const char *text)
{
    elf_image_add(e, tag, e->strings);
    memcpy(e->file.strings + e->strings, text, strlen(text) + 1);
    e->strings += strlen(text) + 1;
}

static inline void elf_image_init(struct elf_image *e)
{
    const size_t dynamic = offsetof(struct elf_image, file.dynamic);

    memset(e, 0, sizeof(*e));
    memcpy(e->file.head.e_ident, ELFMAG, SELFMAG);
    e->file.head.e_ident[EI_CLASS] = ELFCLASS64;
    e->file.head.e_ident[EI_DATA] = ELFDATA2LSB;
    e->file.head.e_type = ET_DYN;
#if defined(__aarch64__)
    e->file.head.e_machine = EM_AARCH64;
#else
    e->file.head.e_machine = EM_X86_64;
#endif
    e->file.head.e_phentsize = sizeof(Elf64_Phdr);
    e->file.head.e_phnum = 2;
    e->file.head.e_phoff = offsetof(struct elf_image, file.segments);
    e->file.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                                       .p_vaddr = ELF_IMAGE_BASE,
                                       .p_filesz = sizeof(e->file)};
    e->file.segments[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                       .p_offset = dynamic,
                                       .p_filesz = sizeof(e->file.dynamic)};
    e->strings = 1; /* the empty string */
    elf_image_add(e, DT_STRTAB,
                  ELF_IMAGE_BASE + offsetof(struct elf_image, file.strings));
    elf_image_add(e, DT_STRSZ, sizeof(e->file.strings));
}

#endif
