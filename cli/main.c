/* SPDX-License-Identifier: Apache-2.0
 * main.c: the table of commands. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "moiety.h"

static const cmd commands[] = {
    { "bench", "check and time the kernels on this machine", cmd_bench },
    { "diff", "compare what two models predict: divergence, agreement, perplexity", cmd_diff },
    { "generate", "let a model continue a text", cmd_generate },
    { "info", "show the machine, and what each implementation supports", cmd_info },
    { "inspect", "list the tensors of a checkpoint: shapes, ranges, errors", cmd_inspect },
    { "kernels", "list the GPU kernels, or compile them ahead of time", cmd_kernels },
    { "perplexity", "score how well a model predicts a text", cmd_perplexity },
    { "quantize", "store a checkpoint's linear weights in 8, 6 or 4 bits", cmd_quantize },
    { "tokenize", "turn text into token ids, and back", cmd_tokenize },
    { "train", "train a model on text, in 8 bits or in BF16", cmd_train },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to)
{
    fprintf(to, "usage: moiety COMMAND [OPTIONS]\n\nTrains and runs Mixture-of-Experts models in 8 bits.\n\n");
    for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n'moiety COMMAND --help' tells more.  Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.\n");
}

/* OpenMP threads that spin while they wait ruin each other where other programs want the cores too (training ran 4 times slower
 * on a loaded machine); threads that sleep at once wake up late, and together on one core (half the speed on a quiet one).  So:
 * spin for some tens of microseconds, then sleep.  The runtime reads this before main, so the program starts itself once more. */
static void wait_with_measure(char **argv)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1) || setenv("GOMP_SPINCOUNT", "20000", 1)) return;
    self[n] = 0;
    execv(self, argv); /* where that fails, this process does the work with the runtime's own habits */
}

int main(int argc, char **argv)
{
    wait_with_measure(argv);
    if (argc < 2) {
        usage(stderr);
        return CMD_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return CMD_DONE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("moiety %s\n", moi_version());
        return CMD_DONE;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "moiety: unknown command '%s'; 'moiety --help' lists them\n", argv[1]);
    return CMD_USAGE;
}
