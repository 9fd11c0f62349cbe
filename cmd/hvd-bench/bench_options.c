/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hvd-bench: one table, one parser per kind of value. */
#include "cmd/hvd-bench/bench_options.h"

#include "cmd/hvd-bench/raw.h"
#include "cmd/hvd-bench/resnet50.h"
#include "lib/base/env.h"
#include "lib/base/text.h"
#include "lib/protocol/collectives.h"

#include <stdio.h>
#include <string.h>

const char bench_help[] =
    "usage: hvdrun -np N hvd-bench COLLECTIVE [OPTION...]\n"
    "       hvdrun -np N hvd-bench idle SECONDS\n"
    "\n"
    "COLLECTIVE is allreduce, broadcast, allgather, alltoall, reducescatter\n"
    "or barrier.\n"
    "\n"
    "  --sizes LIST     bytes: 8,1K,4M or ranges FIRST:LAST[:xFACTOR]\n"
    "                   (default 8,1K:64M:x4)\n"
    "  --dtype TYPE     uint8 int8 uint16 int16 int32 int64 float16\n"
    "                   bfloat16 float32 float64 bool (default float32)\n"
    "  --op OP          sum average min max product band bor adasum\n"
    "                   (default sum)\n"
    "  --wire TYPE      how an allreduce travels: full float16 bfloat16\n"
    "  --iters N        timed iterations per size (default: by --seconds)\n"
    "  --warmup N       iterations before them (default: 2 blocks)\n"
    "  --seconds S      time to measure each size for (default 0.5)\n"
    "  --plane PLANE    fail unless it is self, shm, tcp, hier, mpi or nccl;\n"
    "                   tcp sets HVD_FORCE_TCP, mpi sets HVD_CPU_PLANE\n"
    "                   (default auto: what the library uses)\n"
    "  --device DEVICE  where buffers lie: host or cuda (default host)\n"
    "  --stream         calls name a CUDA stream; times are until it is done\n"
    "  --events         the same, timed by CUDA events\n"
    "  --raw            NCCL's own calls beside the library's\n"
    "  --process-set L  only these ranks: 0,2 or 0-3; sets with a / between\n"
    "                   them measure at the same time: 0-1/2-3\n"
    "  --in-place       sendbuf is recvbuf, or lies in it\n"
    "  --alloc          buffers are from hvd_alloc\n"
    "  --async N        N operations in flight; the time of one\n"
    "  --burst N        N named operations in flight; the time of all\n"
    "  --group N        one grouped call of N tensors\n"
    "  --resnet50       allreduce: the gradients of ResNet-50 as a burst\n"
    "  --no-check       do not check the results\n"
    "  --pin            pin each rank to one of the CPUs it may use\n"
    "  --json           one JSON object per line\n"
    "  --help, --version\n";

static const char *const what_names[] = {COLLECTIVES(COLLECTIVE_NAME), "idle"};
enum { NWHATS = sizeof(what_names) / sizeof(what_names[0]) };

static const char *const plane_names[] = {
    [BENCH_PLANE_AUTO] = "auto", [BENCH_PLANE_SELF] = "self",
    [BENCH_PLANE_SHM] = "shm",   [BENCH_PLANE_TCP] = "tcp",
    [BENCH_PLANE_HIER] = "hier", [BENCH_PLANE_MPI] = "mpi",
    [BENCH_PLANE_NCCL] = "nccl",
};
enum { NPLANES = sizeof(plane_names) / sizeof(plane_names[0]) };

static const char *const wire_names[] = {
    [HVD_WIRE_FULL] = "full",
    [HVD_WIRE_FLOAT16] = "float16",
    [HVD_WIRE_BFLOAT16] = "bfloat16",
};
enum { NWIRES = sizeof(wire_names) / sizeof(wire_names[0]) };

const char *bench_wire_name(enum hvd_wire wire)
{
    return wire_names[wire];
}

const char *bench_plane_name(enum bench_plane plane)
{
    return plane_names[plane];
}

const char *bench_what_name(enum bench_what what)
{
    return what_names[what];
}

/* ---- Values ---------------------------------------------------------- */

/* Returns the index of s among names ("" is no name), or negative. */
static int parse_name(const char *s, const char *kind, const char *const *names,
                      size_t count, struct hb_error *err)
{
    const char *near;

    for (size_t i = 0; i < count; i++)
        if (*names[i] && strcmp(s, names[i]) == 0)
            return (int)i;
    near = hb_text_nearest(s, names, count);
    return hb_error_set(err, HVD_EINVAL, "'%.64s' is no %s%s%s%s", s, kind,
                        near ? "; did you mean " : "", near ? near : "",
                        near ? "?" : "; see hvd-bench --help");
}

static int parse_dtype(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    const char *names[HVD_BFLOAT16 + 1];
    int found;

    for (int t = 0; t <= HVD_BFLOAT16; t++)
        names[t] = hvd_dtype_name((enum hvd_dtype)t);
    found = parse_name(s, "dtype", names, HVD_BFLOAT16 + 1, err);
    if (found >= 0)
        o->dtype = (enum hvd_dtype)found;
    return found < 0 ? found : 0;
}

static int parse_op(struct bench_options *o, const char *s,
                    struct hb_error *err)
{
    const char *names[HVD_BOR + 1];
    int found;

    for (int op = 0; op <= HVD_BOR; op++)
        names[op] = hvd_op_name((enum hvd_op)op);
    found = parse_name(s, "op", names, HVD_BOR + 1, err);
    if (found >= 0)
        o->op = (enum hvd_op)found;
    return found < 0 ? found : 0;
}

static int add_size(struct bench_options *o, uint64_t bytes,
                    struct hb_error *err)
{
    if (o->nsizes == BENCH_SIZES_MAX)
        return hb_error_set(err, HVD_EINVAL, "more than %d sizes",
                            BENCH_SIZES_MAX);
    if (bytes == 0 || bytes > UINT64_C(1) << 40)
        return hb_error_set(err, HVD_EINVAL,
                            "%llu bytes is out of range; give 1 to 1T",
                            (unsigned long long)bytes);
    o->sizes[o->nsizes++] = bytes;
    return 0;
}

/* Parses SIZE or FIRST:LAST[:xFACTOR]. */
static int parse_range(struct bench_options *o, char *item,
                       struct hb_error *err)
{
    char *last_text = strchr(item, ':'), *factor_text = NULL;
    uint64_t first, last;
    int64_t factor = 2;
    int rc;

    if (last_text) {
        *last_text++ = '\0';
        factor_text = strchr(last_text, ':');
    }
    if (factor_text)
        *factor_text++ = '\0';
    rc = hb_parse_size(item, &first, err);
    if (rc < 0 || !last_text)
        return rc < 0 ? rc : add_size(o, first, err);
    rc = hb_parse_size(last_text, &last, err);
    if (rc == 0 && factor_text)
        rc = *factor_text == 'x'
                 ? hb_parse_i64(factor_text + 1, 2, 1 << 20, &factor, err)
                 : hb_error_set(err, HVD_EINVAL,
                                "'%.64s' is no factor; give x2 or more",
                                factor_text);
    if (rc == 0 && last < first)
        rc = hb_error_set(err, HVD_EINVAL, "the range ends before it begins");
    for (; rc == 0 && first <= last; first *= (uint64_t)factor)
        rc = add_size(o, first, err);
    return rc;
}

static int parse_sizes(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    char list[1024], *next = list, *item;
    int rc = 0;

    if (strlen(s) >= sizeof(list))
        return hb_error_set(err, HVD_EINVAL, "the list is too long");
    memcpy(list, s, strlen(s) + 1);
    o->nsizes = 0;
    while (rc == 0 && (item = strsep(&next, ",")))
        rc = parse_range(o, item, err);
    return rc;
}

static int parse_iters(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    return hb_parse_i64(s, 1, 1000000000, &o->iters, err);
}

static int parse_warmup(struct bench_options *o, const char *s,
                        struct hb_error *err)
{
    return hb_parse_i64(s, 0, 1000000000, &o->warmup, err);
}

static int parse_seconds(struct bench_options *o, const char *s,
                         struct hb_error *err)
{
    return hb_parse_duration_ms(s, &o->measure_ms, err);
}

static int parse_plane(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    int found = parse_name(s, "plane of this build", plane_names, NPLANES, err);

    if (found >= 0)
        o->plane = (enum bench_plane)found;
    return found < 0 ? found : 0;
}

static int parse_device(struct bench_options *o, const char *s,
                        struct hb_error *err)
{
    static const char *const names[] = {"host", "cuda"};
    int found = parse_name(s, "device", names, 2, err);

    if (found >= 0)
        o->cuda = found;
    return found < 0 ? found : 0;
}

static int parse_wire(struct bench_options *o, const char *s,
                      struct hb_error *err)
{
    int found = parse_name(s, "wire", wire_names, NWIRES, err);

    if (found >= 0)
        o->wire = (enum hvd_wire)found;
    return found < 0 ? found : 0;
}

static int set_mode(struct bench_options *o, enum bench_mode mode, int64_t n,
                    struct hb_error *err)
{
    if (o->mode != BENCH_BLOCKING && o->mode != mode)
        return hb_error_set(err, HVD_EINVAL,
                            "only one of --async, --burst, --group and "
                            "--resnet50 is possible");
    o->mode = mode;
    o->tensors = (int)n;
    return 0;
}

static int parse_mode(struct bench_options *o, const char *s,
                      enum bench_mode mode, struct hb_error *err)
{
    int64_t n = 0;
    int rc = hb_parse_i64(s, 1, BENCH_TENSORS_MAX, &n, err);

    return rc < 0 ? rc : set_mode(o, mode, n, err);
}

static int parse_async(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    return parse_mode(o, s, BENCH_ASYNC, err);
}

static int parse_burst(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    return parse_mode(o, s, BENCH_BURST, err);
}

static int parse_group(struct bench_options *o, const char *s,
                       struct hb_error *err)
{
    return parse_mode(o, s, BENCH_GROUP, err);
}

/* Parses RANK or FIRST-LAST into the latest set. */
static int parse_ranks(struct bench_options *o, char *item,
                       struct hb_error *err)
{
    char *last_text = strchr(item, '-');
    int64_t first = 0, last;
    int rc;

    if (last_text)
        *last_text++ = '\0';
    rc = hb_parse_i64(item, 0, BENCH_RANKS_MAX - 1, &first, err);
    last = first;
    if (rc == 0 && last_text)
        rc = hb_parse_i64(last_text, first, BENCH_RANKS_MAX - 1, &last, err);
    for (int64_t r = first; rc == 0 && r <= last; r++) {
        if (o->set_of[r])
            return hb_error_set(err, HVD_EINVAL, "rank %d is there twice",
                                (int)r);
        o->set_of[r] = (uint8_t)o->nsets;
    }
    return rc;
}

static int parse_sets(struct bench_options *o, const char *s,
                      struct hb_error *err)
{
    char list[4096], *next = list, *set, *item;
    int rc = 0;

    if (strlen(s) >= sizeof(list))
        return hb_error_set(err, HVD_EINVAL, "the list is too long");
    memcpy(list, s, strlen(s) + 1);
    memset(o->set_of, 0, sizeof(o->set_of));
    o->nsets = 0;
    while (rc == 0 && (set = strsep(&next, "/"))) {
        if (++o->nsets > BENCH_SETS_MAX)
            return hb_error_set(err, HVD_EINVAL, "more than %d sets",
                                BENCH_SETS_MAX);
        while (rc == 0 && (item = strsep(&set, ",")))
            rc = parse_ranks(o, item, err);
    }
    return rc;
}

/* ---- The table ------------------------------------------------------- */

typedef int parse_fn(struct bench_options *o, const char *s,
                     struct hb_error *err);

static const struct {
    const char *name;
    parse_fn *parse; /* parses the value; NULL: a flag */
    size_t flag;     /* the int in struct bench_options, and ... */
    int value;       /* ... what the flag sets it to */
} table[] = {
    {"--sizes", parse_sizes, 0, 0},
    {"--dtype", parse_dtype, 0, 0},
    {"--op", parse_op, 0, 0},
    {"--iters", parse_iters, 0, 0},
    {"--warmup", parse_warmup, 0, 0},
    {"--seconds", parse_seconds, 0, 0},
    {"--plane", parse_plane, 0, 0},
    {"--device", parse_device, 0, 0},
    {"--wire", parse_wire, 0, 0},
    {"--process-set", parse_sets, 0, 0},
    {"--async", parse_async, 0, 0},
    {"--burst", parse_burst, 0, 0},
    {"--group", parse_group, 0, 0},
    {"--resnet50", NULL, offsetof(struct bench_options, resnet50), 1},
    {"--stream", NULL, offsetof(struct bench_options, stream), 1},
    {"--events", NULL, offsetof(struct bench_options, events), 1},
    {"--raw", NULL, offsetof(struct bench_options, raw), 1},
    {"--alloc", NULL, offsetof(struct bench_options, alloc), 1},
    {"--in-place", NULL, offsetof(struct bench_options, in_place), 1},
    {"--no-check", NULL, offsetof(struct bench_options, check), 0},
    {"--pin", NULL, offsetof(struct bench_options, pin), 1},
    {"--json", NULL, offsetof(struct bench_options, json), 1},
    {"--help", NULL, offsetof(struct bench_options, help), 1},
    {"--version", NULL, offsetof(struct bench_options, version), 1},
};
enum { NOPTIONS = sizeof(table) / sizeof(table[0]) };

static int find_option(const char *arg, size_t len, struct hb_error *err)
{
    const char *names[NOPTIONS];
    char name[64];

    for (int i = 0; i < NOPTIONS; i++)
        names[i] = table[i].name;
    snprintf(name, sizeof(name), "%.*s", (int)len, arg);
    return parse_name(name, "option of hvd-bench", names, NOPTIONS, err);
}

/* Takes one option, "--name value" or "--name=value"; *argv moves past it. */
static int take_option(struct bench_options *o, char *const **argv,
                       struct hb_error *err)
{
    const char *arg = *(*argv)++;
    size_t len = strcspn(arg, "=");
    const char *value = arg[len] ? arg + len + 1 : NULL;
    int i = find_option(arg, len, err), rc;

    if (i < 0)
        return i;
    if (!table[i].parse) {
        if (value)
            return hb_error_set(err, HVD_EINVAL, "%s takes no value",
                                table[i].name);
        *(int *)((char *)o + table[i].flag) = table[i].value;
        return 0;
    }
    if (!value && **argv)
        value = *(*argv)++;
    if (!value)
        return hb_error_set(err, HVD_EINVAL, "%s needs a value", table[i].name);
    rc = table[i].parse(o, value, err);
    return rc < 0 ? hb_error_context(err, "%s", table[i].name) : 0;
}

static int take_word(struct bench_options *o, const char *word, int nth,
                     struct hb_error *err)
{
    int found;

    if (nth == 0) {
        found = parse_name(word, "collective", what_names, NWHATS, err);
        if (found >= 0)
            o->what = (enum bench_what)found;
        return found < 0 ? found : 0;
    }
    if (nth == 1 && o->what == BENCH_IDLE)
        return hb_parse_duration_ms(word, &o->idle_ms, err);
    return hb_error_set(err, HVD_EINVAL, "'%.64s' is one word too many", word);
}

/* ---- What only makes sense together ------------------------------------ */

static int no_such(const struct bench_options *o, const char *option,
                   struct hb_error *err)
{
    return hb_error_set(err, HVD_EINVAL, "%s has no %s", what_names[o->what],
                        option);
}

static int check_op(const struct bench_options *o, struct hb_error *err)
{
    int is_float = o->dtype == HVD_FLOAT16 || o->dtype == HVD_BFLOAT16 ||
                   o->dtype == HVD_FLOAT32 || o->dtype == HVD_FLOAT64;

    if (o->what == BENCH_REDUCESCATTER && o->op == HVD_ADASUM)
        return no_such(o, "op adasum", err);
    if (o->what != BENCH_ALLREDUCE && o->what != BENCH_REDUCESCATTER)
        return 0;
    if ((is_float && (o->op == HVD_BAND || o->op == HVD_BOR)) ||
        (!is_float && o->op == HVD_ADASUM) ||
        (o->dtype == HVD_BOOL && o->op == HVD_AVERAGE))
        return hb_error_set(err, HVD_EINVAL, "op %s is not defined for %s",
                            hvd_op_name(o->op), hvd_dtype_name(o->dtype));
    return 0;
}

static int check_mode(const struct bench_options *o, struct hb_error *err)
{
    if (o->mode == BENCH_RESNET50 && o->what != BENCH_ALLREDUCE)
        return no_such(o, "--resnet50", err);
    if (o->mode == BENCH_GROUP && o->what != BENCH_ALLREDUCE &&
        o->what != BENCH_ALLGATHER && o->what != BENCH_REDUCESCATTER)
        return no_such(o, "--group", err);
    return 0;
}

/* Checks the options that concern a GPU. */
static int check_device(const struct bench_options *o, struct hb_error *err)
{
    if (o->cuda && (o->what == BENCH_BARRIER || o->what == BENCH_IDLE))
        return no_such(o, "--device cuda", err);
    if (o->cuda && o->alloc)
        return hb_error_set(err, HVD_EINVAL,
                            "--alloc is memory of the host; leave it out with "
                            "--device cuda");
    if (!o->cuda && (o->stream || o->raw))
        return hb_error_set(err, HVD_EINVAL, "%s needs --device cuda",
                            o->raw      ? "--raw"
                            : o->events ? "--events"
                                        : "--stream");
    return o->raw ? bench_raw_check(o, err) : 0;
}

static int check_combination(const struct bench_options *o,
                             struct hb_error *err)
{
    size_t elem = hvd_dtype_size(o->dtype);
    int rc = check_op(o, err);

    if (rc == 0)
        rc = check_mode(o, err);
    if (rc == 0)
        rc = check_device(o, err);
    if (rc == 0 && o->in_place && o->what != BENCH_ALLREDUCE &&
        o->what != BENCH_BROADCAST && o->what != BENCH_ALLGATHER)
        rc = no_such(o, "--in-place", err);
    if (rc == 0 && o->wire && o->what != BENCH_ALLREDUCE)
        rc = no_such(o, "--wire", err);
    for (size_t i = 0; rc == 0 && i < o->nsizes; i++)
        if (o->sizes[i] < elem)
            rc = hb_error_set(err, HVD_EINVAL,
                              "--sizes: %zu is less than one %s", o->sizes[i],
                              hvd_dtype_name(o->dtype));
    return rc;
}

int bench_options_parse(struct bench_options *o, char *const *argv,
                        struct hb_error *err)
{
    int words = 0, rc = 0;

    *o = (struct bench_options){.dtype = HVD_FLOAT32,
                                .op = HVD_SUM,
                                .warmup = -1,
                                .measure_ms = 500,
                                .idle_ms = -1,
                                .tensors = 1,
                                .check = 1};
    rc = parse_sizes(o, "8,1K:64M:x4", err);
    while (rc == 0 && *argv)
        rc = **argv == '-' ? take_option(o, &argv, err)
                           : take_word(o, *argv++, words++, err);
    if (rc < 0 || o->help || o->version)
        return rc;
    o->stream |= o->events;
    if (o->resnet50)
        rc = set_mode(o, BENCH_RESNET50, RESNET50_TENSORS, err);
    if (rc < 0)
        return rc;
    if (words == 0)
        return hb_error_set(err, HVD_EINVAL,
                            "no collective; see hvd-bench --help");
    if (o->what == BENCH_IDLE && o->idle_ms < 0)
        return hb_error_set(err, HVD_EINVAL, "idle needs SECONDS");
    return check_combination(o, err);
}
