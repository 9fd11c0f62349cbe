/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See progcheck.h.  Asks the program's own loader (the PT_INTERP of the file)
 * which libraries it gets, as ldd(1) does: the loader maps them but runs none
 * of their code.
 */
#include "lib/agent/query/progcheck.h"

#include "lib/agent/query/capture.h"
#include "lib/agent/rank/program.h"
#include "lib/base/alloc.h"
#include "lib/protocol/agent_hash.h"
#include "lib/protocol/query.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LIST_TIMEOUT_MS = 5000,
    TOOL_TIMEOUT_MS = 3000,
    HEADERS_MAX = 256, /* of an ELF file: most that are read */
    OUTPUT_MAX = 256 << 10,
};

/* ---- Content ---- */

/* Sets path, hash and bytes.  A file that is executable but not readable has no
 * hash. */
static void put_content(json_t *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char hash[AGENT_HASH_HEX];
    struct stat st;

    json_object_set_new(out, "path", query_text(path));
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        agent_hash_fd(fd, hash) == 0) {
        json_object_set_new(out, "hash", json_string(hash));
        json_object_set_new(out, "bytes", json_integer(st.st_size));
    }
    close(fd);
}

json_t *progcheck_file(const char *name, const char *cwd)
{
    char *path =
        name[0] == '/' ? hb_xstrdup(name) : hb_xasprintf("%s/%s", cwd, name);
    struct stat st;
    json_t *out = json_null();

    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        out = json_object();
        put_content(out, path);
    }
    hb_free(path);
    return out;
}

/* ---- The loader ---- */

/* Copies the first word of a "#!" line. */
static void script_interpreter(const char *head, char *out, size_t size)
{
    size_t skip = 2 + strspn(head + 2, " \t");
    size_t len = strcspn(head + skip, " \t\n");

    if (len < size) {
        memcpy(out, head + skip, len);
        out[len] = '\0';
    }
}

static void elf_interpreter(int fd, const Elf64_Ehdr *h, char *out, size_t size)
{
    for (int i = 0; i < h->e_phnum && i < HEADERS_MAX; i++) {
        off_t at = (off_t)(h->e_phoff + (uint64_t)i * sizeof(Elf64_Phdr));
        Elf64_Phdr p;
        ssize_t n;

        if (pread(fd, &p, sizeof(p), at) != sizeof(p))
            return;
        if (p.p_type != PT_INTERP || p.p_filesz >= size)
            continue;
        n = pread(fd, out, p.p_filesz, (off_t)p.p_offset);
        out[n > 0 ? n : 0] = '\0';
        return;
    }
}

/* Finds what runs the file: a loader, a script's interpreter, or "" for a
 * static program or an unreadable file.  Returns 1 for an ELF file. */
static int interpreter(const char *path, char *out, size_t size)
{
    union {
        Elf64_Ehdr elf;
        char text[PATH_MAX];
    } head;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, head.text, sizeof(head.text) - 1);
    int is_elf = 0;

    out[0] = '\0';
    head.text[n > 0 ? n : 0] = '\0';
    if (n >= (ssize_t)sizeof(head.elf) &&
        memcmp(head.text, ELFMAG, SELFMAG) == 0 &&
        head.elf.e_ident[EI_CLASS] == ELFCLASS64) {
        is_elf = 1;
        elf_interpreter(fd, &head.elf, out, size);
    } else if (n > 2 && head.text[0] == '#' && head.text[1] == '!') {
        script_interpreter(head.text, out, size);
    }
    if (fd >= 0)
        close(fd);
    return is_elf;
}

/* Takes a line of the loader: "\tlibm.so.6 => /lib/libm.so.6 (0x...)" or
 * "\tlibx.so => not found". */
static void take_library(char *line, json_t *found, json_t *missing)
{
    char *arrow = strstr(line, " => "), *end;

    line += strspn(line, " \t");
    if (!arrow || arrow <= line)
        return;
    *arrow = '\0';
    arrow += 4;
    if (strncmp(arrow, "not found", 9) == 0) {
        json_array_append_new(missing, query_text(line));
        return;
    }
    end = strstr(arrow, " (0x");
    if (end)
        *end = '\0';
    json_object_set_new(found, line, query_text(arrow));
}

/* Takes a line of musl's loader: "Error loading shared library x: ..." */
static void take_error(char *line, json_t *missing)
{
    static const char before[] = "Error loading shared library ";
    char *name = strstr(line, before);

    if (!name)
        return;
    name += sizeof(before) - 1;
    name[strcspn(name, ":")] = '\0';
    json_array_append_new(missing, query_text(name));
}

static void list_libraries(const struct progcheck *c, const char *loader,
                           const char *path, json_t *out)
{
    char list[] = "--list", trace[] = "LD_TRACE_LOADED_OBJECTS=1";
    char *argv[] = {(char *)loader, list, (char *)path, NULL};
    char *variable = hb_xasprintf("LD_LIBRARY_PATH=%s",
                                  c->library_path ? c->library_path : "");
    char *envp[] = {variable, NULL, NULL};
    struct capture run = {.argv = argv,
                          .envp = envp,
                          .cwd = c->cwd,
                          .timeout_ms = LIST_TIMEOUT_MS,
                          .with_stderr = 1,
                          .max_bytes = OUTPUT_MAX};
    json_t *found = json_object(), *missing = json_array();
    struct capture_result r;
    char *save = NULL;

    /* glibc's --list ends at the first missing library. */
    if (strstr(loader, "/ld-linux")) {
        argv[1] = (char *)path;
        argv[2] = NULL;
        envp[1] = trace;
    }
    if (capture_run(&run, &r) == 0) {
        for (char *line = strtok_r(hb_buf_data(&r.out), "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
            take_error(line, missing);
            take_library(line, found, missing);
        }
        hb_buf_free(&r.out);
    }
    json_object_set_new(out, "libraries", found);
    json_object_set_new(out, "missing", missing);
    hb_free(variable);
}

json_t *progcheck_program(const struct progcheck *c)
{
    struct hb_error err = HB_ERROR_INIT;
    char by[PATH_MAX], *path = NULL;
    int exit_code = 0, is_elf;
    json_t *out = json_object();

    if (program_resolve(c->program, c->path, c->cwd, &path, &exit_code, &err) <
        0) {
        json_object_set_new(out, "error", query_text(err.text));
        return out;
    }
    put_content(out, path);
    is_elf = interpreter(path, by, sizeof(by));
    if (by[0]) {
        json_object_set_new(out, "interpreter", query_text(by));
        if (access(by, X_OK) < 0)
            json_object_set_new(out, "interpreter_missing", json_true());
        else if (is_elf)
            list_libraries(c, by, path, out);
    }
    hb_free(path);
    return out;
}

/* ---- Tools ---- */

json_t *progcheck_tool(const char *name, const char *path)
{
    char *file = NULL, option[] = "--version";
    char *argv[] = {NULL, option, NULL};
    char *search = hb_xasprintf("PATH=%s", path ? path : "/usr/bin:/bin");
    char lang[] = "LC_ALL=C";
    char *envp[] = {search, lang, NULL};
    struct capture run = {.argv = argv,
                          .envp = envp,
                          .timeout_ms = TOOL_TIMEOUT_MS,
                          .with_stderr = 1,
                          .max_bytes = 4096};
    struct capture_result r;
    json_t *out = json_null();
    int code;

    if (program_resolve(name, path, "/", &file, &code, NULL) == 0) {
        argv[0] = file;
        if (capture_run(&run, &r) == 0) {
            char *text = hb_buf_data(&r.out);

            text[strcspn(text, "\n")] = '\0';
            out = json_pack("{s:o, s:o}", "path", query_text(file), "version",
                            query_text(text));
            hb_buf_free(&r.out);
        }
    }
    hb_free(file);
    hb_free(search);
    return out;
}
