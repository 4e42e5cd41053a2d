// Copies of 16 bytes from memory into shared memory that nobody waits for (sm_80 and up).
#pragma once

#ifdef __CUDA_ARCH__

__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared)),
               "l"(global)
               : "memory");
}

// The same, or 16 zero bytes where there is nothing to read.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared)),
               "l"(global), "r"(there ? 16 : 0)
               : "memory");
}

// Closes a group: what this thread has started since the last one.
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most GROUPS of this thread's latest groups are under way.
template <int GROUPS>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

#else  // the CPU
#include <cuda_pipeline_primitives.h>

inline void copy_async_16(void* shared, const void* global) {
  __pipeline_memcpy_async(shared, global, 16);
}
inline void copy_async_16(void* shared, const void* global, bool there) {
  __pipeline_memcpy_async(shared, global, 16, there ? 0 : 16);
}
inline void close_copies() { __pipeline_commit(); }
template <int GROUPS>
inline void wait_for_copies() {
  __pipeline_wait_prior(GROUPS);
}

#endif
