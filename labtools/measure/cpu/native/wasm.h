// linux.h for a WebAssembly module: threads are coroutines which the compiler made of the kernel, and
// the page's script is the parent. It keeps the "files" and answers the module's few system calls.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#define LAB_COROUTINES 1

// The number of the place in the kernel from which the runtime is called: stored before each call.
extern "C" uint32_t lab_site;

extern "C" {
// Copies file number `file` to an address; what stands there at the end is its content then.
__attribute__((import_module("lab"), import_name("map"))) void lab_map(int file, void* at, size_t bytes);
}

namespace lab {

constexpr size_t STACK_BYTES = 1024 * 1024;  // of the module, as the linker is told
static int SLOT_SHIFT = 16;                  // addresses for each buffer: as the largest one needs them

struct Context {
  void* frame = nullptr;  // begins with the function that goes on; null there at the end
};

static void fit_slots(uint64_t largest) {
  while ((uint64_t(1) << SLOT_SHIFT) < 4 * largest) ++SLOT_SHIFT;
}

static inline void lend_processor() {}

static uintptr_t reserve_addresses(uint64_t bytes, uint64_t alignment) {
  constexpr uint64_t page = 65536;
  const size_t before = __builtin_wasm_memory_grow(0, size_t((bytes + alignment + page - 1) / page));
  return before == size_t(-1) ? 0 : (before * page + alignment - 1) & ~(alignment - 1);
}

// New pages, which take memory only where they are written; of an allocator all would be written.
static void* reserve(size_t bytes, bool) { return reinterpret_cast<void*>(reserve_addresses(bytes, 1)); }

static void* map_file(void* at, size_t bytes, bool, int file) {
  if (!at) at = calloc(bytes, 1);
  if (at) lab_map(file, at, bytes);
  return at;
}

static bool share(void* at, size_t bytes) {
  memset(at, 0, bytes);
  return true;
}

static uint64_t draw_distance(uint64_t) { return 0; }

// A thread from its start, or from where it left, until it leaves; true where it has returned.
static bool go_on_until_it_leaves(Context& c, void (*start)()) {
  using Resume = void (*)(void*);
  if (!c.frame)
    c.frame = reinterpret_cast<void* (*)()>(start)();
  else
    (*static_cast<Resume*>(c.frame))(c.frame);
  return *static_cast<Resume*>(c.frame) == nullptr;
}

}  // namespace lab
