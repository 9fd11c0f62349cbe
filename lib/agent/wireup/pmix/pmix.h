/* SPDX-License-Identifier: Apache-2.0 */
/* Wire-up by PMIx, for Open MPI: a kind of lib/agent/wireup/wireup.h. */
#ifndef HVD_AGENT_WIREUP_PMIX_H
#define HVD_AGENT_WIREUP_PMIX_H

#include "lib/agent/wireup/wireup.h"

extern const struct wireup_kind wireup_pmix;

#endif
