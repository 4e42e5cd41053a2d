// CUDA threads as fibers: the scheduler, barriers, warp functions, atomics, asynchronous copies.
#pragma once
#include <algorithm>

#include "memory.h"

namespace lab {

// ---- scheduler ----

static inline void set_can_run(const Fiber& f, bool can) {
  const uint32_t p = f.position;
  if (can)
    S.can_run[p >> 6] |= 1ull << (p & 63);
  else
    S.can_run[p >> 6] &= ~(1ull << (p & 63));
}

static inline void go_on(Fiber& f) {
  f.waiting = RUNNING;
  set_can_run(f, true);
}

// The first position from `from` on, round the end, whose thread can run; -1 if there is none.
static inline __attribute__((always_inline)) int find_runnable(uint32_t from) {
  const uint32_t words = (S.num_threads + 63) / 64;
  uint32_t word = from >> 6;
  uint64_t bits = S.can_run[word] & (~0ull << (from & 63));
  for (uint32_t i = 0; i <= words + 1; ++i) {
    if (__builtin_expect(bits != 0, 1)) return int(word * 64 + unsigned(__builtin_ctzll(bits)));
    word = word + 1 >= words ? 0 : word + 1;
    bits = S.can_run[word];
  }
  return -1;
}

static inline uint32_t next_random() {
  S.seed ^= S.seed << 13;
  S.seed ^= S.seed >> 17;
  S.seed ^= S.seed << 5;
  return S.seed;
}

static const char* operation_name(Waiting waiting, int operation) {
  static const char* const barriers[] = {"__syncthreads()", "__syncthreads_count()",
                                         "__syncthreads_and()", "__syncthreads_or()"};
  static const char* const collectives[] = {
      "__syncwarp()",        "__shfl_sync()",       "__shfl_xor_sync()",   "__shfl_up_sync()",
      "__shfl_down_sync()",  "__ballot_sync()",     "__any_sync()",        "__all_sync()",
      "__reduce_add_sync()", "__reduce_min_sync()", "__reduce_max_sync()", "__reduce_min_sync()",
      "__reduce_max_sync()", "__reduce_and_sync()", "__reduce_or_sync()",  "__reduce_xor_sync()",
      "__match_any_sync()",  "the matrix product",  "ldmatrix"};
  static const char* const phases[] = {"a barrier in shared memory", "a named barrier"};
  if (waiting == AT_PHASE) return phases[operation];
  return waiting == AT_BARRIER ? barriers[operation] : collectives[operation];
}

// Nobody can run and somebody waits: says who stands where.
[[noreturn]] LAB_COLD void deadlock() {
  struct Standing {
    Waiting waiting;
    int operation;
    uint64_t address;
    uint32_t count, first;
  };
  std::vector<Standing> places;
  uint32_t returned = 0;
  for (uint32_t i = 0; i < S.num_threads; ++i) {
    const Fiber& t = S.fibers[i];
    if (t.waiting == RETURNED) {
      ++returned;
      continue;
    }
    auto known = std::find_if(places.begin(), places.end(), [&](const Standing& p) {
      return p.address == t.address && p.operation == t.operation && p.waiting == t.waiting;
    });
    if (known == places.end())
      places.push_back({t.waiting, t.operation, t.address, 1, i});
    else
      ++known->count;
  }
  // A barrier is the more telling place when both kinds are waited at.
  std::stable_partition(places.begin(), places.end(),
                        [](const Standing& p) { return p.waiting == AT_BARRIER; });
  FaultRecord* f = fault_or_stop(places[0].waiting == AT_BARRIER ? BARRIER : COLLECTIVE, uint32_t(std::min<size_t>(places.size(), 5)));
  f->thread = int32_t(places[0].first);
  Text text(f);
  text.add("deadlock: ");
  for (uint32_t i = 0; i < f->num_places; ++i) {
    one_address(f->places[i], places[i].address);
    text.add("%s%u thread%s wait%s at %s ({%u})", i ? ", " : "", places[i].count,
             places[i].count == 1 ? "" : "s", places[i].count == 1 ? "s" : "",
             operation_name(places[i].waiting, places[i].operation), i);
  }
  if (returned) text.add(", %u ha%s returned", returned, returned == 1 ? "s" : "ve");
  fatal(f);
}

// Lanes that ask who is active wait until nobody else can run: by then every lane that comes the
// same way is there, which is what a GPU, running a warp in step, would answer. Once lanes have gone
// different ways, or one way more often, it need not be in step: in a drawn order some of them are
// answered alone.
static bool answer_active_masks() {
  bool any = false;
  for (uint32_t i = 0; i < S.num_warps; ++i) {
    uint32_t lanes = 0;
    uint64_t address = 0;
    bool parted = S.warps[i].parted;
    for (uint32_t t = i * 32; t < std::min(S.num_threads, i * 32 + 32); ++t) {
      const Fiber& f = S.fibers[t];
      if (f.waiting != AT_ACTIVE_MASK || (lanes && f.address != address)) continue;
      parted |= lanes && f.accesses != S.fibers[t - 1].accesses;
      address = f.address;
      lanes |= 1u << f.lane;
    }
    const bool all = uint32_t(__builtin_popcount(lanes)) == std::min(32u, S.num_threads - i * 32);
    if (S.order == RANDOM && (!all || parted)) lanes &= next_random() | (lanes & -lanes);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      Fiber& f = S.fibers[i * 32 + unsigned(l)];
      S.warps[i].result[l] = lanes;
      go_on(f);
      any = true;
    }
  }
  return any;
}

// Who goes on where nobody can run: whoever asks who is active, or what began the block.
LAB_COLD Fiber* after_all() {
  if (!S.live) return nullptr;
  if (!answer_active_masks()) deadlock();
  return S.at[find_runnable(0)];
}

// A function that waits has two halves. The first says in `Fiber::leaving` that the thread cannot go
// on, the second gives the answer; between them another thread runs.

// Who runs in place of the current thread, which leaves; null at the end of the block.
static inline __attribute__((always_inline)) Fiber* next_thread() {
  Fiber* me = S.current;
  if (__builtin_expect(me->leaving == GIVES_WAY, 0)) {
    const int p = find_runnable(me->position + 1u);
    return p < 0 ? me : S.at[p];
  }
  if (__builtin_expect(!doubts.empty(), 0)) settle_doubts();
  uint32_t from = 0;
  if (S.order == ROUND_ROBIN) {
    from = me->position + 1u;
  } else if (S.order == RANDOM) {
    from = uint32_t(uint64_t(next_random()) * S.num_threads >> 32);
  }
  const int p = find_runnable(from);
  return __builtin_expect(p < 0, 0) ? after_all() : S.at[p];
}

LAB_COLD void look_at_phase(Fiber& me);

// Whether the current thread has to be left, asked until it is not.
static inline __attribute__((always_inline)) bool must_leave() {
  Fiber& me = *S.current;
  if (__builtin_expect(me.awaits_phase, 0)) look_at_phase(me);
  return me.leaving != STAYS;
}

#ifdef LAB_COROUTINES
// The kernel leaves by itself: it asks `must_leave` behind every function that waits.
static inline void pass() {}
static inline void take_turn(uint64_t) {}
#else
// In one frame with its caller: the stacks of a block's threads are to stay in the cache.
static inline __attribute__((always_inline)) void pass() {
  while (must_leave()) {
    Fiber* me = S.current;
    Fiber* next = next_thread();
    if (next == me && me->leaving == GIVES_WAY) lend_processor();  // to a block of another process
    me->leaving = STAYS;
    if (next == me) continue;
    S.current = next;
    go(me->context, next ? next->context : S.main);
  }
}
#endif

constexpr uint32_t SPINS = 16;

// A thread that asks the same again and again waits for another, which must get its turn.
static inline void let_others_run(uint64_t address) {
  Fiber& me = *S.current;
  if (me.spin_at != address) {
    me.spin_at = address;
    me.spins = 0;
  } else if (++me.spins % SPINS == 0) {
    me.leaving = GIVES_WAY;
  }
}

#ifndef LAB_COROUTINES
static inline void take_turn(uint64_t address) {
  let_others_run(address);
  pass();
}
#endif

// ---- barriers ----

LAB_COLD void barrier_site(uint64_t mine, uint64_t theirs) {
  static int told = 0;
  if (told == 4 || !first_time(mine, theirs)) return;
  ++told;
  FaultRecord* f = fault_or_stop(BARRIER, 2);
  f->only_if_lines_differ = 1;
  one_address(f->places[0], mine);
  one_address(f->places[1], theirs);
  Text(f).add("threads of one block meet at different barriers: some at {0}, others at {1}; "
              "a barrier must be the same one for the whole block");
  publish(f);
}

// All threads that have not returned are there: from sm_70 on no others are waited for.
static void release_barrier() {
  if (num_bad_copies) stop_run();
  const int operation = S.barrier_operation;
  S.barrier_result = operation == LAB_BARRIER_AND   ? S.barrier_count == int(S.arrived)
                     : operation == LAB_BARRIER_OR ? S.barrier_count != 0
                                                   : S.barrier_count;
  S.arrived = 0;
  ++S.epoch;
  // Keep each thread's own copy: the next barrier may finish before all have read this one.
  for (uint32_t i = 0; i < S.num_threads; ++i) {
    Fiber& t = S.fibers[i];
    if (t.waiting != AT_BARRIER) continue;
    t.predicate = S.barrier_result;
    t.accesses = 0;
    go_on(t);
  }
}

static inline void begin_barrier(int operation, int predicate, uint64_t address) {
  Fiber& me = *S.current;
  me.operation = operation;
  me.address = address;
  if (S.arrived == 0) {
    S.barrier_address = address;
    S.barrier_operation = operation;
    S.barrier_count = 0;
  } else if (S.barrier_operation != operation || S.barrier_address != address) {
    barrier_site(address, S.barrier_address);
  }
  S.barrier_count += predicate != 0;
  me.waiting = AT_BARRIER;
  if (++S.arrived == S.live) {
    release_barrier();
    if (S.order == ROUND_ROBIN) return;  // else the favoured thread goes first, not the last to arrive
  } else {
    set_can_run(me, false);
  }
  me.leaving = LEAVES;
}

// ---- warp functions ----

// The lane whose value a shuffle gives to `lane`; the lane itself when the source is outside.
static int source_lane(int operation, int lane, int argument, int width) {
  const int start = lane & ~(width - 1), end = start + width - 1;
  switch (operation) {
    case LAB_SHFL:
      return start | (argument & (width - 1));
    case LAB_SHFL_XOR:
      return (lane ^ argument) <= end ? lane ^ argument : lane;
    case LAB_SHFL_UP:
      return lane - argument >= start ? lane - argument : lane;
    default:
      return lane + argument <= end ? lane + argument : lane;
  }
}

static void sync_clocks(Warp& w, uint32_t lanes) {
  if (lanes == w.live) {  // everybody knows everything: start afresh
    ++w.epoch;
    w.parted = false;
    for (int l = 0; l < 32; ++l) S.fibers[32 * (&w - S.warps) + l].accesses = 0;
    if (w.partial) {
      memset(w.clock, 0, sizeof w.clock);
      memset(w.seen, 0, sizeof w.seen);
      w.partial = false;
    }
    return;
  }
  w.partial = true;
  uint32_t joined[32] = {};
  for (int l = 0; l < 32; ++l)
    if (lanes >> l & 1)
      for (int k = 0; k < 32; ++k) joined[k] = std::max(joined[k], w.seen[l][k]);
  for (int k = 0; k < 32; ++k)
    if (lanes >> k & 1) joined[k] = ++w.clock[k];
  for (int l = 0; l < 32; ++l)
    if (lanes >> l & 1) memcpy(w.seen[l], joined, sizeof joined);
}

static uint64_t reduce(int operation, const Warp& w, uint32_t lanes) {
  bool first = true;
  uint32_t total = 0;
  for (int l = 0; l < 32; ++l) {
    if (!(lanes >> l & 1)) continue;
    const uint32_t v = uint32_t(w.value[l]);
    if (first) {
      total = v;
      first = false;
      continue;
    }
    switch (operation) {
      case LAB_REDUCE_ADD: total += v; break;
      case LAB_REDUCE_MIN_SIGNED: total = uint32_t(std::min(int32_t(total), int32_t(v))); break;
      case LAB_REDUCE_MAX_SIGNED: total = uint32_t(std::max(int32_t(total), int32_t(v))); break;
      case LAB_REDUCE_MIN_UNSIGNED: total = std::min(total, v); break;
      case LAB_REDUCE_MAX_UNSIGNED: total = std::max(total, v); break;
      case LAB_REDUCE_AND: total &= v; break;
      case LAB_REDUCE_OR: total |= v; break;
      default: total ^= v; break;
    }
  }
  return total;
}

// One matrix product, each sum in the order of k. The products of two neighbours are added first.
static void multiply(Warp& w) {
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; k += 2)
      for (int column = 0; column < 8; ++column)
        w.c[row][column] += w.a[row][k] * w.b[k][column] + w.a[row][k + 1] * w.b[k + 1][column];
}

// Lane 4 g + c gets elements 2 c and 2 c + 1 of row g of each matrix; transposed: element g of two rows.
static void share_matrices(Warp& w) {
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, c = l % 4 * 2;
    for (int i = 0; i < w.argument[l]; ++i) {
      const uint16_t(*row)[8] = w.rows + 8 * i;
      const bool transposed = w.value[l];
      const uint32_t low = transposed ? row[c][g] : row[g][c];
      const uint32_t high = transposed ? row[c + 1][g] : row[g][c + 1];
      w.loaded[l][i] = low | high << 16;
    }
  }
}

// All lanes that can come have come: compute every lane's result and let them go on.
static void complete(Warp& w, Group& group, uint32_t warp_index, const void* frame) {
  const uint32_t lanes = group.arrived;
  const int operation = group.operation;
  if (lanes != w.live) w.parted = true;
  if (operation >= LAB_SHFL && operation <= LAB_SHFL_DOWN) {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      const int from = source_lane(operation, l, w.argument[l], w.width[l]);
      if (__builtin_expect(!(lanes >> from & 1), 0)) {
        const Fiber& reader = S.fibers[warp_index * 32 + unsigned(l)];
        FaultRecord* f = fault_here(COLLECTIVE, frame);
        f->thread = int32_t(reader.id);
        // `frame` is that of a lane that took part, or of one that has returned since.
        if (S.current->waiting == RETURNED) one_address(f->places[0], reader.address);
        Text(f).add("lane %d reads from lane %d, which does not take part in this %s: its value is "
                    "undefined",
                    l, from, operation_name(AT_COLLECTIVE, operation));
        fatal(f);
      }
      w.result[l] = w.value[from];
    }
  } else if (operation == LAB_SYNCWARP) {
    sync_clocks(w, lanes);
  } else if (operation >= LAB_BALLOT && operation <= LAB_ALL) {
    uint32_t ballot = 0;
    for (int l = 0; l < 32; ++l)
      if (lanes >> l & 1 && w.value[l]) ballot |= 1u << l;
    const uint64_t result = operation == LAB_BALLOT ? ballot
                            : operation == LAB_ANY  ? ballot != 0
                                                    : ballot == lanes;
    for (int l = 0; l < 32; ++l) w.result[l] = lanes >> l & 1 ? result : w.result[l];
  } else if (operation == LAB_PRODUCT) {
    if (lanes != ~0u) end_with(COLLECTIVE, frame, "a matrix product takes all 32 lanes of a warp");
    multiply(w);
  } else if (operation == LAB_MATRICES) {
    if (lanes != ~0u) end_with(COLLECTIVE, frame, "ldmatrix takes all 32 lanes of a warp");
    share_matrices(w);
  } else if (operation == LAB_MATCH_ANY) {
    for (int l = 0; l < 32; ++l) {
      if (!(lanes >> l & 1)) continue;
      uint32_t equal = 0;
      for (int k = 0; k < 32; ++k)
        if (lanes >> k & 1 && w.value[k] == w.value[l]) equal |= 1u << k;
      w.result[l] = equal;
    }
  } else {
    const uint64_t result = reduce(operation, w, lanes);
    for (int l = 0; l < 32; ++l) w.result[l] = lanes >> l & 1 ? result : w.result[l];
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1)
    go_on(S.fibers[warp_index * 32 + unsigned(__builtin_ctz(rest))]);
  group = w.groups[--w.num_groups];
}

static inline __attribute__((always_inline)) void begin_collective(int operation, uint32_t mask, uint64_t value, int argument, int width,
                           uint64_t address, const void* frame) {
  Fiber& me = *S.current;
  Warp& w = S.warps[me.warp];
  const uint32_t bit = 1u << me.lane;
  if (__builtin_expect(!(mask & bit), 0))
    end_with(COLLECTIVE, frame, "lane %u calls %s with mask 0x%08x, which leaves it out", me.lane,
             operation_name(AT_COLLECTIVE, operation), mask);
  if (__builtin_expect(width < 1 || width > 32 || (width & (width - 1)), 0))
    end_with(COLLECTIVE, frame, "the width of a shuffle must be 1, 2, 4, 8, 16 or 32");
  w.value[me.lane] = value;
  w.argument[me.lane] = argument;
  w.width[me.lane] = width;
  me.operation = operation;
  me.address = address;
  Group* group = nullptr;
  for (int i = 0; i < w.num_groups; ++i)
    if (w.groups[i].mask == mask) group = &w.groups[i];
  if (!group) {
    group = &w.groups[w.num_groups++];
    *group = {mask, 0, operation};
  } else if (__builtin_expect(group->operation != operation, 0)) {
    const Fiber& other = S.fibers[me.warp * 32 + unsigned(__builtin_ctz(group->arrived))];
    FaultRecord* f = fault_here(COLLECTIVE, frame);
    f->num_places = 2;
    one_address(f->places[1], other.address);
    Text(f).add("lanes of one warp wait at different functions: lane %u at %s ({0}), lane %u at %s "
                "({1})",
                me.lane, operation_name(AT_COLLECTIVE, operation), other.lane,
                operation_name(AT_COLLECTIVE, other.operation));
    fatal(f);
  }
  group->arrived |= bit;
  if (group->arrived == (mask & w.live)) {
    complete(w, *group, me.warp, frame);
  } else {
    me.waiting = AT_COLLECTIVE;
    set_can_run(me, false);
    me.leaving = LEAVES;
  }
}

// ---- a thread's life ----

static void end_thread() {
  Fiber& me = *S.current;
  Warp& w = S.warps[me.warp];
  me.waiting = RETURNED;
  --S.live;
  w.live &= ~(1u << me.lane);
  set_can_run(me, false);
  // A lane that has returned is not waited for.
  for (int i = 0; i < w.num_groups;)
    if (w.groups[i].arrived == (w.groups[i].mask & w.live))
      complete(w, w.groups[i], me.warp, LAB_FRAME);
    else
      ++i;
  if (S.live == 0 && num_bad_copies) stop_run();
  if (S.arrived && S.arrived == S.live) release_barrier();
  me.leaving = LEAVES;
}

#ifndef LAB_COROUTINES
static void thread_main() {
  S.call();
  end_thread();
  pass();
  __builtin_trap();
}
#endif

static void choose_order(int order) {
  const uint32_t n = S.num_threads;
  S.order = order == 0 ? ROUND_ROBIN : order == 1 ? FIRST_WARP_AHEAD : order == 2 ? LAST_WARP_AHEAD : RANDOM;
  S.seed = 0x9e3779b9u * uint32_t(order + 1) ^ (0x85ebca6bu * (S.linear_block + 1));
  if (!S.seed) S.seed = 1;
  for (uint32_t i = 0; i < n; ++i) S.at[i] = &S.fibers[order == 2 ? n - 1 - i : i];
  if (S.order == RANDOM)
    for (uint32_t i = n - 1; i > 0; --i) std::swap(S.at[i], S.at[next_random() % (i + 1)]);
  for (uint32_t i = 0; i < n; ++i) S.at[i]->position = uint16_t(i);
}

static void run_block(int order) {
  const uint32_t n = S.num_threads;
  S.num_warps = (n + 31) / 32;
  S.live = n;
  S.phase_barriers.clear();
  S.arrived = 0;
  S.epoch = 0;
  S.time = 0;
  S.acquire_epoch = NEVER;
  S.acquire_fenced = false;
  S.learnt = S.fenced_told = 0;
  for (uint32_t i = 0; i < S.num_warps; ++i) {
    Warp& w = S.warps[i];
    const uint32_t lanes = std::min(32u, n - i * 32);
    w.live = lanes == 32 ? ~0u : (1u << lanes) - 1;
    w.epoch = 0;
    w.num_groups = 0;
    w.partial = w.parted = false;
    w.acquire_epoch = NEVER;
    memset(w.acquired, 0, sizeof w.acquired);
    memset(w.clock, 0, sizeof w.clock);
    memset(w.seen, 0, sizeof w.seen);
  }
  choose_order(order);
  memset(S.can_run, 0, sizeof S.can_run);
  for (uint32_t i = 0; i < n; ++i) {
    Fiber& f = S.fibers[i];
    f.id = i;
    f.warp = i / 32;
    f.lane = i % 32;
    f.waiting = RUNNING;
    f.address = 0;
    f.fenced = f.device_time = 0;
    f.acquired = false;
    f.spin_at = 0;
    f.spins = f.accesses = 0;
    f.index = {i % S.block_dim.x, i / S.block_dim.x % S.block_dim.y, i / (S.block_dim.x * S.block_dim.y)};
    f.open.clear();
    f.groups.clear();
    f.later.clear();
    f.leaving = STAYS;
    f.awaits_phase = false;
#ifdef LAB_COROUTINES
    f.context.frame = nullptr;
#else
    // Tops at one offset of a page each would share a few sets of the cache.
    prepare(f.context, f.stack, STACK_BYTES - i % 64 * 64, thread_main);
#endif
    set_can_run(f, true);
  }
  poison_shared();
  S.current = S.at[0];
#ifdef LAB_COROUTINES
  while (Fiber* me = S.current) {
    if (go_on_until_it_leaves(me->context, S.call)) end_thread();
    S.current = next_thread();
    me->leaving = STAYS;
  }
#else
  go(S.main, S.current->context);
#endif
}

// ---- barriers with phases ----

static PhaseBarrier* phase_barrier(uint64_t place) {
  for (PhaseBarrier& b : S.phase_barriers)
    if (b.place == place) return &b;
  return nullptr;
}

static PhaseBarrier& initialised(void* address, uint64_t caller, const void* frame) {
  if (uintptr_t(address) % 8) misaligned(uintptr_t(address), 8, frame);
  check(uintptr_t(address), 8, READ, caller, frame);
  PhaseBarrier* b = phase_barrier(uintptr_t(address));
  if (!b) end_with(COLLECTIVE, frame, "nobody has initialised this barrier");
  return *b;
}

// What this warp did, and what it knows of others, is known to who waits for the phase. A barrier
// that is ahead of who waits tells a little too much: of phases behind the one waited for.
static void arrive_at(PhaseBarrier& b, uint32_t arrivals, int64_t bytes, const void* frame) {
  Fiber& me = *S.current;
  Warp& w = S.warps[me.warp];
  me.fenced = ++S.time;
  for (uint32_t i = 0; i < S.num_warps; ++i) b.heard[i] = std::max(b.heard[i], w.acquired[i]);
  b.heard[me.warp] = me.fenced;
  if (arrivals > b.missing) end_with(COLLECTIVE, frame, "more arrivals at a barrier than it was initialised for");
  b.missing -= arrivals;
  b.bytes += bytes;
  if (b.missing || b.bytes) return;
  b.missing = b.arrivals;
  ++b.phase;
  for (uint32_t i = 0; i < S.num_threads; ++i) {
    Fiber& t = S.fibers[i];
    if (t.waiting == AT_PHASE && t.spin_at == b.place) go_on(t);
  }
}

// Until the phase that has `parity` is over. Others may initialise barriers meanwhile.
static void await_phase(uint64_t place, uint32_t parity, int operation, uint64_t caller) {
  Fiber& me = *S.current;
  me.awaits_phase = true;
  me.parity = parity & 1;
  me.operation = operation;
  me.address = caller;
  me.spin_at = place;
}

LAB_COLD void look_at_phase(Fiber& me) {
  const PhaseBarrier& b = *phase_barrier(me.spin_at);
  if ((b.phase & 1) == me.parity) {
    me.waiting = AT_PHASE;
    set_can_run(me, false);
    me.leaving = LEAVES;
    return;
  }
  me.awaits_phase = false;
  Warp& w = S.warps[me.warp];
  for (uint32_t i = 0; i < S.num_warps; ++i) w.acquired[i] = std::max(w.acquired[i], b.heard[i]);
}

// ---- atomics ----

template <class T>
static uint64_t update(T* address, int operation, uint64_t operand_bits, uint64_t compare_bits) {
  T operand, compare, old, wanted;
  memcpy(&operand, &operand_bits, sizeof operand);
  memcpy(&compare, &compare_bits, sizeof compare);
  __atomic_load(address, &old, __ATOMIC_SEQ_CST);
  do {
    wanted = old;
    switch (operation) {
      case LAB_ATOMIC_ADD: wanted = T(old + operand); break;
      case LAB_ATOMIC_MIN: wanted = std::min(old, operand); break;
      case LAB_ATOMIC_MAX: wanted = std::max(old, operand); break;
      case LAB_ATOMIC_EXCHANGE: wanted = operand; break;
      case LAB_ATOMIC_CAS: wanted = memcmp(&old, &compare, sizeof old) ? old : operand; break;
      case LAB_ATOMIC_INC: wanted = old >= operand ? T(0) : T(old + 1); break;
      case LAB_ATOMIC_DEC: wanted = old == T(0) || old > operand ? operand : T(old - 1); break;
      default: {
        uint64_t a = 0, b = 0;
        memcpy(&a, &old, sizeof old);
        memcpy(&b, &operand, sizeof operand);
        a = operation == LAB_ATOMIC_AND ? a & b : operation == LAB_ATOMIC_OR ? a | b : a ^ b;
        memcpy(&wanted, &a, sizeof wanted);
      }
    }
  } while (!__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  uint64_t result = 0;
  memcpy(&result, &old, sizeof old);
  return result;
}

// What a compare and swap may find of a word that another block of this launch had to itself, and gave
// back by then as blocks run here: what stood there meanwhile. Who is in earnest asks again.
static const uint64_t* seen_busy(uintptr_t a, uint64_t compare) {
  const auto found = told.find(a);
  if (found == told.end() || found->second.by == S.block_serial || found->second.first <= S.learnt) return nullptr;
  found->second.by = S.block_serial;
  return found->second.previous == compare ? nullptr : &found->second.previous;
}

struct AtomicTurn {
  AtomicTurn() {
    while (__atomic_exchange_n(atomics_taken, 1u, __ATOMIC_ACQUIRE)) lend_processor();
  }
  ~AtomicTurn() { __atomic_store_n(atomics_taken, 0u, __ATOMIC_RELEASE); }
};

static void land_copies(const std::vector<AsyncCopy>& copies, const void* frame) {
  for (const AsyncCopy& c : copies) {
    const uint32_t data = c.bytes - c.zero_fill;
    char* to = static_cast<char*>(c.shared);
    if (data) memcpy(to, c.global, data);
    if (c.zero_fill) memset(to + data, 0, c.zero_fill);
    check(uintptr_t(c.shared), c.bytes, COPY_LANDED, c.address, frame);
  }
}

}  // namespace lab

// ---- what a kernel calls ----

extern "C" {

#ifdef __wasm__
unsigned lab_coordinate(int which) {
  const lab_index& i = which < 3 ? lab::S.current->index : which < 6 ? lab::S.block : which < 9 ? lab::S.block_dim : lab::S.grid_dim;
  return which % 3 == 0 ? i.x : which % 3 == 1 ? i.y : i.z;
}
#else
lab_index lab_thread_index() { return lab::S.current->index; }
lab_index lab_block_index() { return lab::S.block; }
lab_index lab_block_dim() { return lab::S.block_dim; }
lab_index lab_grid_dim() { return lab::S.grid_dim; }
#endif

uint64_t lab_argument(int index) { return lab::S.arguments[index]; }

void lab_read_structure(void* to, int index, size_t bytes) {
  memcpy(to, reinterpret_cast<const void*>(lab::S.arguments[index]), bytes);
}

// Of a function that waits the answer is asked for by itself where a kernel leaves by itself.
int lab_barrier_result() { return lab::S.current->predicate; }
int lab_barrier(int op, int predicate) {
  lab::begin_barrier(op, predicate, LAB_CALLER);
  lab::pass();
  return lab_barrier_result();
}

uint64_t lab_collective_result() {
  const lab::Fiber& me = *lab::S.current;
  return lab::S.warps[me.warp].result[me.lane];
}
uint64_t lab_collective(int op, unsigned mask, uint64_t value, int argument, int width) {
  lab::begin_collective(op, mask, value, argument, width, LAB_CALLER, LAB_FRAME);
  lab::pass();
  return lab_collective_result();
}

void lab_multiply_result(lab_product* mine) {
  const lab::Warp& w = lab::S.warps[lab::S.current->warp];
  const unsigned lane = lab::S.current->lane, row = lane / 4, column = lane % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) mine->c[i] = w.c[row + i / 2 * 8][column + i % 2];
}
static inline __attribute__((always_inline)) void multiply_together(lab_product* mine, uint64_t caller, const void* frame) {
  lab::Warp& w = lab::S.warps[lab::S.current->warp];
  const unsigned lane = lab::S.current->lane, row = lane / 4, column = lane % 4 * 2;
  for (unsigned i = 0; i < 8; ++i)  // pairs: this row, row + 8, then both with k + 8
    w.a[row + i / 2 % 2 * 8][column + i / 4 * 8 + i % 2] = mine->a[i];
  for (unsigned i = 0; i < 4; ++i) {
    w.b[column + i / 2 * 8 + i % 2][row] = mine->b[i];
    w.c[row + i / 2 * 8][column + i % 2] = mine->c[i];
  }
  lab::begin_collective(LAB_PRODUCT, ~0u, 0, 0, 32, caller, frame);
  lab::pass();
  lab_multiply_result(mine);
}
void lab_multiply(lab_product* mine) { multiply_together(mine, LAB_CALLER, LAB_FRAME); }
void lab_multiply_at(lab_product* mine, const void* caller) {
  multiply_together(mine, lab::linked_address(uintptr_t(caller)), LAB_FRAME);
}

lab_words lab_load_matrices(const void* row, int count, int transposed) {
  lab::Warp& w = lab::S.warps[lab::S.current->warp];
  const unsigned lane = lab::S.current->lane;
  if (lane < 8u * unsigned(count)) {
    if (uintptr_t(row) % 16) lab::misaligned(uintptr_t(row), 16, LAB_FRAME);
    lab::check(uintptr_t(row), 16, lab::READ, LAB_CALLER, LAB_FRAME);
    memcpy(w.rows[lane], row, 16);
  }
  lab::begin_collective(LAB_MATRICES, ~0u, uint64_t(transposed), count, 32, LAB_CALLER, LAB_FRAME);
  lab::pass();
  lab_words mine;
  memcpy(mine.word, w.loaded[lane], sizeof mine);
  return mine;
}

unsigned lab_active_mask_result() { return unsigned(lab_collective_result()); }
unsigned lab_active_mask() {
  lab::Fiber& me = *lab::S.current;
  me.waiting = lab::AT_ACTIVE_MASK;
  me.address = LAB_CALLER;
  lab::set_can_run(me, false);
  me.leaving = lab::LEAVES;
  lab::pass();
  return lab_active_mask_result();
}

uint64_t lab_atomic(void* address, int op, int number, uint64_t operand, uint64_t compare) {
  const bool four = number == LAB_INT || number == LAB_UNSIGNED || number == LAB_FLOAT;
  const size_t bytes = number == LAB_SHORT ? 2 : four ? 4 : 8;
  if (uintptr_t(address) % bytes) lab::misaligned(uintptr_t(address), bytes, LAB_FRAME);
  lab::take_turn(LAB_CALLER);
  // Blocks of one launch run in several processes. What is remembered of an access is more than
  // one word, so two atomics on one address must not write it at the same time.
  lab::AtomicTurn turn;
  const bool in_block = op & LAB_IN_BLOCK;
  op &= ~LAB_IN_BLOCK;
  const bool looks = !operand && (op == LAB_ATOMIC_ADD || op == LAB_ATOMIC_OR || op == LAB_ATOMIC_XOR);
  if (op == LAB_ATOMIC_CAS && bytes == 4 && lab::S.alone && !in_block)
    if (const uint64_t* busy = lab::seen_busy(uintptr_t(address), compare)) return *busy;
  const lab::Access access = in_block ? lab::BLOCK_UPDATE : looks ? lab::ATOMIC_LOOK : lab::ATOMIC_UPDATE;
  lab::check(uintptr_t(address), bytes, access, LAB_CALLER, LAB_FRAME);
  if (!lab_is_shared(address) && !in_block) lab::acquire_from_blocks();
  switch (number) {
    case LAB_SHORT: return lab::update(static_cast<uint16_t*>(address), op, operand, compare);
    case LAB_INT: return lab::update(static_cast<int32_t*>(address), op, operand, compare);
    case LAB_UNSIGNED: return lab::update(static_cast<uint32_t*>(address), op, operand, compare);
    case LAB_LONG: return lab::update(static_cast<int64_t*>(address), op, operand, compare);
    case LAB_FLOAT: return lab::update(static_cast<float*>(address), op, operand, compare);
    case LAB_DOUBLE: return lab::update(static_cast<double*>(address), op, operand, compare);
    default: return lab::update(static_cast<uint64_t*>(address), op, operand, compare);
  }
}

void lab_fence_block() { lab::S.current->fenced = ++lab::S.time; }

void lab_fence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  lab_fence_block();
  lab::Fiber& me = *lab::S.current;
  lab::S.acquire_fenced |= lab::S.acquire_epoch != lab::NEVER;
  lab::S.fenced_told = lab::S.writes_told;
  me.device_time = me.fenced;
  me.device_epoch = lab::S.epoch;
  me.device_warp_epoch = lab::S.warps[me.warp].epoch;
  if (lab::S.block_serial < lab::released_capacity) lab::released[lab::S.block_serial].fenced = lab::S.epoch + 1;
}

#ifdef LAB_COROUTINES
int lab_must_leave() { return lab::must_leave(); }
void lab_begin_turn() { lab::let_others_run(LAB_CALLER); }
#endif

void lab_give_way() {
  lab::S.current->leaving = lab::GIVES_WAY;
  lab::pass();
}

void lab_phase_init(void* barrier, unsigned arrivals) {
  using namespace lab;
  if (uintptr_t(barrier) % 8) misaligned(uintptr_t(barrier), 8, LAB_FRAME);
  check(uintptr_t(barrier), 8, WRITE, LAB_CALLER, LAB_FRAME);
  if (phase_barrier(uintptr_t(barrier))) end_with(COLLECTIVE, LAB_FRAME, "this barrier is initialised twice");
  S.phase_barriers.push_back({uintptr_t(barrier), arrivals, arrivals});
}

void lab_phase_arrive(void* barrier, unsigned arrivals, long long bytes) {
  lab::arrive_at(lab::initialised(barrier, LAB_CALLER, LAB_FRAME), arrivals, bytes, LAB_FRAME);
}

void lab_phase_wait(void* barrier, unsigned parity) {
  lab::initialised(barrier, LAB_CALLER, LAB_FRAME);
  lab::await_phase(uintptr_t(barrier), parity, 0, LAB_CALLER);
  lab::pass();
}

unsigned lab_phase_parity(void* barrier) {
  return lab::initialised(barrier, LAB_CALLER, LAB_FRAME).phase & 1;
}

void lab_named_barrier(unsigned number, unsigned threads, int waits) {
  using namespace lab;
  if (!phase_barrier(number)) S.phase_barriers.push_back({number, threads, threads});
  PhaseBarrier& b = *phase_barrier(number);
  if (b.arrivals != threads) end_with(COLLECTIVE, LAB_FRAME, "a named barrier is used for two numbers of threads");
  const uint32_t parity = b.phase & 1;
  arrive_at(b, 1, 0, LAB_FRAME);
  if (waits) await_phase(number, parity, 1, LAB_CALLER);
  pass();
}

long long lab_clock() {
  static long long ticks = 0;
  return ++ticks;
}

int lab_is_shared(const void* address) {
  return uintptr_t(address) - lab::shared_region.base < lab::shared_region.bytes;
}

// A multiple of what any swizzle of addresses counts in.
char* lab_shared_base() { return reinterpret_cast<char*>(lab::shared_region.base & ~uintptr_t(1023)); }

unsigned lab_dynamic_bytes() { return lab::S.dynamic_bytes; }

void lab_need_aligned(const void* address, size_t alignment) {
  if (uintptr_t(address) % alignment) lab::misaligned(uintptr_t(address), alignment, LAB_FRAME);
}

void lab_copy_async(void* shared, const void* global, size_t bytes, size_t zero_fill) {
  using namespace lab;
  if ((bytes != 4 && bytes != 8 && bytes != 16) || zero_fill > bytes)
    end_with(COLLECTIVE, LAB_FRAME, "an asynchronous copy moves 4, 8 or 16 bytes");
  if (uintptr_t(global) % bytes) misaligned(uintptr_t(global), bytes, LAB_FRAME);
  const uintptr_t offset = uintptr_t(shared) - shared_region.base;
  if (offset >= shared_region.bytes) wild(uintptr_t(shared), bytes, true, LAB_FRAME);
  if (offset % bytes) {
    count_bad_copy(uint32_t(offset), uint32_t(bytes), LAB_CALLER, LAB_FRAME);
    return;
  }
  if (bytes > zero_fill) check(uintptr_t(global), bytes - zero_fill, READ, LAB_CALLER, LAB_FRAME);
  check(uintptr_t(shared), bytes, COPY_PENDING, LAB_CALLER, LAB_FRAME);
  // What stands there until the copy lands is not the new data, and not to be relied upon.
  memset(shared, 0xff, bytes);
  S.current->open.push_back({shared, global, uint32_t(bytes), uint32_t(zero_fill), uint32_t(LAB_CALLER)});
}

void lab_copy_commit() {
  lab::Fiber& me = *lab::S.current;
  me.groups.push_back(std::move(me.open));
  me.open.clear();
}

void lab_copy_wait(size_t groups_left) {
  lab::Fiber& me = *lab::S.current;
  while (me.groups.size() > groups_left) {
    lab::land_copies(me.groups.front(), LAB_FRAME);
    me.groups.erase(me.groups.begin());
  }
}

void lab_later(void (*run)(const void*), const void* what, size_t bytes) {
  lab::S.current->later.push_back({run});
  memcpy(lab::S.current->later.back().what, what, std::min(bytes, sizeof(lab::Later::what)));
}

void lab_later_close() { lab::S.current->later.push_back({}); }

void lab_later_wait(size_t groups_left) {
  std::vector<lab::Later>& later = lab::S.current->later;
  auto closed = std::count_if(later.begin(), later.end(), [](const lab::Later& one) { return !one.run; });
  auto next = later.begin();
  for (; closed > ptrdiff_t(groups_left); --closed, ++next) {
    for (; next->run; ++next) {
      const lab::Later mine = *next;  // where its thread may read
      mine.run(mine.what);
    }
  }
  later.erase(later.begin(), next);
}

void lab_read_only(const void* address, size_t bytes) {
  using namespace lab;
  const uintptr_t a = uintptr_t(address);
  check(a, bytes, READ, LAB_CALLER, LAB_FRAME);
  const uint64_t slot = (a - slots_base) >> SLOT_SHIFT;
  if (slot >= uint64_t(num_buffers) || !buffers[slot].cells) return;
  const Region& r = buffers[slot];
  if (r.cells[(a - r.base) >> r.shift].write.block >= S.launch_serial)
    end_with(RACE, LAB_FRAME, "__ldg() of %s, which this launch writes: it may get what was there before",
             where(r, a).c_str());
}

void lab_trap(const char* what) {
  lab::end_with(lab::CRASH, LAB_FRAME, "the kernel stopped itself: %s", what);
}

}  // extern "C"
