/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of the CUDA driver API: modules and kernels; see fake_cuda.h.
 *
 * A module's image must have nvcc's format, but what runs is the C of
 * runtime/plugins/nccl/kernels_body.h, on the stream's thread, once for each
 * warp of the launch.  The order of the tiles changes from launch to launch.
 */
#include "tests/nccl/fake_cuda.h"

#include "runtime/plugins/nccl/kernels_body.h"

#include <stdlib.h>
#include <string.h>

enum {
    FATBIN = 0xba55ed50u,
    MODULE = 0x30d01e,
    LARGEST = 1024, /* threads of a block */
};

struct CUmod_st {
    unsigned magic;
    CUmodule next; /* list of all, for LeakSanitizer */
    CUcontext ctx;
};

struct CUfunc_st {
    const char *name;
    int id, in, out;
};

static struct CUfunc_st functions[] = {
#define FUNCTION(name, in, out) \
    {HVD__KERNEL_SYMBOL(name), HVD__K_##name, in, out},
    HVD__KERNELS(FUNCTION)
#undef FUNCTION
};

static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;
static CUmodule modules;

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult rc = fake_enter("cuModuleLoadData", FAKE_CONTEXT);
    uint32_t magic;
    CUmodule m;

    if (rc)
        return rc;
    memcpy(&magic, image, sizeof(magic));
    if (magic != FATBIN)
        return CUDA_ERROR_INVALID_IMAGE;
    m = fake_memory(sizeof(*m));
    m->magic = MODULE;
    m->ctx = fake_context();
    pthread_mutex_lock(&modules_lock);
    m->next = modules;
    modules = m;
    pthread_mutex_unlock(&modules_lock);
    fake_count(1);
    *module = m;
    return rc;
}

CUresult cuModuleUnload(CUmodule module)
{
    CUresult rc = fake_enter("cuModuleUnload", FAKE_CONTEXT);

    if (rc)
        return rc;
    if (!module || module->magic != MODULE || module->ctx != fake_context())
        fake_misuse("cuModuleUnload: %p is no module of the context",
                    (void *)module);
    fake_drain(module->ctx);
    module->magic = 0;
    fake_count(-1);
    return rc;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    CUresult rc = fake_enter("cuModuleGetFunction", FAKE_CONTEXT);

    if (rc)
        return rc;
    if (!module || module->magic != MODULE)
        fake_misuse("cuModuleGetFunction: %p is no module", (void *)module);
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (strcmp(functions[i].name, name) == 0) {
            *function = &functions[i];
            return rc;
        }
    return CUDA_ERROR_NOT_FOUND;
}

struct launch {
    int id;
    uint32_t warps, turn;
    CUcontext ctx;
    CUresult fails;
    struct hvd__kernel_args args;
};

static void run_kernel(void *arg)
{
    struct launch *l = arg;

    if (l->fails)
        fake_context_fails(l->ctx, l->fails);
    l->fails = fake_context_error(l->ctx);
    for (uint32_t i = 0; i < l->warps && !l->fails; i++) {
        uint32_t tile = (i + l->turn) % l->warps;

        for (uint32_t k = 0; tile < l->args.tiles && k < HVD__KERNEL_LANES; k++)
            hvd__kernel_lane(l->id, &l->args, tile, k);
    }
    free(l);
}

/* Translates the pointers in `a` to the double's own mapping, after checking
 * all memory that the kernel may touch. */
static void reach_all(struct hvd__kernel_args *a, CUfunction f)
{
    size_t part = (size_t)(a->to_parts ? f->out : f->in);
    size_t whole = (size_t)(a->to_parts ? f->in : f->out);

    if (a->nparts > HVD__KERNEL_PARTS)
        fake_misuse("%s: %u parts", f->name, a->nparts);
    if (a->nparts)
        a->buffer = fake_reach(a->buffer, a->first[a->nparts] * whole, f->name);
    for (uint32_t i = 0; i < a->nparts; i++)
        a->ptr[i] = fake_reach(a->ptr[i],
                               (a->first[i + 1] - a->first[i]) * part, f->name);
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                        unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        CUstream s, void **params, void **extra)
{
    static unsigned launches;
    CUresult rc = fake_enter("cuLaunchKernel", FAKE_CONTEXT);
    struct launch *l;

    if (rc)
        return rc;
    if (f < functions ||
        f >= functions + sizeof(functions) / sizeof(*functions))
        fake_misuse("cuLaunchKernel: %p is no kernel", (void *)f);
    s = fake_stream(s, "cuLaunchKernel");
    if (s->ctx != fake_context())
        return CUDA_ERROR_INVALID_HANDLE;
    if (gx == 0 || gy != 1 || gz != 1 || bx == 0 || bx > LARGEST ||
        bx % HVD__KERNEL_LANES != 0 || by != 1 || bz != 1 || shared || extra)
        fake_misuse("%s: a launch of (%u, %u, %u) times (%u, %u, %u)", f->name,
                    gx, gy, gz, bx, by, bz);
    l = fake_memory(sizeof(*l));
    memcpy(&l->args, params[0], sizeof(l->args));
    reach_all(&l->args, f);
    l->id = f->id;
    l->ctx = s->ctx;
    l->fails = fake_fault("kernel");
    l->warps = gx * (bx / HVD__KERNEL_LANES);
    l->turn = __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED) % l->warps;
    if (fake_submit(s, run_kernel, l))
        return rc;
    free(l);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
