// What the kernel's translation unit may ask of the runtime, and what it must offer to it.
// Everything here is called, never inlined: code inlined into the kernel would be instrumented
// together with it.
#pragma once
#include <cstddef>
#include <cstdint>

struct lab_index {
  unsigned x, y, z;
};

enum lab_collective_op : int {
  LAB_SYNCWARP, LAB_SHFL, LAB_SHFL_XOR, LAB_SHFL_UP, LAB_SHFL_DOWN,
  LAB_BALLOT, LAB_ANY, LAB_ALL,
  LAB_REDUCE_ADD, LAB_REDUCE_MIN_SIGNED, LAB_REDUCE_MAX_SIGNED, LAB_REDUCE_MIN_UNSIGNED,
  LAB_REDUCE_MAX_UNSIGNED, LAB_REDUCE_AND, LAB_REDUCE_OR, LAB_REDUCE_XOR,
  LAB_MATCH_ANY, LAB_PRODUCT, LAB_MATRICES,
};

enum lab_barrier_op : int { LAB_BARRIER, LAB_BARRIER_COUNT, LAB_BARRIER_AND, LAB_BARRIER_OR };

enum lab_atomic_op : int {
  LAB_ATOMIC_ADD, LAB_ATOMIC_MIN, LAB_ATOMIC_MAX, LAB_ATOMIC_EXCHANGE, LAB_ATOMIC_CAS,
  LAB_ATOMIC_AND, LAB_ATOMIC_OR, LAB_ATOMIC_XOR, LAB_ATOMIC_INC, LAB_ATOMIC_DEC,
  LAB_IN_BLOCK = 16,  // added to one of these: atomic towards the threads of the block alone
};

enum lab_number : int { LAB_INT, LAB_UNSIGNED, LAB_LONG, LAB_UNSIGNED_LONG, LAB_FLOAT, LAB_DOUBLE, LAB_SHORT };

// A lane's part of a matrix product, as mma.m16n8k16 takes it: its elements of A, of B and of C, in
// the order of the registers. Floats, so that one function serves every element type.
struct lab_product {
  float a[8], b[4], c[4];
};

struct lab_words {  // of a lane, in as many registers
  uint32_t word[4];
};

// What a kernel parameter is: 'p' pointer, 'i' signed, 'u' unsigned, 'f' floating, 's' other.
struct lab_parameter {
  char kind;
  unsigned bytes;
};

struct lab_entry {
  const char* name;
  void (*call)();
  const lab_parameter* parameters;
  int num_parameters;
};

extern "C" {
// Written by the build for each kernel.
extern const lab_entry lab_entries[];
extern const int lab_num_entries;
#ifdef __wasm__
extern unsigned char* const lab_dynamic_shared;
#else
extern thread_local unsigned char lab_dynamic_shared[];
#endif

// Constant for one CUDA thread, so the compiler may ask once and keep the answer.
#ifdef __wasm__  // whose calling convention returns a structure in memory
__attribute__((const)) unsigned lab_coordinate(int which);
static inline lab_index lab_coordinates(int i) { return {lab_coordinate(i), lab_coordinate(i + 1), lab_coordinate(i + 2)}; }
static inline lab_index lab_thread_index() { return lab_coordinates(0); }
static inline lab_index lab_block_index() { return lab_coordinates(3); }
static inline lab_index lab_block_dim() { return lab_coordinates(6); }
static inline lab_index lab_grid_dim() { return lab_coordinates(9); }
#else
__attribute__((const)) lab_index lab_thread_index();
__attribute__((const)) lab_index lab_block_index();
__attribute__((const)) lab_index lab_block_dim();
__attribute__((const)) lab_index lab_grid_dim();
#endif

uint64_t lab_argument(int index);  // a pointer, or the bits of a scalar, or where a structure is
void lab_read_structure(void* to, int index, size_t bytes);
int lab_barrier(int op, int predicate);
uint64_t lab_collective(int op, unsigned mask, uint64_t value, int argument, int width);
void lab_multiply(lab_product* mine);  // c += a * b, of the whole warp
void lab_multiply_at(lab_product* mine, const void* caller);
// Of one to four 8x8 matrices of 16-bit elements, whose rows the first lanes name: two of each.
lab_words lab_load_matrices(const void* row, int count, int transposed);
unsigned lab_active_mask();
uint64_t lab_atomic(void* address, int op, int number, uint64_t operand, uint64_t compare);
void lab_fence();
void lab_fence_block();
void lab_give_way();
// What a kernel asks that leaves by itself, as a coroutine does: see `LAB_COROUTINES`.
int lab_must_leave();
void lab_begin_turn();  // before an atomic or volatile access
int lab_barrier_result();
uint64_t lab_collective_result();
unsigned lab_active_mask_result();
void lab_multiply_result(lab_product* mine);
// Barriers with phases, by address in shared memory.
void lab_phase_init(void* barrier, unsigned arrivals);
void lab_phase_arrive(void* barrier, unsigned arrivals, long long bytes);  // bytes announced
void lab_phase_wait(void* barrier, unsigned parity);
unsigned lab_phase_parity(void* barrier);  // of the phase that has not ended
void lab_named_barrier(unsigned number, unsigned threads, int waits);
long long lab_clock();
int lab_is_shared(const void* address);
__attribute__((const)) char* lab_shared_base();  // where addresses in shared memory count from
unsigned lab_dynamic_bytes();
void lab_need_aligned(const void* address, size_t alignment);
void lab_read_only(const void* address, size_t bytes);  // by a cache that no write reaches
void lab_copy_async(void* shared, const void* global, size_t bytes, size_t zero_fill);
void lab_copy_commit();
void lab_copy_wait(size_t groups_left);
// What is done when it is waited for, as a group with all since the last close; `what` is copied.
void lab_later(void (*run)(const void*), const void* what, size_t bytes);
void lab_later_close();
void lab_later_wait(size_t groups_left);
[[noreturn]] void lab_trap(const char* what);
[[noreturn]] void lab_assertion(const char* condition);  // that does not hold
}
