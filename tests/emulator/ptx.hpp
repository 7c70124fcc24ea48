/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx.hpp: the PTX instructions that our device code names, one function each: dots and colons of the name are underscores, results come first.
 * Source: PTX ISA 9.0.  Orderings, cache hints and register counts are left out: the machine's memory has one order. */
#ifndef EMU_PTX_HPP
#define EMU_PTX_HPP

#include "floats.hpp"

namespace ptx {

using emu::m;
#define PTX static inline void

/* ---- conversions, two small floats at once ---- */

PTX cvt_rn_f16x2_f32(u32 &d, float high, float low) { d = two(f16(high), f16(low)); }
PTX cvt_rn_bf16x2_f32(u32 &d, float high, float low) { d = two(bf16(high), bf16(low)); }
PTX cvt_rn_f16_f32(u16 &d, float v) { d = (u16)f16(v); }
PTX cvt_f32_f16(float &d, u16 v) { d = (float)of_f16(v); }
PTX cvt_rn_f16x2_e4m3x2(u32 &d, u16 v) { d = two(f16(of_e4m3(v >> 8)), f16(of_e4m3(v))); }
PTX cvt_rn_f16x2_e5m2x2(u32 &d, u16 v) { d = two(f16(of_e5m2(v >> 8)), f16(of_e5m2(v))); }
PTX cvt_rn_satfinite_e4m3x2_f32(u16 &d, float high, float low) { d = (u16)(e4m3(high) << 8 | e4m3(low)); }
PTX cvt_rn_satfinite_e5m2x2_f32(u16 &d, float high, float low) { d = (u16)(e5m2(high) << 8 | e5m2(low)); }
PTX cvt_rn_satfinite_e4m3x2_f16x2(u16 &d, u32 v) { d = (u16)(e4m3(of_f16(v >> 16)) << 8 | e4m3(of_f16(v))); }
PTX cvt_rn_satfinite_e5m2x2_f16x2(u16 &d, u32 v) { d = (u16)(e5m2(of_f16(v >> 16)) << 8 | e5m2(of_f16(v))); }
PTX fma_rn_bf16x2(u32 &d, u32 a, u32 b, u32 c)
{
    d = two(bf16(fused(of_bf16(a >> 16), of_bf16(b >> 16), of_bf16(c >> 16))), bf16(fused(of_bf16(a), of_bf16(b), of_bf16(c))));
}
PTX mul_rn_bf16x2(u32 &d, u32 a, u32 b) { d = two(bf16(of_bf16(a >> 16) * of_bf16(b >> 16)), bf16(of_bf16(a) * of_bf16(b))); }
PTX mul_rn_f16x2(u32 &d, u32 a, u32 b) { d = two(f16(of_f16(a >> 16) * of_f16(b >> 16)), f16(of_f16(a) * of_f16(b))); }
static inline u32 larger_u16(u32 a, u32 b) { return a > b ? a : b; }
PTX max_u16x2(u32 &d, u32 a, u32 b) { d = two(larger_u16(a >> 16, b >> 16), larger_u16(a & 0xFFFF, b & 0xFFFF)); }
static inline u32 larger_s16(u32 a, u32 b) { return (u32)((int16_t)a > (int16_t)b ? a : b) & 0xFFFF; }
PTX max_s16x2(u32 &d, u32 a, u32 b) { d = two(larger_s16(a >> 16, b >> 16), larger_s16(a, b)); }
static inline u32 larger_bf16(u32 a, u32 b)
{
    const u32 x = a & 0x7FFF, y = b & 0x7FFF;
    return x > 0x7F80 || y > 0x7F80 ? (u32)NAN_16 : ((a ^ b) & 0x8000) | (x > y ? x : y);
}
PTX max_NaN_xorsign_abs_bf16x2(u32 &d, u32 a, u32 b) { d = two(larger_bf16(a >> 16, b >> 16), larger_bf16(a, b)); }

/* ---- moves ---- */

PTX mov_b32(u16 &low, u16 &high, u32 v) { low = (u16)v, high = (u16)(v >> 16); }
PTX mov_b32(u32 &d, u16 low, u16 high) { d = two(high, low); }
PTX mov_u32(u32 &d, u32 v) { d = v; }
PTX mov_f32(float &d, float v) { d = v; }
PTX add_rn_f32(float &d, float a, float b) { d = a + b; }
PTX rcp_approx_ftz_f32(float &d, float v) { d = 1.0f / v; }
PTX setp_ne_b32(bool &p, u32 a, u32 b) { p = a != b; }
PTX setp_gt_s32(bool &p, u32 a, u32 b) { p = (int)a > (int)b; }
PTX selp_b32(u32 &d, u32 a, u32 b, bool p) { d = p ? a : b; }
PTX setmaxnreg_dec_sync_aligned_u32(u32) {}
PTX setmaxnreg_inc_sync_aligned_u32(u32) {}

/* ---- memory ---- */

template <class T> static inline T &at_global(u64 p) { return *(T *)(uintptr_t)p; }
template <class T> static inline T *at_shared(u32 address, int values = 1)
{
    const int bytes = (int)sizeof(T) * values;
    if (address % (u32)bytes) m->fail("an address in shared memory is not a multiple of the access");
    return (T *)m->shared(address, bytes);
}
template <class T> static inline T *global_run(u64 p, int values)
{
    if (p % (sizeof(T) * (u64)values)) m->fail("an address is not a multiple of the access");
    return (T *)(uintptr_t)p;
}
static inline void once_more() { m->wait(emu::AGAIN); }

PTX ld_shared_f32(float &d, u32 a) { d = *at_shared<float>(a); }
PTX ld_shared_u32(u32 &d, u32 a) { d = *at_shared<u32>(a); }
PTX ld_shared_u8(u32 &d, u32 a) { d = *at_shared<unsigned char>(a); }
PTX ld_shared_u16(u32 &d, u32 a) { d = *at_shared<u16>(a); }
PTX ld_shared_s16(u16 &d, u32 a) { d = *at_shared<u16>(a); }
template <class T> static inline void shared_two(T &x, T &y, u32 a) { const T *p = at_shared<T>(a, 2); x = p[0], y = p[1]; }
template <class T> static inline void shared_four(T &x, T &y, T &z, T &w, u32 a) { const T *p = at_shared<T>(a, 4); x = p[0], y = p[1], z = p[2], w = p[3]; }
PTX ld_shared_v2_f32(float &x, float &y, u32 a) { shared_two(x, y, a); }
PTX ld_shared_v2_u32(u32 &x, u32 &y, u32 a) { shared_two(x, y, a); }
PTX ld_shared_v4_f32(float &x, float &y, float &z, float &w, u32 a) { shared_four(x, y, z, w, a); }
PTX ld_shared_v4_u32(u32 &x, u32 &y, u32 &z, u32 &w, u32 a) { shared_four(x, y, z, w, a); }
PTX st_shared_u8(u32 a, u32 v) { *at_shared<unsigned char>(a) = (unsigned char)v; }
PTX st_shared_u32(u32 a, u32 v) { *at_shared<u32>(a) = v; }
PTX st_shared_f32(u32 a, float v) { *at_shared<float>(a) = v; }
PTX st_shared_v2_f32(u32 a, float x, float y) { float *p = at_shared<float>(a, 2); p[0] = x, p[1] = y; }
PTX st_shared_v4_f32(u32 a, float x, float y, float z, float w) { float *p = at_shared<float>(a, 4); p[0] = x, p[1] = y, p[2] = z, p[3] = w; }
PTX st_shared_v2_u32(u32 a, u32 x, u32 y) { u32 *p = at_shared<u32>(a, 2); p[0] = x, p[1] = y; }
PTX st_shared_v4_u32(u32 a, u32 x, u32 y, u32 z, u32 w) { u32 *p = at_shared<u32>(a, 4); p[0] = x, p[1] = y, p[2] = z, p[3] = w; }

PTX ld_global_nc_u8(u32 &x, u64 a) { x = *global_run<unsigned char>(a, 1); }
PTX ld_global_nc_v2_u32(u32 &x, u32 &y, u64 a) { const u32 *p = global_run<u32>(a, 2); x = p[0], y = p[1]; }
PTX ld_global_nc_v4_u32(u32 &x, u32 &y, u32 &z, u32 &w, u64 a) { const u32 *p = global_run<u32>(a, 4); x = p[0], y = p[1], z = p[2], w = p[3]; }
PTX ld_global_cg_v4_u32(u32 &x, u32 &y, u32 &z, u32 &w, u64 a) { ld_global_nc_v4_u32(x, y, z, w, a); }
PTX ld_global_cg_f32(float &d, u64 a) { d = at_global<float>(a); }
PTX ld_global_nc_L2__cache_hint_v4_u32(u32 &x, u32 &y, u32 &z, u32 &w, u64 a, u64) { ld_global_nc_v4_u32(x, y, z, w, a); }
PTX ld_relaxed_gpu_global_v4_u32(u32 &x, u32 &y, u32 &z, u32 &w, u64 a) { once_more(), ld_global_nc_v4_u32(x, y, z, w, a); }
PTX ld_relaxed_gpu_global_u32(u32 &d, u64 a) { once_more(), d = at_global<u32>(a); }
PTX ld_relaxed_gpu_global_u16(uint16_t &d, u64 a) { once_more(), d = at_global<uint16_t>(a); }
PTX ld_acquire_gpu_global_s32(u32 &d, u64 a) { once_more(), d = at_global<u32>(a); }
/* Several lanes may write at once: one of them does. */
EMU_UNTOLD void st_relaxed_cta_shared_u32(u32 a, u32 v) { u32 *p = at_shared<u32>(a); EMU_CHANGES(p), *p = v; }
PTX st_relaxed_gpu_global_v4_u32(u64 a, u32 x, u32 y, u32 z, u32 w) { u32 *p = global_run<u32>(a, 4); p[0] = x, p[1] = y, p[2] = z, p[3] = w; }
PTX st_relaxed_gpu_global_L2__cache_hint_v4_u32(u64 a, u32 x, u32 y, u32 z, u32 w, u64) { st_relaxed_gpu_global_v4_u32(a, x, y, z, w); }
PTX st_relaxed_gpu_global_u32(u64 a, u32 v) { at_global<u32>(a) = v; }
PTX st_relaxed_gpu_global_u8(u64 a, u32 v) { at_global<uint8_t>(a) = (uint8_t)v; }
PTX st_global_f32(u64 a, float x) { at_global<float>(a) = x; }
PTX st_global_L2__cache_hint_f32(u64 a, float x, u64) { st_global_f32(a, x); }
PTX st_global_v4_u32(u64 a, u32 x, u32 y, u32 z, u32 w) { st_relaxed_gpu_global_v4_u32(a, x, y, z, w); }
PTX st_global_v2_u32(u64 a, u32 x, u32 y) { u32 *p = global_run<u32>(a, 2); p[0] = x, p[1] = y; }
PTX st_global_L2__cache_hint_v2_u32(u64 a, u32 x, u32 y, u64) { u32 *p = global_run<u32>(a, 2); p[0] = x, p[1] = y; }
PTX st_global_L2__cache_hint_v4_u32(u64 a, u32 x, u32 y, u32 z, u32 w, u64) { st_relaxed_gpu_global_v4_u32(a, x, y, z, w); }
PTX st_global_L2__cache_hint_v2_u64(u64 a, u64 x, u64 y, u64) { u64 *p = global_run<u64>(a, 2); p[0] = x, p[1] = y; }
PTX red_release_gpu_global_add_s32(u64 a, u32 v) { at_global<u32>(a) += v; }
PTX red_global_add_v2_f32(u64 a, float x, float y) { float *p = global_run<float>(a, 2); p[0] += x, p[1] += y; }
PTX lop3_b32(u32 &d, u32 a, u32 b, u32 c, int table)
{
    d = 0;
    for (int i = 0; i < 8; i++) d |= table >> i & 1 ? (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c) : 0;
}
/* What was there is lost: it is NaN. */
PTX discard_global_L2(u64 a, int bytes)
{
    u32 *p = (u32 *)(void *)global_run<char>(a, bytes);
    for (int i = 0; i < bytes / 4; i++) p[i] = 0xFFFFFFFF;
}
PTX prefetch_tensormap(u64) {}
PTX prefetch_global_L2(u64) {}
PTX cp_async_bulk_prefetch_tensor_3d_L2_global_tile(u64, int, int, int) {}
PTX cp_async_bulk_prefetch_tensor_4d_L2_global_tile(u64, int, int, int, int) {}
PTX fence_proxy_async_shared__cta() {}
PTX fence_proxy_async_global() {}
PTX fence_mbarrier_init_release_cluster() {}

/* ---- barriers, clusters, grids ---- */

enum nothing { ignored };
PTX bar_sync(u32 barrier, u32 threads) { m->meet((int)barrier, (int)threads, true); }
PTX bar_arrive(u32 barrier, u32 threads) { m->meet((int)barrier, (int)threads, false); }
PTX mbarrier_init_shared__cta_b64(u32 a, u32 arrivals)
{
    emu::mbarrier *b = (emu::mbarrier *)at_shared<u64>(a);
    b->phase = 0, b->made = emu::MADE, b->pending = b->expected = arrivals & 0xFFF, b->bytes = 0;
}
PTX mbarrier_arrive_shared__cta_b64(nothing, u32 a) { m->arrive(a, 1, 0); }
PTX mbarrier_arrive_shared__cluster_b64(nothing, u32 a) { m->arrive(a, 1, 0); }
PTX mbarrier_arrive_expect_tx_shared__cta_b64(nothing, u32 a, u32 bytes) { m->arrive(a, 1, (int)bytes); }
PTX mbarrier_try_wait_parity_shared__cta_b64(bool &done, u32 a, u32 parity, u32) { done = m->phase_over(a, parity); }
PTX mapa_shared__cluster_u32(u32 &d, u32 a, u32 rank) { d = (a & 0xFFFFFF) | (rank + 1) << 24; }
PTX barrier_cluster_arrive_release_aligned() { m->cluster_arrive(); }
PTX barrier_cluster_arrive_relaxed_aligned() { m->cluster_arrive(); }
PTX barrier_cluster_wait_acquire_aligned() { m->wait(emu::CLUSTER); }
PTX barrier_cluster_wait_aligned() { m->wait(emu::CLUSTER); }
PTX griddepcontrol_wait() { m->wait(emu::GRID); }
PTX griddepcontrol_launch_dependents() { m->release(); }
PTX elect_sync(bool &p, u32 mask)
{
    m->together(emu::nothing, mask, 0, 0);
    p = emu::own_lane() == __builtin_ctz(mask);
}
PTX st_async_shared__cluster_mbarrier__complete_tx__bytes_b32(u32 to, u32 v, u32 barrier)
{
    *at_shared<u32>(to) = v;
    m->arrive(barrier, 0, -4);
}
PTX st_async_shared__cluster_mbarrier__complete_tx__bytes_v4_f32(u32 to, float x, float y, float z, float w, u32 barrier)
{
    st_shared_v4_f32(to, x, y, z, w);
    m->arrive(barrier, 0, -16);
}

/* ---- copies ---- */

PTX cp_async_cg_shared_global(u32 to, u64 from, u32 bytes, u32 valid) { m->copy(to, (const void *)from, (int)bytes, (int)valid); }
PTX cp_async_cg_shared_global_L2__128B(u32 to, u64 from, u32 bytes, u32 valid) { cp_async_cg_shared_global(to, from, bytes, valid); }
PTX cp_async_cg_shared_global_L2__cache_hint(u32 to, u64 from, u32 bytes, u64) { cp_async_cg_shared_global(to, from, bytes, bytes); }
PTX cp_async_ca_shared_global(u32 to, u64 from, u32 bytes, u32 valid) { cp_async_cg_shared_global(to, from, bytes, valid); }
PTX cp_async_ca_shared_global(u32 to, u64 from, u32 bytes) { cp_async_cg_shared_global(to, from, bytes, bytes); }
PTX cp_async_commit_group() { m->copies_close(); }
PTX cp_async_wait_group(int groups) { m->copies_wait(groups); }
PTX cp_async_wait_all() { m->copies_close(), m->copies_wait(0); }
PTX cp_async_mbarrier_arrive_noinc_shared__cta_b64(u32 a) { m->copies_arrive(a); }
PTX cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes(u32 to, u64 from, u32 bytes, u32 barrier)
{
    m->run_load(to, (const void *)from, bytes, barrier, 0);
}
PTX cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes_multicast__cluster(u32 to, u64 from, u32 bytes, u32 barrier, u16 blocks)
{
    m->run_load(to, (const void *)from, bytes, barrier, blocks);
}
PTX cp_async_bulk_tensor_3d_shared__cluster_global_tile_mbarrier__complete_tx__bytes(u32 to, u64 map, int x, int y, int z, u32 barrier)
{
    const int at[5] = { x, y, z };
    m->box_load(to, map, at, barrier, 0);
}
PTX cp_async_bulk_tensor_3d_shared__cluster_global_tile_mbarrier__complete_tx__bytes_L2__cache_hint(u32 to, u64 map, int x, int y, int z, u32 barrier, u64)
{
    cp_async_bulk_tensor_3d_shared__cluster_global_tile_mbarrier__complete_tx__bytes(to, map, x, y, z, barrier);
}
PTX cp_async_bulk_tensor_4d_shared__cluster_global_tile_mbarrier__complete_tx__bytes_L2__cache_hint(u32 to, u64 map, int x, int y, int z, int v,
                                                                                                    u32 barrier, u64)
{
    const int at[5] = { x, y, z, v };
    m->box_load(to, map, at, barrier, 0);
}
PTX cp_async_bulk_tensor_5d_shared__cluster_global_tile_mbarrier__complete_tx__bytes(u32 to, u64 map, int x, int y, int z, int v, int w, u32 barrier)
{
    const int at[5] = { x, y, z, v, w };
    m->box_load(to, map, at, barrier, 0);
}
PTX cp_async_bulk_tensor_3d_shared__cluster_global_tile_mbarrier__complete_tx__bytes_multicast__cluster(u32 to, u64 map, int x, int y, int z,
                                                                                                        u32 barrier, u16 blocks)
{
    const int at[5] = { x, y, z };
    m->box_load(to, map, at, barrier, blocks);
}
PTX cp_async_bulk_tensor_3d_global_shared__cta_tile_bulk_group(u64 map, int x, int y, int z, u32 from)
{
    const int at[5] = { x, y, z };
    m->box_store(map, at, from, false);
}
PTX cp_reduce_async_bulk_tensor_3d_global_shared__cta_add_tile_bulk_group(u64 map, int x, int y, int z, u32 from)
{
    const int at[5] = { x, y, z };
    m->box_store(map, at, from, true);
}
PTX cp_async_bulk_commit_group() {}
PTX cp_async_bulk_wait_group_read(u32) { m->boxes_wait(); }

/* ---- products ---- */

PTX wgmma_fence_sync_aligned() {}
PTX wgmma_commit_group_sync_aligned() {}
PTX wgmma_wait_group_sync_aligned(u32) {}
struct sums { float &d0, &d1, &d2, &d3; };
static inline void multiply_add(bool bf16, sums to, const u32 (&given)[6], const float (&c)[4])
{
    float d[4] = { c[0], c[1], c[2], c[3] };
    m->mma(bf16, given, d);
    to.d0 = d[0], to.d1 = d[1], to.d2 = d[2], to.d3 = d[3];
}
PTX mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float &d0, float &d1, float &d2, float &d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1,
                                                      float c0, float c1, float c2, float c3)
{
    multiply_add(false, { d0, d1, d2, d3 }, { a0, a1, a2, a3, b0, b1 }, { c0, c1, c2, c3 });
}
PTX mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float &d0, float &d1, float &d2, float &d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1,
                                                        float c0, float c1, float c2, float c3)
{
    multiply_add(true, { d0, d1, d2, d3 }, { a0, a1, a2, a3, b0, b1 }, { c0, c1, c2, c3 });
}
struct stored { u32 address, v[4]; };
static inline void store_matrices(emu::thread *const lane[32]) /* row i of matrix k: at lane 8k + i's address; values 2c, 2c + 1 of it: in lane 4i + c */
{
    emu::thread *const caller = m->self;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++) {
            m->self = lane[8 * k + i];
            u32 *row = at_shared<u32>(((const stored *)m->self->given)->address, 4);
            for (int c = 0; c < 4; c++) row[c] = ((const stored *)lane[4 * i + c]->given)->v[k];
        }
    m->self = caller;
}
PTX stmatrix_sync_aligned_m8n8_x4_shared_b16(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    const stored s = { address, { a, b, c, d } };
    m->together(store_matrices, 0xFFFFFFFFu, &s, 0);
}
struct loaded { u32 *v[4]; };
static inline void load_matrices(emu::thread *const lane[32]) /* as store_matrices */
{
    emu::thread *const caller = m->self;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++) {
            m->self = lane[8 * k + i];
            const u32 *row = at_shared<u32>(*(const u32 *)m->self->given, 4);
            for (int c = 0; c < 4; c++) *((const loaded *)lane[4 * i + c]->taken)->v[k] = row[c];
        }
    m->self = caller;
}
PTX ldmatrix_sync_aligned_m8n8_x4_shared_b16(u32 &a, u32 &b, u32 &c, u32 &d, u32 address)
{
    loaded to = { { &a, &b, &c, &d } };
    m->together(load_matrices, 0xFFFFFFFFu, &address, &to);
}
static inline void store_turned_matrices(emu::thread *const lane[32]) /* the same of columns: value i of row r, in lane 4r + i/2, becomes value r of row i */
{
    emu::thread *const caller = m->self;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++) {
            m->self = lane[8 * k + i];
            u16 *row = at_shared<u16>(((const stored *)m->self->given)->address, 8);
            for (int r = 0; r < 8; r++) row[r] = (u16)(((const stored *)lane[4 * r + i / 2]->given)->v[k] >> i % 2 * 16);
        }
    m->self = caller;
}
PTX stmatrix_sync_aligned_m8n8_x4_trans_shared_b16(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    const stored s = { address, { a, b, c, d } };
    m->together(store_turned_matrices, 0xFFFFFFFFu, &s, 0);
}
#undef PTX

}

#endif
