/* SPDX-License-Identifier: Apache-2.0
 * thin_apart.cuh: a block of thin_sm90 works on units that lie a grid apart; every warp finds them for itself. */
#ifndef MOII_THIN_APART_CUH
#define MOII_THIN_APART_CUH

/* A whole warp: the block's n-th unit; false: there is none. */
MOII_FN bool take_unit(const product_args &a, const group_list &l, unsigned int, int n, unit *u)
{
    const int i = (int)blockIdx.x + n * (int)gridDim.x;
    if (i >= units_in_all(l)) return false;
    *u = find_unit(a, l, i);
    return true;
}
MOII_FN void return_unit(unsigned int, int) { }

#endif
