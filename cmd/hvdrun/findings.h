/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hvdrun doctor` has found: lines with what to do about them, told
 * once for all hosts that they are true of.
 */
#ifndef HVDRUN_FINDINGS_H
#define HVDRUN_FINDINGS_H

#include "lib/base/buf.h"
#include "lib/base/strv.h"

#include <jansson.h>

enum finding_kind {
    FINDING_OK,   /* a section's one line when nothing is wrong */
    FINDING_NOTE, /* worth knowing; not wrong */
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

/* One more host that this is true of, by section and text; NULL for none in
 * particular. */
void findings_add(struct findings *f, enum finding_kind kind,
                  const char *section, const char *host, const char *fix,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* How many are wrong, of one section or (NULL) of all. */
size_t findings_wrong(const struct findings *f, const char *section);

/* Text: a line each, hosts folded, the fix below.  In order of `sections`
 * (NULL-terminated), what is not wrong first within each. */
void findings_format(const struct findings *f, const char *const *sections,
                     struct hb_buf *out);
json_t *findings_json(const struct findings *f);
void findings_free(struct findings *f);

/*
 * Values of one thing on several hosts, NULL where it is not there: adds a
 * finding for each value that is not the commonest (of two as common the
 * newer version is the norm).  `what` is its name: "NCCL".  Returns 1 when
 * all agree.
 */
int findings_compare(struct findings *f, enum finding_kind kind,
                     const char *section, const char *what, const char *fix,
                     const char *const *hosts, const char *const *values,
                     size_t count);

/* As strverscmp for versions of any shape: "2.4" < "2.18.3". */
int findings_version_compare(const char *a, const char *b);

#endif
