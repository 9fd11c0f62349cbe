/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts are found first, as a list; then they are printed, in the bracket
 * style of horovodrun --check-build or as JSON.  A static hvdrun loads nothing
 * and only reports which files exist.
 */
#include "cmd/hvdrun/check_build.h"

#include "cmd/hvdrun/libdirs.h"
#include "cmd/hvdrun/mpi/mpi_find.h"
#include "cmd/hvdrun/probe.h"
#include "lib/agent/query/progcheck.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/sys/linkage.h"
#include "lib/base/text.h"
#include "lib/job/serve/serve_plugin.h"
#include "lib/protocol/collectives.h"
#include "lib/ssh/ssh2.h"

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

enum section { PARTS, CONTROLLERS, PLANES, LIBRARIES, SECTIONS };

enum { FACTS_MAX = 16 };

struct fact {
    enum section section;
    const char *name;
    int there;
    char *version, *path; /* or NULL */
    char *why;            /* why it is absent */
};

struct build {
    const char *dir;
    struct fact facts[FACTS_MAX];
    int count;
    int native, mpi, nccl; /* planes */
};

static const char no_libhvd[] = "there is no libhvd";
static const char line_end[] = "\r\n", package[] = ",\r\n";

#define OPERATION(symbol, name, nccl, ...) \
    {                                      \
        name, nccl                         \
    }
static const struct {
    const char *name;
    int nccl; /* NCCL can do it in device memory */
} operations[] = {COLLECTIVES_AND_JOIN(OPERATION), {"process sets", 1}};

/* ---- Finding ---- */

/* Replaces a heap string by the clean path of the file, or by NULL if it is
 * NULL or cannot be read. */
static char *clean(char *path)
{
    char *real = path ? realpath(path, NULL) : NULL;
    char *found = NULL;

    if (real && access(real, R_OK) == 0)
        found = hb_xstrdup(real);
    free(real);
    hb_free(path);
    return found;
}

/* Returns the first of `places` that is a readable file, as a clean path. */
static char *find(const char *dir, const char *const *places)
{
    char *found = NULL;

    for (; *places && !found; places++)
        found = clean(hb_xasprintf("%s/%s", dir, *places));
    return found;
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

/* Sets a fact's path; it is reported even if the file cannot be used. */
static void set_path(struct fact *f, char *path, const char *why_not)
{
    f->path = path;
    if (!path)
        absent(f, why_not);
}

/* Sets the version to the text up to a byte of `end`: "MPICH Version:\t4.0.2",
 * "Open MPI v4.1.4, package: ...". */
static void set_version(struct fact *f, const struct hb_buf *text,
                        const char *end)
{
    size_t len = strcspn(hb_buf_data(text), end);

    if (!len)
        return;
    f->version = hb_xasprintf("%.*s", (int)len, hb_buf_data(text));
    for (char *p = f->version; *p; p++)
        *p = *p == '\t' ? ' ' : *p;
    hb_text_sanitize(f->version);
}

/* Checks that a library can be loaded, and asks for its version. */
static void check_library(struct fact *f, const char *symbol, const char *end)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf text = HB_BUF_INIT;

    if (f->path && probe_library(f->path, symbol, NULL, &text, &err) == 0)
        set_version(f, &text, end);
    else if (f->path && err.status != -HVD_EUNSUPPORTED)
        absent(f, err.text);
    hb_buf_free(&text);
}

static void find_parts(struct build *b)
{
    static const char *const agents[] = {"hvd-agent", "../libexec/hvd-agent",
                                         "../libexec/hvd/hvd-agent", NULL};
    struct fact *f;
    char *path;

    set_path(add(b, PARTS, "hvd-agent"), find(b->dir, agents), "not found");
    f = add(b, PARTS, "libhvd");
    path = libdirs_find(b->dir, "libhvd.so.0");
    if (!path)
        path = libdirs_find(b->dir, "libhvd.so");
    set_path(f, clean(path), "not found");
    check_library(f, "hvd_init", line_end);
    b->native = f->there;
}

static char *find_plugin(const struct build *b, const char *file)
{
    const char *given = hb_knob("PLUGIN_DIR");
    char *name, *path;

    if (given)
        return clean(hb_xasprintf("%s/%s", given, file));
    name = hb_xasprintf("hvd/%s", file);
    path = clean(libdirs_find(b->dir, name));
    hb_free(name);
    return path;
}

static void check_plugin(struct build *b, struct fact *f, const char *file,
                         const char *symbol)
{
    char *why = hb_xasprintf("%s not found; it is built where its library is "
                             "installed",
                             file);

    set_path(f, find_plugin(b, file), why);
    check_library(f, symbol, package);
    hb_free(why);
}

/* ---- What the NCCL plane finds at run time ---- */

/* A library that is opened by name at run time; the loader may not look where
 * it is. */
struct wanted {
    const char *title, *knob, *name, *symbol;
    const char *label; /* its name in progcheck_libraries */
};

/* Reports what the files show, if the loader did not find the library or was
 * not asked. */
static void look_for(struct fact *f, const struct wanted *w, int asked)
{
    json_t *all = progcheck_libraries("", hb_variable("LD_LIBRARY_PATH"));
    json_t *found = json_object_get(all, w->label);
    const char *path = json_string_value(json_object_get(found, "path"));
    const char *version = json_string_value(json_object_get(found, "version"));
    char *why = NULL;

    if (path && !asked) {
        f->there = 1;
        f->path = hb_xstrdup(path);
        f->version = hb_xstrdup(version);
    } else if (path) {
        why = hb_xasprintf("it is not where the loader looks; try "
                           "HVD_%s=%s",
                           w->knob, path);
    } else if (!asked) {
        why = hb_xasprintf("%s not found", w->name);
    }
    if (why)
        absent(f, why);
    hb_free(why);
    json_decref(all);
}

/* Searches for the library w in the places where the plug-in searches when it
 * runs, and adds what was found to b.  Returns whether the library is there. */
static int find_at_run_time(struct build *b, const struct wanted *w,
                            const char *plugin)
{
    struct fact *f = add(b, LIBRARIES, w->title);
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf text = HB_BUF_INIT;
    const char *given = hb_knob(w->knob), *path;
    int rc =
        probe_library(given ? given : w->name, w->symbol, plugin, &text, &err);

    if (rc == 0) {
        set_version(f, &text, line_end);
        path = strchr(hb_buf_data(&text), '\n');
        f->path = hb_xstrdup(path ? path + 1 : "");
        hb_text_sanitize(f->path);
    } else if (given && rc == -HVD_EUNSUPPORTED) {
        f->path = hb_xstrdup(given);
    } else {
        absent(f, err.text);
        if (!given)
            look_for(f, w, rc != -HVD_EUNSUPPORTED);
    }
    hb_buf_free(&text);
    return f->there;
}

/* Checks a plug-in of hvdrun, which a static one cannot load. */
static void check_own_plugin(struct build *b, struct fact *f, const char *file,
                             const char *symbol)
{
    struct hb_error err = HB_ERROR_INIT;

    if (hb_may_load(&err) < 0)
        absent(f, err.text);
    else
        check_plugin(b, f, file, symbol);
}

static void find_ssh(struct build *b)
{
    struct fact *f = add(b, CONTROLLERS, "ssh, by the openssh client");
    struct hb_buf text = HB_BUF_INIT;
    char name[] = "ssh", flag[] = "-V";
    char *argv[] = {name, flag, NULL};

    set_path(f, mpi_program_path(name), "there is no ssh in PATH");
    if (f->path && probe_program(f->path, argv, &text, NULL) == 0)
        set_version(f, &text, package);
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
}

/* Checks the NCCL plug-in and the libraries that it opens. */
static void find_nccl(struct build *b)
{
    static const struct wanted driver = {"CUDA driver", "CUDA_LIBRARY",
                                         "libcuda.so.1", "cuDriverGetVersion",
                                         "cuda_driver"},
                               nccl = {"NCCL", "NCCL_LIBRARY", "libnccl.so.2",
                                       "ncclGetVersion", "nccl"};
    struct fact *f = add(b, PLANES, "NCCL");
    int cuda, library, enabled = 1;

    set_path(f, find_plugin(b, "libhvd-nccl.so"),
             "libhvd-nccl.so not found; it is built where CUDA and NCCL are "
             "installed, unless WITH_NCCL=no");
    check_library(f, "hvd_nccl_build", line_end);
    cuda = find_at_run_time(b, &driver, f->path);
    library = find_at_run_time(b, &nccl, f->path);
    if (!f->there)
        return;
    if (!b->native)
        absent(f, no_libhvd);
    else if (hb_knob_bool("NCCL", &enabled, NULL) < 0 || !enabled)
        absent(f, "switched off by HVD_NCCL");
    else if (!cuda)
        absent(f, "NCCL plane unavailable: no CUDA driver");
    else if (!library)
        absent(f, "NCCL plane unavailable: no NCCL");
    b->nccl = f->there;
}

static void find_all(struct build *b, const char *dir)
{
    *b = (struct build){.dir = dir};
    find_parts(b);
    check_own_plugin(b, add(b, PARTS, "server of --http"), SERVE_PLUGIN_FILE,
                     SERVE_PLUGIN_SYMBOL);
    add(b, CONTROLLERS, "hvd-agent on this machine");
    b->facts[b->count - 1].there = b->facts[0].there;
    if (!b->facts[0].there)
        absent(&b->facts[b->count - 1], "hvd-agent not found");
    check_own_plugin(b, add(b, CONTROLLERS, "ssh, by libssh2"),
                     SSH2_PLUGIN_FILE, SSH2_PLUGIN_SYMBOL);
    find_ssh(b);
    find_mpirun(b);
    find_planes(b);
    find_nccl(b);
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
    if (!f->there && f->version) /* loads, but something else is missing */
        hb_buf_printf(out, " (built with %s, %s)", f->version, f->path);
    if (f->there && (f->version || f->path))
        hb_buf_printf(out, ": %s%s%s", f->version ? f->version : "",
                      f->version && f->path ? ", " : "",
                      f->path ? f->path : "");
    hb_buf_putc(out, '\n');
}

static void put_operations(struct hb_buf *out, const struct build *b)
{
    hb_buf_puts(out, "\nAvailable tensor operations:\n");
    for (size_t i = 0; i < COUNT(operations); i++)
        hb_buf_printf(out, "    [%c] %s: %s%s%s\n", b->native ? 'X' : ' ',
                      operations[i].name, b->native ? "native" : no_libhvd,
                      b->mpi ? ", MPI" : "",
                      b->nccl && operations[i].nccl ? ", NCCL" : "");
}

char *check_build_text(const char *program_dir)
{
    static const char *const titles[SECTIONS] = {
        "Parts", "Available controllers", "Available planes",
        "Libraries for GPUs, found at run time"};
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

        put_string(object, "name", operations[i].name);
        json_object_set_new(object, "available", json_boolean(b->native));
        if (b->native)
            json_array_append_new(planes, json_string("native"));
        if (b->mpi)
            json_array_append_new(planes, json_string("MPI"));
        if (b->nccl && operations[i].nccl)
            json_array_append_new(planes, json_string("NCCL"));
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
    static const char *const keys[SECTIONS] = {"parts", "controllers", "planes",
                                               "libraries"};
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
