/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hb_strv: an owned vector of strings, NULL-terminated so that
 * `v.items` is an argv or an envp.  hb_env_* treat the items as NAME=VALUE.
 * Items are heap strings of the vector.  Functions that may allocate
 * return 0 or -HVD_ENOMEM and leave the vector as it was on failure.
 */
#ifndef HB_STRV_H
#define HB_STRV_H

#include <stddef.h>

struct hb_strv {
    char **items; /* NULL while empty and never grown */
    size_t count, cap;
};

/* clang-format off */
#define HB_STRV_INIT { NULL, 0, 0 }
/* clang-format on */

void hb_strv_free(struct hb_strv *v); /* leaves it empty and usable */
int hb_strv_add(struct hb_strv *v, const char *s);
int hb_strv_addf(struct hb_strv *v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int hb_strv_add_all(struct hb_strv *v, char *const *items); /* to NULL */
/* Splits s at any byte of `seps`; empty fields are kept. */
int hb_strv_split(struct hb_strv *v, const char *s, const char *seps);

/* Returns the value of `name`, or NULL; borrowed until the vector changes. */
const char *hb_env_get(const struct hb_strv *env, const char *name);
/* Sets a variable, in place if it exists; a NULL value removes it.  Further
 * items of the same name are dropped.  0, -HVD_ENOMEM, or -HVD_EINVAL for a
 * name that is empty or holds '='. */
int hb_env_set(struct hb_strv *env, const char *name, const char *value);
int hb_env_setf(struct hb_strv *env, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
