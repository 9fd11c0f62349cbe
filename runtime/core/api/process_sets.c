/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on process sets: hvd_process_set_add and the like. */
#include "runtime/core/api/life.h"
#include "runtime/core/set/set.h"
#include "runtime/core/set/set_change.h"
#include "runtime/core/set/set_keep.h"
#include "runtime/core/set/set_members.h"
#include "runtime/core/set/words.h"
#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

/* ---- Changing ------------------------------------------------------------ */

int hvd_process_set_add(const int *ranks, size_t count, int *set)
{
    struct hb_error err = HB_ERROR_INIT;

    hvd__set_add(ranks, count, set, &err);
    return hvd__tell(&err);
}

int hvd_process_set_add_members(const int *ranks, size_t count, const char *tag,
                                int *set)
{
    struct hb_error err = HB_ERROR_INIT;

    hvd__set_add_members(ranks, count, tag, set, &err);
    return hvd__tell(&err);
}

int hvd_process_set_remove(int set)
{
    struct hb_error err = HB_ERROR_INIT;

    hvd__set_remove(set, &err);
    return hvd__tell(&err);
}

static int add_sets(const int *const *ranks, const size_t *counts, size_t n,
                    struct hb_error *err)
{
    int shown = n < INT32_MAX ? (int)n : INT32_MAX;
    int rc = hvd__sets_agree(shown, "wants this many sets:", err);

    for (size_t i = 0; i < n && rc == 0; i++) {
        int set;

        rc = hvd__set_add(ranks[i], counts[i], &set, err);
    }
    return rc;
}

/* Removes the sets that all ranks have made. */
static int remove_all(struct hb_error *err)
{
    int rc = 0;

    for (int i = HVD_WORLD + 1; i < HVD_PROCESS_SETS_MAX && rc == 0; i++)
        if (hvd__set_find(i))
            rc = hvd__set_remove(i, err);
    return rc;
}

/* Makes the sets of hvd_init_sets.  In an elastic job, begins again with the
 * next generation if another rank dies, leaves or fails meanwhile.  Makes none
 * if the world has ranks of an earlier generation: their sets are the world's.
 */
static int add_first_sets(const int *const *ranks, const size_t *counts,
                          size_t n, struct hb_error *err)
{
    int rc = 0;

    while (hvd__sets_all_first()) {
        rc = remove_all(err);
        if (rc == 0)
            rc = add_sets(ranks, counts, n, err);
        /* If a rank dies while the last set is made, only some ranks may have
         * made it.  A rank that passes the barrier knows that all have all
         * sets, which the next generation then keeps. */
        if (rc == 0 && n > 0)
            rc = hvd__words_barrier(err);
        if (rc == 0 || !hvd__begins_again(err))
            return rc;
        hb_error_clear(err);
        rc = hvd__renew(1, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int hvd_init_sets(const int *const *ranks, const size_t *counts, size_t n)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    if (hvd_is_initialized())
        return hvd__fail(HVD_EINVAL, "hvd_init_sets: already initialised");
    if (n && (!ranks || !counts))
        return hvd__fail(HVD_EINVAL, "hvd_init_sets: ranks or counts is NULL");
    rc = hvd_init();
    if (rc < 0 || add_first_sets(ranks, counts, n, &err) == 0)
        return rc;
    hb_error_context(&err, "hvd_init_sets");
    hvd__blame(&err); /* while there is an agent to tell */
    hvd_shutdown();
    return hvd__tell(&err);
}

/* ---- Asking -------------------------------------------------------------- */

/* Returns the set, or NULL with *rc set and the error recorded. */
static struct hvd__set *look_up(int set, int *rc)
{
    struct hvd__set *s = hvd__alive() ? hvd__set_find(set) : NULL;

    if (!s && !hvd__alive())
        *rc = hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    else if (!s)
        *rc = hvd__fail(HVD_ENOSET, "there is no process set %d", set);
    return s;
}

int hvd_process_set_rank(int set)
{
    int rc = 0;
    const struct hvd__set *s = look_up(set, &rc);

    if (s && s->me < 0)
        return hvd__fail(HVD_ENOTMEMBER, "rank %d is not in process set %d",
                         hvd__context.topology.rank, set);
    return s ? s->me : rc;
}

int hvd_process_set_size(int set)
{
    int rc = 0;
    const struct hvd__set *s = look_up(set, &rc);

    return s ? s->n : rc;
}

int hvd_process_set_ranks(int set, int *ranks, size_t cap)
{
    int rc = 0;
    const struct hvd__set *s = look_up(set, &rc);

    if (!s)
        return rc;
    for (size_t i = 0; ranks && i < cap && i < (size_t)s->n; i++)
        ranks[i] = s->ranks[i];
    return s->n;
}

int hvd_process_sets(int *sets, size_t cap)
{
    int count = 0;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        if (hvd__set_find(i)) {
            if (sets && (size_t)count < cap)
                sets[count] = i;
            count++;
        }
    return count;
}

size_t hvd_reducescatter_rows(size_t rows, int process_set)
{
    const struct hvd__set *s = hvd__alive() ? hvd__set_find(process_set) : NULL;
    struct hvd__op op = {.count = rows, .row_elems = 1};

    return s && s->me >= 0 ? hvd__op_share(&op, s->me, s->n).count : 0;
}
