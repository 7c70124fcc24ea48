/* SPDX-License-Identifier: Apache-2.0
 * losses.c: writes and continues the CSV of a training run. */
#include "losses.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool failed(const char *path)
{
    fprintf(stderr, "moiety train: %s: %s\n", path, strerror(errno));
    return false;
}

/* Copies the rows of steps that the checkpoint has seen; those behind it will be written again. */
static bool keep_rows(const char *path, int64_t keep_steps)
{
    char other[PATH_MAX], line[256];
    FILE *in = fopen(path, "r");
    if (!in) return errno == ENOENT ? true : failed(path);
    snprintf(other, sizeof other, "%s.part", path);
    FILE *out = fopen(other, "w");
    if (!out) {
        fclose(in);
        return failed(other);
    }
    for (bool header = true; fgets(line, sizeof line, in); header = false)
        if (header || strtoll(line, NULL, 10) <= keep_steps) fputs(line, out);
    bool good = !ferror(in) && !ferror(out);
    fclose(in);
    good = fclose(out) == 0 && good;
    if (good && rename(other, path) == 0) return true;
    failed(path);
    remove(other);
    return false;
}

bool losses_open(losses *l, const char *path, int64_t keep_steps)
{
    l->path = path;
    l->file = NULL;
    if (keep_steps >= 0 && !keep_rows(path, keep_steps)) return false;
    l->file = fopen(path, keep_steps >= 0 ? "a" : "w");
    if (!l->file) return failed(path);
    if (fseek(l->file, 0, SEEK_END) == 0 && ftell(l->file) == 0) fprintf(l->file, "step,train_loss,validation_loss,tokens_per_second\n");
    return true;
}

static void field(FILE *file, double value, int digits)
{
    fputc(',', file);
    if (!isnan(value)) fprintf(file, "%.*f", digits, value);
}

void losses_add(losses *l, int64_t step, double train, double validation, double tokens_per_second)
{
    fprintf(l->file, "%" PRId64, step);
    field(l->file, train, 6);
    field(l->file, validation, 6);
    field(l->file, tokens_per_second, 0);
    fputc('\n', l->file);
    fflush(l->file); /* a plot may be drawn while the run goes on */
}

bool losses_close(losses *l)
{
    if (!l->file) return true;
    bool good = !ferror(l->file);
    good = fclose(l->file) == 0 && good;
    l->file = NULL;
    return good ? true : failed(l->path);
}
