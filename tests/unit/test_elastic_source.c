/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deaths while a state is being copied in hvd_sync: of the rank that gives it
 * out, and of one that takes it.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 2 << 20, PAGE = 4096 };

/* What a test does, and where. */
struct scene {
    const char *place; /* of the ranks, as in struct world */
    int size;
    int late;   /* ranks that come late */
    int victim; /* rank that dies in the middle of a copy */
};

/* The state: the number of commits, and memory that holds it in every byte. */
static int64_t step;
static unsigned char *memory;

static void die(int sig)
{
    (void)sig;
    kill(getpid(), SIGKILL);
}

/* Makes this rank die when it accesses the last page of its state. */
static int die_in_copy(void)
{
    signal(SIGSEGV, die);
    return mprotect(memory + BYTES - PAGE, PAGE, PROT_NONE);
}

static hvd_state *make_state(void)
{
    hvd_state *s = NULL;

    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || hvd_state_new(&s) < 0 ||
        hvd_state_add(s, "step", &step, sizeof(step), 0) < 0 ||
        hvd_state_add(s, "memory", memory, BYTES, 0) < 0)
        return NULL;
    return s;
}

static int is_whole(void)
{
    return memory[0] == (unsigned char)step &&
           memcmp(memory, memory + 1, BYTES - 1) == 0;
}

static int step_once(hvd_state *s)
{
    int rc = hvd_barrier(NULL);

    if (rc < 0)
        return rc;
    memset(memory, (int)++step, BYTES);
    return hvd_commit(s);
}

static int play(struct scene *scene, world_fn *body)
{
    struct world w = {.size = scene->size,
                      .body = body,
                      .arg = scene,
                      .place = scene->place,
                      .elastic = 1,
                      .late = scene->late};

    return world_run_with(&w);
}

/* Works until a late rank waits to join, or joins as that rank.  The victim is
 * ready to die when this returns. */
static int until_it_joins(const struct scene *scene, int rank, hvd_state *s)
{
    int rc = 0;

    if (rank >= scene->size - scene->late) {
        while (!atomic_load(&world_board->flag[0]))
            usleep(1000);
        want(hvd_init() == 0);
    } else {
        want(hvd_init() == 0 && hvd_sync(s) == 0);
        while ((rc = step_once(s)) == 0) {
            if (rank == 0 && step == 3)
                atomic_store(&world_board->flag[0], 1);
            usleep(1000);
        }
        want(rc == -HVD_ERESIZED && step >= 3);
    }
    want(rank != scene->victim || die_in_copy() == 0);
    return 0;
}

/* Another rank that has the state gives it out.  Where one that takes it dies,
 * the others may have it by then. */
static int another_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    hvd_state *s = make_state();
    int rc;

    want(s && until_it_joins(scene, rank, s) == 0);
    want(hvd_sync(s) == 0);
    want(step >= 3 && is_whole());
    while (step < 12) {
        rc = step_once(s);
        want(rc == 0 || (rc == -HVD_ERESIZED && hvd_sync(s) == 0));
        want(is_whole());
    }
    want(hvd_generation() == 3 && hvd_size() == scene->size - 1);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

static const struct scene others[] = {
    {NULL, 4, 1, 0},   {NULL, 4, 1, 3},   {NULL, 4, 2, 3},
    {"aabb", 4, 1, 0}, {"aabb", 4, 1, 3}, {"abbb", 4, 1, 0},
};

START_TEST(test_another_gives)
{
    struct scene scene = others[_i];

    ck_assert_int_eq(play(&scene, another_body), 1);
}
END_TEST

/* The only rank that has the state dies while it copies the state to the
 * others, which must not continue with an incomplete state. */
static int nobody_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    hvd_state *s = make_state();

    want(s && until_it_joins(scene, rank, s) == 0);
    want(hvd_sync(s) == -HVD_ENOENT);
    want(strstr(hvd_error_message(), "no rank has a complete state"));
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_nobody_has_it)
{
    struct scene scene = {.size = 3, .late = 2};

    ck_assert_int_eq(play(&scene, nobody_body), 1);
}
END_TEST

/* A rank dies while the state is copied for the first time. */
static int first_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    hvd_state *s = make_state();
    int rc;

    want(s && hvd_init() == 0);
    want(rank != scene->victim || die_in_copy() == 0);
    memset(memory, rank == 0 ? 0 : 7, rank == scene->victim ? PAGE : BYTES);
    rc = hvd_sync(s);
    if (scene->victim == 0) {
        want(rc == -HVD_ENOENT);
        want(strstr(hvd_error_message(), "no rank has a complete state"));
    } else {
        want(rc == 0 && is_whole());
        while ((rc = step_once(s)) == 0 && hvd_generation() == 1)
            continue;
        want(rc == 0 || (rc == -HVD_ERESIZED && hvd_sync(s) == 0));
        want(is_whole() && hvd_size() == scene->size - 1);
    }
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_first_time)
{
    struct scene scene = {.size = 3, .victim = _i};

    ck_assert_int_eq(play(&scene, first_body), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("elastic_source");
    TCase *tc = tcase_create("elastic_source");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_another_gives, 0,
                        (int)(sizeof(others) / sizeof(others[0])));
    tcase_add_test(tc, test_nobody_has_it);
    tcase_add_loop_test(tc, test_first_time, 0, 3);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
