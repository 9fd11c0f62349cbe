/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the CUDA driver; see cuda.h.  If the process already has the driver,
 * dlopen returns that one, as it compares sonames.
 */
#include "runtime/plugins/nccl/nccl_cuda.h"

#include "lib/base/env.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct hvd__cuda hvd__cuda;

/* The name as a string, after expansion of the header's macros. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static const struct {
    const char *symbol;
    size_t at;
    int optional;
} functions[] = {
#define REQUIRED(name) {TEXT(cu##name), offsetof(struct hvd__cuda, name), 0},
#define OPTIONAL(name) {TEXT(cu##name), offsetof(struct hvd__cuda, name), 1},
    HVD__CUDA_FUNCTIONS(REQUIRED) HVD__CUDA_OPTIONAL(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

/* Their _v2 versions are newer and have the same prototypes, so the first
 * versions serve as well. */
static const char *const same_as_v2[] = {"cuDeviceGetUuid",
                                         "cuEventElapsedTime"};

static void *find(void *so, const char *symbol)
{
    void *f = dlsym(so, symbol);

    for (size_t i = 0; !f && i < sizeof(same_as_v2) / sizeof(*same_as_v2); i++)
        if (strncmp(symbol, same_as_v2[i], strlen(same_as_v2[i])) == 0)
            f = dlsym(so, same_as_v2[i]);
    return f;
}

static int load(struct hvd__cuda *cuda, struct hb_error *err)
{
    const char *given = hb_knob("CUDA_LIBRARY");
    const char *file = given ? given : "libcuda.so.1";
    void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (!so)
        return hb_error_set(err, HVD_EUNSUPPORTED, "no CUDA driver: %s",
                            dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *f = find(so, functions[i].symbol);

        if (!f && !functions[i].optional) {
            dlclose(so);
            return hb_error_set(err, HVD_EUNSUPPORTED,
                                "the CUDA driver %s is too old: it has no %s",
                                file, functions[i].symbol);
        }
        memcpy((char *)cuda + functions[i].at, &f, sizeof(f));
    }
    return 0;
}

/* Describes a result: "out of memory (CUDA_ERROR_OUT_OF_MEMORY)". */
static void describe(const struct hvd__cuda *cuda, CUresult result, char *out,
                     size_t size)
{
    const char *name = NULL, *text = NULL;

    if (cuda->GetErrorName(result, &name) != CUDA_SUCCESS || !name ||
        cuda->GetErrorString(result, &text) != CUDA_SUCCESS || !text)
        snprintf(out, size, "error %d", (int)result);
    else
        snprintf(out, size, "%s (%s)", text, name);
}

int hvd__cuda_open(struct hb_error *err)
{
    struct hvd__cuda cuda = {0};
    char why[256];
    int rc, n = 0;
    CUresult result;

    if (hvd__cuda.version)
        return 0;
    rc = load(&cuda, err);
    if (rc < 0)
        return rc;
    result = cuda.Init(0);
    if (result == CUDA_SUCCESS)
        result = cuda.DriverGetVersion(&cuda.version);
    if (result == CUDA_SUCCESS)
        result = cuda.DeviceGetCount(&n);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && n == 0))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "the CUDA driver finds no device; "
                            "CUDA_VISIBLE_DEVICES may hide it");
    if (result == CUDA_ERROR_STUB_LIBRARY)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "no CUDA driver: libcuda.so.1 is the stub of the "
                            "toolkit, for linking");
    if (result != CUDA_SUCCESS) {
        describe(&cuda, result, why, sizeof(why));
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "the CUDA driver does not start: %s", why);
    }
    hvd__cuda = cuda;
    return 0;
}

int hvd__cuda_check(CUresult result, const char *what, struct hb_error *err)
{
    char why[256];

    if (result == CUDA_SUCCESS)
        return 0;
    describe(&hvd__cuda, result, why, sizeof(why));
    return hb_error_set(
        err, result == CUDA_ERROR_OUT_OF_MEMORY ? HVD_ENOMEM : HVD_ESYSTEM,
        "%s: %s", what, why);
}
