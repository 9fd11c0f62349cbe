/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hvdrun doctor` has found: messages with advice, each printed once for
 * all hosts that it concerns.
 */
#ifndef HVDRUN_FINDINGS_H
#define HVDRUN_FINDINGS_H

#include "lib/base/buf.h"
#include "lib/base/strv.h"

#include <jansson.h>

enum finding_kind {
    FINDING_OK,   /* summary of a section in which nothing is wrong */
    FINDING_NOTE, /* worth knowing, but not wrong */
    FINDING_WRONG,
};

struct finding {
    enum finding_kind kind;
    const char *section; /* a constant */
    char *text, *fix;    /* fix "": none */
    struct hb_strv hosts;
};

struct findings {
    struct finding *items;
    size_t count, cap;
};

/* clang-format off */
#define FINDINGS_INIT { NULL, 0, 0 }
/* clang-format on */

/* Adds a finding, or one more host to the finding with the same section and
 * text; host NULL: none in particular. */
void findings_add(struct findings *f, enum finding_kind kind,
                  const char *section, const char *host, const char *fix,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Returns how many findings are wrong, in one section or (NULL) in all. */
size_t findings_wrong(const struct findings *f, const char *section);

/* Appends the findings as text: a line each with its hosts folded, the fix
 * below.  In the order of `sections` (NULL-terminated); within each, what is
 * not wrong comes first. */
void findings_format(const struct findings *f, const char *const *sections,
                     struct hb_buf *out);
json_t *findings_json(const struct findings *f);
void findings_free(struct findings *f);

/*
 * Compares the values of `what`, e.g. "NCCL", on several hosts; NULL: absent
 * there.  Adds a finding for each value that differs from the commonest one
 * (if two are equally common, from the newer version).  Returns 1 if all
 * agree.
 */
int findings_compare(struct findings *f, enum finding_kind kind,
                     const char *section, const char *what, const char *fix,
                     const char *const *hosts, const char *const *values,
                     size_t count);

/* Compares versions like strverscmp: "2.4" < "2.18.3". */
int findings_version_compare(const char *a, const char *b);

#endif
