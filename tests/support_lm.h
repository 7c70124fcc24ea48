/* SPDX-License-Identifier: Apache-2.0
 * support_lm.h: a Qwen3-MoE forward pass in float64, written from the model's published description, tensor by tensor name. */
#ifndef MOIT_SUPPORT_LM_H
#define MOIT_SUPPORT_LM_H

#include "../src/lm/lm.h"
#include "support.h"

/* The numbers of a tensor of the model, by its hub name. */
float *moit_weight(const moi_lm *lm, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Mean loss of rows of seq + 1 tokens; *aux: the load-balancing losses; logits [batch * seq, vocab] or NULL. */
double moit_lm_loss(const moi_lm *lm, const int32_t *tokens, int64_t batch, int64_t seq, double *aux, double *logits);

/* A small model: 2 layers, hidden 32, 4 experts of which 2 are used. */
moi_lm_config moit_lm_config(void);
moi_lm *moit_lm(const moi_lm_config *config, moi_recipe recipe);
/* Adds noise to the gains of norms: gains of exactly 1 would hide one that is applied twice or not at all. */
void moit_roughen_norms(moi_lm *lm);
/* Its relatives: heads, tied or own output weights, dense layers, routing. */
enum { MOIT_VARIANTS = 6 };
moi_lm_config moit_variant(int i);
/* A folder's model with its weights as they lie. */
moi_lm *moit_open(const char *folder, moi_recipe recipe);
/* Tokens that repeat in a pattern a small model can learn. */
void moit_tokens(int32_t *tokens, int64_t count, int64_t vocab, uint64_t salt);

#endif
