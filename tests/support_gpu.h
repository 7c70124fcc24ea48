/* SPDX-License-Identifier: Apache-2.0
 * support_gpu.h: one test for the rows of every back end.  A test keeps its buffers in host memory; for a row of the cuda back end they are
 * copied to guarded device memory, and the results back.
 *
 *   for (int i = 0; (row = moit_any_row("quantize", i)); i++) {
 *       moit_mem m = moit_mem_of(row);
 *       ... plan on m.ctx ...
 *       args.in.data = moit_in(&m, x, bytes), args.out.data = moit_out(&m, y, bytes);
 *       moit_mem_run(&m, moi_quantize_run(plan, &args, ws, ws_bytes, m.stream));     also captured in a graph and replayed
 *       moit_mem_done(&m);
 *   } */
#ifndef MOIT_SUPPORT_GPU_H
#define MOIT_SUPPORT_GPU_H

#include "support.h"

/* The context of the cuda back end; NULL where there is no device.  With MOIT_GPU=1 in the environment that fails the test. */
moi_ctx *moit_gpu(void);
/* The same, if it is of capability 9.0, which rows named _sm90 want. */
moi_ctx *moit_hopper(void);
/* As moit_row, with the cuda rows behind those of the CPU where there is a device: those of its capability. */
const char *moit_any_row(const char *op, int i);

enum { MOIT_MEM = 24 };
typedef struct moit_mem {
    moi_ctx *ctx;      /* of the row's back end */
    bool gpu;
    void *stream;      /* what to pass to the run */
    int count;
    struct { void *host, *device; int64_t bytes; bool out; unsigned char *eager; } item[MOIT_MEM];
} moit_mem;

moit_mem moit_mem_of(const char *row);
/* What the row is given for a host buffer; NULL for NULL.  in: must come back unchanged. */
void *moit_in(moit_mem *m, const void *host, int64_t bytes);
void *moit_out(moit_mem *m, void *host, int64_t bytes);
/* A workspace for the plan, NULL where it needs none. */
void *moit_mem_workspace(moit_mem *m, const moi_plan *plan);
/* Copies results back, checks guards and inputs, frees. */
void moit_mem_done(moit_mem *m);

/* Runs the call; on a GPU once more under stream capture, whose graph, replayed twice (MOIT_REPLAYS), must give the same bits. */
#define moit_mem_run(m, call)          \
    do {                               \
        moit_ok(call);                 \
        if ((m)->gpu) {                \
            moit_capture_begin(m);     \
            moit_ok(call);             \
            moit_capture_end(m);       \
        }                              \
    } while (0)
void moit_capture_begin(moit_mem *m);
void moit_capture_end(moit_mem *m);

#endif
