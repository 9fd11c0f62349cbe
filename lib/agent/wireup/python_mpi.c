/* SPDX-License-Identifier: Apache-2.0 */
/* Python programs and mpi4py; see python_mpi.h. */
#include "lib/agent/wireup/python_mpi.h"

#include "lib/agent/wireup/regular.h"
#include "lib/base/alloc.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MPI_FILES_MAX = 32 };

static const char module_name[] = "mpi4py";
enum { MODULE_LEN = sizeof(module_name) - 1 };

/* ---- Arguments ---- */

int python_is_interpreter(const char *name)
{
    if (strncmp(name, "python", 6) != 0 && strncmp(name, "pypy", 4) != 0)
        return 0;
    name += *(name + 1) == 'y' && name[2] == 't' ? 6 : 4;
    return name[strspn(name, "0123456789.")] == '\0';
}

/* Reads one argument with options, such as -u or -um; 1 if it says what runs,
 * or with *skip set, if the next argument is an option's value. */
static int read_options(const char *letters, const char *next,
                        struct python_run *run, int *skip)
{
    for (; *letters; letters++) {
        const char *value = letters[1] ? letters + 1 : next;

        if (*letters == 'c' || *letters == 'm') {
            run->what = !value            ? PYTHON_NOTHING
                        : *letters == 'c' ? PYTHON_CODE
                                          : PYTHON_MODULE;
            run->arg = value;
            return 1;
        }
        if (*letters == 'W' || *letters == 'X') {
            *skip = !letters[1];
            return 0;
        }
    }
    return 0;
}

struct python_run python_read_argv(char *const *argv)
{
    struct python_run run = {PYTHON_NOTHING, NULL};

    if (!argv[0])
        return run;
    for (int i = 1; argv[i]; i++) {
        int skip = 0;

        if (argv[i][0] != '-') {
            run.what = PYTHON_FILE;
            run.arg = argv[i];
            return run;
        }
        if (argv[i][1] == '\0') /* the standard input */
            return run;
        if (argv[i][1] == '-')
            skip = strcmp(argv[i], "--check-hash-based-pycs") == 0;
        else if (read_options(argv[i] + 1, argv[i + 1], &run, &skip))
            return run;
        if (skip && argv[i + 1])
            i++;
    }
    return run;
}

/* ---- Text ---- */

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Returns what follows the word at p and blanks, or NULL if another word or
 * none is there. */
static const char *after_word(const char *p, const char *end, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(end - p) <= len || memcmp(p, word, len) != 0 ||
        (p[len] != ' ' && p[len] != '\t'))
        return NULL;
    return skip_blanks(p + len, end);
}

/* Returns whether the statement [p, end), which has mpi4py at `found`, imports
 * it: "from mpi4py[.x] import ..." or "import a, mpi4py[.x]". */
static int is_import(const char *p, const char *end, const char *found)
{
    const char *after = found + MODULE_LEN, *rest;

    if (after < end && is_word(*after))
        return 0;
    rest = after_word(p, end, "from");
    if (rest)
        return rest == found;
    rest = after_word(p, end, "import");
    if (!rest || found < rest)
        return 0;
    for (const char *q = rest; q < found; q++)
        if (!is_word(*q) && !strchr(" \t,.", *q))
            return 0;
    while (found > rest && (found[-1] == ' ' || found[-1] == '\t'))
        found--;
    return found == rest || found[-1] == ',';
}

static int ends_line(char c)
{
    return c == '\n' || c == '\r';
}

/* Returns where the statement begins that contains `at`, in a line that begins
 * at `line`; NULL if `at` is in a comment or, as far as this line tells, in a
 * string. */
static const char *statement_start(const char *line, const char *at)
{
    const char *from = line;
    char quote = 0;

    for (const char *p = line; p < at; p++) {
        if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '#')
            return NULL;
        else if (*p == '"' || *p == '\'')
            quote = *p;
        else if (*p == ';' || *p == ':')
            from = p + 1;
    }
    return quote ? NULL : from;
}

/* How far from the module's name its line is looked at. */
enum { LINE_LOOK_MAX = 1024 };

int python_imports_mpi(const char *text, size_t len)
{
    const char *end = text + len, *at = text;

    while ((at = memmem(at, (size_t)(end - at), module_name, MODULE_LEN))) {
        const char *from = at, *to = at;

        while (from > text && at - from < LINE_LOOK_MAX && !ends_line(from[-1]))
            from--;
        while (to < end && to - at < LINE_LOOK_MAX && !ends_line(*to))
            to++;
        from = from > text && !ends_line(from[-1]) ? NULL
                                                   : statement_start(from, at);
        if (from && is_import(skip_blanks(from, at), to, at))
            return 1;
        at += MODULE_LEN;
    }
    return 0;
}

/* Returns whether [p, end), without blanks around it, is `word` in any
 * case. */
static int is_text(const char *p, const char *end, const char *word)
{
    p = skip_blanks(p, end);
    while (end > p && isspace((unsigned char)end[-1]))
        end--;
    return (size_t)(end - p) == strlen(word) &&
           strncasecmp(p, word, strlen(word)) == 0;
}

int python_venv_uses_system(const char *text)
{
    int uses = 1; /* as in Python's site.py */

    while (*text) {
        const char *end = text + strcspn(text, "\n");
        const char *equal = memchr(text, '=', (size_t)(end - text));

        if (equal && is_text(text, equal, "include-system-site-packages"))
            uses = is_text(equal + 1, end, "true");
        text = *end ? end + 1 : end;
    }
    return uses;
}

/* ---- Packages ---- */

/* Cuts the last part of a path off; 0 if there is none. */
static int cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash)
        return 0;
    *slash = '\0';
    return 1;
}

/* Reads the pyvenv.cfg of the interpreter; NULL: it is in no virtual
 * environment.  Sets *prefix to the environment's directory (heap). */
static char *read_venv(const char *interpreter, char **prefix)
{
    char *dir = hb_xstrdup(interpreter), *text = NULL;

    for (int up = 0; up < 2 && !text && cut_last(dir); up++) {
        char *name = hb_xasprintf("%s/pyvenv.cfg", dir);
        size_t len;

        text = regular_read(name, PYTHON_CFG_MAX, &len);
        hb_free(name);
    }
    if (text)
        *prefix = dir;
    else
        hb_free(dir);
    return text;
}

static void add_site(struct hb_strv *out, const char *prefix,
                     const char *version)
{
    hb_must(
        hb_strv_addf(out, "%s/lib/python%s/site-packages", prefix, version));
    hb_must(
        hb_strv_addf(out, "%s/lib64/python%s/site-packages", prefix, version));
}

/* Adds the directories of the Python that is installed below prefix. */
static void add_system(struct hb_strv *out, const char *prefix,
                       const char *version)
{
    hb_must(hb_strv_addf(out, "%s/local/lib/python%s/dist-packages", prefix,
                         version));
    hb_must(hb_strv_addf(out, "%s/lib/python3/dist-packages", prefix));
    add_site(out, prefix, version);
    hb_must(
        hb_strv_addf(out, "/usr/local/lib/python%s/site-packages", version));
}

static void add_user(struct hb_strv *out, const struct python_host *host,
                     const char *version)
{
    if (host->no_user_site)
        return;
    if (host->user_base && *host->user_base)
        hb_must(hb_strv_addf(out, "%s/lib/python%s/site-packages",
                             host->user_base, version));
    else if (host->home && *host->home)
        hb_must(hb_strv_addf(out, "%s/.local/lib/python%s/site-packages",
                             host->home, version));
}

static void add_python_path(struct hb_strv *out, const struct python_host *host)
{
    struct hb_strv dirs = HB_STRV_INIT;

    if (!host->python_path || !*host->python_path)
        return;
    hb_must(hb_strv_split(&dirs, host->python_path, ":"));
    for (size_t i = 0; i < dirs.count; i++)
        if (dirs.items[i][0] == '/')
            hb_must(hb_strv_add(out, dirs.items[i]));
        else
            hb_must(hb_strv_addf(out, "%s/%s", host->cwd, dirs.items[i]));
    hb_strv_free(&dirs);
}

void python_package_dirs(const struct python_host *host, struct hb_strv *out)
{
    char real[PATH_MAX], version[16], *prefix = NULL, *venv;
    const char *name;
    int system = 1;

    add_python_path(out, host);
    if (!realpath(host->interpreter, real))
        return;
    name = strrchr(real, '/') + 1; /* python3.11 */
    snprintf(version, sizeof(version), "%s",
             name + strcspn(name, "0123456789"));
    venv = read_venv(host->interpreter, &prefix);
    if (venv) {
        add_site(out, prefix, version);
        system = python_venv_uses_system(venv);
    }
    if (system) {
        add_user(out, host, version);
        /* PREFIX/bin/python3.11 */
        if (cut_last(real))
            (void)cut_last(real);
        add_system(out, real, version);
    }
    hb_free(prefix);
    hb_free(venv);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void python_mpi_files(const char *dir, struct hb_strv *out)
{
    char *package = hb_xasprintf("%s/%s", dir, module_name);
    DIR *list = opendir(package);
    size_t first = out->count;
    struct dirent *e;

    while (list && out->count - first < MPI_FILES_MAX && (e = readdir(list))) {
        size_t len = strlen(e->d_name);

        if (strncmp(e->d_name, "MPI.", 4) == 0 && len > 7 &&
            strcmp(e->d_name + len - 3, ".so") == 0)
            hb_must(hb_strv_addf(out, "%s/%s", package, e->d_name));
    }
    if (list)
        closedir(list);
    hb_free(package);
    if (out->count - first > 1)
        qsort(out->items + first, out->count - first, sizeof(*out->items),
              compare);
}
