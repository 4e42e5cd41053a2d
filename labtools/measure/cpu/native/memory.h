// Every load and store of the kernel comes through here: the compiler's thread-sanitizer pass
// calls a hook before each one, and these are our hooks, not the sanitizer's.
//
// Bounds: global buffers lie far apart, so an address belongs to one buffer even when it is far
// outside; shared variables have gaps between them.
// Order: each granule of shared memory and of each writable buffer remembers its last write and
// its last read. Two accesses by different threads, one a write, with no barrier between them,
// are a race whichever of them came first here.
// Device variables are watched like writable buffers, but for two things: CUDA sets them before the
// first launch, and what a call leaves in them must not help the next one.
// A flag orders, too: a fence, then a volatile or atomic write of it, in one thread; a volatile or
// atomic read of it, then what the fence made visible, in another.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "state.h"

namespace lab {

// RELEASE: an atomic or volatile write behind a fence of its thread, or such a read. DOUBT: below.
// LOOSE: an atomic update behind one of a block that ended and made it visible by no fence.
// EARLY: a read that got what was there before the launch, see `may_come_early`.
enum : uint8_t { EARLY = 1, MANY_WARPS = 2, ATOMIC = 4, PENDING = 8, VOLATILE = 16, RELEASE = 32, DOUBT = 64, LOOSE = 128 };

struct Stamp {  // one access
  uint32_t block;    // serial; 0 means never
  uint32_t epoch;    // barriers of the block before it
  uint32_t warp_epoch;
  uint32_t address;  // of the code, as linked: below 4 GiB
  uint32_t lanes;    // of its warp: those that made it, or one like it before
  uint32_t clock;    // partial __syncwarp() of those lanes before it, the most of any
  uint32_t time;     // fences of the block before it
  uint16_t thread;
  uint8_t flags;
};

struct Cell {
  Stamp write, read;
};

struct Region {
  std::string name;
  uintptr_t base = 0;
  uint64_t bytes = 0;
  uint32_t item_bytes = 1;
  bool writable = false;
  bool given = false;     // holds an input, though it is writable
  int shift = 0;          // granule of 1 << shift bytes
  Cell* cells = nullptr;  // null: reads only, nothing to remember
};

// Exit statuses: the run begins anew, with a granule of a byte, or in one process.
constexpr int NEEDS_FINE = 6, NEEDS_ALONE = 7;

static uint64_t slot_bytes() { return uint64_t(1) << SLOT_SHIFT; }
constexpr int MAX_BUFFERS = 15;

struct SharedVariable {
  std::string name;
  uint32_t offset, bytes;
};

struct DeviceVariable {
  std::string name;
  uintptr_t base;
  uint64_t bytes;
  bool ignored;  // the compiler's own guard
};

// The device variables of one section, in the order of their addresses, as the job names them.
struct DeviceSection {
  Region region;
  std::vector<DeviceVariable> variables;
  const char* initial = nullptr;  // what CUDA sets them to; null for zero
};

static uintptr_t slots_base = 0;
static Region buffers[MAX_BUFFERS + 1];
static int num_buffers = 0;

static std::vector<SharedVariable> shared_variables;
static Region shared_region;       // thread-local storage: all shared variables
static std::vector<uint8_t> owner;  // variable of each shared byte, from 1; 0 is a gap
constexpr uint8_t IGNORED = 255;   // the compiler's own guard variables
static uint32_t dynamic_offset = 0;

static DeviceSection device_sections[2];  // those that begin with zero, and the others
static uint32_t call_serial = 1;          // the first block of this call
static bool fine = false;                 // every byte of a buffer is watched by itself

static bool is_device(const Region& r) {
  return &r == &device_sections[0].region || &r == &device_sections[1].region;
}

// The variable that an address belongs to, or the last one below it.
static const DeviceVariable* nearest_variable(const DeviceSection& s, uintptr_t a) {
  auto above = std::upper_bound(s.variables.begin(), s.variables.end(), a,
                                [](uintptr_t at, const DeviceVariable& v) { return at < v.base; });
  return above == s.variables.begin() ? nullptr : &above[-1];
}

// What each block has released to others by an atomic or volatile write behind a __threadfence().
// Of its warps and threads it is one word each, in `released_words`.
struct Released {
  uint32_t epoch;   // writes before so many barriers of the block
  uint32_t fenced;  // 1 + barriers before its last fence, whoever made it
};
static Released* released = nullptr;
static uint32_t* released_words = nullptr;
static uint32_t released_capacity = 0, released_threads = 0, released_warps = 0;

// Of thread t of a block: its writes before so many fences; of its warp: before so many __syncwarp(),
// and before so many fences, as the releasing thread has heard by a flag.
static inline uint32_t* released_of(uint32_t block) {
  return released_words + uint64_t(block) * (released_threads + 2 * released_warps);
}
static uint32_t* atomics_taken = nullptr;  // 1 while one of the worker processes is in an atomic

[[noreturn]] LAB_COLD void wild(uintptr_t a, size_t n, bool write, const void* frame) {
  FaultRecord* f = fault_here(OUT_OF_BOUNDS, frame);
  Text text(f);
  const char* verb = write ? "writes" : "reads";
  const uint64_t slot = (a - slots_base) >> SLOT_SHIFT;
  if (a < 4096) {
    text.add("%s %zu bytes at address %zu: a null pointer", verb, n, size_t(a));
  } else if (slot < uint64_t(num_buffers)) {
    const Region& r = buffers[slot];
    const int64_t offset = int64_t(a - r.base);
    const int64_t element = offset >= 0 ? offset / r.item_bytes
                                        : -int64_t((uint64_t(-offset) + r.item_bytes - 1) / r.item_bytes);
    text.add("%s %zu bytes at element %lld of `%s`, which has %llu elements", verb, n,
             (long long)element, r.name.c_str(), (unsigned long long)(r.bytes / r.item_bytes));
  } else {
    text.add("%s %zu bytes at an address that belongs to no buffer", verb, n);
  }
  fatal(f);
}

[[noreturn]] LAB_COLD void outside_shared(uintptr_t a, size_t n, bool write, const void* frame) {
  FaultRecord* f = fault_here(OUT_OF_BOUNDS, frame);
  const int64_t offset = int64_t(a - shared_region.base);
  const SharedVariable* nearest = nullptr;
  for (const SharedVariable& v : shared_variables) {
    if (v.name.empty()) continue;
    if (!nearest || (int64_t(v.offset) <= offset && v.offset >= nearest->offset)) nearest = &v;
  }
  Text text(f);
  text.add("%s %zu bytes outside every shared variable", write ? "writes" : "reads", n);
  if (nearest) {
    const uint32_t bytes = nearest->offset == dynamic_offset ? S.dynamic_bytes : nearest->bytes;
    text.add(": at byte %lld of `%s`, which has %u bytes", (long long)(offset - nearest->offset),
             nearest->name.c_str(), bytes);
    if (nearest->offset == dynamic_offset) text.add(" in this launch (smem_bytes)");
  }
  fatal(f);
}

[[noreturn]] LAB_COLD void outside_variable(const DeviceVariable* nearest,
                                                                    uintptr_t a, size_t n, bool write,
                                                                    const void* frame) {
  FaultRecord* f = fault_here(OUT_OF_BOUNDS, frame);
  Text text(f);
  text.add("%s %zu bytes outside every device variable", write ? "writes" : "reads", n);
  if (nearest)
    text.add(": at byte %lld of `%s`, which has %llu bytes", (long long)(a - nearest->base),
             nearest->name.c_str(), (unsigned long long)nearest->bytes);
  fatal(f);
}

[[noreturn]] static void misaligned(uintptr_t a, size_t alignment, const void* frame) {
  end_with(MISALIGNED, frame, "address ends in 0x%02x; this access needs a multiple of %zu bytes",
           unsigned(a & 0xff), alignment);
}

// ---- order ----

static std::string where(const Region& r, uintptr_t a) {
  char text[160];
  if (&r == &shared_region) {
    const uint32_t offset = uint32_t(a - r.base);
    const SharedVariable& v = shared_variables[owner[offset] - 1];
    snprintf(text, sizeof text, "byte %u of shared `%s`", offset - v.offset, v.name.c_str());
  } else if (is_device(r)) {
    const DeviceVariable* v = nearest_variable(device_sections[&r == &device_sections[1].region], a);
    snprintf(text, sizeof text, "byte %llu of the device variable `%s`",
             (unsigned long long)(v ? a - v->base : 0), v ? v->name.c_str() : "?");
  } else {
    snprintf(text, sizeof text, "element %llu of `%s`",
             (unsigned long long)((a - r.base) / r.item_bytes), r.name.c_str());
  }
  return text;
}

// One report for each pair of places: a race in a loop is one race.
static bool first_time(uint64_t a, uint64_t b) {
  static uint64_t told[64][2];
  static int num_told = 0;
  for (int i = 0; i < num_told; ++i)
    if (told[i][0] == a && told[i][1] == b) return false;
  if (num_told == 64) return false;
  told[num_told][0] = a;
  told[num_told++][1] = b;
  return true;
}

LAB_COLD void report_race(const Region& r, uintptr_t a, const Stamp& other,
                                                  bool other_wrote, bool write, uint64_t address,
                                                  bool lost = false) {
  if (!first_time(address, other.address)) return;
  FaultRecord* f = fault_or_stop(RACE, 2);
  one_address(f->places[0], address);
  one_address(f->places[1], other.address);
  Text text(f);
  text.add("%s: thread %u %s at {0}, ", where(r, a).c_str(), S.current->id,
           write ? "writes" : "reads");
  if (lost) {
    text.add("another block writes at {1}, and may do so between this write and the read before it: "
             "one atomic update has to do both");
  } else if (other.block == S.block_serial && !(other.flags & LOOSE)) {
    // Of many readers only one is remembered, and that one may be the thread itself.
    const bool myself = other.thread == S.current->id;
    if (myself)
      text.add("other threads read at {1}, ");
    else
      text.add("thread %u %s at {1}, ", other.thread, other_wrote ? "writes" : "reads");
    const bool same_warp = other.thread / 32 == S.current->warp && !(other.flags & MANY_WARPS);
    text.add(same_warp ? "and no __syncwarp() or barrier orders the two (a shuffle does not)"
                       : "and no barrier orders the two");
  } else {
    text.add("another block %s at {1}, and nothing orders two blocks of one launch for this thread "
             "(other lanes of a warp learn what an atomic tells one by __syncwarp(), not by a shuffle)",
             other_wrote ? "writes" : "reads");
  }
  publish(f);
}

LAB_COLD void report_unwritten(const Region& r, uintptr_t a, uint64_t address, bool pending, bool reads = true) {
  if (!first_time(address, 0)) return;
  FaultRecord* f = fault_or_stop(pending ? ASYNC_COPY : UNINITIALISED, 1);
  one_address(f->places[0], address);
  Text text(f);
  if (pending)
    text.add("%s %s, where an asynchronous copy has not been waited for", reads ? "reads" : "writes",
             where(r, a).c_str());
  else
    text.add("reads %s, which nobody has written%s", where(r, a).c_str(),
             &r == &shared_region ? " in this block" : "");
  publish(f);
}

LAB_COLD void report_carried(const Region& r, uintptr_t a, uint64_t address) {
  if (!first_time(address, 1)) return;
  FaultRecord* f = fault_or_stop(CARRIED, 1);
  one_address(f->places[0], address);
  Text(f).add("reads %s, which an earlier call of the launches left other than it was at the start: "
              "every call must work out its answer anew",
              where(r, a).c_str());
  publish(f);
}

// True when a device variable holds what an earlier call left there, and not what it began with.
static bool carried(const Region& r, const Cell& c, uintptr_t a) {
  if (!c.write.block || c.write.block >= call_serial) return false;
  const char* initial = device_sections[&r == &device_sections[1].region].initial;
  for (uintptr_t i = 0; i < (uintptr_t(1) << r.shift); ++i)
    if (*reinterpret_cast<const char*>(a + i) != (initial ? initial[a + i - r.base] : 0)) return true;
  return false;
}

// When each warp last read a granule of shared memory that several warps read in one interval
// between barriers of the block: 1 + State::time, 0 for never.
struct ReadTimes {
  uint32_t block, epoch;
  uint32_t of_warp[MAX_THREADS / 32];
};
static ReadTimes* read_times = nullptr;  // of each four bytes

static ReadTimes& read_times_at(uintptr_t a) {
  ReadTimes& times = read_times[(a - shared_region.base) / 4];
  if (times.block != S.block_serial || times.epoch != S.epoch) {
    memset(&times, 0, sizeof times);
    times.block = S.block_serial;
    times.epoch = S.epoch;
  }
  return times;
}

// The thread lets other blocks see what its fence orders: its own writes, and those before a barrier
// of its block or warp; and what the fence of another thread orders that it has met since.
LAB_COLD void release_to_blocks() {
  const Fiber& me = *S.current;
  const Warp& w = S.warps[me.warp];
  Released& block = released[S.block_serial];
  uint32_t* threads = released_of(S.block_serial);
  uint32_t *warp_epochs = threads + released_threads, *heard = warp_epochs + released_warps;
  for (uint32_t t = 0; t < S.num_threads; ++t) {
    const Fiber& f = S.fibers[t];
    if (!f.device_time) continue;
    const bool in_warp = f.warp == me.warp && (w.partial || f.device_warp_epoch < w.epoch);
    if (&f != &me && f.device_epoch == S.epoch && !in_warp && f.device_time >= w.acquired[f.warp])
      continue;
    threads[t] = std::max(threads[t], f.device_time);
    block.epoch = std::max(block.epoch, f.device_epoch);
    const uint32_t before = S.warps[f.warp].partial ? NEVER : f.device_warp_epoch;
    warp_epochs[f.warp] = std::max(warp_epochs[f.warp], before);
  }
  for (uint32_t i = 0; i < S.num_warps; ++i) heard[i] = std::max(heard[i], w.acquired[i]);
}

static bool is_released(const Stamp& s, bool wrote) {
  if (s.block >= released_capacity) return false;
  const Released& block = released[s.block];
  if (!wrote || !released_threads) return block.fenced > s.epoch;  // of reads less is remembered
  if (s.epoch < block.epoch) return true;
  const uint32_t* threads = released_of(s.block);
  const uint32_t *warp_epochs = threads + released_threads, *heard = warp_epochs + released_warps;
  const uint32_t warp = s.thread >> 5;
  return s.time < threads[s.thread] || s.warp_epoch < warp_epochs[warp] || s.time < heard[warp];
}

static void acquire_from_blocks() {
  Warp& w = S.warps[S.current->warp];
  S.current->acquired = true;
  w.acquire_epoch = std::min(w.acquire_epoch, w.epoch);
  if (S.acquire_epoch != NEVER) return;
  S.acquire_epoch = S.epoch;
  S.acquire_time = S.time;
  S.acquire_warp = S.current->warp;
}

// Whether the thread has acquired from other blocks, or has heard of one of its block that has.
static bool has_acquired() {
  const Warp& w = S.warps[S.current->warp];
  if (S.current->acquired || S.acquire_epoch < S.epoch) return true;
  if (S.acquire_epoch == NEVER) return false;
  const bool in_warp = w.acquire_epoch != NEVER && (w.partial || w.acquire_epoch < w.epoch);
  return in_warp || w.acquired[S.acquire_warp] > S.acquire_time;
}

// What `unordered` says where a look at the stamp alone does not tell.
LAB_COLD bool look_closer(const Region& r, const Stamp& s, uintptr_t a, bool wrote) {
  const Fiber& me = *S.current;
  if (s.block != S.block_serial) {
    if (s.block < S.launch_serial) return false;  // never, or an earlier launch
    // Blocks order each other through memory: write, __threadfence(), atomic; atomic, read.
    return !has_acquired() || !is_released(s, wrote);
  }
  const Warp& w = S.warps[me.warp];
  if (s.flags & MANY_WARPS) {
    const ReadTimes* times = &r == &shared_region ? &read_times_at(a) : nullptr;
    for (uint32_t i = 0; i < S.num_warps; ++i)
      if (i != me.warp && w.acquired[i] < (times ? times->of_warp[i] : s.time + 1)) return true;
    return false;
  }
  if (unsigned(s.thread >> 5) != me.warp) return w.acquired[s.thread >> 5] <= s.time;
  if (s.warp_epoch != w.epoch || w.acquired[me.warp] > s.time) return false;
  for (uint32_t rest = s.lanes & ~(1u << me.lane); rest; rest &= rest - 1)
    if (!w.partial || w.seen[me.lane][__builtin_ctz(rest)] <= s.clock) return true;
  return false;
}

// True when the access remembered in `s` may happen at the same time as the current thread's.
static inline bool unordered(const Region& r, const Stamp& s, uintptr_t a, bool wrote) {
  if (s.block != S.block_serial) {
    if (!s.block || &r == &shared_region) return false;  // never; or another block had its own
  } else if (s.epoch != S.epoch) {
    return false;
  }
  return look_closer(r, s, a, wrote);
}

static inline void stamp(Stamp& s, uint64_t address, uint8_t flags) {
  const Fiber& me = *S.current;
  const Warp& w = S.warps[me.warp];
  s = {S.block_serial,  S.epoch,          w.epoch,         uint32_t(address),
       1u << me.lane,   w.clock[me.lane], S.time,          uint16_t(me.id), flags};
}

// Of several threads of a block that write one value with one instruction, it does not matter which
// comes last. What is written is seen only afterwards. So it is with one that is `lost`.
struct Doubt {
  const Region* region;
  uintptr_t a;
  Stamp other;
  uint64_t address, value;
  bool lost = false, early = false;  // early: the value is to stand there again
};
static std::vector<Doubt> doubts;

// Of a granule that volatile or atomic writes of this launch go to: what stood there before, when the
// first of them came, and how many of such writes who reads it may rely on: those before a fence of
// the writer, or of who wrote what that updated.
struct Told {
  uint64_t before, previous;  // before the first of them, before the last
  uint32_t first, released, by;
};
static std::unordered_map<uintptr_t, Told> told;

static uint64_t value_at(const Region& r, uintptr_t a) {
  uint64_t value = 0;
  memcpy(&value, reinterpret_cast<const void*>(a), size_t(1) << r.shift);
  return value;
}

LAB_COLD void settle_doubts() {
  for (const Doubt& d : doubts) {
    d.region->cells[(d.a - d.region->base) >> d.region->shift].write.flags &= uint8_t(~DOUBT);
    if (d.early)
      memcpy(reinterpret_cast<void*>(d.a), &d.value, size_t(1) << d.region->shift);
    else if (value_at(*d.region, d.a) != d.value)
      report_race(*d.region, d.a, d.other, true, true, d.address, d.lost);
  }
  doubts.clear();
}

// ATOMIC_LOOK: an update that changes nothing.
enum Access { READ, WRITE, ATOMIC_UPDATE, COPY_PENDING, COPY_LANDED, VOLATILE_READ, VOLATILE_WRITE, BLOCK_UPDATE, ATOMIC_LOOK };

// Blocks run one after another here; on a GPU this one may read before any of those wrote, as long as
// what it has learnt of was released before. Who waits for a flag reads it again.
static bool may_come_early(const Region& r, const Cell& c, uintptr_t a) {
  if (!S.alone || c.write.block < S.launch_serial || c.write.block == S.block_serial || c.read.block == S.block_serial)
    return false;
  const auto found = told.find(a);
  return found != told.end() && found->second.first > S.learnt;
}

// A flag was read behind which another thread's fence stands: what that made visible may be read.
static inline void acquire(const Stamp& written) {
  if (written.block != S.block_serial) {
    acquire_from_blocks();  // `is_released` says of what
    return;
  }
  // One lane writes the flag for its warp.
  const uint32_t warp = written.thread >> 5, first = warp * 32;
  uint32_t& known = S.warps[S.current->warp].acquired[warp];
  for (uint32_t i = first; i < std::min(first + 32, S.num_threads); ++i)
    known = std::max(known, S.fibers[i].fenced);
}

// Whether an atomic update comes behind one that nobody but atomics may rely on.
static bool is_behind_loose(const Region& r, const Stamp& s) {
  if (!S.alone || &r == &shared_region || !(s.flags & ATOMIC) || s.block < S.launch_serial) return false;
  return s.flags & LOOSE || (s.block != S.block_serial && !is_released(s, true));
}

static inline void touch(Region& r, Cell& c, uintptr_t a, Access access, uint64_t address) {
  const bool in_block = access == BLOCK_UPDATE, is_mine = c.write.block == S.block_serial;
  const bool looks = access == ATOMIC_LOOK || access == VOLATILE_READ;
  if (__builtin_expect(access >= BLOCK_UPDATE, 0)) access = ATOMIC_UPDATE;
  const bool reads = access == READ || access == VOLATILE_READ;
  const bool synchronises = access >= VOLATILE_READ || access == ATOMIC_UPDATE;
  bool excused = false, read_excused = false, early = false;
  uint8_t flags = 0;
  if (__builtin_expect(synchronises, 0)) {
    // Another process may be between its stamp and its store; atomics take turns.
    if (access != ATOMIC_UPDATE && !S.alone && &r != &shared_region) _exit(NEEDS_ALONE);
    if (access == ATOMIC_UPDATE) excused = c.write.flags & ATOMIC;
    const bool fenced = S.current->fenced != 0;
    if (access != ATOMIC_UPDATE || !excused) excused |= (c.write.flags & RELEASE) != 0;
    // A reader waits for a flag that is written behind a fence.
    read_excused = !reads && fenced && c.read.flags & (VOLATILE | ATOMIC);
    excused |= !reads && fenced && c.write.flags & (VOLATILE | ATOMIC);
    early = looks && &r != &shared_region && may_come_early(r, c, a);
    if (access != VOLATILE_WRITE && c.write.flags & RELEASE && !early) acquire(c.write);
    if (access != VOLATILE_WRITE && !early && told.count(a)) S.learnt = std::max(S.learnt, told[a].released);
    if (in_block) excused &= is_mine;
  }
  if (reads || access == ATOMIC_UPDATE) {
    const bool written = &r == &shared_region ? is_mine : c.write.block != 0;
    if (is_device(r)) {
      if (__builtin_expect(reads && carried(r, c, a), 0)) report_carried(r, a, address);
    } else if (__builtin_expect(!written && !r.given, 0)) {
      report_unwritten(r, a, address, false);
    }
  }
  if (__builtin_expect(c.write.flags & PENDING && is_mine, 0) && access != COPY_PENDING && access != COPY_LANDED)
    report_unwritten(r, a, address, true, reads || access == ATOMIC_UPDATE);
  if (__builtin_expect(c.write.flags & DOUBT, 0)) settle_doubts();
  const bool loose = __builtin_expect(c.write.flags & LOOSE, 0) && access == READ && c.write.block >= S.launch_serial;
  if (loose || (!excused && unordered(r, c.write, a, true))) {
    if ((access == WRITE || access == COPY_LANDED) && is_mine && c.write.address == uint32_t(address)) {
      doubts.push_back({&r, a, c.write, address, value_at(r, a)});
      flags = DOUBT;
    } else {
      report_race(r, a, c.write, true, !reads, address);
    }
  }
  const bool of_others = c.write.block >= S.launch_serial && c.write.block != S.block_serial;
  if (__builtin_expect(access == READ && of_others && !S.acquire_fenced, 0) && &r != &shared_region)
    report->unfenced = address;
  if (__builtin_expect(early, 0)) {
    doubts.push_back({&r, a, {}, address, value_at(r, a), false, true});
    memcpy(reinterpret_cast<void*>(a), &told[a].before, size_t(1) << r.shift);
    c.write.flags |= flags = DOUBT;
  }
  if (!reads) {
    if (synchronises && S.alone && &r != &shared_region) {
      ++S.writes_told;
      if (c.write.block < S.launch_serial) told[a] = {value_at(r, a), 0, S.writes_told, 0, 0};
      told[a].previous = value_at(r, a);
      told[a].by = S.block_serial;
      told[a].released = std::max(access == VOLATILE_WRITE ? 0 : told[a].released, S.fenced_told);
      if (access == VOLATILE_WRITE && c.read.flags & EARLY && c.read.block == S.block_serial &&
          c.read.thread == S.current->id && !is_mine) {
        doubts.push_back({&r, a, c.write, address, value_at(r, a), true});
        flags = DOUBT;
      }
    }
    if (!read_excused && unordered(r, c.read, a, false)) report_race(r, a, c.read, false, true, address);
    flags |= access == ATOMIC_UPDATE    ? ATOMIC
             : access == COPY_PENDING   ? PENDING
             : access == VOLATILE_WRITE ? VOLATILE
                                        : 0;
    if (access == ATOMIC_UPDATE && is_behind_loose(r, c.write)) flags |= LOOSE;
    if (synchronises && S.current->fenced) flags |= RELEASE;
    if (synchronises && S.current->device_time && released_threads && &r != &shared_region)
      release_to_blocks();
    stamp(c.write, address, flags);
    return;
  }
  // Remember who reads: one thread, several lanes of one warp, or several warps.
  flags = early ? EARLY | VOLATILE : access == VOLATILE_READ ? VOLATILE : 0;
  uint32_t lanes = 0, clock = 0;
  if (c.read.block == S.block_serial && c.read.epoch == S.epoch) {
    const Fiber& me = *S.current;
    if (&r == &shared_region &&
        (c.read.flags & MANY_WARPS || unsigned(c.read.thread >> 5) != me.warp)) {
      ReadTimes& times = read_times_at(a);
      if (!(c.read.flags & MANY_WARPS)) times.of_warp[c.read.thread >> 5] = c.read.time + 1;
      times.of_warp[me.warp] = S.time + 1;
    }
    if (c.read.flags & MANY_WARPS) return;
    if (unsigned(c.read.thread >> 5) != me.warp)
      flags = MANY_WARPS | (flags & c.read.flags & VOLATILE);
    else if (unordered(r, c.read, a, false)) {  // who is ordered after me is after those before me, too
      lanes = c.read.lanes;
      clock = c.read.clock;
      flags &= c.read.flags;
    }
  }
  stamp(c.read, address, flags);
  c.read.lanes |= lanes;
  c.read.clock = std::max(c.read.clock, clock);
}

// Shared memory starts with granules of 4 bytes and goes finer when the kernel does. From behind, so
// that nothing is overwritten before it is read; what lies between the variables is never looked at.
LAB_COLD void refine(Region& r, int shift) {
  for (; r.shift > shift; --r.shift) {
    for (size_t v = shared_variables.size(); v-- > 0;) {
      const SharedVariable& one = shared_variables[v];
      const uint64_t end = one.offset + (one.offset == dynamic_offset ? S.dynamic_bytes : one.bytes);
      for (uint64_t i = (end + (1u << r.shift) - 1) >> r.shift; i-- > one.offset >> r.shift;)
        r.cells[2 * i] = r.cells[2 * i + 1] = r.cells[i];
    }
  }
}

LAB_COLD void touch_all(Region& r, uintptr_t a, size_t n, Access access, uint64_t address) {
  const uint64_t offset = a - r.base;
  const uint64_t odd = offset | n;
  if (__builtin_expect(odd & ((1u << r.shift) - 1), 0)) {
    // A buffer's granule is its element, and all processes share what is known of it.
    if (&r != &shared_region) _exit(NEEDS_FINE);
    refine(r, odd & 1 ? 0 : 1);
  }
  const uint64_t last = (offset + n - 1) >> r.shift;
  for (uint64_t i = offset >> r.shift; i <= last; ++i)
    touch(r, r.cells[i], r.base + (i << r.shift), access, address);
}

// ---- the check before each access ----

LAB_COLD void shared_access(uintptr_t a, size_t n, Access access,
                                                    uint64_t address, const void* frame) {
  const uint64_t offset = a - shared_region.base;
  const uint8_t mine = owner[offset];
  if (mine == IGNORED) return;
  if (!mine || offset + n > shared_region.bytes || owner[offset + n - 1] != mine)
    outside_shared(a, n, access != READ && access != VOLATILE_READ, frame);
  touch_all(shared_region, a, n, access, address);
}

LAB_COLD void other_access(uintptr_t a, size_t n, Access access,
                                                   uint64_t address, const void* frame) {
  const bool write = access != READ && access != VOLATILE_READ;
  if (S.current && is_local(*S.current, a) && is_local(*S.current, a + n - 1)) return;
  for (DeviceSection& s : device_sections) {
    if (a - s.region.base >= s.region.bytes) continue;
    const DeviceVariable* v = nearest_variable(s, a);
    if (!v || a + n > v->base + v->bytes) outside_variable(v, a, n, write, frame);
    if (v->ignored) return;
    touch_all(s.region, a, n, access, address);
    return;
  }
  // Tables of constants and text
  if (!write && is_constant(a, n)) return;
  wild(a, n, write, frame);
}

[[noreturn]] LAB_COLD void write_to_input(const Region& r, uintptr_t a,
                                                                  size_t n, const void* frame) {
  end_with(READ_ONLY, frame, "writes %zu bytes to %s, which is an input", n, where(r, a).c_str());
}

static inline __attribute__((always_inline)) void check(uintptr_t a, size_t n, Access access,
                                                        uint64_t address, const void* frame) {
  if (S.current) ++S.current->accesses;
  const uint64_t slot = (a - slots_base) >> SLOT_SHIFT;
  if (__builtin_expect(slot < uint64_t(num_buffers), 1)) {
    Region& r = buffers[slot];
    const uint64_t offset = a - r.base;
    if (__builtin_expect(offset >= r.bytes || offset + n > r.bytes, 0))
      wild(a, n, access != READ && access != VOLATILE_READ, frame);
    if (r.cells)
      touch_all(r, a, n, access, address);
    else if (access != READ && access != VOLATILE_READ && !r.writable)
      write_to_input(r, a, n, frame);
  } else if (a - shared_region.base < shared_region.bytes) {
    shared_access(a, n, access, address, frame);
  } else {
    other_access(a, n, access, address, frame);
  }
}

static inline void take_turn(uint64_t address);

// ---- setting up ----

static bool reserve_slots(uint64_t largest) {
  fit_slots(largest);
  slots_base = reserve_addresses(slot_bytes() * (MAX_BUFFERS + 1), slot_bytes());
  return slots_base != 0;
}

// Puts a buffer near the middle of its slot, so that a negative offset stays in the slot too.
static bool map_buffer(Region& r, int slot, int fd) {
  const uint64_t away = draw_distance(std::min(uint64_t(1) << 28, slot_bytes() / 2 - r.bytes));
  r.base = uintptr_t(slots_base + uint64_t(slot) * slot_bytes() + slot_bytes() / 2 + away);
  const size_t length = r.bytes ? size_t(r.bytes) : 1;
  if (!map_file(reinterpret_cast<void*>(r.base), length, r.writable, fd)) return false;
  if (!r.writable) return true;
  r.shift = fine ? 0 : r.item_bytes >= 4 ? 2 : r.item_bytes == 2 ? 1 : 0;
  r.cells = static_cast<Cell*>(reserve(((r.bytes >> r.shift) + 1) * sizeof(Cell), true));
  return r.cells != nullptr;
}

// Device variables must be the same for all processes of a run, as they are for all blocks.
static bool set_up_device() {
  char* const bounds[2][2] = {{lab_device_zero, lab_device_zero_end}, {lab_device_set, lab_device_set_end}};
  for (int i = 0; i < 2; ++i) {
    DeviceSection& s = device_sections[i];
    Region& r = s.region;
    r.name = "device";
    r.base = uintptr_t(bounds[i][0]);
    r.bytes = uint64_t(bounds[i][1] - bounds[i][0]);
    r.writable = true;
    if (s.variables.empty()) {
      r.bytes = 0;
      continue;
    }
    r.shift = fine ? 0 : 2;
    r.cells = static_cast<Cell*>(reserve(((r.bytes >> r.shift) + 1) * sizeof(Cell), true));
    char* copy = i ? static_cast<char*>(reserve(r.bytes, false)) : nullptr;
    if (copy) memcpy(copy, bounds[i][0], r.bytes);
    if (!r.cells || (i && !copy)) return false;
    if (!share(bounds[i][0], r.bytes)) return false;
    if (copy) memcpy(bounds[i][0], copy, r.bytes);
    s.initial = copy;
  }
  return true;
}

static bool set_up_shared() {
  uint32_t end = 0;
  for (const SharedVariable& v : shared_variables) end = std::max(end, v.offset + v.bytes);
  shared_region.name = "shared";
  shared_region.base = uintptr_t(lab_dynamic_shared) - dynamic_offset;
  shared_region.bytes = (end + 7u) & ~7u;
  shared_region.writable = true;
  shared_region.shift = 2;
  shared_region.cells = static_cast<Cell*>(reserve((shared_region.bytes + 8) * sizeof(Cell), false));
  read_times = static_cast<ReadTimes*>(reserve((shared_region.bytes / 4 + 1) * sizeof(ReadTimes), false));
  if (!read_times) return false;
  owner.assign(shared_region.bytes, 0);
  for (size_t i = 0; i < shared_variables.size(); ++i) {
    const SharedVariable& v = shared_variables[i];
    if (v.offset == dynamic_offset) continue;
    memset(&owner[v.offset], v.name == "(guard)" ? IGNORED : int(i + 1), v.bytes);
  }
  return shared_region.cells != nullptr && shared_variables.size() < IGNORED;
}

// Only the bytes that the launch asked for belong to the dynamic array.
static void set_dynamic_bytes(uint32_t bytes) {
  for (size_t i = 0; i < shared_variables.size(); ++i) {
    const SharedVariable& v = shared_variables[i];
    if (v.offset != dynamic_offset) continue;
    memset(&owner[v.offset], 0, v.bytes);
    memset(&owner[v.offset], int(i + 1), bytes);
  }
  S.dynamic_bytes = bytes;
}

// A block finds shared memory as a GPU leaves it: with whatever was there. NaN shows best.
static void poison_shared() {
  for (const SharedVariable& v : shared_variables) {
    const uint32_t bytes = v.offset == dynamic_offset ? S.dynamic_bytes : v.bytes;
    if (v.name != "(guard)") memset(reinterpret_cast<void*>(shared_region.base + v.offset), 0xff, bytes);
  }
}

}  // namespace lab

// ---- the hooks: names and meaning are fixed by the compiler ----

#define LAB_HOOK(name, bytes, access, aligned)                                             \
  extern "C" void name(void* a) {                                                          \
    const uintptr_t p = uintptr_t(a);                                                      \
    if (aligned && __builtin_expect(p & ((bytes) - 1), 0)) lab::misaligned(p, bytes, LAB_FRAME); \
    if ((access) == lab::VOLATILE_READ) lab::take_turn(LAB_CALLER);                        \
    lab::check(p, bytes, access, LAB_CALLER, LAB_FRAME);                                   \
  }
// Of 1, 2, 4, 8 and 16 bytes; of the longer ones also those that may stand anywhere.
#define LAB_HOOK_PAIR(kind, bytes, access)                      \
  LAB_HOOK(__tsan_##kind##bytes, bytes, access, true)           \
  LAB_HOOK(__tsan_unaligned_##kind##bytes, bytes, access, false)
#define LAB_HOOKS(kind, access)                                                     \
  LAB_HOOK(__tsan_##kind##1, 1, access, false)                                      \
  LAB_HOOK_PAIR(kind, 2, access) LAB_HOOK_PAIR(kind, 4, access)                     \
  LAB_HOOK_PAIR(kind, 8, access) LAB_HOOK_PAIR(kind, 16, access)
LAB_HOOKS(read, lab::READ)
LAB_HOOKS(write, lab::WRITE)
LAB_HOOKS(volatile_read, lab::VOLATILE_READ)
LAB_HOOKS(volatile_write, lab::VOLATILE_WRITE)
#undef LAB_HOOKS
#undef LAB_HOOK_PAIR
#undef LAB_HOOK

extern "C" void __tsan_read_range(void* a, size_t n) {
  if (n) lab::check(uintptr_t(a), n, lab::READ, LAB_CALLER, LAB_FRAME);
}
extern "C" void __tsan_write_range(void* a, size_t n) {
  if (n) lab::check(uintptr_t(a), n, lab::WRITE, LAB_CALLER, LAB_FRAME);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}

// The build renames the kernel's own calls of memcpy, memmove and memset to lab_...; clang's pass
// writes __tsan_... itself.
#define LAB_CHECKED_COPY(prefix, name)                                                    \
  extern "C" void* prefix##name(void* to, const void* from, size_t n) {            \
    if (n) {                                                                       \
      lab::check(uintptr_t(from), n, lab::READ, LAB_CALLER, LAB_FRAME);            \
      lab::check(uintptr_t(to), n, lab::WRITE, LAB_CALLER, LAB_FRAME);             \
    }                                                                              \
    return name(to, from, n);                                                      \
  }
LAB_CHECKED_COPY(lab_, memcpy)
LAB_CHECKED_COPY(lab_, memmove)
LAB_CHECKED_COPY(__tsan_, memcpy)
LAB_CHECKED_COPY(__tsan_, memmove)
#undef LAB_CHECKED_COPY
#define LAB_CHECKED_SET(name)                                                \
  extern "C" void* name(void* to, int value, size_t n) {                     \
    if (n) lab::check(uintptr_t(to), n, lab::WRITE, LAB_CALLER, LAB_FRAME);  \
    return memset(to, value, n);                                             \
  }
LAB_CHECKED_SET(lab_memset)
LAB_CHECKED_SET(__tsan_memset)
#undef LAB_CHECKED_SET

// The undefined-behaviour checks that are switched on: alignment and constant array bounds.
struct LabSourceLocation {
  const char* file;
  uint32_t line, column;
};
struct LabTypeName {
  uint16_t kind, info;
  char name[1];
};
struct LabMismatch {
  LabSourceLocation location;
  LabTypeName* type;
  unsigned char log_alignment, check;
};
struct LabOutOfBounds {
  LabSourceLocation location;
  LabTypeName *array, *index;
};
extern "C" void __ubsan_handle_type_mismatch_v1(LabMismatch* data, uintptr_t a) {
  const size_t alignment = size_t(1) << data->log_alignment;
  if (a % alignment) lab::misaligned(a, alignment, LAB_FRAME);
}
extern "C" void __ubsan_handle_out_of_bounds(LabOutOfBounds* data, uintptr_t index) {
  lab::end_with(lab::OUT_OF_BOUNDS, LAB_FRAME, "index %lld is outside an array of type %s",
                (long long)index, data->array->name);
}
