/* SPDX-License-Identifier: Apache-2.0
 * counters.h: counters on the device that kernels find at 0 and leave at 0, so that no run has to clear one first: for each workspace its own, for runs that
 * share one follow each other. */
#ifndef MOII_COUNTERS_H
#define MOII_COUNTERS_H

#include <pthread.h>

#include "driver_types.h"

enum { MOII_COUNTERS = 1024, MOII_COUNTERS_APART = 64 }; /* bytes: no two in one sector of L2 */

typedef struct moii_counters {
    moii_cuptr memory;                 /* MOII_COUNTERS * MOII_COUNTERS_APART bytes, 0 at first */
    pthread_mutex_t lock;              /* of the owners; nobody waits under it */
    const void *owners[MOII_COUNTERS]; /* NULL: nobody yet */
} moii_counters;

/* Of a workspace, which has it from then on.  NULL: others have those that it might have; the run clears one in its workspace. */
unsigned int *moii_counter_of(moii_counters *c, const void *workspace);

#endif
