/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of Open MPI; see mca_params.h. */
#include "lib/agent/wireup/pmix/mca_params.h"

#include "lib/agent/wireup/regular.h"
#include "lib/base/alloc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_MAX = 64 << 10, /* of a file */
    VALUE_MAX = 1024,
};

static const char blanks[] = " \t\r";

/* ---- Variables ---- */

static int begins(const struct hb_strv *env, const char *prefix)
{
    for (size_t i = 0; env && i < env->count; i++)
        if (strncmp(env->items[i], prefix, strlen(prefix)) == 0)
            return 1;
    return 0;
}

/* Returns whether variables set the parameter, or where files are. */
static int is_set_by_variables(const struct mca_search *s, const char *name)
{
    char *own = hb_xasprintf("OMPI_MCA_%s=", name);
    const char *const prefixes[] = {own, "OMPI_MCA_mca_", "OPAL_"};
    int found = 0;

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        found |=
            begins(s->env, prefixes[i]) || begins(s->rank_env, prefixes[i]);
    hb_free(own);
    return found;
}

/* ---- Files ---- */

static char *user_file(const struct mca_search *s)
{
    const char *home = s->rank_env ? hb_env_get(s->rank_env, "HOME") : NULL;

    if (!home)
        home = hb_env_get(s->env, "HOME");
    return home && home[0] == '/'
               ? hb_xasprintf("%s/.openmpi/mca-params.conf", home)
               : NULL;
}

/* Returns whether Debian's packages have their libraries there, and so their
 * configuration in /etc. */
static int is_debians(const char *root, const char *dir)
{
    static const char usr[] = "/usr/lib/";
    size_t len = strlen(root);

    if (strncmp(dir, root, len) != 0 ||
        strncmp(dir + len, usr, strlen(usr)) != 0)
        return 0;
    dir += len + strlen(usr);
    return strstr(dir, "-linux-gnu") && !strchr(dir, '/');
}

/* Finds the file of the installation to which the library belongs: heap, or
 * NULL.  An installation always has one. */
static char *system_file(const struct mca_search *s)
{
    static const char name[] = "openmpi-mca-params.conf";
    char dir[PATH_MAX], *path;

    if (!s->library || !realpath(s->library, dir))
        return NULL;
    *strrchr(dir, '/') = '\0';
    path = is_debians(s->root, dir)
               ? hb_xasprintf("%s/etc/openmpi/%s", s->root, name)
               : hb_xasprintf("%s/../etc/%s", dir, name);
    if (access(path, R_OK) == 0)
        return path;
    hb_free(path);
    return NULL;
}

/* Reads `NAME = VALUE`: 1 with *value within the line if it sets `name`; 0 if
 * it does not; -1 if that cannot be told. */
static int read_line(char *line, const char *name, char **value)
{
    size_t len = strlen(name);

    line += strspn(line, blanks);
    if (line[0] == '-') /* an option, as of mpirun */
        return -1;
    if (strncmp(line, name, len) != 0)
        return 0;
    line += len;
    line += strspn(line, blanks);
    if (line[0] != '=')
        return 0; /* a longer name */
    line++;
    line += strspn(line, blanks);
    len = strlen(line);
    while (len > 0 && strchr(blanks, line[len - 1]))
        line[--len] = '\0';
    *value = line;
    return 1;
}

int mca_find(char *text, size_t len, const char *name, const char **value)
{
    char *line, *state = NULL, *found;

    *value = NULL;
    if (strlen(text) != len || strstr(text, "/*"))
        return -1;
    for (line = strtok_r(text, "\n", &state); line;
         line = strtok_r(NULL, "\n", &state)) {
        int rc = read_line(line, name, &found);

        if (rc < 0) {
            *value = NULL;
            return -1;
        }
        if (rc > 0)
            *value = found;
    }
    return 0;
}

/* Reads what a file says of a parameter: 0 with *value, which is heap, or NULL
 * if the file is missing or says nothing; or -1 if that cannot be told. */
static int read_file(const char *path, const char *name, char **value)
{
    const char *found;
    size_t len;
    char *text = regular_read(path, TEXT_MAX, &len);
    int rc;

    *value = NULL;
    if (!text)
        return access(path, F_OK) == 0 ? -1 : 0;
    /* A file of TEXT_MAX bytes may be longer. */
    rc = len == TEXT_MAX ? -1 : mca_find(text, len, name, &found);
    if (rc == 0 && found)
        *value = hb_xstrdup(found);
    hb_free(text);
    return rc;
}

/* Reads the two files, of which the first counts more; as read_file. */
static int read_files(const struct mca_search *s, const char *name,
                      char **value)
{
    char *own = user_file(s), *installed = system_file(s);
    int rc = own && installed ? read_file(own, name, value) : -1;

    if (rc == 0 && !*value)
        rc = read_file(installed, name, value);
    hb_free(own);
    hb_free(installed);
    return rc;
}

/* ---- Lists ---- */

/* Returns whether a value is "^a,b". */
static int is_exclusion(const char *value)
{
    return value[0] == '^' && strlen(value) <= VALUE_MAX &&
           value[1 + strspn(value + 1, "abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_,")] == '\0';
}

static int contains(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = list; *p;
         p += strcspn(p, ",") > 0 ? strcspn(p, ",") : 1)
        if (strcspn(p, ",") == len && strncmp(p, word, len) == 0)
            return 1;
    return 0;
}

char *mca_extend(const char *value, const char *const *more, size_t count)
{
    char *list;

    if (!is_exclusion(value))
        return NULL;
    list = hb_xstrdup(value);
    for (size_t i = 0; i < count; i++) {
        char *old = list;

        if (contains(old + 1, more[i]))
            continue;
        list = hb_xasprintf("%s%s%s", old, old[1] ? "," : "", more[i]);
        hb_free(old);
    }
    return list;
}

char *mca_leave_out(const struct mca_search *s, const char *framework,
                    const char *const *more, size_t count)
{
    char *value = NULL, *list;

    if (is_set_by_variables(s, framework) ||
        read_files(s, framework, &value) < 0)
        return NULL;
    list = mca_extend(value ? value : "^", more, count);
    hb_free(value);
    return list;
}
