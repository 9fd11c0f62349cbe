/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/hosts/batch: the first byte chooses the batch system.
 *
 *     s  Slurm: the list of nodes, then the list of tasks
 *     h  Slurm: two components of a heterogeneous job, each two such lines
 *     l  LSF: LSB_MCPU_HOSTS
 *     p  PBS, e SGE: the rest is the file
 *     f  Flux: the rest is what it says
 *
 * For Slurm, a second, simple expander says which hosts there are and what
 * slots they have, as `scontrol show hostnames` does.
 */
#include "lib/hosts/batch/allocation.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"

#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINES = 4, ORACLE_HOSTS = 2000, ORACLE_NAME = 64 };

/* ---- The oracle ---- */

struct oracle {
    char names[ORACLE_HOSTS][ORACLE_NAME];
    size_t count;
    int gave_up; /* too much for it, or malformed */
};

static void put_name(struct oracle *o, const char *name)
{
    if (o->count == ORACLE_HOSTS || strlen(name) >= ORACLE_NAME)
        o->gave_up = 1;
    else
        strcpy(o->names[o->count++], name);
}

/* Expands the first bracket of a word by text substitution, then the word that
 * this makes, until no bracket is left. */
static void expand_word(struct oracle *o, const char *word)
{
    const char *open = strchr(word, '['), *close = strchr(word, ']');
    char *list, *item, *rest, *made = NULL;

    if (o->gave_up || !open || !close || close < open) {
        if (open || close)
            o->gave_up = 1;
        else
            put_name(o, word);
        return;
    }
    rest = list = fuzz_string(open + 1, (size_t)(close - open - 1));
    while (!o->gave_up && (item = strsep(&rest, ","))) {
        char *dash = strchr(item, '-');
        int width = (int)(dash ? dash - item : (long)strlen(item));
        long lo = atol(item), hi = dash ? atol(dash + 1) : lo;

        if (width > 9 || hi - lo > ORACLE_HOSTS)
            o->gave_up = 1;
        for (long v = lo; !o->gave_up && v <= hi; v++) {
            if (asprintf(&made, "%.*s%0*ld%s", (int)(open - word), word, width,
                         v, close + 1) < 0)
                abort();
            expand_word(o, made);
            free(made);
        }
    }
    free(list);
}

/* Expands a list: words are divided by commas outside of brackets. */
static void expand_list(struct oracle *o, const char *text)
{
    char *copy = fuzz_string(text, strlen(text)), *word = copy;
    int inside = 0;

    for (char *p = copy;; p++) {
        char c = *p;

        inside = c == '[' ? 1 : c == ']' ? 0 : inside;
        if (c && (c != ',' || inside))
            continue;
        *p = '\0';
        expand_word(o, word);
        word = p + 1;
        if (!c)
            break;
    }
    free(copy);
}

/* Returns the number of tasks of the host at `index`. */
static int tasks_of(const char *text, size_t index)
{
    size_t at = 0;

    while (*text) {
        int n = atoi(text), repeat = 1;
        size_t len = strcspn(text, ",");
        const char *x = memchr(text, 'x', len);

        if (x)
            repeat = atoi(x + 1);
        at += (size_t)repeat;
        if (index < at)
            return n;
        text += len + (text[len] == ',');
    }
    return -1;
}

/* Checks an accepted list against the oracle.  Repeated hosts add up. */
static void check_slurm(const struct hostlist *l, char *const lines[],
                        int components)
{
    struct oracle *o = hb_xcalloc(1, sizeof(*o));
    int *slots = hb_xcalloc(ORACLE_HOSTS, sizeof(*slots));
    size_t unique = 0;

    for (int c = 0; c < components && !o->gave_up; c++) {
        size_t first = o->count;

        expand_list(o, lines[2 * c]);
        for (size_t i = first; i < o->count; i++)
            slots[i] = tasks_of(lines[2 * c + 1], i - first);
    }
    for (size_t i = 0; !o->gave_up && i < o->count; i++) {
        int total = 0, seen = 0;

        for (size_t k = 0; k < o->count; k++)
            if (strcasecmp(o->names[k], o->names[i]) == 0) {
                seen |= k < i;
                total += slots[k];
            }
        if (seen)
            continue;
        FUZZ_CHECK(unique < l->count);
        FUZZ_CHECK(strcmp(l->entries[unique].name, o->names[i]) == 0);
        FUZZ_CHECK(l->entries[unique].slots == total);
        unique++;
    }
    FUZZ_CHECK(o->gave_up || unique == l->count);
    hb_free(slots);
    hb_free(o);
}

/* ---- The input ---- */

static int say(void *arg, char *const *argv, struct hb_buf *out,
               struct hb_error *err)
{
    (void)argv;
    (void)err;
    return hb_buf_puts(out, arg);
}

static void set(struct hb_strv *env, const char *name, const char *value)
{
    hb_must(hb_env_set(env, name, value));
}

/* Sets a variable to the path of a new file with this text.  Returns its
 * descriptor. */
static int set_file(struct hb_strv *env, const char *name, const char *text)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[64];

    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    set(env, name, path);
    return fd;
}

static void check_list(const struct allocation *a)
{
    FUZZ_CHECK(a->system && a->hosts.count >= 1);
    FUZZ_CHECK(a->hosts.count <= HOSTS_COUNT_MAX);
    for (size_t i = 0; i < a->hosts.count; i++) {
        const struct host_entry *e = &a->hosts.entries[i];

        FUZZ_CHECK(e->slots >= 1 && e->slots <= HOSTS_SLOTS_MAX);
        FUZZ_CHECK(e->name[0] && strlen(e->name) <= HOSTS_NAME_MAX);
    }
}

/* Sets the lines of Slurm; returns the number of components. */
static int set_slurm(struct hb_strv *env, char *const lines[], int is_het)
{
    static const char *const names[][LINES] = {
        {"SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"},
        {"SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_TASKS_PER_NODE_HET_GROUP_0",
         "SLURM_JOB_NODELIST_HET_GROUP_1", "SLURM_TASKS_PER_NODE_HET_GROUP_1"},
    };
    int components = is_het ? 2 : 1;

    for (int i = 0; i < 2 * components; i++)
        set(env, names[is_het][i], lines[i]);
    set(env, "SLURM_HET_SIZE", "2");
    return components;
}

/* Divides the text, which is changed, into LINES lines, empty at the end. */
static void divide(char *text, char *lines[LINES])
{
    for (int i = 0; i < LINES; i++) {
        size_t len = strcspn(text, "\n");

        lines[i] = text;
        text += len + (text[len] == '\n');
        lines[i][len] = '\0';
    }
}

/* Sets the variables that the input means.  Returns a descriptor to close, or
 * -1. */
static int set_input(struct hb_strv *env, char kind, char *text,
                     char *lines[LINES], int *components)
{
    switch (kind) {
    case 's':
    case 'h':
        divide(text, lines);
        *components = set_slurm(env, lines, kind == 'h');
        return -1;
    case 'l':
        set(env, "LSB_MCPU_HOSTS", text);
        return -1;
    case 'p':
        return set_file(env, "PBS_NODEFILE", text);
    case 'e':
        return set_file(env, "PE_HOSTFILE", text);
    default:
        set(env, "FLUX_URI", "local");
        return -1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_strv env = HB_STRV_INIT;
    char *text = fuzz_string(data, size), *lines[LINES];
    const struct allocation_source source = {
        .env = &env, .run = say, .arg = text + (size > 0)};
    struct allocation a;
    int components = 0, fd, rc;

    fd = set_input(&env, text[0], text + (size > 0), lines, &components);
    rc = allocation_read(&source, ALLOCATION_AUTO, &a, &err);
    fuzz_check_error(rc, &err);
    FUZZ_CHECK(rc == 0 || (!a.system && !a.hosts.entries));
    if (rc == 0 && a.system) {
        char *line = allocation_describe(&a, 0);

        check_list(&a);
        fuzz_check_text(line);
        hb_free(line);
    }
    /* Tasks that are not said are one for each host. */
    if (rc == 0 && a.system && components && lines[1][0] &&
        (components == 1 || lines[3][0]))
        check_slurm(&a.hosts, lines, components);
    allocation_free(&a);
    if (fd >= 0)
        close(fd);
    hb_strv_free(&env);
    free(text);
    return 0;
}
