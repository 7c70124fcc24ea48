/* SPDX-License-Identifier: Apache-2.0
 * row_list_args.h: rows that a list names, as launchers and the device see them. */
#ifndef MOII_ROW_LIST_ARGS_H
#define MOII_ROW_LIST_ARGS_H

typedef struct row_list {
    const int *rows;      /* which one each is, the nearest of those that are there; NULL: itself */
    const long long *end; /* so many are wanted */
    int there;
} row_list;

#endif
