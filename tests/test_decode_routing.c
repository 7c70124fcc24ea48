/* SPDX-License-Identifier: Apache-2.0
 * test_decode_routing.c: what the decode rows of the cuda back end decide on the host: where a batch's routing comes from and goes to. */
#include "support.h"

#include "../src/cuda/decode_routing.h"

enum { EXPERTS = 40, TOP_K = 4, BATCH = 64, FIRST = 3 };

static int32_t ids[BATCH * TOP_K], ids_out[BATCH * TOP_K];
static float weights[BATCH * TOP_K], weights_out[BATCH * TOP_K], logits[BATCH * EXPERTS];

static moi_plan plan_of(bool from_logits)
{
    moi_plan p = { .desc.moe_decode = { .experts = EXPERTS, .top_k = TOP_K, .max_tokens = BATCH, .from_logits = from_logits } };
    return p;
}

static moii_decode_routing route(const moi_plan *plan, const moi_moe_decode_args *in, const moii_decode_places *places, void *workspace)
{
    moii_decode_routing r;
    moit_ok(moii_decode_route(plan, in, FIRST, 8, places, NULL, workspace, NULL, &r)); /* few: no launch */
    return r;
}

static void test_given(void **state)
{
    (void)state;
    moi_plan plan = plan_of(false);
    moi_moe_decode_args in = { .ids = ids, .weights = weights };
    moii_decode_routing r = route(&plan, &in, &(moii_decode_places){ 0 }, NULL);
    assert_ptr_equal(r.ids, ids + FIRST * TOP_K);
    assert_ptr_equal(r.weights, weights + FIRST * TOP_K);
    assert_true(!r.logits && !r.ids_out && !r.weights_out);
}

/* Results go to the caller who wants them, else to the workspace; the second launch reads its weights where the first one writes them. */
static void test_few_logits(void **state)
{
    (void)state;
    for (int wanted = 0; wanted < 4; wanted++) {
        moi_plan plan = plan_of(true);
        int64_t before = moii_decode_reserve(&plan, 1000);
        moii_decode_places places = moii_decode_places_for(&plan, BATCH, 8);
        assert_int_equal(before, 0);
        assert_true(places.ids >= 1000 && places.weights >= places.ids + BATCH * TOP_K * 4 && places.probs >= places.weights + BATCH * TOP_K * 4);
        assert_true(plan.workspace_bytes >= places.probs + BATCH * EXPERTS * 4);
        char *workspace = moit_alloc(plan.workspace_bytes);
        moi_moe_decode_args in = { .logits = logits, .ids_out = wanted & 1 ? ids_out : NULL, .weights_out = wanted & 2 ? weights_out : NULL };
        moii_decode_routing r = route(&plan, &in, &places, workspace);
        assert_true(!r.ids);
        assert_ptr_equal(r.logits, logits + FIRST * EXPERTS);
        assert_ptr_equal(r.ids_out, wanted & 1 ? (void *)(ids_out + FIRST * TOP_K) : workspace + places.ids);
        assert_ptr_equal(r.weights_out, wanted & 2 ? (void *)(weights_out + FIRST * TOP_K) : workspace + places.weights);
        assert_ptr_equal(r.weights, r.weights_out);
        moit_free(workspace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_given), cmocka_unit_test(test_few_logits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
