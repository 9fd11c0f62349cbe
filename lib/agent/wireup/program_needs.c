/* SPDX-License-Identifier: Apache-2.0 */
/* Following a command to the MPI that it uses; see program_needs.h. */
#include "lib/agent/wireup/program_needs.h"

#include "lib/agent/rank/program.h"
#include "lib/agent/wireup/needed_libs.h"
#include "lib/agent/wireup/python_mpi.h"
#include "lib/agent/wireup/regular.h"
#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

enum {
    DEPTH_MAX = 6,             /* commands that start commands */
    COMMANDS_MAX = 64,         /* that are looked at in all */
    LOOKUPS_MAX = 512,         /* of names in PATH */
    FIRST_LINE_MAX = 256,      /* as the kernel reads it */
    SHELL_TEXT_MAX = 64 << 10, /* how much of a shell script is read */
    LINE_WORDS_MAX = 64,
};

struct judge {
    const struct program_needs_config *config;
    struct program_needs_result *out;
    struct needed_search search;
    int depth, commands, lookups;
};

static void judge_command(struct judge *j, const char *path,
                          const struct hb_strv *argv);

static const char *variable(const struct judge *j, const char *name)
{
    const struct program_needs_config *c = j->config;
    const char *value = c->rank_env ? hb_env_get(c->rank_env, name) : NULL;

    return value ? value : hb_env_get(c->env, name);
}

static int is_decided(const struct judge *j)
{
    return j->out->reason != NULL;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return 1;
    return 0;
}

/* Returns argv from `first` on.  To be freed. */
static struct hb_strv rest_of(const struct hb_strv *argv, size_t first)
{
    struct hb_strv rest = HB_STRV_INIT;

    for (size_t i = first; i < argv->count; i++)
        hb_must(hb_strv_add(&rest, argv->items[i]));
    return rest;
}

/* Judges the command whose program is the first word, if it is found. */
static void judge_words(struct judge *j, const struct hb_strv *argv)
{
    char *path = NULL;
    int exit_code;

    if (argv->count == 0 || j->lookups++ >= LOOKUPS_MAX ||
        program_resolve(argv->items[0], variable(j, "PATH"), j->config->cwd,
                        &path, &exit_code, NULL) < 0)
        return;
    judge_command(j, path, argv);
    hb_free(path);
}

/* Decides by the MPI in `result`; `what` begins the reason. */
static void decide(struct judge *j, const struct needed_result *result,
                   const char *what)
{
    static const enum program_need needs[] = {
        [NEEDED_PMIX] = NEED_PMIX,
        [NEEDED_PMI1] = NEED_PMI1,
        [NEEDED_UNKNOWN] = NEED_NOTHING,
    };

    if (result->mpi == NEEDED_NO_MPI)
        return;
    j->out->need = needs[result->mpi];
    if (result->pmix[0])
        j->out->pmix = hb_xstrdup(result->pmix);
    if (result->path[0])
        j->out->library = hb_xstrdup(result->path);
    j->out->reason = hb_xasprintf(
        "%s needs %s (%s%s)", what, result->library, result->family,
        result->mpi == NEEDED_UNKNOWN
            ? ", which only its own launcher can start"
            : "");
}

/* ---- Python ---- */

/* Chooses among the extensions of one mpi4py the first whose MPI is on this
 * host: packages may have one for each MPI. */
static int choose_extension(struct judge *j, const struct hb_strv *files,
                            struct needed_result *best)
{
    int any = 0;

    for (size_t i = 0; i < files->count; i++) {
        struct needed_result r;

        if (!needed_libs(&j->search, files->items[i], &r) ||
            r.mpi == NEEDED_NO_MPI || (any && !r.path[0]))
            continue;
        *best = r;
        any = 1;
        if (r.path[0])
            break;
    }
    return any;
}

/* Decides by the mpi4py that the interpreter would import. */
static void judge_mpi4py(struct judge *j, const char *interpreter,
                         const char *what)
{
    const struct python_host host = {
        .interpreter = interpreter,
        .cwd = j->config->cwd,
        .python_path = variable(j, "PYTHONPATH"),
        .user_base = variable(j, "PYTHONUSERBASE"),
        .home = variable(j, "HOME"),
        .no_user_site = variable(j, "PYTHONNOUSERSITE") != NULL,
    };
    struct hb_strv dirs = HB_STRV_INIT, files = HB_STRV_INIT;
    struct needed_result result;
    char *text;

    python_package_dirs(&host, &dirs);
    for (size_t i = 0; i < dirs.count && files.count == 0; i++)
        python_mpi_files(dirs.items[i], &files);
    if (choose_extension(j, &files, &result)) {
        text = hb_xasprintf("%s imports mpi4py, which", what);
        decide(j, &result, text);
        hb_free(text);
    }
    hb_strv_free(&files);
    hb_strv_free(&dirs);
}

/* Reads a file of the program's text; relative to cwd.  Heap, or NULL. */
static char *read_text(const struct judge *j, const char *name, size_t max,
                       size_t *len)
{
    char *path = name[0] == '/' ? hb_xstrdup(name)
                                : hb_xasprintf("%s/%s", j->config->cwd, name);
    char *text = regular_read(path, max, len);

    hb_free(path);
    return text;
}

/* Reads the text of a module that is in cwd: a/b.py or a/b/__main__.py. */
static char *read_module(const struct judge *j, const char *module, size_t *len)
{
    char *base = hb_xstrdup(module), *text = NULL;

    for (char *p = base; *p; p++)
        if (*p == '.')
            *p = '/';
    for (int i = 0; i < 2 && !text; i++) {
        char *name = i == 0 ? hb_xasprintf("%s.py", base)
                            : hb_xasprintf("%s/__main__.py", base);

        text = read_text(j, name, PYTHON_TEXT_MAX, len);
        hb_free(name);
    }
    hb_free(base);
    return text;
}

static int is_mpi4py(const char *module)
{
    return strncmp(module, "mpi4py", 6) == 0 &&
           (module[6] == '\0' || module[6] == '.');
}

static void judge_python(struct judge *j, const char *path,
                         const struct hb_strv *argv)
{
    struct python_run run = python_read_argv(argv->items);
    char *text = NULL;
    size_t len = 0;
    int imports = 0;

    if (run.what == PYTHON_FILE)
        text = read_text(j, run.arg, PYTHON_TEXT_MAX, &len);
    else if (run.what == PYTHON_MODULE && is_mpi4py(run.arg))
        imports = 1;
    else if (run.what == PYTHON_MODULE)
        text = read_module(j, run.arg, &len);
    else if (run.what == PYTHON_CODE)
        imports = python_imports_mpi(run.arg, strlen(run.arg));
    if (text)
        imports = python_imports_mpi(text, len);
    hb_free(text);
    if (imports)
        judge_mpi4py(j, path, run.what == PYTHON_CODE ? "python -c" : run.arg);
}

/* ---- Shell scripts ---- */

static const char *const shells[] = {"sh", "bash", "dash", "ksh", "zsh", NULL};

/* Words that begin a command of the shell itself. */
static const char *const shell_words[] = {
    "if",   "then",  "else",     "elif",   "fi",   "for",    "while", "until",
    "do",   "done",  "case",     "esac",   "set",  "export", "cd",    "source",
    ".",    "[",     "[[",       "test",   "echo", "printf", "trap",  "ulimit",
    "wait", "unset", "umask",    "return", "exit", "shift",  "eval",  "read",
    "true", "false", "local",    "module", "{",    "}",      "ls",    "mkdir",
    "rm",   "sleep", "hostname", "date",   "cat",  NULL,
};

static int is_assignment(const char *word)
{
    size_t len = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "abcdefghijklmnopqrstuvwxyz0123456789_");

    return len > 0 && word[len] == '=';
}

/* Adds the words of a line up to the first that ends its command.  Quotes
 * around a word are removed; nothing is replaced but "$@", by the script's
 * arguments. */
static void split_line(char *line, const struct hb_strv *args,
                       struct hb_strv *out)
{
    char *state = NULL;

    for (char *w = strtok_r(line, " \t\r", &state);
         w && out->count < LINE_WORDS_MAX;
         w = strtok_r(NULL, " \t\r", &state)) {
        size_t len = strcspn(w, ";|&<>#()`");
        int ends = w[len] != '\0';

        w[len] = '\0';
        if (len > 1 && (*w == '"' || *w == '\'') && w[len - 1] == *w) {
            w[len - 1] = '\0';
            w++;
        }
        if (strcmp(w, "$@") == 0 || strcmp(w, "$*") == 0) {
            for (size_t i = 0; i < args->count && out->count < LINE_WORDS_MAX;
                 i++)
                hb_must(hb_strv_add(out, args->items[i]));
        } else if (*w) {
            hb_must(hb_strv_add(out, w));
        }
        if (ends)
            return;
    }
}

static void judge_line(struct judge *j, char *line, const struct hb_strv *args)
{
    struct hb_strv words = HB_STRV_INIT, command;
    size_t first = 0;

    split_line(line, args, &words);
    while (first < words.count && (is_assignment(words.items[first]) ||
                                   strcmp(words.items[first], "exec") == 0))
        first++;
    command = rest_of(&words, first);
    if (command.count > 0 && !strpbrk(command.items[0], "$*?[~\"'\\") &&
        !is_one_of(command.items[0], shell_words))
        judge_words(j, &command);
    hb_strv_free(&command);
    hb_strv_free(&words);
}

static void judge_shell_text(struct judge *j, char *text,
                             const struct hb_strv *args)
{
    char *state = NULL;

    for (char *line = strtok_r(text, "\n", &state);
         line && !is_decided(j) && j->lookups < LOOKUPS_MAX;
         line = strtok_r(NULL, "\n", &state))
        judge_line(j, line, args);
}

/* Judges `sh [-options] FILE ARGS` or `sh -c TEXT NAME ARGS`. */
static void judge_shell(struct judge *j, const struct hb_strv *argv)
{
    struct hb_strv args;
    int is_text = 0;
    size_t i, len;
    char *text;

    for (i = 1; i < argv->count && argv->items[i][0] == '-'; i++)
        is_text |= argv->items[i][1] != '-' && strchr(argv->items[i], 'c');
    if (i >= argv->count)
        return;
    text = is_text ? hb_xstrdup(argv->items[i])
                   : read_text(j, argv->items[i], SHELL_TEXT_MAX, &len);
    args = rest_of(argv, i + (is_text ? 2 : 1));
    if (text)
        judge_shell_text(j, text, &args);
    hb_strv_free(&args);
    hb_free(text);
}

/* ---- Programs that start programs ---- */

static const char *const starters[] = {
    "env",    "nice",      "nohup",   "numactl", "setarch", "stdbuf",
    "strace", "ionice",    "taskset", "timeout", "time",    "valgrind",
    "chrt",   "catchsegv", "perf",    "prlimit", "setsid",  NULL,
};

/* Judges the first argument that is a program, with those that follow. */
static void judge_starter(struct judge *j, const struct hb_strv *argv)
{
    for (size_t i = 1; i < argv->count && !is_decided(j); i++) {
        struct hb_strv rest;
        char *path = NULL;
        int exit_code;

        if (argv->items[i][0] == '-' || is_assignment(argv->items[i]) ||
            j->lookups++ >= LOOKUPS_MAX ||
            program_resolve(argv->items[i], variable(j, "PATH"), j->config->cwd,
                            &path, &exit_code, NULL) < 0)
            continue;
        rest = rest_of(argv, i);
        judge_command(j, path, &rest);
        hb_strv_free(&rest);
        hb_free(path);
        return;
    }
}

/* ---- Commands ---- */

/* Reads the interpreter of a script and its argument, of which `env -S` makes
 * several.  0 if the file is no script. */
static int read_interpreter(const char *path, struct hb_strv *out)
{
    size_t len;
    char *line = regular_read(path, FIRST_LINE_MAX, &len), *arg, *name;
    int split;

    if (!line || line[0] != '#' || line[1] != '!') {
        hb_free(line);
        return 0;
    }
    line[strcspn(line, "\n")] = '\0';
    name = line + 2 + strspn(line + 2, " \t");
    arg = name + strcspn(name, " \t");
    if (*arg)
        *arg++ = '\0';
    arg += strspn(arg, " \t");
    if (*name)
        hb_must(hb_strv_add(out, name));
    split = strncmp(arg, "-S", 2) == 0;
    arg += split ? 2 : 0;
    if (split)
        for (char *state = NULL, *w = strtok_r(arg, " \t", &state); w;
             w = strtok_r(NULL, " \t", &state))
            hb_must(hb_strv_add(out, w));
    else if (*arg)
        hb_must(hb_strv_add(out, arg));
    hb_free(line);
    return 1;
}

static void judge_script(struct judge *j, const char *path,
                         struct hb_strv *command, const struct hb_strv *argv)
{
    if (command->count == 0)
        return;
    hb_must(hb_strv_add(command, path));
    for (size_t i = 1; i < argv->count; i++)
        hb_must(hb_strv_add(command, argv->items[i]));
    judge_words(j, command);
}

static void judge_binary(struct judge *j, const char *path,
                         const struct hb_strv *argv)
{
    const char *name = last_part(path);
    struct needed_result result;

    if (!needed_libs(&j->search, path, &result))
        return;
    decide(j, &result, argv->items[0]);
    if (is_decided(j))
        return;
    if (python_is_interpreter(name))
        judge_python(j, path, argv);
    else if (is_one_of(name, shells))
        judge_shell(j, argv);
    else if (is_one_of(name, starters))
        judge_starter(j, argv);
}

static void judge_command(struct judge *j, const char *path,
                          const struct hb_strv *argv)
{
    struct hb_strv interpreter = HB_STRV_INIT;

    if (j->depth == DEPTH_MAX || j->commands == COMMANDS_MAX)
        return;
    j->depth++;
    j->commands++;
    if (read_interpreter(path, &interpreter))
        judge_script(j, path, &interpreter, argv);
    else
        judge_binary(j, path, argv);
    hb_strv_free(&interpreter);
    j->depth--;
}

void program_needs_free(struct program_needs_result *r)
{
    hb_free(r->reason);
    hb_free(r->library);
    hb_free(r->pmix);
}

void program_needs(const struct program_needs_config *c,
                   struct program_needs_result *out)
{
    struct judge j = {.config = c, .out = out};
    struct hb_strv argv = HB_STRV_INIT;

    *out = (struct program_needs_result){.need = NEED_NOTHING};
    j.search.root = c->root;
    j.search.cwd = c->cwd;
    j.search.library_path = variable(&j, "LD_LIBRARY_PATH");
    hb_must(hb_strv_add_all(&argv, c->argv));
    if (argv.count > 0)
        judge_command(&j, c->program, &argv);
    hb_strv_free(&argv);
    if (!out->reason)
        out->reason = hb_xstrdup("no MPI was found in the program");
}
