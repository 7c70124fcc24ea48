/* SPDX-License-Identifier: Apache-2.0
 * cmd_info.c: moiety info. */
#include <stdio.h>

#include "cmd.h"
#include "moiety.h"

int cmd_info(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int i = 0; i < moi_row_count(); i++) {
        moi_row_info r;
        if (!moi_row_get(i, &r)) printf("%-20s %s\n", r.name, r.op);
    }
    return CMD_DONE;
}
