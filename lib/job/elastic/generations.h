/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when an elastic job gets a new generation, and of which ranks; see
 * lib/protocol/control/control_generation.h for the messages.
 *
 *     a rank is ready         it waits in hvd_init or hvd_sync
 *     every rank that lives   a generation of all of them is made
 *     is ready
 *     all but some that have  the same, but these have a moment to come back:
 *     left (hvd_shutdown)     the caller's settle timer
 *     a rank outside the      CHANGE: the members meet it at their next commit,
 *     generation is ready     if the next generation would be larger, or all
 *                             members are to leave
 *     too few are left        the job ends: fewer ranks than min_np live, have
 *                             exited with 0 or will be started again; if the
 *                             job may get new ranks, only when none lives, or
 *                             one has exited with 0
 *     ranks are to leave      CHANGE, too: the next generation is made without
 *                             them, and they are removed
 *     all are to leave        the same; the job ends when they are ready.  It
 *                             gets no new ranks, and goes on until then with
 *                             fewer than min_np, if others may not come any
 * more
 *
 * Nobody waits for a rank that was started later until it is ready, unless the
 * generation would have fewer than min_np ranks without it.
 *
 * A generation has at most `most` ranks, and a multiple of `multiple` until one
 * has exited with 0.  Those of the one before come first, then the others, each
 * by number.  Ranks that are ready and not needed wait for the next one: they
 * are spares.  None joins once a rank has exited with 0.  The job is done when
 * a rank has exited with 0 and all others that live are spares, or were started
 * later and not let in yet; those that have exited must be min_np.
 *
 * A member is removed at a commit only, and if it was to leave before CHANGE
 * was given: the others take over its part of the state at that commit, and
 * those that are asked to leave later go at the next.  Ranks that are ready
 * because another has died, or before a first commit has shown that all have
 * the state, get a generation of all that live, and meet again at their next
 * commit.  If fewer than min_np ranks would stay, those that are to leave are
 * kept until others have come.
 *
 * The state of the job is what its members have, so a generation always has a
 * member of the one before, if one lives.  If all members are to leave, they
 * first meet ranks that wait to join, at most `most`.  None is removed for
 * that, as each may be the only one that has some part of the state: the
 * generation may have more than `most` ranks.  They are removed at the next
 * commit, when the others have the state.  If all members have left by
 * themselves, those that wait to join wait until one comes back, or all have
 * ended.
 *
 * Pure: events in, one action out, no I/O and no clock.  After each event the
 * caller carries the action out, then starts and stops its two timers as
 * generations_settles and generations_waits say, and tells the ranks of
 * generations_take_removed.  After GENERATIONS_MADE it calls generations_begun.
 * After an action that ends the job, all events give GENERATIONS_NOTHING.
 */
#ifndef HVD_JOB_GENERATIONS_H
#define HVD_JOB_GENERATIONS_H

#include <stdint.h>

enum generations_action {
    GENERATIONS_NOTHING,
    GENERATIONS_MADE,   /* a new one: number, members and joined are set */
    GENERATIONS_CHANGE, /* tell the members to meet at their next commit */
    /* The job ends: */
    GENERATIONS_DONE,     /* all are done but spares and newcomers */
    GENERATIONS_STOPPED,  /* all ranks are removed, as asked */
    GENERATIONS_TOO_FEW,  /* too few ranks are left */
    GENERATIONS_TOO_MANY, /* the next would exceed the reset limit */
    GENERATIONS_OVERDUE,  /* ranks have waited for others for too long */
};

enum generations_life {
    GENERATIONS_LIVES,
    GENERATIONS_FINISHED, /* exited with 0 */
    GENERATIONS_FAILED,
    GENERATIONS_PENDING, /* failed, and will be started again */
    GENERATIONS_ABSENT,  /* was never started */
    GENERATIONS_REMOVED, /* in no generation any more, as asked */
    GENERATIONS_LIVES_COUNT,
};

enum generations_phase {
    GENERATIONS_AWAY, /* before hvd_init, or at work in its generation */
    GENERATIONS_READY,
    GENERATIONS_LEFT,
    GENERATIONS_STARTING, /* started later, and not yet ready */
    GENERATIONS_PHASES_COUNT,
};

/* A rank of the plan; the enums as bytes. */
struct generations_rank {
    unsigned char life, phase;
    unsigned char member;     /* of the current generation */
    unsigned char was_member; /* of any generation, and is no spare now */
    unsigned char leaves;     /* is to be removed at a commit */
    unsigned char due;        /* was so when CHANGE was given */
    unsigned char untold;     /* was removed: see generations_take_removed */
};

struct generations_config {
    int size; /* numbers of ranks */
    int np;   /* ranks that live at first: those below np */
    int min_np;
    int most;        /* members of a generation, besides those that hand the
                      * state over; 0: any number */
    int multiple;    /* a generation has a multiple of it; 0: any number */
    int reset_limit; /* generations allowed after the first; -1: any number */
    int grows;       /* ranks that are ABSENT or FAILED may be started */
};

struct generations {
    struct generations_config config;
    struct generations_rank *ranks; /* [size] */

    /* Counts of the ranks, so that an event costs no walk through them. */
    int lives[GENERATIONS_LIVES_COUNT];
    int untold;
    /* Of those that live, by their phase: */
    int phases[GENERATIONS_PHASES_COUNT];       /* all */
    int were_members[GENERATIONS_PHASES_COUNT]; /* of any generation */
    int members[GENERATIONS_PHASES_COUNT];      /* of the current one */
    int leaving[GENERATIONS_PHASES_COUNT];      /* these, if to leave */
    int due[GENERATIONS_PHASES_COUNT];          /* these, if due */

    uint32_t number; /* of the current generation; 0: there was none */
    int joined;      /* its members that were in none before */
    int removed;     /* members of the one before that were removed */
    int changing;    /* GENERATIONS_CHANGE was given for it */
    int committed;   /* its members have made a commit */
    int broken;      /* a member has ended, or has come out of it unasked */
    int stopping;    /* all ranks are to leave */
    int ended;       /* an action that ends the job was given */
};

/* Starts with `np` living ranks, none of them ready. */
void generations_init(struct generations *g,
                      const struct generations_config *config);
void generations_fini(struct generations *g);

/* Notes an event; what is heard of a rank that has ended changes nothing. */
enum generations_action generations_ready(struct generations *g, int rank);
enum generations_action generations_left(struct generations *g, int rank);
/* Notes that ranks of a generation have made a commit; to be called before it
 * is noted that they are ready again. */
void generations_committed(struct generations *g, uint32_t number);
/* Notes that ranks have ended at once; those that were PENDING will not be
 * started.  `life`: FINISHED with exit code 0;
 * PENDING if they will be started again; else FAILED, also if their host was
 * lost. */
enum generations_action generations_ended(struct generations *g,
                                          const int *ranks, int count,
                                          enum generations_life life);
/* Notes that a rank that was PENDING, FAILED or ABSENT is started; or that one
 * that was PENDING will not be. */
void generations_started(struct generations *g, int rank);
enum generations_action generations_given_up(struct generations *g, int rank);
enum generations_action generations_settled(struct generations *g);
enum generations_action generations_overdue(struct generations *g);
/* Returns the action that is due after GENERATIONS_MADE or generations_ask. */
enum generations_action generations_begun(struct generations *g);

/* Returns whether enough ranks are left if `count` more fail. */
int generations_can_lose(const struct generations *g, int count);
/* Returns whether enough ranks would stay without these, and those that are to
 * leave already; or others may come. */
int generations_can_remove(const struct generations *g, const int *ranks,
                           int count);
/* Returns whether enough ranks would stay if these left, besides those that
 * were already asked to, and no new ones came. */
int generations_can_spare(const struct generations *g, const int *ranks,
                          int count);
/* Asks for the removal of ranks; of those that have ended, only restarts are
 * given up.  Ranks asked for before the same action leave at the same
 * commit. */
void generations_ask(struct generations *g, const int *ranks, int count);
enum generations_action generations_remove(struct generations *g,
                                           const int *ranks, int count);
/* Asks for the removal of all ranks, after which the job ends. */
enum generations_action generations_stop(struct generations *g);
/* Lists the ranks that were removed since the last call; returns how many. */
int generations_take_removed(struct generations *g, int *ranks);

/* Returns whether only ranks that have left are still waited for. */
int generations_settles(const struct generations *g);
/* Returns whether members of the current generation wait for others. */
int generations_waits(const struct generations *g);
/* Returns whether spares are ready: ranks for which the generation has no
 * room. */
int generations_have_spares(const struct generations *g);
/* Returns how many ranks are left: those that live, that have exited with 0 and
 * that will be started again. */
int generations_left_count(const struct generations *g);
/* Returns whether the rank lives, and keeps those that are ready waiting. */
int generations_is_missing(const struct generations *g, int rank);

/* Lists the members of the current generation, ascending; returns how many. */
int generations_members(const struct generations *g, int *ranks);

#endif
