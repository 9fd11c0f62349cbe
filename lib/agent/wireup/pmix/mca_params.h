/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What files and variables say of a parameter of Open MPI, so that hvdrun can
 * add to it without contradicting anybody.
 *
 * Open MPI takes a parameter from OMPI_MCA_NAME, else from
 * ~/.openmpi/mca-params.conf, else from the installation's
 * openmpi-mca-params.conf.
 */
#ifndef HVD_AGENT_WIREUP_MCA_PARAMS_H
#define HVD_AGENT_WIREUP_MCA_PARAMS_H

#include "lib/base/strv.h"

struct mca_search {
    const char *root;    /* "", or a fixture with /etc and /usr */
    const char *library; /* the file of libmpi; NULL: not known */
    /* Of the rank; the second overrides the first and may be NULL. */
    const struct hb_strv *env, *rank_env;
};

/* Returns the list of components that Open MPI leaves out of a framework,
 * "^a,b", with `more` added (heap).  NULL if it is to be left alone: the user
 * has set it in the environment, it names what to use and not what to leave
 * out, or not all of the files are known and understood. */
char *mca_leave_out(const struct mca_search *s, const char *framework,
                    const char *const *more, size_t count);

/* ---- Its parts, which do no I/O ---- */

/* Finds the last line `NAME = VALUE` of a file's text, a string of len bytes
 * unless it holds a 0; modifies the text.  0 with *value, which lies in text,
 * or NULL if no line sets it; or -1 if that cannot be told: the text has a 0,
 * a comment of several lines, or an option of mpirun. */
int mca_find(char *text, size_t len, const char *name, const char **value);

/* Returns the list "^a,b" with those of `more` that it lacks at its end (heap),
 * or NULL if value is not such a list. */
char *mca_extend(const char *value, const char *const *more, size_t count);

#endif
