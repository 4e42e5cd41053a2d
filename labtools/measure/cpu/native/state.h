// The block that runs now: its threads, warps, scheduler, and how a fault ends it.
#pragma once
#include <vector>

#include "interface.h"
#include "platform.h"
#include "report.h"

// What is rarely reached stays out of the way of what is not.
#define LAB_COLD __attribute__((noinline)) static

namespace lab {

constexpr unsigned MAX_THREADS = 1024;

enum Waiting : uint8_t { RUNNING, AT_BARRIER, AT_COLLECTIVE, AT_ACTIVE_MASK, AT_PHASE, RETURNED };
// Whether a thread has to be left: it cannot go on, or could and lets another.
enum Leaving : uint8_t { STAYS, LEAVES, GIVES_WAY };

// A barrier in shared memory that counts arrivals and bytes, or one by number of some threads.
struct PhaseBarrier {
  uint64_t place;  // its address, or its number
  uint32_t arrivals, missing;  // of a phase; those that this phase still waits for
  int64_t bytes = 0;           // announced and not yet landed
  uint32_t phase = 0;
  uint32_t heard[32] = {};  // of each warp: State::time of what its arrivals made visible
};

struct AsyncCopy {
  void* shared;
  const void* global;
  uint32_t bytes, zero_fill, address;
};

struct Later {  // one matrix product that is not done yet, or the end of a group
  void (*run)(const void*) = nullptr;
  alignas(16) char what[256];
};

struct alignas(64) Fiber {  // what each switch touches lies in one line of the cache
  Context context;
  char* stack = nullptr;  // or the frame of its coroutine
  lab_index index{};
  uint32_t id = 0, lane = 0, warp = 0;
  uint16_t position = 0;  // see State::at
  Waiting waiting = RUNNING;
  Leaving leaving = STAYS;
  bool awaits_phase = false;  // the one of `parity` of the barrier at `spin_at`
  uint8_t parity = 0;
  int operation = 0;         // which barrier or collective it waits at
  uint64_t address = 0;      // where it was called from
  int predicate = 0;
  uint32_t fenced = 0;       // State::time of its last fence
  // Of its last __threadfence(): State::time, barriers of the block and of the warp before it
  uint32_t device_time = 0, device_epoch = 0, device_warp_epoch = 0;
  bool acquired = false;     // by an atomic or a flag, what other blocks released
  uint64_t spin_at = 0;      // the place of its last atomic or volatile read, and how often in a row
  uint32_t spins = 0;
  uint32_t accesses = 0;     // to memory since all of its block or warp last met
  std::vector<AsyncCopy> open;
  std::vector<std::vector<AsyncCopy>> groups;
  std::vector<Later> later;
};

struct Group {  // lanes of one warp that wait for each other
  uint32_t mask, arrived;
  int operation;
};

constexpr uint32_t NEVER = ~0u;

struct Warp {
  uint32_t live = 0;   // lanes that exist and have not returned
  uint32_t epoch = 0;  // __syncwarp() of all live lanes so far
  bool partial = false;
  bool parted = false;  // lanes have met without the others since the last __syncwarp() of all
  uint32_t clock[32];
  uint32_t seen[32][32];  // seen[l][k]: intervals of lane k that lane l knows to be over
  uint32_t acquired[MAX_THREADS / 32];  // fences of each other warp that it has heard of by a flag
  uint32_t acquire_epoch = NEVER;       // its epoch when a lane first acquired from other blocks
  int num_groups = 0;
  Group groups[32];
  uint64_t value[32], result[32];
  int argument[32], width[32];
  float a[16][16], b[16][8], c[16][8];  // of the matrix product that it works out together
  uint16_t rows[32][8];                 // of the matrices that it loads together
  uint32_t loaded[32][4];               // and what each lane gets of them
};

enum Order : int { ROUND_ROBIN, FIRST_WARP_AHEAD, LAST_WARP_AHEAD, RANDOM };

struct State {
  std::vector<PhaseBarrier> phase_barriers;  // of the block that runs
  Fiber fibers[MAX_THREADS];
  Warp warps[MAX_THREADS / 32];
  Context main;
  Fiber* current = nullptr;
  uint32_t num_threads = 0, num_warps = 0, live = 0;
  lab_index block_dim{}, grid_dim{}, block{};
  uint32_t block_serial = 0;   // unique over the whole run, from 1
  uint32_t launch_serial = 0;  // serial of the first block of this launch
  uint32_t linear_block = 0;
  uint32_t time = 0;  // fences of this block so far
  bool alone = true;  // no other process runs blocks of this launch
  uint32_t writes_told = 0;  // by atomics or volatile writes of this launch so far
  uint32_t learnt = 0;       // how many of them the block may rely on
  uint32_t fenced_told = 0;  // how many there were at the last fence of the block
  // Barrier
  uint32_t arrived = 0, epoch = 0;
  uint64_t barrier_address = 0;
  int barrier_count = 0, barrier_operation = 0, barrier_result = 0;
  // Scheduler: which thread stands at each position; a bit a position that can run, and an end.
  Order order = ROUND_ROBIN;
  uint32_t seed = 0;
  Fiber* at[MAX_THREADS];
  uint64_t can_run[MAX_THREADS / 64 + 1];
  // Launch
  void (*call)() = nullptr;
  const uint64_t* arguments = nullptr;
  uint32_t dynamic_bytes = 0;
  uint32_t acquire_epoch = NEVER, acquire_time = 0, acquire_warp = 0;  // of the block's first acquire
  bool acquire_fenced = false;  // a thread has come by a fence since
  const char* entry = "";
};

static State S;

// ---- places and faults ----

#ifndef LAB_COROUTINES
extern "C" char __executable_start[];
extern "C" char _end[];
#endif
// Written by the build: where the device variables lie, at whole pages.
#ifdef LAB_COROUTINES
static char *const lab_device_zero = nullptr, *const lab_device_zero_end = nullptr;
extern "C" char *const lab_device_set, *const lab_device_set_end;
#else
extern "C" char lab_device_zero[], lab_device_zero_end[], lab_device_set[], lab_device_set_end[];
#endif

// Where the loader put a position-independent program; line tables count from zero.
static inline uint64_t linked_address(uint64_t address) {
#if defined(__PIC__)
  return address - uint64_t(uintptr_t(__executable_start));
#else
  return address;
#endif
}

#ifdef LAB_COROUTINES
static uint32_t frame_bytes = 0;  // of each coroutine
extern "C" char __global_base[], __heap_base[];

static bool is_local(const Fiber& f, uintptr_t a) {
  return a - uintptr_t(f.stack) < frame_bytes || (a >= 4096 && a < STACK_BYTES);  // the stack comes first
}
static bool is_constant(uintptr_t a, size_t n) { return a >= uintptr_t(__global_base) && a + n <= uintptr_t(__heap_base); }
#else
static bool is_local(const Fiber& f, uintptr_t a) {
  return a >= uintptr_t(f.stack) && a < uintptr_t(f.stack) + STACK_BYTES;
}
static bool is_constant(uintptr_t a, size_t n) { return a >= uintptr_t(__executable_start) && a + n <= uintptr_t(_end); }
#endif

// Follows the chain of frame pointers on the current thread's stack.
static void walk(Place& place, uintptr_t frame, uint64_t first) {
  place.count = 0;
#ifdef LAB_COROUTINES
  if (!first) first = lab_site;
#endif
  if (first) place.addresses[place.count++] = linked_address(first);
#ifdef LAB_OWN_SWITCH
  while (S.current && place.count < 12 && frame % sizeof(void*) == 0 &&
         is_local(*S.current, frame) && is_local(*S.current, frame + 15)) {
    const uintptr_t* words = reinterpret_cast<const uintptr_t*>(frame);
    if (!words[1]) break;
    place.addresses[place.count++] = linked_address(words[1]);
    if (words[0] <= frame) break;
    frame = words[0];
  }
#endif
}

static void one_address(Place& place, uint64_t address) {
  place.addresses[0] = address;
  place.count = 1;
}

// Asynchronous copies to where none may go, those of one instruction together. The threads of a
// block start them one after another, and nobody reads what they bring before the threads meet: so
// they are counted until then, and one fault says how many they are.
struct BadCopies {
  uint64_t caller;
  FaultRecord* fault;
  uint32_t bytes;  // of each
  int32_t last_thread;
  uint32_t threads;
};
static BadCopies bad_copies[MAX_FAULTS];
static uint32_t num_bad_copies = 0;

static void tell_bad_copies() {
  for (uint32_t i = 0; i < num_bad_copies; ++i) {
    const BadCopies& one = bad_copies[i];
    const uint32_t* offsets = one.fault->offsets;
    Text text(one.fault);
    text.add("address ends in 0x%02x; this access needs a multiple of %u bytes: {copies} such copies of "
             "%u threads before the block meets at a barrier, the first to byte",
             offsets[0] & 0xff, one.bytes, one.threads);
    for (uint32_t t = 0; t < one.fault->num_offsets; ++t)
      text.add("%s 0x%02x", t ? "," : "", offsets[t]);
    text.add(" of shared memory");
    publish(one.fault);
  }
  num_bad_copies = 0;
}

// Ends the run: the memory may be wrong from here on, so nothing after it would mean anything.
[[noreturn]] static void stop_run() {
  tell_bad_copies();
  report->stop = 1;
  _exit(3);
}

// A fault of the block and thread that run now; where the report is full the run ends.
static FaultRecord* fault_or_stop(Kind kind, uint32_t num_places) {
  FaultRecord* f = new_fault(kind);
  if (!f) stop_run();
  f->block[0] = S.block.x;
  f->block[1] = S.block.y;
  f->block[2] = S.block.z;
  f->thread = S.current ? int32_t(S.current->id) : -1;
  f->num_places = num_places;
  return f;
}

static FaultRecord* fault_here(Kind kind, const void* frame) {
  FaultRecord* f = fault_or_stop(kind, 1);
  walk(f->places[0], uintptr_t(frame), 0);
  return f;
}

static void count_bad_copy(uint32_t offset, uint32_t bytes, uint64_t caller, const void* frame) {
  const int32_t thread = int32_t(S.current->id);
  BadCopies* one = bad_copies;
  while (one < bad_copies + num_bad_copies && one->caller != caller) ++one;
  if (one == bad_copies + num_bad_copies) {
    FaultRecord* fault = fault_here(MISALIGNED, frame);
    *one = {caller, fault, bytes, -1, 0};
    ++num_bad_copies;
  }
  ++one->fault->copies;
  if (one->last_thread == thread) return;
  one->last_thread = thread;
  if (one->threads < 3) one->fault->offsets[one->fault->num_offsets++] = offset;
  ++one->threads;
}

[[noreturn]] static void fatal(FaultRecord* f) {
  publish(f);
  stop_run();
}

// Tells a fault of the thread that runs now, and ends the run.
[[noreturn]] __attribute__((noinline, format(printf, 3, 4))) static void end_with(
    Kind kind, const void* frame, const char* format, ...) {
  FaultRecord* f = fault_here(kind, frame);
  va_list list;
  va_start(list, format);
  vsnprintf(f->text, sizeof f->text, format, list);
  va_end(list);
  fatal(f);
}

#ifdef LAB_COROUTINES
#define LAB_FRAME nullptr
#define LAB_CALLER (uint64_t(lab_site))
#else
#define LAB_FRAME __builtin_frame_address(0)
#define LAB_CALLER (lab::linked_address(uintptr_t(__builtin_return_address(0))))
#endif

}  // namespace lab
