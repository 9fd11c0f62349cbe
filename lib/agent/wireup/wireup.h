/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire-up: how the ranks of an MPI program that hvdrun started learn who
 * they are and exchange their addresses.
 *
 * Each kind of wire-up (struct wireup_kind) speaks what one family of MPIs
 * expects of a launcher.  This module chooses the kind, limits its times, and
 * knows which ranks have connected.  A rank has connected when it has called
 * MPI_Init, and finished when it has called MPI_Finalize.  With `none`, and for
 * programs that need nothing, there is no kind and all functions return at
 * once.
 *
 * A kind may need a moment to open or close, for example because its server is
 * another process.  No callback runs inside the function that causes it.
 */
#ifndef HVD_AGENT_WIREUP_H
#define HVD_AGENT_WIREUP_H

#include "lib/agent/rdv_relay.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/protocol/control/control.h"

#include <signal.h>
#include <uv.h>

enum { WIREUP_DOOM_MS = 2000 }; /* doom_ms of all kinds */

/* What functions return that may complete later. */
enum { WIREUP_NOW = 0, WIREUP_LATER = 1 };

/* How the process of a rank has ended. */
enum wireup_exit {
    WIREUP_EXIT_0,
    WIREUP_EXIT_ERROR, /* by itself, with another exit code */
    WIREUP_KILLED,     /* by a signal, while the job was ending, or not run */
};

/* What the end of a rank's process means. */
enum wireup_end {
    WIREUP_GOOD,
    /* It exited with 0 and had connected, but not finished: a failure. */
    WIREUP_UNFINISHED,
};

/* A rank, or the wire-up itself, ends the job. */
struct wireup_abort {
    int slot;      /* local rank, which is killed; -1: the wire-up has failed */
    int exit_code; /* 1..255 */
    int blames;    /* as in struct control_exited */
    const char *text; /* one phrase */
};

/* What the owner is told. */
struct wireup_events {
    /* After wireup_open returned WIREUP_LATER; err NULL: it is open.  May close
     * the wire-up. */
    void (*on_open)(void *arg, const struct hb_error *err);
    /* After wireup_rank_ended returned WIREUP_LATER. */
    void (*on_settled)(void *arg, int slot, enum wireup_end how);
    void (*on_abort)(void *arg, const struct wireup_abort *m);
    void (*on_closed)(void *arg); /* after WIREUP_LATER */
};

struct wireup_config {
    uv_loop_t *loop;
    const struct control_launch *job;
    const struct hb_log *log;
    struct relay *relay; /* to hvdrun's rendezvous store */
    const struct wireup_events *events;
    void *arg;
    /* The library that the kind's server is to load, because the program's MPI
     * does; needed while it opens.  NULL: none is known. */
    const char *pmix;
    /* Memory of GUARDIAN_PATH_MAX bytes in which the guardian finds the path of
     * a directory to remove; may be NULL. */
    char *guarded_dir;
    /* The file of the program's MPI, or NULL: not known.  Set by wireup_open,
     * for the kind's function `open` only. */
    const char *library;
};

enum wireup_phase {
    WIREUP_CLOSED, /* also before it is opened */
    WIREUP_OPENING,
    WIREUP_OPEN,
    WIREUP_CLOSING,
};

/* A local rank. */
struct wireup_slot {
    int connected, finished, gone;
    int settling; /* its end is not yet explained */
    /* Exited without having connected; `failed`: not with 0. */
    int singleton, failed;
    int spawned; /* wanted to spawn */
};

struct wireup {
    struct wireup_config config;
    const struct wireup_kind *kind; /* NULL: none */
    /* The kind was found, not asked for: ranks start without it if it does not
     * open; then `without` is set. */
    int optional, without;
    uint32_t watch;  /* request for a host that goes without; 0: none */
    char *lone_host; /* says which host does; NULL: none that is known */
    void *state;     /* the kind's own */
    /* The process group of the kind's server, a child of the agent that is
     * spared when the ranks are told to end; 0: none.  The kind sets it. */
    pid_t helper;
    int killed; /* the helper, because it did not close in time */
    enum wireup_phase phase;
    struct wireup_slot *slots;
    int left;     /* ranks that have not ended */
    int settling; /* how many slots are */
    int timers;   /* the timers are initialized */
    uv_timer_t limit, doom;
    struct { /* why no rank can go on */
        char *text;
        int blames;
    } doomed;
};

/*
 * A kind.  Functions that may be NULL say so.  A kind tells what happens by the
 * functions at the end of this file.
 */
struct wireup_kind {
    const char *name; /* as in --wireup */
    const char *what; /* the programs that use it: "Open MPI" */
    /* Time limits: to open; to tell how a rank has ended; to close before the
     * helper is killed.  0 if that is done at once. */
    int open_ms, settle_ms, close_ms;
    /* A job in which a rank is lost has this long to end by other means, which
     * explain more, before a rank that waits for the lost one is ended. */
    int doom_ms;
    /* Begins.  WIREUP_NOW: it is open; WIREUP_LATER: wireup_opened follows; or
     * negative with err set, and nothing is left to close. */
    int (*open)(struct wireup *w, struct hb_error *err);
    /* Adds NAME=VALUE for the rank in `slot`. */
    void (*environment)(struct wireup *w, int slot, struct hb_strv *out);
    /* Sets *fd to the descriptor that the rank inherits as SPAWN_PASS_FD, or to
     * -1.  The kind closes it in rank_started, or when it closes.  May be
     * NULL. */
    int (*descriptor)(struct wireup *w, int slot, int *fd,
                      struct hb_error *err);
    /* Notes that the rank runs.  May be NULL. */
    void (*rank_started)(struct wireup *w, int slot);
    /* Reads what the rank, which has just ended, had still sent, so that the
     * slot is up to date: WIREUP_NOW; or WIREUP_LATER: wireup_settled follows.
     * May be NULL. */
    int (*rank_ended)(struct wireup *w, int slot);
    /* Reaps nothing: the agent has reaped the helper, and w->helper is 0.  May
     * be NULL if there is no helper. */
    void (*helper_ended)(struct wireup *w, const siginfo_t *info);
    /* Ends, also while it opens: WIREUP_NOW, or WIREUP_LATER: wireup_closed
     * follows.  Handles of the loop may still be closing. */
    int (*close)(struct wireup *w);
    /* Frees w->state; the loop has run empty. */
    void (*fini)(struct wireup *w);
};

/* ---- For the agent ---- */

/* Chooses the kind by the job's --wireup and, with `auto`, by what `program`
 * needs, and begins to open it.  WIREUP_NOW, or WIREUP_LATER: on_open follows;
 * or negative with err set. */
int wireup_open(struct wireup *w, const struct wireup_config *config,
                const char *program, struct hb_error *err);
/* Opens that kind, as wireup_open. */
int wireup_open_kind(struct wireup *w, const struct wireup_config *config,
                     const struct wireup_kind *kind, struct hb_error *err);
/* Asks the kind, as in struct wireup_kind. */
void wireup_environment(struct wireup *w, int slot, struct hb_strv *out);
int wireup_descriptor(struct wireup *w, int slot, int *fd,
                      struct hb_error *err);
void wireup_rank_started(struct wireup *w, int slot);
/* Notes how the rank's process has ended: WIREUP_NOW with *how, or
 * WIREUP_LATER: on_settled follows.  When the last rank has ended, warns of
 * ranks that never connected; of failed ones only if no rank connected. */
int wireup_rank_ended(struct wireup *w, int slot, enum wireup_exit status,
                      enum wireup_end *how);
/* Returns whether `pid`, which has ended, was the helper, and tells the
 * kind. */
int wireup_helper_ended(struct wireup *w, pid_t pid, const siginfo_t *info);
/* Closes: WIREUP_NOW if it is closed already, else WIREUP_LATER: on_closed
 * follows.  May be repeated. */
int wireup_close(struct wireup *w);
/* Closes the timers; after this no callback runs.  The loop must run empty
 * before wireup_fini. */
void wireup_stop(struct wireup *w);
void wireup_fini(struct wireup *w);

/* ---- For kinds ---- */

void wireup_opened(struct wireup *w, const struct hb_error *err);
void wireup_connected(struct wireup *w, int slot);
void wireup_finished(struct wireup *w, int slot);
void wireup_settled(struct wireup *w, int slot);
/* Tells the user, once for a rank, why MPI_Comm_spawn fails. */
void wireup_refused_spawn(struct wireup *w, int slot);
void wireup_closed(struct wireup *w);
/* Ends the job because of the rank in m->slot, or because the wire-up itself
 * failed. */
void wireup_abort(struct wireup *w, const struct wireup_abort *m);
/* Notes that connected ranks wait for a rank that will not come: `blames` is 1
 * + its number, or 0.  Ends one of those that wait, unless the job ends
 * before. */
void wireup_doom(struct wireup *w, int blames, const char *text);

#endif
