/* SPDX-License-Identifier: Apache-2.0
 *
 * row_packets.cuh: eight values of a row, and their codes, of which perhaps not all are there.  Included behind packets.cuh and tile8_rows.cuh.
 *
 *   defines   TILE_BF16: 1, or 0 where the values are FP32; WHOLE: 1 where all are there, or none
 */
#ifndef MOII_ROW_PACKETS_CUH
#define MOII_ROW_PACKETS_CUH

/* all: they are there; else the first `left` of them (0 or less: none), zeros behind.  vectors: rows begin at multiples of 16 bytes. */
MOII_FN line load_packet(const char *from, int left, bool all, bool vectors)
{
    const bool whole = WHOLE || (vectors && left >= 8);
    const uint4 none = make_uint4(0, 0, 0, 0);
#if TILE_BF16
    return all ? load16(from) : left <= 0 ? none : whole ? load16(from) : load_edge(from, left);
#else
    line v;
    v.low = all ? load16(from) : left <= 0 ? none : whole ? load16(from) : load_edge(from, left);
    v.high = all ? load16(from + 16) : left <= 0 ? none : whole ? load16(from + 16) : load_edge(from + 16, left - 4);
    return v;
#endif
}

/* all, left: as above.  words: rows begin at multiples of 8 bytes. */
MOII_FN void put_packet(unsigned char *to, int left, bool all, bool words, uint2 codes)
{
    if (all) *(uint2 *)to = codes;
    else if (WHOLE) /* not a branch: the codes of all packets are made together */
        asm volatile("{.reg .pred there; setp.gt.s32 there, %3, 0; @there st.global.v2.u32 [%0], {%1, %2};}"
                     : : "l"(to), "r"(codes.x), "r"(codes.y), "r"(left) : "memory");
    else if (left > 0) {
        if (words && left >= 8) *(uint2 *)to = codes;
        else put_edge(to, left, codes);
    }
}

#endif
