/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of the CUDA driver API: initialisation, devices, contexts, errors and
 * injected failures; see fake_cuda.h.
 *
 * Only primary contexts exist.  They are never freed, so that a stale handle is
 * noticed.
 */
#include "tests/nccl/fake_cuda.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 0xc047e87, STACK = 16 };

static struct CUctx_st primary[FAKE_DEVICES_MAX];
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int initialized;
static atomic_int live;

static _Thread_local struct {
    CUcontext at[STACK];
    int n;
} stack;

void fake_misuse(const char *format, ...)
{
    va_list args;
    char text[512];
    int n = snprintf(text, sizeof(text), "fake CUDA: rank %d: ", fake_rank());

    va_start(args, format);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
    abort();
}

void *fake_memory(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        fake_misuse("no memory for the double itself");
    return p;
}

long fake_setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    char *end;
    long v;

    if (!text || !*text)
        return otherwise;
    v = strtol(text, &end, 10);
    if (*end)
        fake_misuse("%s is '%s', no number", name, text);
    return v;
}

int fake_rank(void)
{
    const char *text = getenv("HVD_RANK");

    return text ? (int)strtol(text, NULL, 10) : 0;
}

void fake_count(int change)
{
    atomic_fetch_add(&live, change);
}

int fake_cuda_live(void)
{
    return atomic_load(&live);
}

/* ---- Injected failures ------------------------------------------------- */

/* How often each entry of FAKE_CUDA_FAIL was reached. */
static atomic_int reached[16];

/* Returns the error that `entry`, "FUNCTION:CODE[:RANK[:K]]", asks for in this
 * call of `function`. */
static CUresult fault_of(const char *entry, int index, const char *function)
{
    char name[64];
    int code = 0, rank = -1, k = 1;

    if (sscanf(entry, "%63[^:]:%d:%d:%d", name, &code, &rank, &k) < 2)
        fake_misuse("FAKE_CUDA_FAIL: '%s'", entry);
    if (strcmp(name, function) != 0 || (rank >= 0 && rank != fake_rank()))
        return CUDA_SUCCESS;
    return atomic_fetch_add(&reached[index], 1) + 1 == k ? (CUresult)code
                                                         : CUDA_SUCCESS;
}

CUresult fake_fault(const char *function)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    char copy[512], *save, *entry;
    CUresult rc = CUDA_SUCCESS;
    int index = 0;

    if (!text)
        return rc;
    snprintf(copy, sizeof(copy), "%s", text);
    entry = strtok_r(copy, ",", &save);
    for (; entry && index < 16; entry = strtok_r(NULL, ",", &save)) {
        CUresult one = fault_of(entry, index++, function);

        rc = rc ? rc : one;
    }
    return rc;
}

/* ---- Captures of global mode ------------------------------------------- */

static atomic_int captures;
static atomic_uint broken;
static _Thread_local CUstreamCaptureMode capture_mode =
    CU_STREAM_CAPTURE_MODE_GLOBAL;

unsigned fake_capture_begins(void)
{
    atomic_fetch_add(&captures, 1);
    return atomic_load(&broken);
}

int fake_capture_ends(unsigned before)
{
    atomic_fetch_sub(&captures, 1);
    return atomic_load(&broken) != before;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = capture_mode;

    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult mind_captures(const char *function)
{
    static const char *const unsafe[] = {
        "cuEventQuery",   "cuEventSynchronize", "cuEventCreate",
        "cuEventDestroy", "cuStreamQuery",      "cuStreamSynchronize",
        "cuStreamCreate", "cuStreamDestroy",    "cuCtxSynchronize",
        "cuMemAlloc",     "cuMemFree",          "cuMemHostAlloc",
        "cuMemFreeHost",  "cuModuleLoadData",   "cuModuleUnload",
        "cuMemcpyHtoD",   "cuMemcpyDtoH",       "cuDevicePrimaryCtxRetain",
    };

    if (!atomic_load(&captures) ||
        capture_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
        return CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof(unsafe) / sizeof(*unsafe); i++)
        if (strcmp(function, unsafe[i]) == 0) {
            atomic_fetch_add(&broken, 1);
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return CUDA_SUCCESS;
}

CUresult fake_enter(const char *function, int needs)
{
    CUresult rc = fake_fault(function);
    CUcontext ctx = fake_context();

    if (rc == CUDA_SUCCESS)
        rc = mind_captures(function);
    if (rc)
        return rc;
    if (!atomic_load(&initialized))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (needs == FAKE_NO_CONTEXT)
        return CUDA_SUCCESS;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&fake_lock);
    rc = ctx->refs ? ctx->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

/* ---- Errors ------------------------------------------------------------ */

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED",
     "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE",
     "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE",
     "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE",
     "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE",
     "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "context is destroyed"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED",
     "unspecified launch failure"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int error_index(CUresult code)
{
    for (int i = 0; i < (int)(sizeof(errors) / sizeof(*errors)); i++)
        if (errors[i].code == code)
            return i;
    return -1;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    int i = error_index(error);

    *text = i < 0 ? NULL : errors[i].name;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    int i = error_index(error);

    *text = i < 0 ? NULL : errors[i].text;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- Devices ----------------------------------------------------------- */

static int devices(void)
{
    long n = fake_setting("FAKE_CUDA_DEVICES", 4);

    if (n < 0 || n > FAKE_DEVICES_MAX)
        fake_misuse("FAKE_CUDA_DEVICES is %ld", n);
    return (int)n;
}

CUresult cuInit(unsigned flags)
{
    CUresult rc = fake_fault("cuInit");

    if (rc)
        return rc;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (devices() == 0)
        return CUDA_ERROR_NO_DEVICE;
    atomic_store(&initialized, 1);
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
    CUresult rc = fake_enter("cuDeviceGetCount", FAKE_NO_CONTEXT);

    if (rc == CUDA_SUCCESS)
        *n = devices();
    return rc;
}

static CUresult enter_device(const char *function, CUdevice device)
{
    CUresult rc = fake_enter(function, FAKE_NO_CONTEXT);

    if (rc == CUDA_SUCCESS && (device < 0 || device >= devices()))
        rc = CUDA_ERROR_INVALID_DEVICE;
    return rc;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult rc = enter_device("cuDeviceGet", ordinal);

    if (rc == CUDA_SUCCESS)
        *device = ordinal;
    return rc;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    CUresult rc = enter_device("cuDeviceGetName", device);

    if (rc == CUDA_SUCCESS)
        snprintf(name, (size_t)len, "Fake %d", device);
    return rc;
}

/* The same in every process: ranks of one host share their devices. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult rc = enter_device("cuDeviceGetUuid", device);
    char host[16] = "";

    if (rc)
        return rc;
    gethostname(host, sizeof(host) - 1);
    memset(uuid, 0, sizeof(*uuid));
    memcpy(uuid->bytes, host, sizeof(uuid->bytes) - 1);
    uuid->bytes[sizeof(uuid->bytes) - 1] = (char)(device + 1);
    return rc;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice device)
{
    CUresult rc = enter_device("cuDeviceGetPCIBusId", device);

    if (rc == CUDA_SUCCESS)
        snprintf(id, (size_t)len, "0000:%02x:00.0", device + 1);
    return rc;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    CUresult rc = enter_device("cuDeviceTotalMem", device);

    if (rc == CUDA_SUCCESS)
        *bytes = (size_t)1 << 30;
    return rc;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice device)
{
    const struct {
        CUdevice_attribute attribute;
        int value;
    } known[] = {
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
         (int)fake_setting("FAKE_CUDA_POOLS", 1)},
    };
    CUresult rc = enter_device("cuDeviceGetAttribute", device);

    for (size_t i = 0; !rc && i < sizeof(known) / sizeof(*known); i++)
        if (known[i].attribute == attribute) {
            *value = known[i].value;
            return rc;
        }
    return rc ? rc : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Contexts ---------------------------------------------------------- */

CUcontext fake_context(void)
{
    return stack.n ? stack.at[stack.n - 1] : NULL;
}

void fake_check_context(CUcontext ctx, const char *function)
{
    if (ctx < primary || ctx >= primary + FAKE_DEVICES_MAX ||
        ctx->magic != CONTEXT)
        fake_misuse("%s: %p is no context", function, (void *)ctx);
}

void fake_context_fails(CUcontext ctx, CUresult error)
{
    pthread_mutex_lock(&fake_lock);
    if (!ctx->error)
        ctx->error = error;
    pthread_mutex_unlock(&fake_lock);
}

CUresult fake_context_error(CUcontext ctx)
{
    CUresult error;

    pthread_mutex_lock(&fake_lock);
    error = ctx->error;
    pthread_mutex_unlock(&fake_lock);
    return error;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    CUresult rc = enter_device("cuDevicePrimaryCtxRetain", device);
    CUcontext c = &primary[device & (FAKE_DEVICES_MAX - 1)];

    if (rc)
        return rc;
    pthread_mutex_lock(&fake_lock);
    if (c->magic != CONTEXT) {
        c->magic = CONTEXT;
        c->device = device;
        pthread_mutex_init(&c->lock, NULL);
    }
    c->refs++;
    fake_count(1);
    pthread_mutex_unlock(&fake_lock);
    *ctx = c;
    return rc;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult rc = enter_device("cuDevicePrimaryCtxRelease", device);
    CUcontext c = &primary[device & (FAKE_DEVICES_MAX - 1)];

    if (rc)
        return rc;
    pthread_mutex_lock(&fake_lock);
    if (c->refs == 0)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    else if (--c->refs == 0)
        c->error = CUDA_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    if (rc == CUDA_SUCCESS)
        fake_count(-1);
    return rc;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags,
                                    int *active)
{
    CUresult rc = enter_device("cuDevicePrimaryCtxGetState", device);

    if (rc)
        return rc;
    pthread_mutex_lock(&fake_lock);
    *flags = 0;
    *active = primary[device].refs > 0;
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    CUresult rc = fake_enter("cuCtxPushCurrent", FAKE_NO_CONTEXT);

    if (rc)
        return rc;
    fake_check_context(ctx, "cuCtxPushCurrent");
    if (stack.n == STACK)
        fake_misuse("cuCtxPushCurrent: %d contexts were not popped", STACK);
    stack.at[stack.n++] = ctx;
    return rc;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
    CUresult rc = fake_enter("cuCtxPopCurrent", FAKE_NO_CONTEXT);

    if (rc == CUDA_SUCCESS && stack.n == 0)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    if (rc)
        return rc;
    stack.n--;
    if (ctx)
        *ctx = stack.at[stack.n];
    return rc;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult rc = fake_enter("cuCtxSetCurrent", FAKE_NO_CONTEXT);

    if (rc)
        return rc;
    if (ctx)
        fake_check_context(ctx, "cuCtxSetCurrent");
    if (stack.n)
        stack.n--;
    if (ctx)
        stack.at[stack.n++] = ctx;
    return rc;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    CUresult rc = fake_enter("cuCtxGetCurrent", FAKE_NO_CONTEXT);

    if (rc == CUDA_SUCCESS)
        *ctx = fake_context();
    return rc;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult rc = fake_enter("cuCtxGetDevice", FAKE_CONTEXT);

    if (rc == CUDA_SUCCESS)
        *device = fake_context()->device;
    return rc;
}

CUresult cuCtxSynchronize(void)
{
    CUresult rc = fake_enter("cuCtxSynchronize", FAKE_CONTEXT);

    if (rc)
        return rc;
    fake_drain(fake_context());
    return fake_enter("cuCtxSynchronize", FAKE_CONTEXT);
}
