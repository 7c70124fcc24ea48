/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.cpp: shared memory, its mbarriers, and copies that go on by themselves.  A copy reads and writes when it arrives, which is at any time
 * between its start and the wait for it. */
#include "parts.hpp"

#include <stdio.h>

#include <deque>
#include <functional>

namespace emu {

/* cp.async of one thread, which arrive in order: copies and arrivals at barriers. */
struct copies {
    struct one { char *to; const char *from; int bytes, valid, group; mbarrier *barrier; };
    std::deque<one> under_way;
    int closed = 0; /* groups */
};

copies *no_copies() { return new copies(); }

struct bulk { thread *owner; bool loads; std::function<void()> arrive; };
static std::vector<bulk> bulks;
static std::vector<thread *> copying; /* with own copies under way, or without by now */

/* ---- shared memory ---- */

static block *block_at(unsigned int address)
{
    block *own = device.self->in;
    const unsigned int rank = address >> 24;
    if (rank > (unsigned int)own->group->size) device.fail("an address in the shared memory of a block that the cluster has not");
    block *b = rank ? own->group->member[rank - 1] : own;
    if (!b->alive) device.fail("an address in the shared memory of a block that has ended");
    return b;
}

static char *shared(unsigned int address, int bytes)
{
    const block *b = block_at(address);
    const int at = (int)(address & 0xFFFFFF), fixed_at = SHARED_BYTES - SHARED_STATIC;
    const bool dynamic = at >= SHARED_FIRST && at + bytes <= SHARED_FIRST + b->dynamic_bytes;
    if (!dynamic && !(at >= fixed_at && at + bytes <= fixed_at + b->static_bytes)) {
        char text[128];
        snprintf(text, sizeof text, "%d bytes at %d, outside of the %d bytes of dynamic shared memory that begin at %d", bytes, at, b->dynamic_bytes,
                 (int)SHARED_FIRST);
        device.fail(text);
    }
    return b->memory + at;
}

static unsigned int address(const void *p)
{
    const block *b = device.self->in;
    if ((const char *)p < b->memory || (const char *)p > b->memory + SHARED_BYTES) device.fail("a pointer into no shared memory of the block");
    return (unsigned int)((const char *)p - b->memory) | (b->group->size > 1 ? (unsigned int)(b->rank + 1) << 24 : 0); /* in a cluster it names the block */
}

/* ---- mbarriers ---- */

static mbarrier *barrier_at(unsigned int address)
{
    mbarrier *b = (mbarrier *)shared(address, 8);
    if (b->made != MADE || address % 8) device.fail("an mbarrier that was not made");
    return b;
}

static void arrive_at(mbarrier *b, int count, int bytes)
{
    if ((int)b->pending < count) device.fail("more arrivals at an mbarrier than it expects");
    b->pending = (unsigned int)((int)b->pending - count) & 0xFFF;
    b->bytes += bytes;
    if (b->pending || b->bytes) return;
    b->phase = !b->phase, b->pending = b->expected;
    mbarrier_complete(b);
}

static void arrive(unsigned int address, int count, int bytes)
{
    mbarrier *b = barrier_at(address);
    mbarrier_release(b, device.self);
    arrive_at(b, count, bytes);
}

static bool phase_over(unsigned int address, unsigned int parity)
{
    thread *t = device.self;
    mbarrier *b = barrier_at(address);
    if (b->phase == (parity & 1)) {
        t->barrier = (const uint64_t *)b, t->parity = parity & 1;
        device.wait(FILLS);
    }
    mbarrier_acquire(b, t);
    return true;
}

/* ---- each thread's own copies ---- */

static void arrives(thread *t)
{
    const copies::one c = t->own->under_way.front();
    t->own->under_way.pop_front();
    if (c.barrier) return arrive_at(c.barrier, 1, 0);
    memcpy(c.to, c.from, (size_t)c.valid);
    memset(c.to + c.valid, 0, (size_t)(c.bytes - c.valid));
}

static void begin(const copies::one &c)
{
    thread *t = device.self;
    if (t->own->under_way.empty()) copying.push_back(t);
    t->own->under_way.push_back(c);
}

static void copy(unsigned int to, const void *from, int bytes, int valid)
{
    if (to % (unsigned int)bytes || (valid && (uintptr_t)from % (unsigned int)bytes)) device.fail("a copy's address is no multiple of its bytes");
    if (valid < 0 || valid > bytes) device.fail("a copy of more bytes than there is room for");
    char *place = shared(to, bytes);
    if (checking) touch(place, bytes, WRITES);
    if (checking && valid) touch(from, valid, READS);
    begin({ place, (const char *)from, bytes, valid, device.self->own->closed, 0 });
}

static void copies_close() { device.self->own->closed++; }

static void copies_wait(int groups)
{
    thread *t = device.self;
    while (!t->own->under_way.empty() && t->own->under_way.front().group < t->own->closed - groups) arrives(t);
}

static void copies_arrive(unsigned int barrier)
{
    mbarrier_release(barrier_at(barrier), device.self);
    begin({ 0, 0, 0, 0, device.self->own->closed, barrier_at(barrier) });
}

/* ---- runs and boxes ---- */

/* Whether a copy to an address goes into the r-th block of the cluster: one of the mask, or the one that the address lies in. */
static bool goes_to(int r, unsigned int to, unsigned int blocks)
{
    return blocks ? blocks >> r & 1 : r == (to >> 24 ? (int)(to >> 24) - 1 : device.self->in->rank);
}

/* An address in one block's memory, as the r-th block's is written. */
static unsigned int place_in(int r, unsigned int to) { return (unsigned int)(r + 1) << 24 | (to & 0xFFFFFF); }

static void run_load(unsigned int to, const void *from, unsigned int bytes, unsigned int barrier, unsigned int blocks)
{
    if (to % 16 || (uintptr_t)from % 16 || bytes % 16) device.fail("a bulk copy's addresses and bytes are multiples of 16");
    if (checking) touch(from, (int)bytes, READS);
    const block *own = device.self->in;
    for (int r = 0; r < own->group->size; r++) {
        if (!goes_to(r, to, blocks)) continue;
        char *place = shared(place_in(r, to), (int)bytes);
        mbarrier *b = barrier_at(place_in(r, barrier));
        copier_writes(own->group->member[r], (int)(to & 0xFFFFFF), (int)bytes, b, device.self);
        bulks.push_back({ &own->group->member[r]->thread_at[0], true, [=] { memcpy(place, from, bytes), arrive_at(b, 0, -(int)bytes); } });
    }
}

/* Of each row of a box: where it is in the tensor (NULL: outside), and where in shared memory. */
typedef std::function<void(char *there, int64_t x, unsigned int here)> row_fn;
static void rows_of(const tensor_map &map, const int at[5], unsigned int here, const row_fn &row)
{
    int64_t rows = 1;
    for (int d = 1; d < map.rank; d++) rows *= map.box[d];
    for (int64_t r = 0; r < rows; r++) {
        char *there = map.base;
        int64_t rest = r;
        for (int d = 1; d < map.rank; d++) {
            const int64_t i = at[d] + rest % map.box[d];
            rest /= map.box[d];
            if (i < 0 || (uint64_t)i >= map.size[d]) there = 0;
            if (there) there += i * (int64_t)map.stride[d - 1];
        }
        row(there, at[0], here + (unsigned int)r * map.box[0] * map.element);
    }
}

/* Only what lies inside of the tensor is read or written. */
static void tell_rows(const tensor_map &map, const int at[5], int kind)
{
    rows_of(map, at, 0, [&](char *there, int64_t x, unsigned int) {
        const int64_t first = x < 0 ? 0 : x, end = x + map.box[0] < (int64_t)map.size[0] ? x + map.box[0] : (int64_t)map.size[0];
        if (there && first < end) touch(there + first * map.element, (int)(end - first) * map.element, kind);
    });
}

static int box_bytes(const tensor_map &map)
{
    int bytes = map.element;
    for (int d = 0; d < map.rank; d++) bytes *= (int)map.box[d];
    return bytes;
}

static tensor_map map_at(uint64_t p)
{
    tensor_map map;
    memcpy(&map, (const void *)(uintptr_t)p, sizeof map);
    if (map.made != MADE) device.fail("no tensor map");
    return map;
}

static bool inside(const tensor_map &map, int64_t x) { return x >= 0 && (uint64_t)x < map.size[0]; }

static void load_box(const tensor_map &map, const int at[5], char *memory, unsigned int to)
{
    rows_of(map, at, to, [&](char *there, int64_t x, unsigned int here) {
        for (unsigned int i = 0; i < map.box[0]; i++) {
            char *place = memory + swizzled(here + i * map.element, map.swizzle);
            if (there && inside(map, x + i)) memcpy(place, there + (x + i) * map.element, map.element);
            else memset(place, 0, map.element);
        }
    });
}

static void box_load(unsigned int to, uint64_t map_address, const int at[5], unsigned int barrier, unsigned int blocks)
{
    const tensor_map map = map_at(map_address);
    const int bytes = box_bytes(map), x = at[0], y = at[1], z = at[2], v = at[3], u = at[4];
    const block *own = device.self->in;
    if (to % 128) device.fail("a box goes to a multiple of 128");
    if (checking) tell_rows(map, at, READS);
    for (int r = 0; r < own->group->size; r++) {
        if (!goes_to(r, to, blocks)) continue;
        const unsigned int place = to & 0xFFFFFF;
        shared(place_in(r, to), bytes);
        mbarrier *b = barrier_at(place_in(r, barrier));
        char *memory = own->group->member[r]->memory;
        copier_writes(own->group->member[r], (int)place, bytes, b, device.self);
        bulks.push_back({ &own->group->member[r]->thread_at[0], true, [=] {
            const int from[5] = { x, y, z, v, u };
            load_box(map, from, memory, place), arrive_at(b, 0, -bytes);
        } });
    }
}

static void add_float(char *to, const char *from)
{
    float sum, more;
    memcpy(&sum, to, sizeof sum), memcpy(&more, from, sizeof more);
    sum += more;
    memcpy(to, &sum, sizeof sum);
}

/* adds: FP32 is added to what is there. */
static void box_store(uint64_t map_address, const int at[5], unsigned int from, bool adds)
{
    const tensor_map map = map_at(map_address);
    const int x = at[0], y = at[1], z = at[2];
    shared(from, box_bytes(map)), from &= 0xFFFFFF;
    if (from % 128) device.fail("a box comes from a multiple of 128");
    if (adds && map.element != 4) device.fail("boxes of FP32 alone can be added");
    const bool within = map.size[0] * map.element % 16 && x < (int64_t)map.size[0] && x + (int64_t)map.box[0] > (int64_t)map.size[0];
    if (within) device.fail("a box that ends within 16 bytes of its map stores them all"); /* an H200 does */
    const char *memory = device.self->in->memory;
    if (checking) copier_reads((int)from, box_bytes(map), device.self), tell_rows(map, at, WRITES);
    bulks.push_back({ device.self, false, [=] {
        const int to[5] = { x, y, z };
        rows_of(map, to, from, [&](char *there, int64_t first, unsigned int here) {
            for (unsigned int i = 0; i < map.box[0]; i++) {
                if (!there || !inside(map, first + i)) continue;
                char *to_there = there + (first + i) * map.element;
                const char *value = memory + swizzled(here + i * map.element, map.swizzle);
                if (adds) add_float(to_there, value);
                else memcpy(to_there, value, map.element);
            }
        });
    } });
}

void stores_finish(thread *t)
{
    for (size_t i = 0; i < bulks.size();) {
        if (bulks[i].loads || bulks[i].owner != t) {
            i++;
            continue;
        }
        bulks[i].arrive();
        bulks.erase(bulks.begin() + (long)i);
    }
}

static void boxes_wait() { stores_finish(device.self), copies_known(device.self); }

bool loads_left(const block *b)
{
    for (const bulk &c : bulks)
        if (c.loads && c.owner->in == b) return true;
    for (int i = 0; i < b->threads; i++)
        if (!b->thread_at[i].own->under_way.empty()) return true;
    return false;
}

bool copies_some()
{
    bool any = false;
    for (int tries = 0; tries < 4 && !bulks.empty(); tries++) {
        if (random_below(2)) continue;
        const size_t i = random_below((unsigned int)bulks.size());
        const bulk c = bulks[i];
        bulks[i] = bulks.back();
        bulks.pop_back();
        c.arrive();
        any = true;
    }
    for (int tries = 0; tries < 64 && !copying.empty(); tries++) {
        const size_t i = random_below((unsigned int)copying.size());
        thread *t = copying[i];
        if (!t->own->under_way.empty()) arrives(t), any = true;
        if (t->own->under_way.empty()) copying[i] = copying.back(), copying.pop_back();
    }
    return any || !bulks.empty() || !copying.empty();
}

/* ---- tensor maps ---- */

static int element_bytes(moii_cuenum type)
{
    switch (type) {
    case MOII_CU_MAP_U8: return 1;
    case MOII_CU_MAP_U16: case MOII_CU_MAP_F16: case MOII_CU_MAP_BF16: return 2;
    default: return 4;
    }
}

/* As the driver checks it. */
bool encode(moii_cu_tensor_map *out, moii_cuenum type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides_bytes,
            const uint32_t *box, moii_cuenum swizzle)
{
    tensor_map map;
    memset(&map, 0, sizeof map);
    map.base = (char *)address, map.rank = (uint8_t)rank, map.element = (uint8_t)element_bytes(type), map.made = MADE;
    map.swizzle = (uint8_t)(swizzle == MOII_CU_MAP_SWIZZLE_NONE ? 0 : 16 << swizzle);
    if (rank < 3 || rank > 5 || (uintptr_t)address % 16) return false;
    for (uint32_t d = 0; d < rank; d++) {
        map.size[d] = sizes[d], map.box[d] = box[d];
        if (!sizes[d] || sizes[d] > (uint64_t)1 << 32 || !box[d] || box[d] > 256) return false;
        if (d && (map.stride[d - 1] = strides_bytes[d - 1]) % 16) return false;
    }
    const unsigned int line = box[0] * map.element;
    if (line % 16 || (map.swizzle && line > map.swizzle)) return false;
    memset(out, 0, sizeof *out);
    memcpy(out, &map, sizeof map);
    return true;
}

void fill_units(machine *m)
{
    m->shared = shared, m->address = address, m->arrive = arrive, m->phase_over = phase_over;
    m->copy = copy, m->copies_close = copies_close, m->copies_wait = copies_wait, m->copies_arrive = copies_arrive;
    m->run_load = run_load, m->box_load = box_load, m->box_store = box_store, m->boxes_wait = boxes_wait;
    fill_products(m);
}

}
