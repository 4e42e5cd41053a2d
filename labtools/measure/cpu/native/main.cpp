// The child process: reads a job from standard input, runs the kernel on the given buffers,
// leaves what it found in the shared report. It prints nothing.
//
// Exit status: 0 done, 3 a fault ended the run, 4 the job could not be set up (text on stderr),
// 6 the job is to be run again with every byte of its buffers watched by itself.
#include <cstdarg>
#include <cstdlib>
#include <deque>
#include <numeric>

#include "threads.h"
#include "trips.h"

namespace lab {

struct LaunchJob {
  std::string entry;
  lab_index grid{}, block{};
  uint64_t last = 0;  // blocks at the end of the grid to run; 0 means all
  uint32_t smem_bytes = 0;
  std::vector<uint64_t> arguments;
  std::vector<lab_parameter> passed;
  bool prepare = false;  // once, before all calls
};

struct Job {
  double limit_s = 20;
  int workers = 1, order = 0;
  uint64_t sample = 0;  // blocks of each launch to run, evenly spread; 0 means all
  uint32_t counted_launch = ~0u;  // of which `counted` blocks alone are run, and none after it
  std::vector<uint64_t> counted;
  std::vector<LaunchJob> launches;
};

static Job job;

// As bulk_copy.cuh reads it on a CPU.
struct alignas(64) TensorMap {
  uint64_t words[16] = {};
};
static std::deque<TensorMap> tensor_maps;
static std::deque<std::vector<uint64_t>> structures;

struct OtherContent {
  int buffer, own, other;  // file descriptors of what it holds, and of what it holds in one call
};
static std::vector<OtherContent> others;

[[noreturn]] static void give_up(const char* format, ...) {
  va_list list;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  _exit(4);
}

// ---- the job ----

static std::string word(const char* format = "%1023s") {
  char text[1024];
  if (scanf(format, text) != 1) give_up("the job ended early");
  return text;
}

static uint64_t number() { return strtoull(word().c_str(), nullptr, 0); }

// What the parent reads too, by the file descriptor that comes next.
template <class T>
static T* mapped(const char* what) {
  void* p = map_file(nullptr, sizeof(T), true, int(number()));
  if (!p) give_up("%s could not be mapped", what);
  return static_cast<T*>(p);
}

static void read_job() {
  for (;;) {
    const std::string key = word();
    if (key == "go") return;
    if (key == "largest") {
      if (!reserve_slots(number())) give_up("no address space for the buffers");
      continue;
    }
    if (key == "report") {
      report = mapped<Report>("the report");
    } else if (key == "limit") {
      job.limit_s = atof(word().c_str());
    } else if (key == "workers") {
      job.workers = int(number());
    } else if (key == "order") {
      job.order = int(number());
    } else if (key == "sample") {
      job.sample = number();
    } else if (key == "trips") {
      trips = mapped<Trips>("the counts");
      job.counted_launch = uint32_t(number());
      for (uint64_t n = number(); n > 0; --n) job.counted.push_back(number());
      if (job.counted.size() > MAX_COUNTED) give_up("more than %u blocks to count", MAX_COUNTED);
    } else if (key == "fine") {
      fine = number() != 0;
    } else if (key == "device") {
      DeviceVariable v;
      v.name = word();
      v.ignored = v.name == "(guard)";
      DeviceSection& s = device_sections[number()];
      v.base = uintptr_t(&s == device_sections ? lab_device_zero : lab_device_set) + number();
      v.bytes = number();
      s.variables.push_back(v);
    } else if (key == "shared" || key == "dynamic") {
      SharedVariable v;
      v.name = word();
      v.offset = uint32_t(number());
      v.bytes = uint32_t(number());
      if (key == "dynamic") dynamic_offset = v.offset;
      shared_variables.push_back(v);
    } else if (key == "buffer") {
      if (num_buffers == MAX_BUFFERS) give_up("more than %d buffers", MAX_BUFFERS);
      Region& r = buffers[num_buffers];
      r.name = word();
      const int fd = int(number());
      r.bytes = number();
      r.item_bytes = uint32_t(number());
      r.writable = number() != 0;
      r.given = number() != 0;
      const int other = int(number());  // what one call finds there instead; -1: nothing else
      if (other >= 0) others.push_back({num_buffers, fd, other});
      if (r.bytes > slot_bytes() / 2) give_up("buffer %s is too large", r.name.c_str());
      if (!map_buffer(r, num_buffers, fd)) give_up("buffer %s could not be mapped", r.name.c_str());
      ++num_buffers;
    } else if (key == "launch") {
      LaunchJob l;
      l.entry = word(" %1023[^\n]");  // a template's may hold spaces
      for (lab_index* d : {&l.grid, &l.block}) *d = {unsigned(number()), unsigned(number()), unsigned(number())};
      l.smem_bytes = uint32_t(number());
      l.prepare = number() != 0;
      l.last = number();
      for (uint64_t n = number(); n > 0; --n) {
        const std::string kind = word();
        const uint32_t bytes = uint32_t(number());
        if (kind[0] == 't') {  // a tensor map: which buffer, and how it is cut
          tensor_maps.emplace_back();
          TensorMap& map = tensor_maps.back();
          map.words[0] = buffers[number()].base;
          for (uint64_t n = number(), i = 1; n > 0; --n, ++i) map.words[i] = number();
          l.passed.push_back({'s', bytes});
          l.arguments.push_back(uintptr_t(&map));
          continue;
        }
        if (kind[0] == 's') {
          structures.emplace_back(number());
          for (uint64_t& part : structures.back()) part = number();
          l.passed.push_back({'s', bytes});
          const bool is_whole = bytes <= sizeof(uint64_t);  // as the kernel's call takes it
          l.arguments.push_back(is_whole ? structures.back()[0] : uintptr_t(structures.back().data()));
          continue;
        }
        const uint64_t value = number();
        const bool is_pointer = kind[0] == 'p';
        l.passed.push_back({kind[0], is_pointer ? unsigned(sizeof(void*)) : bytes});
        l.arguments.push_back(is_pointer ? buffers[value].base : value);
      }
      job.launches.push_back(l);
    } else {
      give_up("unknown word in the job: %s", key.c_str());
    }
  }
}

// ---- what a GPU's driver would refuse ----

[[noreturn]] static void refuse_launch(const char* format, ...) {
  FaultRecord* f = new_fault(LAUNCH);
  if (!f) stop_run();
  va_list list;
  va_start(list, format);
  vsnprintf(f->text, sizeof f->text, format, list);
  va_end(list);
  fatal(f);
}

static const char* kind_name(const lab_parameter& p) {
  switch (p.kind) {
    case 'p': return "a pointer";
    case 'f': return p.bytes == 8 ? "a double" : "a float";
    case 'i': return p.bytes == 8 ? "a 64-bit integer" : p.bytes == 4 ? "a 32-bit integer" : "a small integer";
    case 'u': return p.bytes == 8 ? "a 64-bit unsigned integer" : p.bytes == 4 ? "a 32-bit unsigned integer" : "a small unsigned integer";
    default: return "a value of another type";
  }
}

static const lab_entry& check_launch(const LaunchJob& l) {
  const lab_entry* entry = nullptr;
  for (int i = 0; i < lab_num_entries; ++i)
    if (l.entry == lab_entries[i].name) entry = &lab_entries[i];
  if (!entry) give_up("no kernel %s in this executable", l.entry.c_str());
  const char* name = entry->name;
  if (int(l.passed.size()) != entry->num_parameters)
    refuse_launch("%s takes %d arguments and the launch passes %zu", name, entry->num_parameters, l.passed.size());
  for (size_t i = 0; i < l.passed.size(); ++i) {
    const lab_parameter &want = entry->parameters[i], &have = l.passed[i];
    const bool both_integers = (want.kind == 'i' || want.kind == 'u') && (have.kind == 'i' || have.kind == 'u');
    if (want.kind == 'p' && have.kind == 'u' && have.bytes == 8 && l.arguments[i] == 0) continue;  // a null pointer
    if (want.bytes != have.bytes && want.kind == 's')
      refuse_launch("argument %zu of %s is a structure of %u bytes in the kernel, and the launch passes %u bytes", i, name, want.bytes, have.bytes);
    if (want.bytes != have.bytes || (want.kind != have.kind && !both_integers && want.kind != 's'))
      refuse_launch("argument %zu of %s is %s in the kernel, and the launch passes %s", i, name, kind_name(want), kind_name(have));
  }
  const uint64_t threads = uint64_t(l.block.x) * l.block.y * l.block.z;
  if (threads == 0 || threads > MAX_THREADS)
    refuse_launch("%s is launched with %llu threads a block; a GPU takes 1 to 1024", name, (unsigned long long)threads);
  if (!l.grid.x || !l.grid.y || !l.grid.z || l.grid.y > 65535 || l.grid.z > 65535)
    refuse_launch("%s is launched with grid (%u, %u, %u); y and z go from 1 to 65535", name, l.grid.x, l.grid.y, l.grid.z);
  uint32_t room = 0;
  for (const SharedVariable& v : shared_variables)
    if (v.offset == dynamic_offset) room = v.bytes;
  if (l.smem_bytes > room)
    refuse_launch("%s is launched with %u bytes of dynamic shared memory; a block has at most %u", name, l.smem_bytes, room);
  return *entry;
}

// ---- running ----

static bool is_counted(const LaunchJob& l) { return uint32_t(&l - job.launches.data()) == job.counted_launch; }

static uint64_t blocks_of(const LaunchJob& l) {
  if (is_counted(l)) return job.counted.size();
  const uint64_t all = uint64_t(l.grid.x) * l.grid.y * l.grid.z;
  if (l.last && l.last < all) return l.last;
  return job.sample && job.sample < all ? job.sample : all;
}

// Which block begins as the i-th: ascending as a GPU mostly does it, descending, or drawn.
static uint64_t block_at(uint64_t i, uint64_t all) {
  if (job.order == LAST_WARP_AHEAD) return all - 1 - i;
  if (job.order < RANDOM) return i;
  uint64_t step = uint64_t(double(all) * 0.618) | 1;
  while (std::gcd(step, all) != 1) step += 2;
  return (i * step + all / 3) % all;
}

static void start_clock();

static void run_share(const LaunchJob& l, const lab_entry& entry, uint32_t first_serial, int worker, int workers) {
  const uint64_t all = uint64_t(l.grid.x) * l.grid.y * l.grid.z, chosen = blocks_of(l);
  S.num_threads = l.block.x * l.block.y * l.block.z;
  S.block_dim = l.block;
  S.grid_dim = l.grid;
  S.call = entry.call;
  S.arguments = l.arguments.data();
  S.entry = entry.name;
  S.launch_serial = first_serial;
  told.clear();
  S.writes_told = 0;
  set_dynamic_bytes(l.smem_bytes);
  S.alone = workers == 1;
  for (uint64_t i = uint64_t(worker); i < chosen && !report->stop; i += uint64_t(workers)) {
    const uint64_t b = is_counted(l) ? job.counted[i] : l.last ? all - chosen + i : chosen == all ? block_at(i, all) : chosen == 1 ? 0 : i * (all - 1) / (chosen - 1);
    S.linear_block = uint32_t(b);
    S.block_serial = first_serial + uint32_t(b);
    S.block = {unsigned(b % l.grid.x), unsigned(b / l.grid.x % l.grid.y), unsigned(b / (uint64_t(l.grid.x) * l.grid.y))};
    counted_block = is_counted(l) ? int(i) : -1;
    start_clock();
    run_block(job.order);
    __atomic_fetch_add(&report->blocks_done, 1ull, __ATOMIC_RELAXED);
  }
}

}  // namespace lab

#ifdef LAB_COROUTINES
#include "module.h"
#else
#include "process.h"
#endif

namespace lab {

// What the preparation wrote, by buffer.
static std::vector<std::pair<int, std::vector<char>>> prepared_buffers() {
  std::vector<std::pair<int, std::vector<char>>> found;
  for (int i = 0; i < num_buffers; ++i) {
    bool named = false;
    for (const LaunchJob& l : job.launches)
      for (size_t k = 0; l.prepare && k < l.arguments.size(); ++k)
        named |= l.passed[k].kind == 'p' && l.arguments[k] == buffers[i].base;
    const char* p = reinterpret_cast<const char*>(buffers[i].base);
    const bool is_small = buffers[i].bytes >> 30 == 0;  // a larger one lies far apart in this run
    if (named && is_small && buffers[i].writable) found.push_back({i, std::vector<char>(p, p + buffers[i].bytes)});
  }
  return found;
}

// A call leaves what was prepared as it was, since every other call reads it too.
static void compare_prepared(const Region& r, const std::vector<char>& before) {
  const char* now = reinterpret_cast<const char*>(r.base);
  const auto differs = std::mismatch(before.begin(), before.end(), now);
  if (differs.first == before.end()) return;
  FaultRecord* f = new_fault(CARRIED);
  if (!f) stop_run();
  Text(f).add("a call leaves `%s`, which a launch with prepare=True fills once for all calls, other than "
              "it was: the first change is at byte %lld. Scratch space of a call is a workspace of its own",
              r.name.c_str(), (long long)(differs.first - before.begin()));
  publish(f);
}

static int run() {
  set_up_process();
  setvbuf(stdout, nullptr, _IOLBF, 4096);
  read_job();
  if (!report) give_up("the job names no report");
  find_variables();
  if (!set_up_shared()) give_up("no memory to watch shared variables");
  if (!set_up_device()) give_up("no memory to watch device variables");
  uint32_t threads = 1;
  uint64_t serials = 1;
  const int calls = others.empty() ? 1 : 2;
  for (const LaunchJob& l : job.launches) {
    threads = std::max<uint32_t>(threads, std::min<uint32_t>(MAX_THREADS, l.block.x * l.block.y * l.block.z));
    serials += uint64_t(l.grid.x) * l.grid.y * l.grid.z;
    report->blocks_total += blocks_of(l);
  }
  serials = serials * uint64_t(calls) + 1;
  if (serials >> 32) give_up("more than 4 thousand million blocks");
  released_capacity = uint32_t(serials);
  released = static_cast<Released*>(reserve(serials * sizeof(Released), true));
  const uint64_t warps = (threads + 31) / 32, words = serials * (threads + 2 * warps);
  released_words = words >> 32 ? nullptr : static_cast<uint32_t*>(reserve(words * sizeof(uint32_t), true));
  if (released_words) {  // else only a block's fences are known, and not whose they are
    released_threads = threads;
    released_warps = uint32_t(warps);
  }
  atomics_taken = static_cast<uint32_t*>(reserve(sizeof(uint32_t), true));
  if (!released || !atomics_taken || !make_stacks(threads)) give_up("no memory for the threads' stacks");
  catch_signals();
  // A kernel with device variables is called twice, the first time with a little of its inputs
  // changed: what that call left must not help the next.
  std::vector<std::vector<char>> fresh(static_cast<size_t>(num_buffers));
  for (int i = 0; calls > 1 && i < num_buffers; ++i) {
    const char* p = reinterpret_cast<const char*>(buffers[i].base);
    if (buffers[i].writable) fresh[size_t(i)].assign(p, p + buffers[i].bytes);
  }
  uint32_t serial = 1;
  for (int call = 0; call < calls; ++call) {
    for (int i = 0; call > 0 && i < num_buffers; ++i) {
      if (!buffers[i].writable) continue;
      std::copy(fresh[size_t(i)].begin(), fresh[size_t(i)].end(), reinterpret_cast<char*>(buffers[i].base));
      memset(buffers[i].cells, 0, ((buffers[i].bytes >> buffers[i].shift) + 1) * sizeof(Cell));
    }
    for (const OtherContent& o : others) {
      const Region& r = buffers[o.buffer];
      if (!map_file(reinterpret_cast<void*>(r.base), r.bytes, false, call + 1 < calls ? o.other : o.own))
        give_up("buffer %s could not be mapped", r.name.c_str());
    }
    for (const LaunchJob& l : job.launches) report->blocks_total += call ? blocks_of(l) : 0;
    call_serial = serial;
    std::vector<std::pair<int, std::vector<char>>> prepared;
    for (const LaunchJob& l : job.launches) {
      launch_index = uint32_t(&l - job.launches.data());
      if (!l.prepare && &l != job.launches.data() && (&l)[-1].prepare) {
        call_serial = serial;
        if (!l.last) prepared = prepared_buffers();  // else they may be larger than the memory
      }
      run_launch(l, serial);
      if (report->stop) return 3;
      if (is_counted(l)) return 0;
      serial += l.grid.x * l.grid.y * l.grid.z;
    }
    for (const auto& [buffer, bytes] : prepared) compare_prepared(buffers[buffer], bytes);
  }
  return 0;
}

}  // namespace lab

extern "C" void lab_assertion(const char* condition) {
  lab::end_with(lab::CRASH, LAB_FRAME, "an assertion failed: %s", condition);
}
// What assert() calls: ours stands before the C library's, which knows nothing of the kernel's lines.
extern "C" void __assert_fail(const char* text, const char*, unsigned, const char*) noexcept {
  lab::end_with(lab::CRASH, LAB_FRAME, "an assertion failed: %s", text);
}

#ifdef LAB_COROUTINES
extern "C" __attribute__((export_name("lab_run"))) int lab_run() { return lab::run(); }
#else
int main() { return lab::run(); }
#endif
