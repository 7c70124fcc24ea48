/* SPDX-License-Identifier: Apache-2.0
 * convert.c: the formats, the arguments, and a single file. */
#include "convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ctx.h"
#include "format.h"
#include "status.h"

static const moii_file_format formats[] = {
    [MOI_FILE_MXFP8] = { "mxfp8", "", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 }, MOI_E4M3, MOI_U8 },
    [MOI_FILE_MXFP4] = { "mxfp4", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 }, MOI_U8, MOI_U8 },
    [MOI_FILE_MXFP6] = { "mxfp6", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M3 }, MOI_U8, MOI_U8 },
    [MOI_FILE_FP8_BLOCK] = { "fp8-block", "", "_scale_inv",
                             { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE }, MOI_E4M3, MOI_F32 },
};

moi_status moii_convert_open(moii_convert *c, const char *call, moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options)
{
    char where[64] = "";
    *c = (moii_convert){ .call = call, .ctx = ctx };
    MOII_REQUIRE(ctx && in && out, MOI_ERR_ARG, "%s: %s is NULL", call, !ctx ? "ctx" : in ? "out" : "in");
    snprintf(where, sizeof where, "%.40s: options", call);
    MOII_TRY(moii_take(&c->options, sizeof c->options, options, where));
    MOII_REQUIRE(c->options.format >= MOI_FILE_MXFP8 && c->options.format <= MOI_FILE_FP8_BLOCK, MOI_ERR_ARG, "%s: format must be 1..4, got %d",
                 call, (int)c->options.format);
    MOII_REQUIRE((unsigned int)c->options.round <= MOI_ROUND_EVEN, MOI_ERR_ARG, "%s: round must be 0..3, got %d", call, (int)c->options.round);
    MOII_REQUIRE(!c->options.report || c->options.report->size >= sizeof(uint32_t), MOI_ERR_ARG,
                 "%s: options.report->size is %u; set it with the *_INIT macro", call, c->options.report->size);
    MOII_REQUIRE(ctx->backend->id == MOI_BACKEND_CPU, MOI_ERR_UNSUPPORTED, "%s: needs a context of the cpu back end, got %s", call, ctx->backend->name);
    c->file_format = &formats[c->options.format];
    c->format = c->file_format->format;
    c->format.round = c->options.round;
    c->source = aligned_alloc(MOII_WORKSPACE_ALIGN, (size_t)MOII_CONVERT_PIECE * 4);
    c->codes = aligned_alloc(MOII_WORKSPACE_ALIGN, MOII_CONVERT_PIECE);
    c->scales = aligned_alloc(MOII_WORKSPACE_ALIGN, MOII_CONVERT_PIECE / MOII_MX_BLOCK);
    MOII_REQUIRE(c->source && c->codes && c->scales, MOI_ERR_NOMEM, "%s: no memory", call);
    return MOI_OK;
}

void moii_convert_close(moii_convert *c)
{
    moi_plan_free(c->plan);
    free(c->workspace);
    free(c->source);
    free(c->codes);
    free(c->scales);
}

void moii_convert_publish(const moii_convert *c)
{
    moi_convert_report *to = c->options.report;
    if (!to) return;
    uint32_t size = to->size;
    memcpy(to, &c->report, size < sizeof c->report ? size : sizeof c->report);
    to->size = size;
}

static moi_status check_paths(const char *in, const char *out)
{
    struct stat a, b;
    bool same = stat(in, &a) == 0 && stat(out, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    MOII_REQUIRE(!same, MOI_ERR_ARG, "moi_checkpoint_quantize: in and out are the same file, %s", in);
    return MOI_OK;
}

static moi_status count(moii_convert *c, const moii_part *p, void *user)
{
    (void)user;
    c->report.quantized += p->quantized;
    return MOI_OK;
}

static moi_status convert_single(moii_convert *c, const char *path, const char *out)
{
    struct stat s;
    MOII_REQUIRE(!moi_st_metadata(c->in, "moiety.format"), MOI_ERR_FORMAT, "%s: wanted plain weights, got a file quantised to %.32s", path,
                 moi_st_metadata(c->in, "moiety.format"));
    c->end = c->in->count;
    for (int64_t i = 0; i < c->end; i++) {
        c->total += c->in->tensors[i].bytes;
        MOII_TRY(moii_convert_parts(c, &c->in->tensors[i], count, NULL));
    }
    c->report.tensors = c->in->count;
    c->report.files = 1;
    c->report.bytes_in = c->in->size;
    MOII_TRY(moii_convert_file(c, out, NULL));
    if (stat(out, &s) == 0) c->report.bytes_out = s.st_size;
    moii_convert_publish(c);
    return MOI_OK;
}

moi_status moi_checkpoint_quantize(moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options)
{
    moii_convert c;
    moi_status status = moii_convert_open(&c, "moi_checkpoint_quantize", ctx, in, out, options);
    if (!status) status = check_paths(in, out);
    if (!status) status = moi_st_open(&c.in, in);
    if (!status) status = convert_single(&c, in, out);
    moi_st_close(c.in);
    moii_convert_close(&c);
    return status;
}
