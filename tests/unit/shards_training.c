/* SPDX-License-Identifier: Apache-2.0 */
/* A training with shards; see shards_training.h. */
#include "tests/unit/shards_training.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct shards_scene *shards_scene;
int64_t shards_step, *shards_own, *shards_extra;
int64_t shards_check;
int shards_resizes;

/* ---- The array ----------------------------------------------------------- */

/* Returns where the shard of a rank begins: uneven. */
static int64_t begins(int rank, int size)
{
    return shards_scene->elems * (int64_t)rank * rank / ((int64_t)size * size);
}

int64_t shards_elems(int rank, int size)
{
    return begins(rank + 1, size) - begins(rank, size);
}

/* Gives the shards the sizes that they have in this world. */
int shards_resize(hvd_state *s, int rank, int size)
{
    size_t bytes = (size_t)shards_elems(rank, size) * sizeof(*shards_own);
    int64_t *more = realloc(shards_own, bytes + 1);
    int rc;

    if (!more)
        return -HVD_ENOMEM;
    shards_own = more;
    rc = hvd_state_resize(s, "shard", shards_own, bytes);
    /* The last rank has all of this one. */
    if (rc == 0)
        rc = hvd_state_resize(s, "extra", shards_extra,
                              rank == size - 1 ? 8 * sizeof(*shards_extra) : 0);
    return rc;
}

static void fill(void)
{
    int64_t at = begins(hvd_rank(), hvd_size());
    int64_t n = shards_elems(hvd_rank(), hvd_size());

    for (int64_t i = 0; i < n; i++)
        shards_own[i] = at + i + shards_step * SHARDS_GROWTH;
    for (int i = 0; i < 8; i++)
        shards_extra[i] = shards_step + i;
}

int shards_are_right(void)
{
    int64_t at = begins(hvd_rank(), hvd_size());
    int64_t n = shards_elems(hvd_rank(), hvd_size());

    for (int64_t i = 0; i < n; i++)
        if (shards_own[i] != at + i + shards_step * SHARDS_GROWTH) {
            fprintf(stderr,
                    "rank %d of %d, step %lld: [%lld] is %lld, not %lld\n",
                    hvd_rank(), hvd_size(), (long long)shards_step,
                    (long long)i, (long long)shards_own[i],
                    (long long)(at + i + shards_step * SHARDS_GROWTH));
            return 0;
        }
    for (int i = 0; i < 8 && hvd_rank() == hvd_size() - 1; i++)
        if (shards_extra[i] != shards_step + i)
            return 0;
    return shards_check == shards_step * 7;
}

static int on_resize(void *arg, const struct hvd_change *c)
{
    shards_resizes++;
    return shards_resize(arg, c->rank, c->size);
}

/* Makes the state for the world of hvd_init. */
hvd_state *shards_make(void)
{
    hvd_state *s = NULL;

    shards_extra = calloc(8, sizeof(*shards_extra));
    if (hvd_state_new(&s) < 0 ||
        hvd_state_add(s, "step", &shards_step, sizeof(shards_step), 0) < 0 ||
        hvd_state_add(s, "shard", NULL, 0, HVD_STATE_SHARDED) < 0 ||
        hvd_state_add(s, "check", &shards_check, sizeof(shards_check), 0) < 0 ||
        hvd_state_add(s, "extra", NULL, 0, HVD_STATE_SHARDED) < 0 ||
        shards_resize(s, hvd_rank(), hvd_size()) < 0)
        return NULL;
    fill();
    hvd_on_resize(on_resize, s);
    return s;
}

void shards_free(hvd_state *s)
{
    hvd_state_free(s);
    free(shards_own);
    free(shards_extra);
}

/* ---- A training ---------------------------------------------------------- */

void shards_die(void)
{
    kill(getpid(), SIGKILL);
}

/* Does what hvd_commit does until the victim's instant has come. */
static int commit_and_die(hvd_state *s, enum instant when)
{
    struct hvd__shard_layout *layout = NULL;
    int target = s->shards.confirmed == 0, rc;

    if (when == AT_WORK)
        shards_die();
    rc = hvd__shards_commit_begin(s, 0, &layout);
    if (rc == 0 && when == BEFORE_COPY)
        shards_die();
    if (rc == 0)
        rc = hvd__shards_copy(s, layout, target);
    if (rc == 0 && when == BEFORE_ALL)
        shards_die();
    if (rc == 0)
        rc = hvd__shards_confirm(s, target);
    /* Or one of the other victims has died before. */
    if (rc == 0 || rc == -HVD_ERESIZED)
        shards_die();
    hvd__shard_layout_unref(layout);
    return rc;
}

void shards_grow(void)
{
    int64_t n = shards_elems(hvd_rank(), hvd_size());

    for (int64_t i = 0; i < n; i++)
        shards_own[i] += SHARDS_GROWTH;
    for (int i = 0; i < 8; i++)
        shards_extra[i]++;
    shards_step++;
    shards_check += 7;
}

/* Adds to the shard and to all else; as a program does, before the last
 * operation of the step.  dies: an instant of this step's commit, or NEVER. */
int shards_do_step(hvd_state *s, int dies)
{
    int64_t ranks = 1;
    int rc;

    shards_grow();
    rc = hvd_allreduce(&ranks, &ranks, 1, HVD_INT64, HVD_SUM, NULL);
    if (rc == -HVD_ERESIZED && dies != NEVER)
        shards_die();
    if (rc < 0)
        return rc;
    if (ranks != hvd_size() || !shards_are_right())
        return 1;
    return dies == NEVER ? hvd_commit(s)
                         : commit_and_die(s, (enum instant)dies);
}

int shards_sync(hvd_state *s)
{
    int rc = hvd_sync(s);

    return rc == 0 && !shards_are_right() ? 1 : rc;
}

/* Trains to the end; returns a status, or 1 if a value is wrong. */
int shards_train(hvd_state *s, int is_victim)
{
    int rc = shards_sync(s);

    while (rc == 0 && shards_step < SHARDS_STEPS) {
        rc = shards_do_step(s, is_victim && shards_step + 1 == shards_scene->at
                                   ? (int)shards_scene->when
                                   : NEVER);
        if (rc == -HVD_ERESIZED)
            rc = shards_sync(s);
    }
    return rc;
}

/* Does steps until the world has this size. */
int shards_train_until(hvd_state *s, int size)
{
    int rc = 0;

    while (rc == 0 && hvd_size() != size) {
        rc = shards_do_step(s, NEVER);
        usleep(1000);
        if (rc == -HVD_ERESIZED)
            rc = shards_sync(s);
    }
    return rc;
}

int shards_play(struct shards_scene *played, world_fn *body)
{
    struct world w = {.size = played->size,
                      .body = body,
                      .arg = played,
                      .place = played->place,
                      .elastic = 1,
                      .late = played->late};

    shards_scene = played;
    return world_run_with(&w);
}
