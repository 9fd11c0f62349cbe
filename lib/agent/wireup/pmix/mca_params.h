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

#endif
