// The run as processes of Linux: signals, which end a thread that does not end itself, the clock, and
// workers that share the blocks of a launch. module.h has the same names for a WebAssembly module.
#pragma once
#include <csignal>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

namespace lab {

static void set_up_process() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // never outlives the notebook
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // What the kernel prints goes to a file of limited size; a full file is no reason to die.
  const rlimit printed = {4 << 20, 4 << 20};
  setrlimit(RLIMIT_FSIZE, &printed);
  signal(SIGXFSZ, SIG_IGN);
}

static void find_variables() {}  // the job names them

static bool make_stacks(uint32_t n) {
  const size_t each = STACK_BYTES + GUARD_BYTES;
  char* memory = static_cast<char*>(reserve(each * n, false));
  if (!memory) return false;
  for (uint32_t i = 0; i < n; ++i) {
    mprotect(memory + i * each, GUARD_BYTES, PROT_NONE);
    S.fibers[i].stack = memory + i * each + GUARD_BYTES;
  }
  return true;
}

static const char WAITS[] =
    ", waiting for what another thread writes. Blocks run one after another here, and no launch here is "
    "cooperative: a block may wait for one that has begun before it, by a ticket that each draws with "
    "atomicAdd(). Where all wait for all, two launches do it";

static void on_signal(int signal, siginfo_t* info, void* context) {
  const ucontext_t* c = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  const uint64_t at = uint64_t(c->uc_mcontext.gregs[REG_RIP]), frame = uint64_t(c->uc_mcontext.gregs[REG_RBP]);
#elif defined(__aarch64__)
  const uint64_t at = c->uc_mcontext.pc, frame = c->uc_mcontext.regs[29];
#else
  const uint64_t at = 0, frame = 0;
  (void)c;
#endif
  const bool hang = signal == SIGPROF;
  FaultRecord* f = fault_here(hang ? HANG : CRASH, LAB_FRAME);
  // +1: the reader takes these for return addresses and looks one byte before.
  walk(f->places[0], frame, at + 1);
  Place& place = f->places[0];
#if defined(__x86_64__)
  // A function that has only been entered has no frame yet: who called it stands on the stack.
  if (hang) {
    const uint64_t* stack = reinterpret_cast<const uint64_t*>(c->uc_mcontext.gregs[REG_RSP]);
    for (int i = 0; i < 2 && place.count < 12; ++i) place.addresses[place.count++] = linked_address(stack[i]);
  }
#elif defined(__aarch64__)
  if (hang && place.count < 12) place.addresses[place.count++] = linked_address(c->uc_mcontext.regs[30]);
#endif
  // Between two threads neither stack can be walked; then say where this one last waited.
  if (S.current && S.current->address && place.count < 12) place.addresses[place.count++] = S.current->address;
  Text text(f);
  if (hang) {
    text.add("the block did not end within %g s; the thread was here%s", job.limit_s,
             S.current && S.current->spins >= SPINS ? WAITS : "");
  } else {
    const uintptr_t a = uintptr_t(info->si_addr);
    const bool overflow = signal == SIGSEGV && S.current && a < uintptr_t(S.current->stack) &&
                          a + GUARD_BYTES >= uintptr_t(S.current->stack);
    if (overflow)
      text.add("the thread's stack overflowed: local arrays too large, or endless recursion");
    else if (signal == SIGFPE)
      text.add("integer division by zero (a GPU gives no error here, and no meaning either)");
    else if (signal == SIGILL || signal == SIGTRAP)
      text.add("the compiler saw that this has no meaning (such as a division by zero, a null pointer "
               "or a missing return) and made a trap of it");
    else
      text.add("signal %d (%s)", signal, strsignal(signal));
  }
  fatal(f);
}

static void catch_signals() {
  static char alternate[64 * 1024];
  stack_t stack{};
  stack.ss_sp = alternate;
  stack.ss_size = sizeof alternate;
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) sigaction(signal, &action, nullptr);
}

// Of processor time: a machine that is busy with something else makes no kernel hang.
static void start_clock() {
  itimerval timer{};
  timer.it_value.tv_sec = time_t(job.limit_s);
  timer.it_value.tv_usec = suseconds_t((job.limit_s - double(timer.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_PROF, &timer, nullptr);
}

// A worker that died without a word of its own, for example of a lack of memory.
static void tell_of_death(int status) {
  report->stop = 1;
  if (!WIFSIGNALED(status)) return;
  FaultRecord* f = new_fault(CRASH);
  if (!f) return;
  Text(f).add("the process that ran the kernel was ended by signal %d (%s)%s", WTERMSIG(status),
              strsignal(WTERMSIG(status)), WTERMSIG(status) == SIGKILL ? ": perhaps out of memory" : "");
  publish(f);
}

static void run_launch(const LaunchJob& l, uint32_t first_serial) {
  const lab_entry& entry = check_launch(l);
  const int workers = int(std::min<uint64_t>(uint64_t(job.workers), blocks_of(l)));
  if (workers <= 1) return run_share(l, entry, first_serial, 0, 1);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int i = 0; i < workers; ++i) {
    const pid_t child = fork();
    if (child < 0) give_up("a worker process could not be started");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(5);
      run_share(l, entry, first_serial, i, workers);
      _exit(0);
    }
    children.push_back(child);
  }
  bool bad = false;
  int needs = 0;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    children.erase(std::remove(children.begin(), children.end(), ended), children.end());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (code == NEEDS_FINE || code == NEEDS_ALONE) needs = code;
    if (!bad) tell_of_death(status);
    bad = true;
    for (pid_t other : children) kill(other, SIGKILL);
  }
  if (needs) _exit(needs);
  if (bad) stop_run();
}

}  // namespace lab
