/* SPDX-License-Identifier: Apache-2.0
 * impl.c: the table of rows. */
#include "impl.h"

#include "ctx.h"
#include "status.h"

#define MOII_IMPL(name) extern const moii_impl moii_impl_##name;
#include "impls.def"
#undef MOII_IMPL

const moii_impl *const moii_impls[] = {
#define MOII_IMPL(name) &moii_impl_##name,
#include "impls.def"
#undef MOII_IMPL
    NULL,
};
const int moii_impl_count = (int)(sizeof moii_impls / sizeof *moii_impls) - 1;

static const char *const op_names[] = { "quantize", "dequantize", "rebase", "gemm", "ggemm", "route",
                                        "permute", "combine", "swiglu", "moe_decode", "moe", "grouped moe_decode" };

const char *moii_op_name(moii_op op) { return op_names[op]; }

int moi_row_count(void) { return moii_impl_count; }

moi_status moi_row_get(int index, moi_row_info *out)
{
    MOII_REQUIRE(out, MOI_ERR_ARG, "moi_row_get: out is NULL");
    MOII_REQUIRE(index >= 0 && index < moii_impl_count, MOI_ERR_ARG, "moi_row_get: index must be 0..%d, got %d",
                 moii_impl_count - 1, index);
    const moii_impl *r = moii_impls[index];
    *out = (moi_row_info){ .size = sizeof *out, .name = r->name, .op = op_names[r->op], .backend = r->backend,
                           .recipes = r->recipes, .is_reference = r->is_reference, .is_unverified = r->is_unverified };
    return MOI_OK;
}
