/* SPDX-License-Identifier: Apache-2.0
 *
 * races.cpp: which accesses of shared memory are ordered, and accesses of device memory next to what was allocated.  With EMU_CHECK=1 the compiler
 * tells of each access (-fsanitize=thread, with our own functions instead of its library).
 *
 * Each thread has a vector of clocks: how much of each other thread's past it knows of.  A release leaves them at a barrier, an acquire takes what
 * was left there.  Bulk copies write as threads of their own, one for each of some barriers, and read as one for each warp that sends them, of which
 * that knows when it has waited for them.  Two accesses of a byte, one of them a write, of which
 * the second does not know of the first, are a race, unless both write the same.  What lanes pass on by shuffles orders nothing; __syncwarp and
 * barriers do. */
#include "parts.hpp"

#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <unordered_map>

namespace emu {

bool checking;

typedef std::vector<uint32_t> clocks;
struct past { clocks known; uint32_t sent; }; /* sent: its last copy out of shared memory */
enum { COPIERS = 64, SENDERS = 32, KEPT = 8 };

struct access { uint16_t who; uint8_t bytes, kind; uint32_t when; };
struct word { access of[KEPT]; };
struct left { clocks so_far, done; }; /* at a barrier: of this phase, of the last */
struct shadow { std::vector<word> words; left barrier[16]; uint32_t copied; };
static std::unordered_map<const void *, left> at_mbarriers, at_clusters;
static std::map<const char *, size_t> allocated;
static bool forgotten; /* one of them, since somebody looked */

static int stride(const block *b) { return b->threads + COPIERS + SENDERS; }
static int number(const thread *t) { return t->in->rank * stride(t->in) + t->index; }
static int sender(const thread *t) { return t->in->rank * stride(t->in) + t->in->threads + COPIERS + t->index / 32 % SENDERS; }

static void join(clocks &to, const clocks &from)
{
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        if (to[i] < from[i]) to[i] = from[i];
}

void races_begin(block *b)
{
    if (!checking) return;
    if (!b->marks) b->marks = new shadow();
    b->marks->words.assign(SHARED_BYTES / 4, word()), b->marks->copied = 0;
    for (left &l : b->marks->barrier) l = left();
    for (auto i = at_mbarriers.begin(); i != at_mbarriers.end();)
        i = (const char *)i->first >= b->memory && (const char *)i->first < b->memory + SHARED_BYTES ? at_mbarriers.erase(i) : std::next(i);
    if (b->rank == 0) at_clusters.erase(b->group);
    for (int i = 0; i < b->threads; i++) {
        thread *t = &b->thread_at[i];
        if (!t->knows) t->knows = new past();
        t->knows->known.assign((size_t)(stride(b) * b->group->size), 0);
        t->knows->known[(size_t)number(t)] = 1, t->knows->sent = 0;
    }
}

/* ---- order ---- */

static left &meeting_of(thread *t, int barrier) { return t->in->marks->barrier[barrier]; }
static void release(left &l, thread *t) { join(l.so_far, t->knows->known), t->knows->known[(size_t)number(t)]++; }
static void complete(left &l) { l.done.swap(l.so_far), l.so_far.clear(); }

void lanes_order(thread *const lane[32])
{
    if (!checking) return;
    clocks all;
    for (int i = 0; i < 32; i++)
        if (lane[i]) join(all, lane[i]->knows->known);
    for (int i = 0; i < 32; i++)
        if (lane[i]) lane[i]->knows->known = all, lane[i]->knows->known[(size_t)number(lane[i])]++;
}
void meeting_release(thread *t, int barrier) { if (checking) release(meeting_of(t, barrier), t); }
void meeting_complete(thread *t, int barrier) { if (checking) complete(meeting_of(t, barrier)); }
void meeting_acquire(thread *t, int barrier)
{
    if (!checking) return;
    const clocks &done = meeting_of(t, barrier).done;
    clocks &known = t->knows->known;
    const size_t self = (size_t)number(t);
    const uint32_t own = known[self];
    if (done.size() != known.size() || done[self] + 1 != own) return join(known, done); /* of a later meeting */
    known = done; /* the thread has left there all that it knew */
    known[self] = own;
}
void cluster_release(thread *t) { if (checking) release(at_clusters[t->in->group], t); }
void cluster_complete(const cluster *c) { if (checking) complete(at_clusters[c]); }
void cluster_acquire(thread *t) { if (checking) join(t->knows->known, at_clusters[t->in->group].done); }
void mbarrier_release(const mbarrier *b, thread *t) { if (checking) release(at_mbarriers[b], t); }
void mbarrier_complete(const mbarrier *b) { if (checking) complete(at_mbarriers[b]); }
void mbarrier_acquire(const mbarrier *b, thread *t) { if (checking) join(t->knows->known, at_mbarriers[b].done); }

/* ---- accesses ---- */

static const char *const kinds[] = { "", "reads", "writes", "changes" };

/* Two threads that write the same value do no harm; what the second writes is known when it goes on. */
struct doubt { const char *word; unsigned char before[4]; uint8_t bytes; std::string text; };
static std::vector<doubt> doubts;

void doubts_settle()
{
    for (const doubt &d : doubts)
        for (int i = 0; i < 4; i++)
            if (d.bytes >> i & 1 && (unsigned char)d.word[i] != d.before[i]) device.fail(d.text.c_str());
    doubts.clear();
}

static void race(block *b, int at, const access &e, const access &a)
{
    char text[192];
    const int first = e.who % stride(b), second = a.who % stride(b);
    snprintf(text, sizeof text, "a race at %d of the shared memory of block %u: thread %d %s, and thread %d %s (from %d on: copies)", at, b->index.x, first,
             kinds[e.kind], second, kinds[a.kind], b->threads);
    if (e.kind != WRITES || a.kind != WRITES || first >= b->threads || second >= b->threads) device.fail(text);
    doubt d = { b->memory + at, {}, (uint8_t)(e.bytes & a.bytes), text };
    memcpy(d.before, d.word, 4);
    doubts.push_back(d);
}

static void note(block *b, int at, access a, const clocks &known)
{
    word &w = b->marks->words[(size_t)at / 4];
    access *free = 0;
    for (access &e : w.of) {
        const bool ordered = !e.kind || known[e.who] >= e.when;
        if (!ordered && e.bytes & a.bytes && (e.kind != READS || a.kind != READS) && !(e.kind == CHANGES && a.kind == CHANGES)) race(b, at, e, a);
        if (ordered && !(e.bytes & ~a.bytes) && (a.kind == WRITES || e.kind == READS || e.kind == a.kind)) e.kind = 0;
        if (!e.kind && !free) free = &e;
    }
    *(free ? free : &w.of[random_below(KEPT)]) = a;
}

static void note_range(block *b, int at, int bytes, int who, uint32_t when, int kind, const clocks &known)
{
    for (int word_at = at & ~3; word_at < at + bytes; word_at += 4) {
        unsigned int mask = 0;
        for (int i = 0; i < 4; i++)
            if (word_at + i >= at && word_at + i < at + bytes) mask |= 1u << i;
        note(b, word_at, { (uint16_t)who, (uint8_t)mask, (uint8_t)kind, when }, known);
    }
}

static block *owner_of(const char *p)
{
    const cluster *c = device.self->in->group;
    for (int r = 0; r < c->size; r++)
        if (p >= c->member[r]->memory && p < c->member[r]->memory + SHARED_BYTES) return c->member[r];
    return 0;
}

static void outside(const std::pair<const char *const, size_t> &of, const char *p, int bytes)
{
    char text[128];
    snprintf(text, sizeof text, "%d bytes at %lld of an allocation of %lld", bytes, (long long)(p - of.first), (long long)of.second);
    device.fail(text);
}

void touch(const void *p, int bytes, int kind)
{
    const char *c = (const char *)p;
    thread *t = device.self;
    if (!t || (c >= (const char *)t->stack && c < (const char *)t->stack + STACK)) return;
    if (!doubts.empty()) doubts_settle();
    block *b = owner_of(c);
    if (b) {
        const int at = (int)(c - b->memory);
        device.shared((unsigned int)(b->rank + 1) << 24 | (unsigned int)at, bytes);
        return note_range(b, at, bytes, number(t), t->knows->known[(size_t)number(t)], kind, t->knows->known);
    }
    static std::pair<const char *, const char *> again; /* most are where the one before was */
    if (forgotten) again = {}, forgotten = false;
    if (c >= again.first && c + bytes <= again.second) return;
    const auto next = allocated.upper_bound(c), last = next == allocated.begin() ? next : std::prev(next);
    if (last != next && c + bytes <= last->first + last->second) {
        again = { last->first, last->first + last->second };
        return;
    }
    if (last != next && c < last->first + last->second + NEAR) outside(*last, c, bytes);
    if (next != allocated.end() && c + bytes > next->first - NEAR) outside(*next, c, bytes);
}

void copier_writes(block *b, int at, int bytes, const mbarrier *barrier, thread *issuer)
{
    if (!checking) return;
    const int who = b->rank * stride(b) + b->threads + (int)((uintptr_t)barrier / 8 % COPIERS);
    left &l = at_mbarriers[barrier];
    clocks known = issuer->knows->known;
    const uint32_t when = ++b->marks->copied;
    known[(size_t)who] = when;
    note_range(b, at, bytes, who, when, WRITES, known);
    join(l.so_far, known);
}

void copier_reads(int at, int bytes, thread *issuer)
{
    block *b = issuer->in;
    clocks known = issuer->knows->known;
    known[(size_t)sender(issuer)] = issuer->knows->sent = ++b->marks->copied;
    note_range(b, at, bytes, sender(issuer), issuer->knows->sent, READS, known);
}

void copies_known(thread *t) { if (checking && t->knows->sent) t->knows->known[(size_t)sender(t)] = t->knows->sent; }

void allocation(const void *p, size_t bytes)
{
    if (bytes) allocated[(const char *)p] = bytes;
    else allocated.erase((const char *)p), forgotten = true;
}

}
