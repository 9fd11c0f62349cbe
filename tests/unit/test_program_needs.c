/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/wireup/program_needs.h, needed_libs.h, elf_file.h, python_mpi.h:
 * which MPI a program uses. */
#include "lib/agent/wireup/elf_file.h"
#include "lib/agent/wireup/program_needs.h"
#include "lib/agent/wireup/python_mpi.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/elf_image.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fixture f;
static struct hb_strv env;
static char library[4096]; /* the last one that was found, or "" */

static void setup(void)
{
    char *path;

    fixtures_setup();
    fixture_open(&f);
    path = hb_xasprintf("%s/bin:/usr/bin:/bin", f.root);
    ck_assert_int_eq(hb_env_set(&env, "PATH", path), 0);
    hb_free(path);
}

static void teardown(void)
{
    hb_strv_free(&env);
    fixture_close(&f);
    fixtures_teardown();
}

static char *at(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/%s", f.root, name);
    return path;
}

static void script(const char *name, const char *text)
{
    fixture_file(&f, name, text);
    ck_assert_int_eq(chmod(at(name), 0755), 0);
}

/* Writes an ELF file that needs the libraries, separated by blanks. */
static void elf(const char *name, const char *needed, const char *rpath,
                const char *runpath)
{
    struct elf_image e;
    char *words = hb_xstrdup(needed), *state = NULL;
    int fd;

    elf_image_init(&e);
    for (char *w = strtok_r(words, " ", &state); w;
         w = strtok_r(NULL, " ", &state))
        elf_image_add_text(&e, DT_NEEDED, w);
    if (rpath)
        elf_image_add_text(&e, DT_RPATH, rpath);
    if (runpath)
        elf_image_add_text(&e, DT_RUNPATH, runpath);
    hb_free(words);
    script(name, "");
    fd = open(at(name), O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(write(fd, &e.file, sizeof(e.file)), sizeof(e.file));
    close(fd);
}

/* Judges a command, whose words are separated by '|'.  What it needs, for the
 * reason `why`, uses this file of PMIx; NULL: none is known. */
static void uses(const char *command, enum program_need need, const char *why,
                 const char *pmix)
{
    struct hb_strv argv = HB_STRV_INIT;
    struct program_needs_config c = {.root = f.root, .cwd = f.root};
    struct program_needs_result r;
    char *program;

    ck_assert_int_eq(hb_strv_split(&argv, command, "|"), 0);
    program = argv.items[0][0] == '/' ? hb_xstrdup(argv.items[0])
                                      : hb_xstrdup(at(argv.items[0]));
    c.program = program;
    c.argv = argv.items;
    c.env = &env;
    program_needs(&c, &r);
    ck_assert_msg(r.need == need, "%s: %d, %s", command, r.need, r.reason);
    ck_assert_msg(strstr(r.reason, why) != NULL, "%s: %s", command, r.reason);
    ck_assert_ptr_null(strchr(r.reason, '\n'));
    if (pmix)
        ck_assert_pstr_eq(r.pmix, at(pmix));
    else
        ck_assert_ptr_null(r.pmix);
    snprintf(library, sizeof(library), "%s", r.library ? r.library : "");
    program_needs_free(&r);
    hb_free(program);
    hb_strv_free(&argv);
}

static void judged(const char *command, enum program_need need, const char *why)
{
    uses(command, need, why, NULL);
}

/* ---- Libraries ---- */

START_TEST(families)
{
    static const struct {
        const char *needed, *library, *of_library;
        enum program_need need;
        const char *why;
    } cases[] = {
        {"libc.so.6 libm.so.6", NULL, NULL, NEED_NOTHING, "no MPI"},
        {"libc.so.6 libmpi.so.40", NULL, NULL, NEED_PMIX,
         "prog needs libmpi.so.40 (Open MPI)"},
        {"libmpi.so.40", "libmpi.so.40", "libopen-pal.so.40", NEED_PMIX,
         "Open MPI"},
        {"libmpi.so.20", NULL, NULL, NEED_PMIX, "Open MPI"},
        {"libmpi.so.12", NULL, NULL, NEED_PMI1, "libmpi.so.12 (MPICH)"},
        {"libmpi.so.12", "libmpi.so.12", "libfabric.so.1", NEED_PMI1, "MPICH"},
        {"libmpi.so.12", "libmpi.so.12", "libopen-rte.so.12", NEED_PMIX,
         "Open MPI"},
        {"libmpi.so.12", "libmpi.so.12", "libpmix.so.2", NEED_PMIX,
         "an MPI that uses PMIx"},
        {"libmpich.so.12", NULL, NULL, NEED_PMI1, "libmpich.so.12 (MPICH)"},
        {"libmpich.so.12", "libmpich.so.12", "libpmix.so.2", NEED_PMIX,
         "an MPI that uses PMIx"},
        {"libmpi_gnu_91.so.12", NULL, NULL, NEED_NOTHING, "Cray MPICH"},
        {"libmpi.so.99999999999999999999", NULL, NULL, NEED_PMIX, "Open MPI"},
        {"libmpi.so.x", NULL, NULL, NEED_NOTHING, "no MPI"},
        {"libmpi.so.1 libmpi.so.40", NULL, NULL, NEED_PMIX, "libmpi.so.40"},
        {"libmpio.so.40 libmpi", NULL, NULL, NEED_NOTHING, "no MPI"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *path = hb_xasprintf(
            "usr/lib/%s", cases[i].library ? cases[i].library : "unused");

        elf(path, cases[i].of_library ? cases[i].of_library : "", NULL, NULL);
        elf("prog", cases[i].needed, NULL, NULL);
        judged("prog", cases[i].need, cases[i].why);
        ck_assert_str_eq(library, cases[i].library ? at(path) : "");
        unlink(at(path));
        hb_free(path);
    }
}
END_TEST

/* Each way in which the loader finds a library that itself needs an MPI. */
/* The file of PMIx is that of the Open MPI which the program uses: of several,
 * the one by which the loader would find it from there. */
START_TEST(pmix_of_the_program)
{
    elf("usr/lib/libpmix.so.2", "", NULL, NULL);
    elf("prog", "libmpi.so.40", NULL, "$ORIGIN/mpi/lib");
    /* Version 5 needs it, found by its own RUNPATH ... */
    elf("mpi/lib/libmpi.so.40", "libopen-pal.so.80 libpmix.so.2", NULL,
        "$ORIGIN/own");
    elf("mpi/lib/own/libpmix.so.2", "", NULL, NULL);
    uses("prog", NEED_PMIX, "Open MPI", "mpi/lib/own/libpmix.so.2");
    /* ... or by the system's rules. */
    unlink(at("mpi/lib/own/libpmix.so.2"));
    uses("prog", NEED_PMIX, "Open MPI", "usr/lib/libpmix.so.2");
    /* Without plug-ins, libopen-pal needs it. */
    elf("mpi/lib/libmpi.so.40", "libopen-rte.so.40 libopen-pal.so.40", NULL,
        "$ORIGIN");
    elf("mpi/lib/libopen-rte.so.40", "libopen-pal.so.40 libmpi.so.40", NULL,
        "$ORIGIN");
    elf("mpi/lib/libopen-pal.so.40", "libpmix.so.2", NULL, "$ORIGIN/pal");
    elf("mpi/lib/pal/libpmix.so.2", "", NULL, NULL);
    uses("prog", NEED_PMIX, "Open MPI", "mpi/lib/pal/libpmix.so.2");
}
END_TEST

/* Before version 5 a plug-in needs PMIx; Debian has it elsewhere. */
START_TEST(pmix_of_a_plugin)
{
    char *list;

    elf("usr/lib/libpmix.so.2", "", NULL, NULL);
    elf("prog", "libmpi.so.40", NULL, "$ORIGIN/mpi/lib");
    elf("mpi/lib/libmpi.so.40", "libopen-pal.so.40", NULL, NULL);
    uses("prog", NEED_PMIX, "Open MPI", NULL);
    /* One that has PMIx within itself needs no file of it. */
    elf("mpi/lib/openmpi/mca_pmix_pmix3x.so", "libc.so.6", NULL, NULL);
    uses("prog", NEED_PMIX, "Open MPI", NULL);
    elf("mpi/lib/openmpi/mca_pmix_ext3x.so", "libpmix.so.2", NULL, NULL);
    uses("prog", NEED_PMIX, "Open MPI", "usr/lib/libpmix.so.2");
    unlink(at("mpi/lib/openmpi/mca_pmix_ext3x.so"));
    elf("debian/lib/openmpi3/mca_pmix_ext3x.so", "libpmix.so.2", NULL,
        "$ORIGIN");
    elf("debian/lib/openmpi3/libpmix.so.2", "", NULL, NULL);
    list = hb_xasprintf("/nonexistent:%s", at("debian/lib"));
    elf("mpi/lib/libmpi.so.40", "libopen-pal.so.40", NULL, list);
    hb_free(list);
    uses("prog", NEED_PMIX, "Open MPI", "debian/lib/openmpi3/libpmix.so.2");
    /* A file that is no library is no PMIx. */
    script("debian/lib/openmpi3/libpmix.so.2", "text");
    unlink(at("usr/lib/libpmix.so.2"));
    uses("prog", NEED_PMIX, "Open MPI", NULL);
}
END_TEST

START_TEST(places_of_libraries)
{
    char *list = hb_xasprintf("none:%s/own", f.root);

    elf("a/lib/libx.so.1", "libc.so.6 libmpi.so.40", NULL, NULL);
    elf("prog", "libx.so.1", NULL, NULL);
    judged("prog", NEED_NOTHING, "");
    elf("prog", "libx.so.1", NULL, "/none:$ORIGIN/a/lib");
    judged("prog", NEED_PMIX, "libmpi.so.40");
    elf("prog", "libx.so.1", "${ORIGIN}/a/lib", NULL);
    judged("prog", NEED_PMIX, "");
    elf("prog", "libx.so.1", NULL, "a/lib");
    judged("prog", NEED_PMIX, "");
    elf("prog", "libx.so.1", "$ORIGIN/a/lib", "/none");
    judged("prog", NEED_NOTHING, ""); /* DT_RPATH does not count then */
    elf("prog", "libx.so.1", NULL, "$LIB/a:$ORIGIN/$LIB");
    judged("prog", NEED_NOTHING, "");
    elf("prog", "a/lib/libx.so.1", NULL, NULL);
    judged("prog", NEED_PMIX, "");
    /* DT_RPATH serves the libraries that it led to, DT_RUNPATH does not. */
    elf("a/lib/liby.so.1", "libx.so.1", NULL, NULL);
    elf("prog", "liby.so.1", "$ORIGIN/a/lib", NULL);
    judged("prog", NEED_PMIX, "");
    elf("prog", "liby.so.1", NULL, "$ORIGIN/a/lib");
    judged("prog", NEED_NOTHING, "");
    elf("own/liby.so.1", "libx.so.1", NULL, "$ORIGIN/../a/lib");
    hb_env_set(&env, "LD_LIBRARY_PATH", list);
    elf("prog", "liby.so.1", NULL, NULL);
    judged("prog", NEED_PMIX, "");
    /* A file that is no library of this machine is passed over. */
    fixture_file(&f, "own/libz9.so.1", "text");
    elf("usr/lib/libz9.so.1", "libmpich.so.12", NULL, NULL);
    elf("prog", "libz9.so.1", NULL, NULL);
    judged("prog", NEED_PMI1, "");
    hb_free(list);
}
END_TEST

/* Libraries that need each other, and more of them than are looked at. */
START_TEST(bounds)
{
    char name[64], needed[64];

    elf("usr/lib/libr.so", "libs.so", NULL, NULL);
    elf("usr/lib/libs.so", "libr.so", NULL, NULL);
    elf("prog", "libr.so", NULL, NULL);
    judged("prog", NEED_NOTHING, "");
    for (int i = 0; i < 520; i++) {
        snprintf(name, sizeof(name), "usr/lib/lib%d.so", i);
        snprintf(needed, sizeof(needed), i == 500 ? "libmpi.so.40" : "lib%d.so",
                 i + 1);
        elf(name, needed, NULL, NULL);
    }
    elf("prog", "lib0.so", NULL, NULL);
    judged("prog", NEED_PMIX, "");
    elf("usr/lib/lib500.so", "lib501.so", NULL, NULL);
    elf("usr/lib/lib519.so", "libmpi.so.40", NULL, NULL);
    judged("prog", NEED_NOTHING, "");
}
END_TEST

static int elf_reads(const struct elf_image *e, size_t len,
                     struct elf_file *out)
{
    int fd = memfd_create("elf", MFD_CLOEXEC), ok;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, &e->file, len), (ssize_t)len);
    ok = elf_file_read(fd, out);
    close(fd);
    return ok;
}

static void refused(const struct elf_image *e)
{
    struct elf_file out;

    ck_assert_int_eq(elf_reads(e, sizeof(e->file), &out), 0);
}

START_TEST(damaged_files)
{
    struct elf_image good, e;
    struct elf_file out;

    elf_image_init(&good);
    elf_image_add_text(&good, DT_NEEDED, "liba.so.1");
    elf_image_add_text(&good, DT_RUNPATH, "/x");
    ck_assert_int_eq(elf_reads(&good, sizeof(good.file), &out), 1);
    ck_assert_str_eq(out.needed.items[0], "liba.so.1");
    ck_assert_str_eq(out.runpath, "/x");
    elf_file_fini(&out);
    for (size_t len = 0; len < offsetof(struct elf_image, file.strings); len++)
        ck_assert_int_eq(elf_reads(&good, len, &out), 0);
#define BROKEN(change) \
    e = good;          \
    change;            \
    refused(&e)
    BROKEN(e.file.head.e_ident[EI_CLASS] = ELFCLASS32);
    BROKEN(e.file.head.e_ident[EI_DATA] = ELFDATA2MSB);
    BROKEN(e.file.head.e_machine = EM_386);
    BROKEN(e.file.head.e_type = ET_CORE);
    BROKEN(e.file.head.e_phentsize--);
    BROKEN(e.file.head.e_phnum = 0);
    BROKEN(e.file.head.e_phnum = ELF_HEADERS_MAX + 1);
    BROKEN(e.file.head.e_phoff = UINT64_MAX);
    BROKEN(e.file.segments[1].p_filesz = UINT64_MAX);
    BROKEN(e.file.segments[1].p_offset = UINT64_MAX - 8);
    BROKEN(e.file.dynamic[0].d_un.d_ptr = 1);
    BROKEN(e.file.dynamic[1].d_un.d_val = UINT64_MAX);
    BROKEN(e.file.dynamic[2].d_un.d_val = ELF_IMAGE_MAX);
    BROKEN(e.file.segments[0].p_filesz = 16);
    BROKEN(memset(e.file.strings, 'x', ELF_IMAGE_MAX));
    /* A file without a dynamic section is static. */
    e = good;
    e.file.segments[1].p_type = PT_NOTE;
    ck_assert_int_eq(elf_reads(&e, sizeof(e.file), &out), 1);
    ck_assert_uint_eq(out.needed.count, 0);
    elf_file_fini(&out);
}
END_TEST

/* Programs of this machine: none of them uses MPI. */
START_TEST(real_programs)
{
    judged("/bin/sh|-c|true", NEED_NOTHING, "no MPI");
    judged("/proc/self/exe", NEED_NOTHING, "no MPI");
    judged("/dev/null", NEED_NOTHING, "no MPI");
    judged("/nowhere", NEED_NOTHING, "no MPI");
}
END_TEST

/* ---- Scripts ---- */

START_TEST(scripts)
{
    elf("bin/prog", "libmpi.so.40", NULL, NULL);
    elf("bin/plain", "libc.so.6", NULL, NULL);
    elf("bin/sh", "libc.so.6", NULL, NULL);
    script("wrap", "#!/bin/sh\n# a comment\nset -e\nexport A=b\n"
                   "if test -e x; then\n  plain --help | prog\nfi\n"
                   "exec bin/prog \"$@\"\n");
    judged("wrap", NEED_PMIX, "bin/prog needs libmpi.so.40 (Open MPI)");
    script("nested", "#!/usr/bin/env bash\nA=1 exec \"./wrap\"\n");
    judged("nested", NEED_PMIX, "");
    judged("/bin/sh|-e|nested", NEED_PMIX, "");
    judged("/bin/sh|-ec|cd /; prog x", NEED_NOTHING, "");
    judged("/bin/sh|-c|prog x; cd /", NEED_PMIX, "");
    judged("/usr/bin/env|A=b|-u|C|prog", NEED_PMIX, "");
    judged("/usr/bin/nice|-n|5|prog", NEED_PMIX, "");
    judged("/usr/bin/timeout|5|plain|prog", NEED_NOTHING, "");
    script("first", "#!/bin/sh\n\"$@\"\n");
    judged("first|prog", NEED_PMIX, "");
    judged("first|plain|prog", NEED_NOTHING, "");
    script("circle", "#!/bin/sh\n./circle\n./circle\n");
    judged("circle", NEED_NOTHING, "");
    script("self", "#!self\n");
    judged("self", NEED_NOTHING, "");
    script("empty", "#!\n");
    judged("empty", NEED_NOTHING, "");
    script("none", "#!/nowhere/sh\nprog\n");
    judged("none", NEED_NOTHING, "");
    script("unsure", "#!/bin/sh\n$PROG\necho prog\nprog() {\n  :\n}\n");
    judged("unsure", NEED_PMIX, ""); /* the name of a function */
}
END_TEST

/* A script of any length is judged in bounded time. */
START_TEST(long_scripts)
{
    struct hb_buf text = HB_BUF_INIT;

    elf("bin/prog", "libmpi.so.40", NULL, NULL);
    hb_must(hb_buf_puts(&text, "#!/bin/sh\n"));
    for (int i = 0; i < 400; i++)
        hb_must(hb_buf_printf(&text, "missing%d\n", i));
    hb_must(hb_buf_puts(&text, "prog\n"));
    script("long", hb_buf_data(&text));
    judged("long", NEED_PMIX, "");
    hb_buf_clear(&text);
    hb_must(hb_buf_puts(&text, "#!/bin/sh\n"));
    for (int i = 0; i < 1000; i++)
        hb_must(hb_buf_printf(&text, "missing%d\n", i));
    hb_must(hb_buf_puts(&text, "prog\n"));
    script("longer", hb_buf_data(&text));
    judged("longer", NEED_NOTHING, "");
    hb_buf_free(&text);
}
END_TEST

/* A pipe is not opened: what it carries is for the program. */
START_TEST(pipes)
{
    ck_assert_int_eq(mkfifo(at("pipe"), 0600), 0);
    judged("/bin/sh|pipe", NEED_NOTHING, "");
    judged("pipe", NEED_NOTHING, "");
}
END_TEST

/* ---- Python ---- */

START_TEST(imports)
{
    static const struct {
        const char *text;
        int imports;
    } cases[] = {
        {"import mpi4py", 1},
        {"from mpi4py import MPI\n", 1},
        {"import os\r\n\tfrom mpi4py.futures import x", 1},
        {"import os, mpi4py.MPI as m", 1},
        {"import os; from mpi4py import MPI", 1},
        {"try: import mpi4py\nexcept: pass", 1},
        {"print(\"a\"); import mpi4py", 1},
        {"x = 'import mpi4py'", 0},
        {"print('note: import mpi4py')", 0},
        {"# import mpi4py", 0},
        {"x = 1 # so: import mpi4py", 0},
        {"import mpi4py_fft", 0},
        {"import my_mpi4py", 0},
        {"import x.mpi4py", 0},
        {"import x as mpi4py", 0},
        {"from x import mpi4py", 0},
        {"from mympi4py import x", 0},
        {"frommpi4py import x", 0},
        {"importmpi4py", 0},
        {"mpi4py", 0},
        {"", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(
            python_imports_mpi(cases[i].text, strlen(cases[i].text)) ==
                cases[i].imports,
            "%s", cases[i].text);
}
END_TEST

/* Of a long line only a part is looked at for each name of the module. */
START_TEST(long_lines)
{
    char text[4096];

    memset(text, ' ', sizeof(text));
    memcpy(text + sizeof(text) - 13, "import mpi4py", 13);
    ck_assert_int_eq(python_imports_mpi(text, sizeof(text)), 0);
    text[sizeof(text) - 14] = '\n';
    ck_assert_int_eq(python_imports_mpi(text, sizeof(text)), 1);
}
END_TEST

START_TEST(arguments)
{
    static const struct {
        const char *words; /* separated by '|' */
        int what;
        const char *arg;
    } cases[] = {
        {"python", PYTHON_NOTHING, NULL},
        {"python|-V", PYTHON_NOTHING, NULL},
        {"python|-", PYTHON_NOTHING, NULL},
        {"python|x.py|-c|y", PYTHON_FILE, "x.py"},
        {"python|-u|-B|x.py", PYTHON_FILE, "x.py"},
        {"python|-W|error|x.py", PYTHON_FILE, "x.py"},
        {"python|-Xdev|x.py", PYTHON_FILE, "x.py"},
        {"python|-uX|dev|x.py", PYTHON_FILE, "x.py"},
        {"python|--check-hash-based-pycs|never|x.py", PYTHON_FILE, "x.py"},
        {"python|-m|a.b|x.py", PYTHON_MODULE, "a.b"},
        {"python|-uma.b", PYTHON_MODULE, "a.b"},
        {"python|-uc|import x|y", PYTHON_CODE, "import x"},
        {"python|-c", PYTHON_NOTHING, NULL},
        {"python|-W", PYTHON_NOTHING, NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_strv argv = HB_STRV_INIT;
        struct python_run run;

        ck_assert_int_eq(hb_strv_split(&argv, cases[i].words, "|"), 0);
        run = python_read_argv(argv.items);
        ck_assert_msg((int)run.what == cases[i].what, "%s", cases[i].words);
        if (cases[i].arg)
            ck_assert_str_eq(run.arg, cases[i].arg);
        else
            ck_assert_ptr_null(run.arg);
        hb_strv_free(&argv);
    }
    ck_assert_int_eq(python_is_interpreter("python3.11"), 1);
    ck_assert_int_eq(python_is_interpreter("pypy3"), 1);
    ck_assert_int_eq(python_is_interpreter("python"), 1);
    ck_assert_int_eq(python_is_interpreter("python3-config"), 0);
    ck_assert_int_eq(python_is_interpreter("perl"), 0);
}
END_TEST

START_TEST(virtual_environments)
{
    ck_assert_int_eq(python_venv_uses_system(""), 1);
    ck_assert_int_eq(python_venv_uses_system(
                         "home = /usr/bin\n"
                         "Include-System-Site-Packages=FALSE \r\nversion = 3"),
                     0);
    ck_assert_int_eq(
        python_venv_uses_system("include-system-site-packages = true\n"), 1);
    ck_assert_int_eq(
        python_venv_uses_system("xinclude-system-site-packages = false\n"), 1);
}
END_TEST

#define MPI_SO "mpi4py/MPI.cpython-39.so"

/* Where mpi4py is found, and that one with an extension for each of several
 * MPIs takes the MPI that is here. */
START_TEST(mpi4py)
{
    elf("py/bin/python3.9", "libc.so.6", NULL, NULL);
    fixture_file(&f, "train.py", "import os\nfrom mpi4py import MPI\n");
    judged("py/bin/python3.9|train.py", NEED_NOTHING, "");
    elf("py/lib/python3.9/site-packages/" MPI_SO, "libmpi.so.40", NULL, NULL);
    judged("py/bin/python3.9|train.py", NEED_PMIX,
           "train.py imports mpi4py, which needs libmpi.so.40 (Open MPI)");
    judged("py/bin/python3.9|-m|mpi4py.futures|x", NEED_PMIX, "mpi4py.futures");
    judged("py/bin/python3.9|-m|train", NEED_PMIX, "train imports");
    judged("py/bin/python3.9|-c|import mpi4py", NEED_PMIX, "python -c imports");
    judged("py/bin/python3.9|-c|import sys", NEED_NOTHING, "");
    /* A virtual environment hides it, or not. */
    fixture_file(&f, "env/bin/x", "");
    ck_assert_int_eq(symlink("../../py/bin/python3.9", at("env/bin/python")),
                     0);
    fixture_file(&f, "env/pyvenv.cfg", "include-system-site-packages = false");
    judged("env/bin/python|train.py", NEED_NOTHING, "");
    fixture_file(&f, "env/pyvenv.cfg", "include-system-site-packages = true");
    judged("env/bin/python|train.py", NEED_PMIX, "");
    elf("env/lib/python3.9/site-packages/" MPI_SO, "libmpi.so.12", NULL, NULL);
    judged("env/bin/python|train.py", NEED_PMI1, "");
    /* PYTHONPATH goes first. */
    elf("own/" MPI_SO, "libc.so.6", NULL, NULL);
    hb_env_set(&env, "PYTHONPATH", "own");
    judged("env/bin/python|train.py", NEED_NOTHING, "");
    unlink(at("own/" MPI_SO));
    elf("own/mpi4py/MPI.a.so", "libmpi.so.40", NULL, NULL);
    elf("own/mpi4py/MPI.b.so", "libmpi.so.12", NULL, NULL);
    judged("env/bin/python|train.py", NEED_PMIX, "");
    elf("usr/lib/libmpi.so.12", "libc.so.6", NULL, NULL);
    judged("env/bin/python|train.py", NEED_PMI1, "");
    script("script", "#! env/bin/python -u\nimport mpi4py\n");
    judged("script|-c|x", NEED_PMI1, "script imports mpi4py");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("program_needs");
    TCase *tc = tcase_create("all");

    suite_add_tcase(s, tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, families);
    tcase_add_test(tc, pmix_of_the_program);
    tcase_add_test(tc, pmix_of_a_plugin);
    tcase_add_test(tc, places_of_libraries);
    tcase_add_test(tc, bounds);
    tcase_add_test(tc, damaged_files);
    tcase_add_test(tc, real_programs);
    tcase_add_test(tc, scripts);
    tcase_add_test(tc, long_scripts);
    tcase_add_test(tc, pipes);
    tcase_add_test(tc, imports);
    tcase_add_test(tc, long_lines);
    tcase_add_test(tc, arguments);
    tcase_add_test(tc, virtual_environments);
    tcase_add_test(tc, mpi4py);
    return unit_run(s);
}
