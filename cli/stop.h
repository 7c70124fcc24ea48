/* SPDX-License-Identifier: Apache-2.0
 * stop.h: Ctrl-C.  The first asks the running command to finish its step, the second ends the process at once. */
#ifndef STOP_H
#define STOP_H

#include <stdbool.h>

void stop_install(void); /* SIGINT and SIGTERM */
bool stop_asked(void);

#endif
