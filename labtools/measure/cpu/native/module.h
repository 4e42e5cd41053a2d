// The run as a WebAssembly module, which has one process, no signals, and no clock that ends a thread:
// the compiler puts a call at the head of every stretch of code without a jump, and those are counted.
#pragma once

namespace lab {

static void set_up_process() {}

// What the kernel declares, from where the adapted kernel says so.
struct Variable {
  const char* name;
  char* base;
  uint32_t bytes, kind;  // 0 shared, 1 dynamic and shared, 2 of the device
};
extern "C" const Variable lab_variables[];
extern "C" const uint32_t lab_num_variables;
extern "C" char* const lab_shared_start;

static void find_variables() {
  const uintptr_t lowest = uintptr_t(lab_shared_start);
  dynamic_offset = uint32_t(uintptr_t(lab_dynamic_shared) - lowest);
  for (uint32_t i = 0; i < lab_num_variables; ++i) {
    const Variable& v = lab_variables[i];
    if (v.kind == 2)
      device_sections[1].variables.push_back({v.name, uintptr_t(v.base), v.bytes, false});
    else
      shared_variables.push_back({v.name, uint32_t(uintptr_t(v.base) - lowest), v.bytes});
  }
}

static void catch_signals() {}

constexpr uint64_t STEPS_PER_S = 20000000;  // a choice: of stretches of code, for a second of the limit
static uint64_t steps_left = 0;

static bool make_stacks(uint32_t) { return true; }  // `lab_frame` makes them, once it is known how large

static void start_clock() { steps_left = uint64_t(job.limit_s * STEPS_PER_S); }

static void run_launch(const LaunchJob& l, uint32_t first_serial) {
  const lab_entry& entry = check_launch(l);
  // Each kernel has frames of its own size.
  for (uint32_t i = 0; i < MAX_THREADS; ++i) S.fibers[i].stack = nullptr;
  run_share(l, entry, first_serial, 0, 1);
}

}  // namespace lab

uint32_t lab_site = 0;

extern "C" {
// Where a coroutine keeps what lives across a wait.
void* lab_frame(unsigned bytes) {
  using namespace lab;
  static char* memory = nullptr;
  static size_t room = 0;
  Fiber& me = *S.current;
  if (!me.stack) {
    frame_bytes = (bytes + 63) & ~63u;
    const size_t needed = size_t(frame_bytes) * S.num_threads;
    if (needed > room) {
      free(memory);
      memory = static_cast<char*>(aligned_alloc(64, room = needed));
      if (!memory) give_up("no memory for the threads' stacks");
    }
    for (uint32_t i = 0; i < S.num_threads; ++i) S.fibers[i].stack = memory + i * size_t(frame_bytes);
  }
  return me.stack;
}

void lab_step() {
  using namespace lab;
  if (--steps_left) return;
  end_with(HANG, LAB_FRAME, "the block did not end within %g million steps; the thread was here",
           job.limit_s * STEPS_PER_S / 1e6);
}
}
