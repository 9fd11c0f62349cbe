/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the passes of one dtype at one tier.  Included by
 * reduce_vec.h once per dtype, with
 *
 *     D, DTYPE   suffix of the names, e.g. f32, and HVD_FLOAT32
 *     ELEM       element in memory
 *     LANE       lane of the accumulator, unsigned for integers
 *     CMP        the type in which lanes compare, same size as LANE
 *     MASK       signed integer of LANE's size: what a comparison gives
 *     KIND       KIND_INT, KIND_FLOAT or KIND_BOOL
 *     WIDEN(m)   elements to lanes; NARROW(v) back
 *     INT_MIN_OF, INT_MAX_OF (KIND_INT)   range of the dtype
 *
 * The vector extension of gcc and clang writes each loop once for every
 * width; comparisons give lanes of 0 or -1.
 */
#define VEC NAME(D, vec)
#define CVEC NAME(D, cmp)
#define MVEC NAME(D, mask)
#define MEM NAME(D, mem)
enum {
    NAME(D, elem_bytes) = sizeof(ELEM),
    NAME(D, lane_bytes) = sizeof(LANE),
    NAME(D, lanes) = VEC_BYTES / sizeof(LANE)
};
#define LANES ((size_t)NAME(D, lanes))

typedef LANE VEC __attribute__((vector_size(VEC_BYTES)));
typedef CMP CVEC __attribute__((vector_size(VEC_BYTES)));
typedef MASK MVEC __attribute__((vector_size(VEC_BYTES)));
typedef ELEM MEM
    __attribute__((vector_size(VEC_BYTES / sizeof(LANE) * sizeof(ELEM))));

INLINE VEC NAME(D, select)(MVEC mask, VEC yes, VEC no)
{
    return (VEC)((mask & (MVEC)yes) | (~mask & (MVEC)no));
}

INLINE MVEC NAME(D, is_nan)(VEC v)
{
#if KIND == KIND_FLOAT
    return (MVEC)(v != v);
#else
    return (MVEC)(v ^ v);
#endif
}

/* Returns the minimum or maximum.  `b` is the later operand: it replaces `a`
 * only if it is strictly less (or greater), or a NaN. */
INLINE VEC NAME(D, extreme)(enum hvd_op op, VEC a, VEC b)
{
    MVEC take = (MVEC)(op == HVD_MIN ? (CVEC)b < (CVEC)a : (CVEC)b > (CVEC)a);

    return NAME(D, select)(take | NAME(D, is_nan)(b), b, a);
}

INLINE VEC NAME(D, fold)(enum hvd_op op, VEC a, VEC b)
{
    if (KIND == KIND_BOOL)
        return op == HVD_SUM || op == HVD_MAX || op == HVD_BOR
                   ? (VEC)((MVEC)a | (MVEC)b)
                   : (VEC)((MVEC)a & (MVEC)b);
    switch (op) {
    case HVD_SUM:
        return a + b;
    case HVD_PRODUCT:
        return a * b;
    case HVD_BAND:
        return (VEC)((MVEC)a & (MVEC)b);
    case HVD_BOR:
        return (VEC)((MVEC)a | (MVEC)b);
    default:
        return NAME(D, extreme)(op, a, b);
    }
}

INLINE VEC NAME(D, one_nan)(VEC v)
{
#if KIND == KIND_FLOAT
    return NAME(D, select)(NAME(D, is_nan)(v), (VEC){} + (LANE)NAN, v);
#else
    return v;
#endif
}

#if KIND == KIND_INT
INLINE ELEM NAME(D, from_double)(double y)
{
    if (y >= (double)INT_MAX_OF)
        return INT_MAX_OF;
    if (y <= (double)INT_MIN_OF)
        return INT_MIN_OF;
    return y == y ? (ELEM)y : 0;
}

/* Scales element by element and out of line: rare, so not worth optimizing. */
OUTLINE VEC NAME(D, prescale)(VEC v, const struct hvd__pass *pass)
{
    ELEM x[NAME(D, lanes)];

    if (pass->pre == 1.0)
        return v;
    memcpy(x, &v, sizeof(v));
    for (size_t i = 0; i < LANES; i++)
        x[i] = NAME(D, from_double)((double)x[i] * pass->pre);
    memcpy(&v, x, sizeof(v));
    return v;
}

OUTLINE VEC NAME(D, postscale)(VEC v, const struct hvd__pass *pass)
{
    ELEM y[NAME(D, lanes)];
    double divisor = pass->divisor;

    memcpy(y, &v, sizeof(v));
    for (size_t i = 0; i < LANES; i++) {
        if (pass->post == 1.0)
            y[i] = (ELEM)(y[i] / pass->divisor);
        else
            y[i] = NAME(D, from_double)((double)y[i] * pass->post / divisor);
    }
    memcpy(&v, y, sizeof(v));
    return v;
}
#else
INLINE VEC NAME(D, prescale)(VEC v, const struct hvd__pass *pass)
{
    return KIND == KIND_FLOAT ? v * (LANE)pass->pre : v;
}

INLINE VEC NAME(D, postscale)(VEC v, const struct hvd__pass *pass)
{
    if (KIND != KIND_FLOAT)
        return v;
    v = v * (LANE)pass->post;
    return pass->divisor == 1 ? v : v / (LANE)pass->divisor;
}
#endif

INLINE VEC NAME(D, load)(const struct hvd__pass *pass, int k, size_t at,
                         int how)
{
    const char *p =
        (const char *)pass->srcs[k] + (pass->from + at) * sizeof(ELEM);
    MEM m = {0};

    if (how & PART)
        load_partial(&m, sizeof(m), p, pass->count * sizeof(ELEM));
    else
        memcpy(&m, p, sizeof(m));
    return how & SCALED ? NAME(D, prescale)(WIDEN(m), pass) : WIDEN(m);
}

/* Loads the initial accumulator: the first input, or earlier passes' partial
 * results. */
INLINE VEC NAME(D, start)(const struct hvd__pass *pass, size_t at, int how)
{
    VEC v;

    if (!pass->carry_in)
        return NAME(D, load)(pass, 0, at, how);
    memcpy(&v, (const char *)pass->carry_in + at * sizeof(LANE), sizeof(v));
    return v;
}

INLINE void NAME(D, finish)(const struct hvd__pass *pass, size_t at, VEC v,
                            int how)
{
    MEM m;

    if (pass->carry_out) {
        memcpy((char *)pass->carry_out + at * sizeof(LANE), &v, sizeof(v));
        return;
    }
    if (how & SCALED)
        v = NAME(D, postscale)(v, pass);
    m = NARROW(NAME(D, one_nan)(v));
    if (how & PART)
        store_partial(pass->dst, &m, sizeof(m), pass->count * sizeof(ELEM));
    else
        memcpy((char *)pass->dst + at * sizeof(ELEM), &m, sizeof(m));
}

INLINE VEC NAME(D, fold_one)(const struct hvd__pass *pass, enum hvd_op op,
                             int how, int nsrc, size_t at)
{
    VEC v = NAME(D, start)(pass, at, how);

    for (int k = !pass->carry_in; k < nsrc; k++)
        v = NAME(D, fold)(op, v, NAME(D, load)(pass, k, at, how));
    return v;
}

INLINE void NAME(D, fold_four)(const struct hvd__pass *pass, enum hvd_op op,
                               int how, int nsrc, size_t at)
{
    VEC v0 = NAME(D, start)(pass, at, how);
    VEC v1 = NAME(D, start)(pass, at + LANES, how);
    VEC v2 = NAME(D, start)(pass, at + 2 * LANES, how);
    VEC v3 = NAME(D, start)(pass, at + 3 * LANES, how);

    for (int k = !pass->carry_in; k < nsrc; k++) {
        v0 = NAME(D, fold)(op, v0, NAME(D, load)(pass, k, at, how));
        v1 = NAME(D, fold)(op, v1, NAME(D, load)(pass, k, at + LANES, how));
        v2 = NAME(D, fold)(op, v2, NAME(D, load)(pass, k, at + 2 * LANES, how));
        v3 = NAME(D, fold)(op, v3, NAME(D, load)(pass, k, at + 3 * LANES, how));
    }
    NAME(D, finish)(pass, at, v0, how);
    NAME(D, finish)(pass, at + LANES, v1, how);
    NAME(D, finish)(pass, at + 2 * LANES, v2, how);
    NAME(D, finish)(pass, at + 3 * LANES, v3, how);
}

/* Reduces pass->count elements.  If that is no multiple of the width, the last
 * vector overlaps its neighbour.  It is computed first, because dst may be one
 * of the inputs, and stored last. */
INLINE void NAME(D, pass)(const struct hvd__pass *pass, enum hvd_op op, int how,
                          int nsrc)
{
    size_t at = 0, last;
    VEC tail;

    if (PARTIAL && pass->count < LANES) {
        tail = NAME(D, fold_one)(pass, op, how | PART, nsrc, 0);
        NAME(D, finish)(pass, 0, tail, how | PART);
        return;
    }
    last = pass->count - LANES;
    tail = NAME(D, fold_one)(pass, op, how, nsrc, last);
    for (; at + 4 * LANES <= pass->count; at += 4 * LANES)
        NAME(D, fold_four)(pass, op, how, nsrc, at);
    for (; at < last; at += LANES)
        NAME(D, finish)
    (pass, at, NAME(D, fold_one)(pass, op, how, nsrc, at), how);
    NAME(D, finish)(pass, last, tail, how);
}

/* Works on copies of *caller and its srcs, which no store can alias. */
INLINE void NAME(D, instance)(const struct hvd__pass *caller, enum hvd_op op,
                              int how)
{
    const void *srcs[HVD__PASS_SRCS] = {caller->srcs[0]};
    struct hvd__pass pass = *caller;

    for (int k = 1; k < pass.nsrc; k++)
        srcs[k] = caller->srcs[k];
    pass.srcs = srcs;
    NAME(D, pass)(&pass, op, how, pass.nsrc);
}

/* Sums two inputs: the most common case in training, so specialized. */
static void NAME(D, sum_of_two)(const struct hvd__pass *caller)
{
    const void *srcs[2] = {caller->srcs[0], caller->srcs[1]};
    struct hvd__pass pass = {.dst = caller->dst,
                             .srcs = srcs,
                             .from = caller->from,
                             .count = caller->count};

    NAME(D, pass)(&pass, HVD_SUM, 0, 2);
}

/* Defines the functions that the table of kernels needs for one op. */
#define OP_INSTANCE(OP)                                                      \
    static void NAME(D, OP##_plain)(const struct hvd__pass *caller)          \
    {                                                                        \
        if (HVD_##OP == HVD_SUM && caller->nsrc == 2 && !caller->carry_in && \
            !caller->carry_out)                                              \
            NAME(D, sum_of_two)(caller);                                     \
        else                                                                 \
            NAME(D, instance)(caller, HVD_##OP, 0);                          \
    }                                                                        \
    SCALED_INSTANCE(OP)                                                      \
    static void NAME(D, OP##_entry)(void *dst, const void *const *srcs,      \
                                    int nsrc, size_t count,                  \
                                    const struct hvd__reduce_args *args)     \
    {                                                                        \
        static const struct hvd__choice choice = {                           \
            &TIER, &KERNELS[DTYPE][HVD_##OP],                                \
            &hvd__kernels_portable[DTYPE][HVD_##OP], KIND == KIND_FLOAT};    \
                                                                             \
        hvd__reduce_run(&choice, dst, srcs, nsrc, count, args);              \
    }

/* Scaled integers are rare: only the portable tier builds them. */
#if KIND == KIND_FLOAT || (KIND == KIND_INT && PARTIAL)
#define SCALED_INSTANCE(OP)                                          \
    static void NAME(D, OP##_scaled)(const struct hvd__pass *caller) \
    {                                                                \
        NAME(D, instance)(caller, HVD_##OP, SCALED);                 \
    }
#else
#define SCALED_INSTANCE(OP)
#endif

OP_INSTANCE(SUM)
OP_INSTANCE(MIN)
OP_INSTANCE(MAX)
OP_INSTANCE(PRODUCT)
#if KIND != KIND_FLOAT
OP_INSTANCE(BAND)
OP_INSTANCE(BOR)
#endif

#undef OP_INSTANCE
#undef SCALED_INSTANCE
#undef VEC
#undef CVEC
#undef MVEC
#undef MEM
#undef LANES
#undef D
#undef DTYPE
#undef ELEM
#undef LANE
#undef CMP
#undef MASK
#undef KIND
#undef WIDEN
#undef NARROW
#undef INT_MIN_OF
#undef INT_MAX_OF
