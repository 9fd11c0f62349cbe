/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of wire-up of MPICH and Intel MPI, by PMI-1; see wireup.h. */
#ifndef HVD_AGENT_WIREUP_PMI1_H
#define HVD_AGENT_WIREUP_PMI1_H

#include "lib/agent/wireup/wireup.h"

extern const struct wireup_kind wireup_pmi1;

#endif
