/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping process sets; see set_keep.h.
 *
 * Ranks are renumbered in each generation, so processes are told apart by a
 * number of their own.  Sets that all ranks have made have the same number on
 * all; each rank tells of which it is a member, so nobody needs to know who has
 * died.  A set that its members have made alone has different numbers, and is
 * told apart by its birth.
 */
#include "runtime/core/set/set_keep.h"

#include "lib/base/alloc.h"
#include "runtime/core/set/set.h"
#include "runtime/core/set/set_change.h"
#include "runtime/core/set/set_members.h"
#include "runtime/core/set/words.h"
#include "runtime/core/world/context.h"

#include <stdlib.h>
#include <string.h>

enum { BITMAP_BYTES = HVD_PROCESS_SETS_MAX / 8 };

/* A set that its members have made alone. */
struct alone {
    int id; /* on this rank */
    struct hvd__set_birth birth;
    int n;
    uint64_t *members; /* [n]: processes */
};

/* What this rank has noted. */
struct notes {
    unsigned char has[BITMAP_BYTES];   /* sets that all ranks have made */
    unsigned char is_in[BITMAP_BYTES]; /* those of which it is a member */
    struct alone *alone;
    uint32_t alone_count;
};

/* What each rank reports first. */
struct set_report {
    uint64_t process;
    uint32_t is_new; /* it has nothing to say of sets */
    uint32_t alone_count;
    uint32_t is_first; /* it is in its first generation */
    uint32_t reserved;
    unsigned char has[BITMAP_BYTES], is_in[BITMAP_BYTES];
};

static struct {
    uint64_t process;    /* this one's number until it forgets; 0: none yet */
    int has_begun;       /* it was in a generation, and has its first sets */
    int all_first;       /* all ranks of the world are in their first one */
    uint32_t last;       /* the last generation that it was in; 0: none */
    uint32_t returned;   /* the last that it entered after one without it */
    int is_new;          /* it has not been in a generation before this one */
    uint64_t *processes; /* [size]: those of the world's ranks */
    struct notes notes;
} kept = {.is_new = 1};

static int bit(const unsigned char *map, int i)
{
    return map[i / 8] >> i % 8 & 1;
}

static void set_bit(unsigned char *map, int i)
{
    map[i / 8] |= (unsigned char)(1u << i % 8);
}

static int no_memory(struct hb_error *err)
{
    return hb_error_set(err, HVD_ENOMEM,
                        "no memory to keep process sets in a new generation");
}

static void notes_fini(struct notes *notes)
{
    for (uint32_t i = 0; i < notes->alone_count; i++)
        hb_free(notes->alone[i].members);
    hb_free(notes->alone);
    memset(notes, 0, sizeof(*notes));
}

/* ---- Noting -------------------------------------------------------------- */

static int by_birth(const void *pa, const void *pb)
{
    const struct alone *a = pa, *b = pb;

    return hvd__set_birth_compare(&a->birth, &b->birth);
}

/* Notes a set that this rank has made with other members. */
static int note_alone(struct notes *notes, const struct hvd__set *s)
{
    struct alone *a = &notes->alone[notes->alone_count];

    *a = (struct alone){.id = s->id, .birth = s->birth, .n = s->n};
    a->members = hb_calloc((size_t)s->n, sizeof(*a->members));
    if (!a->members)
        return -HVD_ENOMEM;
    for (int i = 0; i < s->n; i++)
        a->members[i] = kept.processes[s->ranks[i]];
    notes->alone_count++;
    return 0;
}

int hvd__sets_remember(struct hb_error *err)
{
    struct notes notes = {0};
    int rc = 0;

    if (!kept.processes)
        return 0;
    notes.alone = hb_calloc(HVD_PROCESS_SETS_MAX, sizeof(*notes.alone));
    if (!notes.alone)
        return no_memory(err);
    for (int i = HVD_WORLD + 1; i < HVD_PROCESS_SETS_MAX && rc == 0; i++) {
        const struct hvd__set *s = hvd__set_find(i);

        if (s && s->founded) {
            rc = note_alone(&notes, s);
        } else if (s) {
            set_bit(notes.has, i);
            if (s->me >= 0)
                set_bit(notes.is_in, i);
        }
    }
    if (rc < 0) {
        notes_fini(&notes);
        return no_memory(err);
    }
    qsort(notes.alone, notes.alone_count, sizeof(*notes.alone), by_birth);
    notes_fini(&kept.notes);
    kept.notes = notes;
    return 0;
}

void hvd__sets_forget(void)
{
    notes_fini(&kept.notes);
    hb_free(kept.processes);
    kept.processes = NULL;
    kept.process = 0;
    kept.is_new = 1;
    kept.has_begun = 0;
}

void hvd__sets_begin_again(void)
{
    kept.has_begun = 0;
}

int hvd__sets_all_first(void)
{
    return kept.all_first;
}

void hvd__sets_enter(uint32_t generation)
{
    if (!generation)
        return;
    /* The sets may have changed while this rank was a spare. */
    if (kept.last && generation != kept.last + 1) {
        hvd__sets_forget();
        kept.returned = generation;
    }
    kept.last = generation;
}

uint32_t hvd__sets_returned(void)
{
    return kept.returned;
}

/* ---- Sets that all ranks have made --------------------------------------- */

/* Makes set `id` again if all ranks that are not new have noted it.  members:
 * room for all ranks. */
static int remake(int id, const struct set_report *all, int *members,
                  struct hb_error *err)
{
    int n = 0, has = 0;

    for (int r = 0; r < hvd__context.topology.size; r++) {
        if (all[r].is_new)
            continue;
        if (!bit(all[r].has, id))
            return 0;
        has = 1;
        if (bit(all[r].is_in, id))
            members[n++] = r;
    }
    return has ? hvd__set_remake(id, members, n, err) : 0;
}

/* ---- Sets that their members have made alone ------------------------------
 */

/* Returns whether a rank has noted a birth; births [most]: those of that
 * rank. */
static int has_birth(const struct hvd__set_birth *births, uint32_t most,
                     const struct hvd__set_birth *birth)
{
    for (uint32_t i = 0; i < most; i++)
        if (hvd__set_birth_compare(&births[i], birth) == 0)
            return 1;
    return 0;
}

static int is_member(const struct alone *a, uint64_t process)
{
    for (int i = 0; i < a->n; i++)
        if (a->members[i] == process)
            return 1;
    return 0;
}

/* Makes a set again with its members that are left, if all of these have noted
 * it.  births: [most] of each rank. */
static int remake_alone(const struct alone *a,
                        const struct hvd__set_birth *births, uint32_t most,
                        int *members, struct hb_error *err)
{
    int n = 0;

    for (int r = 0; r < hvd__context.topology.size; r++) {
        if (!is_member(a, kept.processes[r]))
            continue;
        if (!has_birth(births + (size_t)r * most, most, &a->birth))
            return 0;
        members[n++] = r;
    }
    return hvd__set_remake_members(a->id, members, n, &a->birth, err);
}

/* Makes the sets again that some ranks have made alone, at most `most` of
 * each. All ranks go through them in the same order, so nobody waits in vain.
 */
static int remake_all_alone(uint32_t most, int *members, struct hb_error *err)
{
    size_t bytes = most * sizeof(struct hvd__set_birth);
    size_t size = (size_t)hvd__context.topology.size;
    struct hvd__set_birth *own = hb_calloc(most, sizeof(*own));
    struct hvd__set_birth *births = hb_calloc(size * most, sizeof(*births));
    int rc = own && births ? 0 : no_memory(err);

    for (uint32_t i = 0; i < kept.notes.alone_count && rc == 0; i++)
        own[i] = kept.notes.alone[i].birth;
    if (rc == 0)
        rc = hvd__words_allgather(own, bytes, births, size * bytes, err);
    for (uint32_t i = 0; i < kept.notes.alone_count && rc == 0; i++)
        rc = remake_alone(&kept.notes.alone[i], births, most, members, err);
    hb_free(own);
    hb_free(births);
    return rc;
}

/* ---- All ------------------------------------------------------------------
 */

/* Checks the ranks' reports, and takes the numbers of their processes.  *most:
 * the greatest alone_count. */
static int take_reports(const struct set_report *all, uint32_t *most,
                        struct hb_error *err)
{
    int size = hvd__context.topology.size;
    uint64_t *processes = hb_calloc((size_t)size, sizeof(*processes));

    if (!processes)
        return no_memory(err);
    hb_free(kept.processes);
    kept.processes = processes;
    kept.all_first = 1;
    *most = 0;
    for (int r = 0; r < size; r++) {
        processes[r] = all[r].process;
        kept.all_first &= all[r].is_first != 0;
        if (all[r].alone_count >= HVD_PROCESS_SETS_MAX)
            return hb_error_set(err, HVD_EPROTO,
                                "rank %d tells of %u process sets", r,
                                all[r].alone_count);
        if (all[r].alone_count > *most)
            *most = all[r].alone_count;
    }
    return 0;
}

/* Exchanges the ranks' notes and makes the sets on which all ranks agree.  all,
 * members: memory for all ranks. */
static int remake_sets(struct set_report *all, int *members,
                       struct hb_error *err)
{
    struct set_report own = {.process = kept.process,
                             .is_new = (uint32_t)kept.is_new,
                             .is_first = !kept.has_begun,
                             .alone_count = kept.notes.alone_count};
    size_t room = (size_t)hvd__context.topology.size * sizeof(own);
    uint32_t most = 0;
    int rc;

    memcpy(own.has, kept.notes.has, sizeof(own.has));
    memcpy(own.is_in, kept.notes.is_in, sizeof(own.is_in));
    rc = hvd__words_allgather(&own, sizeof(own), all, room, err);
    if (rc == 0)
        rc = take_reports(all, &most, err);
    for (int i = HVD_WORLD + 1; i < HVD_PROCESS_SETS_MAX && rc == 0; i++)
        rc = remake(i, all, members, err);
    if (rc == 0 && most)
        rc = remake_all_alone(most, members, err);
    return rc;
}

/* Numbers the processes of the first generation, to which nobody has brought a
 * set. */
static int number_first(struct set_report *all, struct hb_error *err)
{
    uint32_t most;

    for (int r = 0; r < hvd__context.topology.size; r++)
        all[r] = (struct set_report){.process = (uint64_t)1 << 32 | (uint32_t)r,
                                     .is_first = 1};
    return take_reports(all, &most, err);
}

int hvd__sets_remake(struct hb_error *err)
{
    uint32_t generation = atomic_load(&hvd__context.generation);
    size_t size = (size_t)hvd__context.topology.size;
    struct set_report *all;
    int *members, rc;

    kept.all_first = 1;
    if (!generation)
        return 0;
    /* No other process has this rank in this generation. */
    if (!kept.process)
        kept.process =
            (uint64_t)generation << 32 | (uint32_t)hvd__context.topology.rank;
    all = hb_calloc(size, sizeof(*all));
    members = hb_calloc(size, sizeof(*members));
    if (!all || !members)
        rc = no_memory(err);
    else if (generation == 1)
        rc = number_first(all, err);
    else
        rc = remake_sets(all, members, err);
    hb_free(all);
    hb_free(members);
    if (rc < 0)
        return rc;
    notes_fini(&kept.notes);
    kept.is_new = 0;
    kept.has_begun = 1;
    return 0;
}
