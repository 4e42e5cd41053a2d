// The page of memory that parent and child share: what was found, and how far the run is.
// It outlives a crash of the child. Python reads it with the same layout (report.py).
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace lab {

enum Kind : uint32_t {
  OUT_OF_BOUNDS = 1, MISALIGNED, UNINITIALISED, RACE, BARRIER, COLLECTIVE,
  ASYNC_COPY, READ_ONLY, LAUNCH, HANG, CRASH, CARRIED,
};

// A place in the kernel: return addresses, innermost first, of which the reader shows the first
// that lies in the kernel's own source.
struct Place {
  uint64_t addresses[12];
  uint32_t count;
  uint32_t unused;
};

struct FaultRecord {
  uint32_t ready;
  uint32_t kind;
  uint32_t block[3];
  int32_t thread;  // linear in the block; -1 when no single thread is meant
  uint32_t num_places;
  uint32_t only_if_lines_differ;  // two places that turn out to be one line are no fault
  uint32_t launch;                // index of the launch
  uint32_t copies;                // asynchronous copies that are counted together; 0 of others
  uint32_t num_offsets;
  uint32_t offsets[3];  // in shared memory, of the first copy of the first three threads
  Place places[6];
  char text[512];  // {0}, {1}, ... stand for the places
};

constexpr uint32_t MAX_FAULTS = 24;

struct Report {
  uint64_t blocks_done;
  uint64_t blocks_total;
  uint32_t num_faults;
  uint32_t stop;
  FaultRecord faults[MAX_FAULTS];
  uint64_t unfenced;  // a read of what another block wrote, behind no fence of the reader's own
};

static_assert(sizeof(Place) == 104 && sizeof(FaultRecord) == 1192, "report.py has this layout");

static Report* report = nullptr;
static uint32_t launch_index = 0;

static FaultRecord* new_fault(Kind kind) {
  const uint32_t i = __atomic_fetch_add(&report->num_faults, 1u, __ATOMIC_SEQ_CST);
  if (i >= MAX_FAULTS) {
    report->stop = 1;
    return nullptr;
  }
  FaultRecord* f = &report->faults[i];
  f->kind = kind;
  f->thread = -1;
  f->launch = launch_index;
  return f;
}

static void publish(FaultRecord* f) { __atomic_store_n(&f->ready, 1u, __ATOMIC_SEQ_CST); }

// Appends to a text without ever running past its end.
struct Text {
  char* at;
  size_t left;
  explicit Text(FaultRecord* f) : at(f->text), left(sizeof f->text) {}
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(at, left, format, list);
    va_end(list);
    if (n > 0) {
      const size_t used = size_t(n) < left ? size_t(n) : left - 1;
      at += used;
      left -= used;
    }
  }
};

}  // namespace lab
