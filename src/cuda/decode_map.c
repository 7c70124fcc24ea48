/* SPDX-License-Identifier: Apache-2.0
 * decode_map.c: tensor maps of a decode layer's weights. */
#include "decode_map.h"

moi_status moii_decode_map(const moi_plan *plan, product_map *map, const void *data, int rank, const int64_t *sizes, const int64_t *strides,
                           const int *box)
{
    const moii_driver *driver = &moii_gpu_of(plan->ctx)->driver;
    uint64_t n[5], pitch[4];
    uint32_t b[5], steps[5] = { 1, 1, 1, 1, 1 };
    moii_cu_tensor_map out;
    const moii_cuenum swizzle = box[0] == 128 ? MOII_CU_MAP_SWIZZLE_128 : box[0] == 64 ? MOII_CU_MAP_SWIZZLE_64
                                : box[0] == 32 ? MOII_CU_MAP_SWIZZLE_32 : MOII_CU_MAP_SWIZZLE_NONE;
    for (int i = 0; i < rank; i++) n[i] = (uint64_t)sizes[i], b[i] = (uint32_t)box[i];
    for (int i = 0; i + 1 < rank; i++) pitch[i] = (uint64_t)strides[i];
    /* L2 asks memory for what is missing, not for 256 bytes around it: up to a twentieth faster (docs/notes/warp-decode.md) */
    moii_cuenum result = driver->cuTensorMapEncodeTiled(&out, MOII_CU_MAP_U8, (uint32_t)rank, (void *)(uintptr_t)data, n, pitch, b, steps, 0, swizzle,
                                                        MOII_CU_MAP_L2_NONE, 0);
    if (result) return moii_driver_check(driver, result, "cuTensorMapEncodeTiled");
    for (int i = 0; i < 16; i++) map->opaque[i] = out.opaque[i];
    return MOI_OK;
}
