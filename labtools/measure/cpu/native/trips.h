// How often each thread of some blocks comes by each place of the kernel. The compiler puts the call
// at the head of every stretch of code without a jump, in a kernel that is built to be counted.
#pragma once
#include "state.h"

namespace lab {

constexpr uint32_t MAX_PLACES = 2048, MAX_COUNTED = 4;

struct Trips {
  uint32_t num_places, dropped;  // places that found no room
  uint64_t places[MAX_PLACES];   // return addresses
  uint32_t counts[MAX_COUNTED][MAX_PLACES][MAX_THREADS];
};

static Trips* trips = nullptr;
static int counted_block = -1;  // position among the blocks that are counted

static uint32_t place_number(uint64_t address) {
  static uint64_t known[4 * MAX_PLACES];
  static uint16_t number[4 * MAX_PLACES];
  uint32_t at = uint32_t(address * 0x9e3779b97f4a7c15ull >> 40) % (4 * MAX_PLACES);
  while (known[at] && known[at] != address) at = (at + 1) % (4 * MAX_PLACES);
  if (known[at]) return number[at];
  if (trips->num_places == MAX_PLACES) {
    ++trips->dropped;
    return MAX_PLACES;
  }
  known[at] = address;
  number[at] = uint16_t(trips->num_places++);
  trips->places[number[at]] = address;
  return number[at];
}

}  // namespace lab

extern "C" void __sanitizer_cov_trace_pc() {
  using namespace lab;
  if (!trips || counted_block < 0 || !S.current) return;
  const uint32_t place = place_number(LAB_CALLER);
  if (place < MAX_PLACES) ++trips->counts[counted_block][place][S.current->id];
}
