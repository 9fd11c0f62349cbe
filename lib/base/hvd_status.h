/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes shared by the launcher, the agent and libhvd.
 *
 * Fallible functions return 0 or the negative of one of these.  The
 * numbers are part of libhvd's ABI: append, never renumber.  This file is
 * installed beside hvd.h.
 */
#ifndef HVD_STATUS_H
#define HVD_STATUS_H

enum hvd_status {
    HVD_OK = 0,
    HVD_EINVAL = 1,       /* an argument is outside its documented range */
    HVD_ENOMEM = 2,       /* an allocation or a mapping failed */
    HVD_ENOTINIT = 3,     /* hvd_init has not been called */
    HVD_ESHUTDOWN = 4,    /* this rank or a peer has shut down */
    HVD_EDUPNAME = 5,     /* an operation of that name is in flight */
    HVD_EMISMATCH = 6,    /* ranks disagree on what the operation is */
    HVD_EPEER = 7,        /* a peer died; the message names it */
    HVD_ETIMEOUT = 8,     /* a bound on waiting passed */
    HVD_EUNSUPPORTED = 9, /* a valid request that this build cannot serve */
    HVD_ESYSTEM = 10,     /* the operating system refused; see errno */
    /* a peer's bytes do not follow the protocol, or its message was altered on
     * the way */
    HVD_EPROTO = 11,
    HVD_ENOTMEMBER = 12, /* this rank is not in the process set */
    HVD_ENOSET = 13,     /* no such process set */
    HVD_ENOENT = 14,     /* a file, host, key or program does not exist */
    HVD_EPERM = 15,      /* permission, ownership or identity check failed */
    HVD_ECLOSED = 16,    /* the other end of a connection went away */
    HVD_EEXIST = 17,     /* there is a process set with the same members */
    HVD_ERESIZED = 18,   /* the world has changed: call hvd_sync */
    HVD_EREMOVED = 19,   /* this rank was asked to leave the job: exit with 0 */
    HVD_STATUS_COUNT
};

#endif
