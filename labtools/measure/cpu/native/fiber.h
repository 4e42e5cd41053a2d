// A fiber: a stack and the means to leave it and come back. One carries one CUDA thread.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) || defined(__aarch64__)
#define LAB_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace lab {

struct Context {
#ifdef LAB_OWN_SWITCH
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
};

#ifdef LAB_OWN_SWITCH

// Saves what a call must preserve on the current stack, stores the stack pointer in *save and
// goes on where the stack `to` was left.
extern "C" void lab_switch(void** save, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.type lab_switch, @function
lab_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lab_switch, .-lab_switch
)");
static void prepare(Context& c, char* low, size_t bytes, void (*entry)()) {
  // At entry the stack must be 8 short of a multiple of 16, as after a call.
  void** top = reinterpret_cast<void**>((uintptr_t(low) + bytes) & ~uintptr_t(15));
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  c.stack_pointer = top;
}
#else
asm(R"(
.text
.p2align 4
.type lab_switch, %function
lab_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.size lab_switch, .-lab_switch
)");
static void prepare(Context& c, char* low, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(((uintptr_t(low) + bytes) & ~uintptr_t(15)) - 160);
  memset(top, 0, 160);
  top[1] = reinterpret_cast<void*>(entry);  // x30, where the switch returns to
  c.stack_pointer = top;
}
#endif

static inline void go(Context& from, Context& to) {
  lab_switch(&from.stack_pointer, to.stack_pointer);
}

#else

static void prepare(Context& c, char* low, size_t bytes, void (*entry)()) {
  getcontext(&c.context);
  c.context.uc_stack.ss_sp = low;
  c.context.uc_stack.ss_size = bytes;
  c.context.uc_link = nullptr;
  makecontext(&c.context, entry, 0);
}
static inline void go(Context& from, Context& to) { swapcontext(&from.context, &to.context); }

#endif

}  // namespace lab
