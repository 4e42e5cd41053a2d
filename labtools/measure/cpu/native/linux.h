// What the runner takes from Linux: stacks to switch between, memory at chosen addresses, files that
// the parent shares. wasm.h has the same names for a WebAssembly module.
#pragma once
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "fiber.h"

namespace lab {

constexpr size_t STACK_BYTES = 256 * 1024;
constexpr size_t GUARD_BYTES = 4096;
constexpr int SLOT_SHIFT = 36;  // 64 GiB of addresses for each buffer

static void fit_slots(uint64_t) {}

static inline void lend_processor() { sched_yield(); }

// Zeros, of which only what is touched takes memory. Shared: with the processes that are forked later.
static void* reserve(size_t bytes, bool shared) {
  const int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// Addresses with nothing behind them, from a multiple of `alignment` on; 0 where there are none.
static uintptr_t reserve_addresses(uint64_t bytes, uint64_t alignment) {
  void* p = mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? 0 : (uintptr_t(p) + alignment - 1) & ~uintptr_t(alignment - 1);
}

// A file of the parent's at an address; at null, wherever there is room.
static void* map_file(void* at, size_t bytes, bool writable, int file) {
  void* p = mmap(at, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | (at ? MAP_FIXED : 0), file, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// Makes what lies there the same for all processes of the run, and zero.
static bool share(void* at, size_t bytes) {
  return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

// How far into its slot a buffer begins, in whole pages below `room`: drawn, so that how far buffers
// lie apart tells a kernel nothing.
static uint64_t draw_distance(uint64_t room) {
  static std::random_device draw;
  const uint64_t page = sysconf(_SC_PAGESIZE);
  return draw() % (room / page + 1) * page;
}

}  // namespace lab
