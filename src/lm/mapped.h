/* SPDX-License-Identifier: Apache-2.0
 * mapped.h: a model's weights as they lie in mapped files.  Nothing is read when they are found but headers and norms. */
#ifndef MOII_MAPPED_H
#define MOII_MAPPED_H

#include "lm.h"
#include "quant_config.h"
#include "shards.h"

typedef struct moii_expert_views { moii_view gate, up, down; } moii_expert_views; /* [f, h], [f, h], [h, f] */

typedef struct moii_layer_views {
    moii_view q, k, v, o, router; /* router: sparse layers only */
    moii_expert_views *experts;   /* one for a dense layer */
    moi_expert_operands *apart;   /* the same for moi_moe_decode; NULL where not all have one format */
    int few;                      /* which of the model's distinct plans of it */
} moii_layer_views;

/* A kind of product: what a plan must know.  Views with the same one share plans. */
typedef struct moii_shape { moi_dtype x; moi_format format; int64_t rows, cols; } moii_shape;

/* The same for a layer's experts together.  A folder has one or two; layers beyond the last kind do without. */
enum { MOII_FEW_KINDS = 8 };
typedef struct moii_few { moi_format format; bool sparse; } moii_few;

typedef struct moii_mapped {
    char *folder;
    moii_shards *shards;
    moii_quant_config *quant;
    int64_t bytes; /* of the files */
    moii_view embed;
    moii_layer_views *layers; /* [layer_count] */
    int64_t layer_count;
    moii_shape *shapes;
    int shape_count;
    moii_few few[MOII_FEW_KINDS];
    int few_count;
    void **copies; /* of tensors that cannot be used where they lie */
    int copy_count;
} moii_mapped;

/* The shape of activations at linear layers. */
static inline moi_dtype moii_mapped_x(const moi_lm *lm) { return lm->options.recipe == MOI_RECIPE_F32 ? MOI_F32 : MOI_BF16; }

/* Finds every weight of lm->mapped->shards; reads norms into lm->weights.  Errors: FORMAT (file, tensor, wanted, got), NOMEM. */
moi_status moii_mapped_find(moi_lm *lm);
void moii_mapped_free(moii_mapped *mapped);

/* Plans of one exec. */
typedef struct moii_mapped_exec {
    moii_matmul *products;      /* by shape */
    moi_plan *to_x_h, *to_x_q;  /* rows of h, of q: FP32 to BF16; NULL in recipe F32 */
    moi_plan *swiglu[2];        /* dense, sparse */
    moi_plan *route, *permute, *combine;
    moi_plan *few[MOII_FEW_KINDS];          /* moi_moe_decode for up to MOII_FEW tokens */
} moii_mapped_exec;

moi_status moii_mapped_experts_plan(moii_exec *exec);
/* With their scratch memory and the workspace of every product. */
int64_t moii_mapped_experts_space(const moii_exec *exec);
moi_status moii_mapped_experts(const moii_exec *exec, int64_t layer, int64_t t, const moii_saved *s);

/* exec->space behind what `used` has taken. */
static inline moii_space moii_space_behind(const moii_exec *x, int64_t used) { return (moii_space){ x->space.at + used, x->space.bytes - used }; }
/* *out: x's rows in the type of activations, in `half` if they are not FP32. */
moi_status moii_mapped_to_x(const moi_plan *to_x, int64_t t, const float *in, void *half, moii_space space, const void **out);

static inline moi_status moii_mapped_matmul(const moii_exec *x, const moii_view *w, int64_t t, const void *in, float *y, int64_t ldy,
                                             moii_space space)
{
    return moii_matmul_run(&x->mapped->products[w->shape], t, in, w->at, y, ldy, space);
}

#endif
