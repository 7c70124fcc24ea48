/* SPDX-License-Identifier: Apache-2.0
 * shapes.h: the cases of a bench, one a line of a CSV file whose first line names the columns.  The column "set" says which
 * lines run: "bar" always, "more" unless the bench is "all", "quick" only with --quick. */
#ifndef SHAPES_H
#define SHAPES_H

#include <stdbool.h>
#include <stdint.h>

enum { SHAPES_COLUMNS = 16, SHAPES_LINES = 128, SHAPES_WORD = 24 };

typedef char shapes_line[SHAPES_COLUMNS][SHAPES_WORD];
typedef struct shapes { int columns, lines; shapes_line names, line[SHAPES_LINES]; } shapes;

/* Both say on stderr what is wrong. */
bool shapes_parse(shapes *s, const char *label, const char *text);
bool shapes_read(shapes *s, const char *path);
/* The text of bench/shapes/OP.csv as it was when the program was built; NULL: there is none. */
const char *shapes_built_in(const char *op);

const char *shapes_text(const shapes *s, int line, const char *column, const char *absent);
int64_t shapes_int(const shapes *s, int line, const char *column, int64_t absent); /* -1 where it is no number */

#endif
