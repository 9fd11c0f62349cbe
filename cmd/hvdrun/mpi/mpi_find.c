/* SPDX-License-Identifier: Apache-2.0 */
/* Finds mpirun; see mpi_find.h. */
#include "cmd/hvdrun/mpi/mpi_find.h"

#include "cmd/hvdrun/probe.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPENMPI_OLDEST = 4, MPICH_OLDEST = 3 };

/* In this order: brands whose text includes another's come first. */
static const struct brand {
    const char *words; /* in what --version prints */
    const char *name;
    int supported;
    enum mpi_kind kind;
} brands[] = {
    {"Intel(R) MPI", "Intel MPI", 0, MPI_MPICH},
    {"IBM Spectrum MPI", "IBM Spectrum MPI", 0, MPI_OPENMPI},
    {"Open MPI", "Open MPI", 1, MPI_OPENMPI},
    {"OpenRTE", "Open MPI", 1, MPI_OPENMPI},
    {"HYDRA", "MPICH", 1, MPI_MPICH},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *mpi_kind_name(enum mpi_kind kind)
{
    return kind == MPI_OPENMPI ? "Open MPI" : "MPICH";
}

void mpi_launcher_fini(struct mpi_launcher *m)
{
    hb_free(m->path);
    hb_free(m->name);
    hb_free(m->version);
    memset(m, 0, sizeof(*m));
}

static int is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           access(path, X_OK) == 0;
}

char *mpi_program_path(const char *name)
{
    const char *p = hb_variable("PATH");

    if (strchr(name, '/'))
        return is_program(name) ? hb_xstrdup(name) : NULL;
    while (p && *p) {
        size_t len = strcspn(p, ":");
        char *path = len ? hb_xasprintf("%.*s/%s", (int)len, p, name)
                         : hb_xasprintf("./%s", name);

        if (is_program(path))
            return path;
        hb_free(path);
        p += len + (p[len] == ':');
    }
    return NULL;
}

/* Returns the first word that begins with digits and a dot. */
static char *find_version(const char *text)
{
    for (const char *p = text; *p; p++) {
        size_t digits = strspn(p, "0123456789");

        if (digits && p[digits] == '.' &&
            (p == text || !isalnum((unsigned char)p[-1])))
            return hb_xasprintf("%.*s", (int)strcspn(p, " \t\r\n)"), p);
        if (digits)
            p += digits - 1;
    }
    return NULL;
}

static int unknown(const char *name, const char *text, struct hb_error *err)
{
    char *line = hb_xasprintf("%.*s", (int)(strcspn(text, "\n") % 200), text);

    hb_text_sanitize(line);
    hb_error_set(err, HVD_EUNSUPPORTED,
                 "%s is not known ('%s'); --mpi works with Open MPI and "
                 "MPICH, and HVD_MPIRUN can name theirs",
                 name, line);
    hb_free(line);
    return err ? err->status : -HVD_EUNSUPPORTED;
}

static const struct brand *find_brand(const char *text)
{
    for (size_t i = 0; i < COUNT(brands); i++) {
        if (strstr(text, brands[i].words))
            return &brands[i];
    }
    return NULL;
}

int mpi_identify(const char *name, const char *text, struct mpi_launcher *m,
                 struct hb_error *err)
{
    const struct brand *brand = find_brand(text);
    char *version = brand ? find_version(text) : NULL;
    int64_t major = 0;
    int oldest;

    if (!version)
        return unknown(name, text, err);
    for (const char *p = version; isdigit((unsigned char)*p); p++)
        major = major < 1000 ? major * 10 + (*p - '0') : major;
    oldest = brand->kind == MPI_OPENMPI ? OPENMPI_OLDEST : MPICH_OLDEST;
    if (brand->supported && major >= oldest) {
        m->kind = brand->kind;
        m->major = (int)major;
        m->version = version;
        return 0;
    }
    hb_error_set(err, HVD_EUNSUPPORTED,
                 "%s is of %s %s; --mpi works with Open MPI %d and MPICH %d or "
                 "later, and HVD_MPIRUN can name theirs",
                 name, brand->name, version, OPENMPI_OLDEST, MPICH_OLDEST);
    hb_free(version);
    return -HVD_EUNSUPPORTED;
}

/* Sets name and path. */
static int find_program(struct mpi_launcher *m, struct hb_error *err)
{
    static const char *const names[] = {"mpirun", "mpiexec"};
    const char *given = hb_knob("MPIRUN");

    if (given) {
        m->path = mpi_program_path(given);
        m->name = hb_xstrdup(given);
        return m->path
                   ? 0
                   : hb_error_set(err, HVD_EUNSUPPORTED,
                                  "HVD_MPIRUN: there is no program %s", given);
    }
    for (size_t i = 0; i < COUNT(names) && !m->path; i++) {
        m->path = mpi_program_path(names[i]);
        if (m->path)
            m->name = hb_xstrdup(names[i]);
    }
    if (m->path)
        return 0;
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "there is no mpirun in PATH; install Open MPI or "
                        "MPICH, or name its mpirun in HVD_MPIRUN");
}

int mpi_find(struct mpi_launcher *m, struct hb_error *err)
{
    struct hb_buf text = HB_BUF_INIT;
    char version[] = "--version";
    int rc;

    memset(m, 0, sizeof(*m));
    rc = find_program(m, err);
    if (rc == 0) {
        char *argv[] = {m->name, version, NULL};

        rc = probe_program(m->path, argv, &text, err);
        if (rc < 0)
            hb_error_context(err, "%s --version", m->path);
    }
    if (rc == 0)
        rc = mpi_identify(m->path, hb_buf_data(&text), m, err);
    hb_buf_free(&text);
    if (rc < 0)
        mpi_launcher_fini(m);
    return rc;
}
