/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts between dtypes: the choice of a SIMD tier.  The casts themselves
 * are in cast_vec.h, which the tiers of reductions include.
 */
#include "runtime/plane/kernels/cast.h"

#include "runtime/plane/kernels/reduce_tier.h"

static hvd__cast_fn *of_tier(const struct hvd__tier *tier, enum hvd_dtype to,
                             enum hvd_dtype from)
{
    if (!tier || (unsigned)to >= HVD__NDTYPES || (unsigned)from >= HVD__NDTYPES)
        return NULL;
    return tier->casts[to][from];
}

hvd__cast_fn *hvd__cast_get_tier(enum hvd_dtype to, enum hvd_dtype from,
                                 enum hvd__simd tier)
{
    return of_tier(hvd__tier_get(tier), to, from);
}

hvd__cast_fn *hvd__cast_get(enum hvd_dtype to, enum hvd_dtype from)
{
    return of_tier(hvd__tier_current(), to, from);
}
