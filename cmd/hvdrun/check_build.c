/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts are found first, as a list; then they are printed, in the bracket
 * style of horovodrun --check-build or as JSON.
 */
#include "cmd/hvdrun/check_build.h"

#include "cmd/hvdrun/mpi_find.h"
#include "cmd/hvdrun/probe.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"
#include "lib/transport/ssh2.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>
#include <yaml.h>

#ifdef __clang__
#define COMPILER __VERSION__ /* says Clang itself */
#else
#define COMPILER "gcc " __VERSION__
#endif

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum section { PARTS, CONTROLLERS, PLANES, SECTIONS };

enum { FACTS_MAX = 16 };

struct fact {
    enum section section;
    const char *name;
    int there;
    char *version, *path; /* or NULL */
    char *why;            /* not there */
};

struct build {
    const char *dir;
    struct fact facts[FACTS_MAX];
    int count;
    int native, mpi; /* planes */
};

static const char no_libhvd[] = "there is no libhvd";

/* In the order of hvd.h. */
static const char *const operations[] = {
    "allreduce", "broadcast",     "allgather", "barrier",
    "alltoall",  "reducescatter", "join",      "process sets"};

/* ---- Finding ---- */

/* The first of the places that holds a readable file, as a clean path. */
static char *find(const char *dir, const char *const *places)
{
    for (; *places; places++) {
        char *path = hb_xasprintf("%s/%s", dir, *places);
        char *clean = realpath(path, NULL);
        char *found = NULL;

        if (clean && access(clean, R_OK) == 0)
            found = hb_xstrdup(clean);
        free(clean);
        hb_free(path);
        if (found)
            return found;
    }
    return NULL;
}

static struct fact *add(struct build *b, enum section section, const char *name)
{
    struct fact *f = &b->facts[b->count++];

    *f = (struct fact){.section = section, .name = name, .there = 1};
    return f;
}

static void absent(struct fact *f, const char *why)
{
    f->there = 0;
    hb_free(f->why);
    f->why = hb_xstrdup(why);
    hb_text_sanitize(f->why);
}

/* The path is kept also of what cannot be used. */
static void set_path(struct fact *f, char *path, const char *why_not)
{
    f->path = path;
    if (!path)
        absent(f, why_not);
}

/* "MPICH Version:\t4.0.2", "Open MPI v4.1.4, package: ...". */
static void set_version(struct fact *f, const struct hb_buf *text)
{
    size_t len = strcspn(hb_buf_data(text), ",\r\n");

    if (!len)
        return;
    f->version = hb_xasprintf("%.*s", (int)len, hb_buf_data(text));
    for (char *p = f->version; *p; p++)
        *p = *p == '\t' ? ' ' : *p;
    hb_text_sanitize(f->version);
}

/* A library has to be loadable, too. */
static void check_library(struct fact *f, const char *symbol)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf text = HB_BUF_INIT;

    if (f->path && probe_library(f->path, symbol, &text, &err) < 0)
        absent(f, err.text);
    else if (f->path)
        set_version(f, &text);
    hb_buf_free(&text);
}

static void find_parts(struct build *b)
{
    static const char *const libraries[] = {
        "../lib/libhvd.so.0", "../lib/libhvd.so", "../lib64/libhvd.so.0", NULL};
    static const char *const agents[] = {"hvd-agent", "../libexec/hvd-agent",
                                         "../libexec/hvd/hvd-agent", NULL};
    struct fact *f;

    set_path(add(b, PARTS, "hvd-agent"), find(b->dir, agents), "not found");
    f = add(b, PARTS, "libhvd");
    set_path(f, find(b->dir, libraries), "not found");
    check_library(f, "hvd_init");
    b->native = f->there;
}

static char *find_plugin(const struct build *b, const char *file)
{
    const char *given = hb_knob("PLUGIN_DIR");
    char *place =
        given ? hb_xstrdup(file) : hb_xasprintf("../lib/hvd/%s", file);
    char *other = hb_xasprintf("../lib64/hvd/%s", file);
    const char *const places[] = {place, given ? NULL : other, NULL};
    char *path = find(given ? given : b->dir, places);

    hb_free(place);
    hb_free(other);
    return path;
}

static void check_plugin(struct build *b, struct fact *f, const char *file,
                         const char *symbol)
{
    char *why = hb_xasprintf("%s not found; it is built where its library is "
                             "installed",
                             file);

    set_path(f, find_plugin(b, file), why);
    check_library(f, symbol);
    hb_free(why);
}

static void find_ssh(struct build *b)
{
    struct fact *f = add(b, CONTROLLERS, "ssh, by the openssh client");
    struct hb_buf text = HB_BUF_INIT;
    char name[] = "ssh", flag[] = "-V";
    char *argv[] = {name, flag, NULL};

    set_path(f, mpi_program_path(name), "there is no ssh in PATH");
    if (f->path && probe_program(f->path, argv, &text, NULL) == 0)
        set_version(f, &text);
    hb_buf_free(&text);
}

static void find_mpirun(struct build *b)
{
    struct fact *f = add(b, CONTROLLERS, "MPI");
    struct hb_error err = HB_ERROR_INIT;
    struct mpi_launcher m;

    if (mpi_find(&m, &err) < 0) {
        absent(f, err.text);
        return;
    }
    f->path = hb_xstrdup(m.path);
    f->version = hb_xasprintf("%s %s", mpi_kind_name(m.kind), m.version);
    mpi_launcher_fini(&m);
}

static void find_planes(struct build *b)
{
    static const char *const names[] = {"native, shared memory", "native, TCP"};
    struct fact *f;

    for (size_t i = 0; i < COUNT(names); i++) {
        f = add(b, PLANES, names[i]);
        if (!b->native)
            absent(f, no_libhvd);
    }
    f = add(b, PLANES, "MPI");
    check_plugin(b, f, "libhvd-mpi.so", "hvd_plugin");
    if (!b->native)
        absent(f, no_libhvd);
    b->mpi = f->there;
    absent(add(b, PLANES, "NCCL"), "not in this version");
}

static void find_all(struct build *b, const char *dir)
{
    *b = (struct build){.dir = dir};
    find_parts(b);
    add(b, CONTROLLERS, "hvd-agent on this machine");
    b->facts[b->count - 1].there = b->facts[0].there;
    if (!b->facts[0].there)
        absent(&b->facts[b->count - 1], "hvd-agent not found");
    check_plugin(b, add(b, CONTROLLERS, "ssh, by libssh2"), "transport-ssh2.so",
                 SSH2_PLUGIN_SYMBOL);
    find_ssh(b);
    find_mpirun(b);
    find_planes(b);
}

static void build_fini(struct build *b)
{
    for (int i = 0; i < b->count; i++) {
        hb_free(b->facts[i].version);
        hb_free(b->facts[i].path);
        hb_free(b->facts[i].why);
    }
}

/* ---- For people ---- */

static void put_fact(struct hb_buf *out, const struct fact *f)
{
    hb_buf_printf(out, "    [%c] %s", f->there ? 'X' : ' ', f->name);
    if (!f->there)
        hb_buf_printf(out, ": %s", f->why);
    else if (f->version || f->path)
        hb_buf_printf(out, ": %s%s%s", f->version ? f->version : "",
                      f->version && f->path ? ", " : "",
                      f->path ? f->path : "");
    hb_buf_putc(out, '\n');
}

static void put_operations(struct hb_buf *out, const struct build *b)
{
    hb_buf_puts(out, "\nAvailable tensor operations:\n");
    for (size_t i = 0; i < COUNT(operations); i++)
        hb_buf_printf(out, "    [%c] %s: %s%s\n", b->native ? 'X' : ' ',
                      operations[i], b->native ? "native" : no_libhvd,
                      b->mpi ? ", MPI" : "");
}

char *check_build_text(const char *program_dir)
{
    static const char *const titles[SECTIONS] = {
        "Parts", "Available controllers", "Available planes"};
    struct hb_buf out = HB_BUF_INIT;
    struct build b;
    char *text;

    find_all(&b, program_dir);
    hb_buf_printf(&out, "hvdrun %s\n\nBuilt with:\n", HVD_VERSION);
    hb_buf_printf(&out, "    %s\n    libuv %s, jansson %s, libyaml %s\n",
                  COMPILER, uv_version_string(), jansson_version_str(),
                  yaml_get_version_string());
    for (int s = 0; s < SECTIONS; s++) {
        hb_buf_printf(&out, "\n%s:\n", titles[s]);
        for (int i = 0; i < b.count; i++) {
            if (b.facts[i].section == (enum section)s)
                put_fact(&out, &b.facts[i]);
        }
    }
    put_operations(&out, &b);
    build_fini(&b);
    text = hb_buf_detach(&out);
    return text ? text : hb_xstrdup("");
}

/* ---- For programs ---- */

static void put_string(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, value ? json_string(value) : json_null());
}

static json_t *fact_json(const struct fact *f)
{
    json_t *object = json_object();

    put_string(object, "name", f->name);
    json_object_set_new(object, "available", json_boolean(f->there));
    put_string(object, "version", f->version);
    put_string(object, "path", f->path);
    put_string(object, "why", f->why);
    return object;
}

static json_t *operations_json(const struct build *b)
{
    json_t *list = json_array();

    for (size_t i = 0; i < COUNT(operations); i++) {
        json_t *object = json_object(), *planes = json_array();

        put_string(object, "name", operations[i]);
        json_object_set_new(object, "available", json_boolean(b->native));
        if (b->native)
            json_array_append_new(planes, json_string("native"));
        if (b->mpi)
            json_array_append_new(planes, json_string("MPI"));
        json_object_set_new(object, "planes", planes);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *built_with_json(void)
{
    json_t *object = json_object();

    put_string(object, "compiler", COMPILER);
    put_string(object, "libuv", uv_version_string());
    put_string(object, "jansson", jansson_version_str());
    put_string(object, "libyaml", yaml_get_version_string());
    return object;
}

char *check_build_json(const char *program_dir)
{
    static const char *const keys[SECTIONS] = {"parts", "controllers",
                                               "planes"};
    json_t *root = json_object();
    json_free_t release;
    struct build b;
    char *dumped, *text;

    find_all(&b, program_dir);
    put_string(root, "version", HVD_VERSION);
    json_object_set_new(root, "built_with", built_with_json());
    for (int s = 0; s < SECTIONS; s++) {
        json_t *list = json_array();

        for (int i = 0; i < b.count; i++) {
            if (b.facts[i].section == (enum section)s)
                json_array_append_new(list, fact_json(&b.facts[i]));
        }
        json_object_set_new(root, keys[s], list);
    }
    json_object_set_new(root, "operations", operations_json(&b));
    build_fini(&b);
    dumped = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    text = hb_xasprintf("%s\n", dumped ? dumped : "{}");
    json_get_alloc_funcs(NULL, &release);
    release(dumped);
    return text;
}
