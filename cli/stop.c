/* SPDX-License-Identifier: Apache-2.0 */
#include "stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    (void)number;
    if (asked) _exit(CMD_STOPPED);
    asked = 1;
}

void stop_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART; /* files being written or read are not disturbed */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stop_asked(void) { return asked != 0; }
