/* SPDX-License-Identifier: Apache-2.0
 * elem.h: the numbers of moi_dtype and of scale layouts for device code, which sees no standard header; src/cuda/gpu.c asserts that
 * they are the same. */
#ifndef MOII_ELEM_H
#define MOII_ELEM_H

enum { ELEM_F32 = 1, ELEM_F16 = 2, ELEM_BF16 = 3, ELEM_E4M3 = 4, ELEM_E5M2 = 5, ELEM_E3M2 = 6, ELEM_E2M3 = 7, ELEM_E2M1 = 8, ELEM_INT8 = 9 };
enum { SCALES_ROW = 0, SCALES_TILED = 1, SCALES_COL = 2 };

#endif
