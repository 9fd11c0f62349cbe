/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening NCCL; see nccl.h.  NCCL is not made for two copies in one process.
 * So a copy that the program is linked with is preferred; dlopen, which
 * compares sonames, also finds one that is loaded privately.
 */
#include "runtime/plugins/nccl/nccl.h"

#include "lib/base/env.h"
#include "runtime/hvd.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct hvd__nccl hvd__nccl;

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* The versions that the plug-in was built with, to be read from the file. */
HVD_API extern const char hvd_nccl_build[];
const char hvd_nccl_build[] =
    "CUDA " HVD__CUDA_TEXT
    ", NCCL " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(NCCL_PATCH);

static const struct {
    const char *symbol;
    size_t at;
    int optional;
} functions[] = {
#define REQUIRED(name) {"nccl" #name, offsetof(struct hvd__nccl, name), 0},
#define OPTIONAL(name) {"nccl" #name, offsetof(struct hvd__nccl, name), 1},
    HVD__NCCL_REQUIRED(REQUIRED) HVD__NCCL_OPTIONAL(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

struct hvd__nccl_version hvd__nccl_version_text(int version)
{
    struct hvd__nccl_version v;
    /* Versions up to 2.8 have one digit less. */
    int major = version < 10000 ? version / 1000 : version / 10000;
    int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;

    snprintf(v.text, sizeof(v.text), "%d.%d.%d", major % 1000, minor,
             version % 100);
    return v;
}

/* Opens the library to look functions up in; NULL with err set. */
static void *find_library(const char **file, struct hb_error *err)
{
    const char *given = hb_knob("NCCL_LIBRARY");
    void *so;

    *file = given ? given : "libnccl.so.2";
    if (!given && dlsym(RTLD_DEFAULT, "ncclGetVersion"))
        so = dlopen(NULL, RTLD_NOW);
    else
        so = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        hb_error_set(err, HVD_EUNSUPPORTED,
                     "no NCCL: %s; install it, or say in HVD_NCCL_LIBRARY "
                     "where it is",
                     dlerror());
    return so;
}

static int load(struct hvd__nccl *nccl, void *so, const char *file,
                struct hb_error *err)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *f = dlsym(so, functions[i].symbol);

        if (!f && !functions[i].optional)
            return hb_error_set(err, HVD_EUNSUPPORTED, "NCCL %s has no %s",
                                file, functions[i].symbol);
        memcpy((char *)nccl + functions[i].at, &f, sizeof(f));
    }
    return 0;
}

/* Checks the version first: it says more than a missing function. */
static int read_version(void *so, const char *file, int *version,
                        struct hb_error *err)
{
    __typeof__(&ncclGetVersion) get;
    void *f = dlsym(so, "ncclGetVersion");
    int v = 0;

    memcpy(&get, &f, sizeof(get));
    if (!f || get(&v) != ncclSuccess)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "%s is no NCCL: it tells no version", file);
    if (v < HVD__NCCL_OLDEST)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "NCCL %s of %s is too old: 2.14 is needed",
                            hvd__nccl_version_text(v).text, file);
    *version = v;
    return 0;
}

int hvd__nccl_installed(void)
{
    struct hvd__nccl nccl = {0};
    const char *file;
    void *so = find_library(&file, NULL);
    int rc = so ? read_version(so, file, &nccl.version, NULL) : -1;

    if (rc == 0)
        rc = load(&nccl, so, file, NULL);
    if (so)
        dlclose(so);
    return rc == 0 ? nccl.version : 0;
}

int hvd__nccl_open(struct hb_error *err)
{
    struct hvd__nccl nccl = {0};
    const char *file;
    void *so;
    int rc;

    if (hvd__nccl.version)
        return 0;
    so = find_library(&file, err);
    if (!so)
        return -HVD_EUNSUPPORTED;
    rc = read_version(so, file, &nccl.version, err);
    if (rc == 0)
        rc = load(&nccl, so, file, err);
    if (rc < 0) {
        dlclose(so);
        return rc;
    }
    hvd__nccl = nccl;
    return 0;
}

int hvd__nccl_check(ncclResult_t result, ncclComm_t comm, const char *what,
                    struct hb_error *err)
{
    const char *last;

    if (result == ncclSuccess || result == ncclInProgress)
        return 0;
    last = hvd__nccl.GetLastError(comm);
    if (!last)
        last = "";
    return hb_error_set(err, HVD_ESYSTEM, "%s: %s%s%.*s", what,
                        hvd__nccl.GetErrorString(result), *last ? ": " : "",
                        (int)strcspn(last, "\n"), last);
}
