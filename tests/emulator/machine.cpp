/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.cpp: grids, blocks, warps and their threads: who runs next, who waits for what.
 *   EMU_SEED              of the order of warps and copies: 1
 *   EMU_CHECK             set: races in shared memory, accesses beside allocations (races.cpp), loads and stores that are not aligned (device.hpp)
 *   EMU_MULTIPROCESSORS   4; twice as many blocks of a grid are there at a time */
#include "parts.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

namespace emu {

machine device;
static void *scheduler; /* its place on its own stack */
static uint64_t random_state;

unsigned int random_below(unsigned int n)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (unsigned int)((random_state >> 11) % n);
}

[[noreturn]] static void fail(const char *text)
{
    const thread *t = device.self;
    fprintf(stderr, "emulator: %s", device.kernel ? device.kernel : "no kernel");
    if (t) fprintf(stderr, ", block (%u, %u, %u), thread %d", t->in->index.x, t->in->index.y, t->in->index.z, t->index);
    fprintf(stderr, ": %s\n", text);
    abort();
}

enum { SELDOM = 8 }; /* one of so many times that it could */

/* ---- fibres ---- */

#ifndef __x86_64__
#error "the emulator's fibres are written for x86-64"
#endif
extern "C" void emu_switch(void **from, void *to);
asm(".text\n.type emu_switch, @function\nemu_switch:\n"
    " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    " movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n.size emu_switch, .-emu_switch\n");

static void ended();
static void thread_main()
{
    device.self->in->of->kernel->entry(device.self->in->of->args.data());
    ended();
}

static void start(thread *t)
{
    uint64_t *top = (uint64_t *)((char *)t->stack + STACK) - 3; /* as behind a call: 8 from a multiple of 16 */
    *--top = (uint64_t)(uintptr_t)thread_main;
    t->place = top - 6;
}

static void wait(wait_kind kind)
{
    thread *t = device.self;
    t->wait = kind;
    emu_switch(&t->place, scheduler);
    if (kind == CLUSTER) cluster_acquire(t);
}

/* ---- blocks ---- */

/* Stacks and shared memory are kept for the next block of so many threads. */
static std::map<int, std::vector<block *>> kept;

static block *block_of(int threads)
{
    std::vector<block *> &free = kept[threads];
    if (!free.empty()) {
        block *b = free.back();
        free.pop_back();
        return b;
    }
    block *b = new block();
    b->thread_at = new thread[threads](), b->warp_at = new warp[threads / 32]();
    b->memory = (char *)aligned_alloc(1024, SHARED_BYTES);
    char *stacks = (char *)mmap(0, (size_t)threads * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED || !b->memory) fail("no memory for a block");
    for (int i = 0; i < threads; i++) b->thread_at[i].stack = stacks + (size_t)i * STACK, b->thread_at[i].own = no_copies();
    return b;
}

static block *begin(grid *g, long long number, cluster *c, int rank)
{
    block *b = block_of(g->threads);
    b->of = g, b->group = c, b->rank = rank;
    b->index.x = (unsigned int)(number % g->size.x), b->index.y = (unsigned int)(number / g->size.x % g->size.y);
    b->index.z = (unsigned int)(number / g->size.x / g->size.y);
    b->threads = b->alive = g->threads, b->dynamic_bytes = g->dynamic_bytes, b->static_bytes = 0, b->released = false;
    memset(b->static_at, 0xFF, sizeof b->static_at), memset(b->barrier, 0, sizeof b->barrier);
    memset(b->warp_at, 0, (size_t)b->threads / 32 * sizeof(warp));
    memset(b->memory, 0xFB, SHARED_BYTES); /* nothing that looks like a number or a barrier */
    for (int i = 0; i < b->threads; i++) {
        thread *t = &b->thread_at[i];
        t->in = b, t->index = i, t->tid = { (unsigned int)i, 0, 0 }, t->wait = RUNS, t->cluster_turn = 0;
        start(t);
    }
    races_begin(b);
    return b;
}

static void *fixed(int id, int bytes)
{
    block *b = device.self->in;
    if (b->static_at[id] < 0) b->static_at[id] = b->static_bytes, b->static_bytes += (bytes + 15) / 16 * 16;
    if (b->static_bytes > SHARED_STATIC) fail("too much static shared memory");
    return b->memory + SHARED_BYTES - SHARED_STATIC + b->static_at[id];
}

/* ---- lanes and barriers ---- */

static void together(together_fn what, unsigned int mask, const void *given, void *taken)
{
    thread *self = device.self, *first = self - self->index % 32, *lane[32];
    warp *w = &self->in->warp_at[self->index / 32];
    const unsigned int own = 1u << self->index % 32;
    gathering *at = 0;
    if (!(mask & own)) fail("a lane's mask leaves itself out");
    if (mask & w->ended) fail("lanes wait for one that has ended");
    for (gathering &g : w->open) {
        if (g.mask == mask && g.what == what) at = &g;
        else if (g.mask & mask) fail("lanes meet at different instructions, or with different masks");
        if (!at && !g.mask) at = &g;
    }
    if (!at) fail("too many groups of lanes");
    at->what = what, at->mask = mask, at->here |= own;
    self->given = given, self->taken = taken;
    if (at->here != mask) return wait(LANES);
    at->mask = at->here = 0;
    for (int i = 0; i < 32; i++) lane[i] = mask >> i & 1 ? first + i : 0;
    what(lane);
    if (!given && !taken) lanes_order(lane); /* what passes values on orders nothing */
    for (int i = 0; i < 32; i++)
        if (lane[i]) lane[i]->wait = RUNS;
}

/* What is .aligned: all lanes of the warp come to it together. */
static void aligned(thread *const *) {}
static void come_together() { together(aligned, ~device.self->in->warp_at[device.self->index / 32].ended, 0, 0); }

enum { EVERYONE = -1 };

static void meet(int barrier, int threads, bool waits)
{
    thread *t = device.self;
    meeting *at = &t->in->barrier[barrier];
    if (barrier < 0 || barrier > 15) fail("there are 16 barriers");
    if (threads % 32 || threads > t->in->threads) fail("a number of threads at a barrier is no number of whole warps of the block");
    if (!threads) threads = EVERYONE;
    come_together();
    if (at->here && at->threads != threads) fail("threads meet at a barrier with different counts");
    at->threads = threads, at->here++;
    t->meets = barrier, t->turn = at->turn;
    meeting_release(t, barrier);
    if (at->here == (threads == EVERYONE ? t->in->alive : threads)) at->here = 0, at->turn++, meeting_complete(t, barrier);
    else if (waits) wait(MEETS);
    if (waits) meeting_acquire(t, barrier);
}

static void cluster_arrive()
{
    thread *t = device.self;
    cluster *c = t->in->group;
    come_together();
    t->cluster_turn = c->turn;
    cluster_release(t);
    if (++c->here == c->threads) c->here = 0, c->turn++, cluster_complete(c);
}

static void ended()
{
    thread *t = device.self;
    block *b = t->in;
    cluster *c = b->group;
    warp *w = &b->warp_at[t->index / 32];
    stores_finish(t);
    w->ended |= 1u << t->index % 32;
    for (const gathering &g : w->open)
        if (g.mask & w->ended) fail("lanes wait for one that has ended");
    b->alive--, c->threads--;
    if (b->alive && b->barrier[0].threads == EVERYONE && b->barrier[0].here == b->alive)
        b->barrier[0].here = 0, b->barrier[0].turn++, meeting_complete(t, 0);
    if (c->threads && c->here == c->threads) c->here = 0, c->turn++, cluster_complete(c);
    for (;;) wait(ENDED);
}

/* Whoever lets the next grid in sleeps a while: what it does behind that may come too late for it. */
static void release()
{
    enum { LONGEST_SLEEP = 100 / SELDOM };
    device.self->in->released = true;
    for (unsigned int left = random_below(LONGEST_SLEEP); left; left--) wait(AGAIN);
}

/* ---- who is next ---- */

static bool ready(const thread *t)
{
    switch (t->wait) {
    case RUNS: case AGAIN: return true;
    case MEETS: return t->in->barrier[t->meets].turn != t->turn;
    case FILLS: return ((const mbarrier *)t->barrier)->phase != t->parity;
    case CLUSTER: return t->in->group->turn != t->cluster_turn;
    case GRID: return !t->in->of->before || t->in->of->before->done();
    default: return false;
    }
}

static void run(thread *t)
{
    const grid *g = t->in->of;
    device.self = t, device.kernel = g->kernel->name, device.grid = g->size, device.threads = { (unsigned int)g->threads, 1, 1 };
    t->wait = RUNS;
    emu_switch(&scheduler, t->place);
    if (checking) doubts_settle();
    device.self = 0;
}

/* Lets a warp go as far as it can; true: somebody did more than look again. */
static bool run_warp(thread *lane)
{
    bool moved = false;
    for (bool first = true, more = true; more; first = false) {
        more = false;
        for (int i = 0; i < 32; i++) {
            const bool looks = lane[i].wait == AGAIN;
            if (!ready(&lane[i]) || (looks && !first)) continue;
            run(&lane[i]);
            more = true, moved = moved || !looks || lane[i].wait != AGAIN;
        }
    }
    return moved;
}

static const char *const waits_for[] = { "nothing", "lanes", "a barrier", "an mbarrier", "the cluster", "the grid before", "what others write", "" };

[[noreturn]] static void stuck(const std::vector<grid *> &running)
{
    for (const grid *g : running)
        for (const block *b : g->live) {
            fprintf(stderr, "emulator: %s, block (%u, %u, %u):", g->kernel->name, b->index.x, b->index.y, b->index.z);
            for (int i = 0; i < b->threads; i += 32) {
                const thread *t = &b->thread_at[i];
                if (t->wait != ENDED) fprintf(stderr, " warp %d waits for %s", i / 32, waits_for[t->wait]);
                if (t->wait == MEETS) fprintf(stderr, " %d (%d of %d)", t->meets, b->barrier[t->meets].here, b->barrier[t->meets].threads);
                if (t->wait == FILLS) fprintf(stderr, " at %d", (int)((const char *)t->barrier - b->memory));
                if (t->wait != ENDED) fprintf(stderr, ";");
            }
            fprintf(stderr, "\n");
        }
    fail("threads wait for ever");
}

/* ---- grids ---- */

static std::vector<grid *> queue;

static int multiprocessors()
{
    const char *text = getenv("EMU_MULTIPROCESSORS");
    return text && atoi(text) > 0 ? atoi(text) : 4;
}

static void fill(grid *g)
{
    while (g->next < g->blocks() && (int)g->live.size() + g->cluster_size <= std::max(2 * multiprocessors(), g->cluster_size)) {
        cluster *c = new cluster();
        c->size = g->cluster_size, c->threads = g->threads * c->size;
        for (int i = 0; i < c->size; i++) g->live.push_back(c->member[i] = begin(g, g->next++, c, i));
    }
}

static void leave_ended(grid *g)
{
    for (size_t i = 0; i < g->live.size();) {
        cluster *c = g->live[i]->group; /* the blocks of a cluster lie side by side */
        if (c->threads) {
            i += (size_t)c->size;
            continue;
        }
        for (int r = 0; r < c->size; r++) {
            if (loads_left(c->member[r])) fail("a block ended with copies on their way into its shared memory");
            kept[g->threads].push_back(c->member[r]);
        }
        g->live.erase(g->live.begin() + (long)i, g->live.begin() + (long)i + c->size);
        delete c;
    }
}

/* The next grid of a chain may begin. */
static bool lets_next_in(const grid *g)
{
    if (g->next < g->blocks()) return false;
    for (const block *b : g->live)
        if (b->alive && !b->released) return false;
    return true;
}

/* A warp that looks whether something has changed does so seldom (SELDOM): most of the time nothing has. */
static bool looks(const thread *lane)
{
    for (int i = 0; i < 32; i++)
        if (lane[i].wait == AGAIN) return true;
    return false;
}

static bool run_some(std::vector<grid *> &running)
{
    bool moved = false;
    for (grid *g : running) {
        fill(g);
        const size_t first = g->live.empty() ? 0 : random_below((unsigned int)g->live.size());
        for (size_t i = 0; i < g->live.size(); i++) {
            block *b = g->live[(first + i) % g->live.size()];
            const int warps = b->threads / 32, w0 = (int)random_below((unsigned int)warps);
            for (int w = 0; w < warps; w++) {
                thread *lane = &b->thread_at[(w0 + w) % warps * 32];
                if (looks(lane) ? !random_below(SELDOM) : random_below(4)) moved = run_warp(lane) || moved;
            }
            moved = copies_some() || moved;
        }
        leave_ended(g);
    }
    return moved;
}

static void finish()
{
    enum { PATIENCE = 20000 };
    std::vector<grid *> running;
    int idle = 0;
    for (size_t next = 0; next < queue.size() || !running.empty();) {
        if (next < queue.size() && (running.empty() || lets_next_in(running.back()))) running.push_back(queue[next++]);
        idle = run_some(running) ? 0 : idle + 1;
        if (idle > PATIENCE) stuck(running);
        while (!running.empty() && running.front()->done()) running.erase(running.begin()), idle = 0;
    }
    for (grid *g : queue) delete g;
    queue.clear();
}

static const char *launch(const emu_kernel *kernel, const moii_cu_launch *l, const void *args)
{
    bool overlaps = false;
    grid *g = new grid();
    g->kernel = kernel, g->size = { l->grid_x, l->grid_y, l->grid_z }, g->threads = (int)l->block_x, g->dynamic_bytes = (int)l->shared_bytes;
    g->cluster_size = 1, g->args.assign((const char *)args, (const char *)args + kernel->args_bytes);
    for (unsigned int i = 0; i < l->attribute_count; i++) {
        if (l->attributes[i].id == MOII_CU_ATTR_CLUSTER) g->cluster_size = (int)l->attributes[i].value.cluster.x;
        if (l->attributes[i].id == MOII_CU_ATTR_PROGRAMMATIC) overlaps = l->attributes[i].value.programmatic != 0;
    }
    const char *why = 0;
    if (l->block_y != 1 || l->block_z != 1 || l->block_x % 32) why = "blocks are rows of whole warps";
    else if (g->cluster_size < 1 || g->cluster_size > 16 || g->size.x % (unsigned int)g->cluster_size) why = "a grid is whole clusters";
    else if (SHARED_FIRST + g->dynamic_bytes > SHARED_BYTES - SHARED_STATIC) why = "too much dynamic shared memory";
    if (why) return delete g, why;
    if (!overlaps) finish();
    g->before = queue.empty() ? 0 : queue.back();
    queue.push_back(g);
    return 0;
}

}

using namespace emu;

extern "C" __attribute__((visibility("default"))) const emu_calls *emu_calls_of_device(void)
{
    static const emu_calls calls = { kernel_load, kernel_unload, kernel_args_bytes, launch, finish, encode, allocation, NEAR, multiprocessors() };
    const char *seed = getenv("EMU_SEED");
    random_state = (seed ? (uint64_t)atoll(seed) : 1) * 0x9E3779B97F4A7C15u + 88172645463325252u;
    checking = getenv("EMU_CHECK") != 0;
    device.touch = touch;
    device.wait = wait, device.fail = fail, device.together = together, device.fixed = fixed, device.meet = meet;
    device.cluster_arrive = cluster_arrive, device.release = release;
    fill_units(&device);
    return &calls;
}
