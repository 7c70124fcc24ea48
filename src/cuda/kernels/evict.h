/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.h: which lines leave the L2 cache first, shared with launchers: what createpolicy.fractional of all makes, so that it need not be made each time anew.
 * Where as much is written as read, input that stays longest lets results go to memory sooner and in order, which memory takes up to a
 * twentieth faster (docs/notes/quantize-h200.md). */
#ifndef MOII_EVICT_H
#define MOII_EVICT_H

#define EVICT_NORMAL 0x1000000000000000ULL
#define EVICT_FIRST 0x12F0000000000000ULL
#define EVICT_LAST 0x14F0000000000000ULL

#endif
