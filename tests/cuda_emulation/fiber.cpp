#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// AddressSanitizer must be told about every change of stacks.
#if defined(__SANITIZE_ADDRESS__)
#define EMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATION_ASAN 1
#endif
#endif
#ifdef EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulation {

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;  // address space; only what is used becomes memory

// Where a stack was left.
#if defined(__x86_64__)
using Point = void*;  // the stack pointer; everything else has been pushed
// Not swapcontext(): that asks the kernel for the signal mask every time, which takes a hundred times as long. And not a
// function that the compiler sees into: it must believe that every register it does not have to keep is lost.
extern "C" void cuda_emulation_switch_stack(Point* from, Point* to);
asm(R"(
.text
.hidden cuda_emulation_switch_stack
.globl cuda_emulation_switch_stack
.type cuda_emulation_switch_stack, @function
cuda_emulation_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_emulation_switch_stack, . - cuda_emulation_switch_stack
)");
void switch_stack(Point* from, Point* to) { cuda_emulation_switch_stack(from, to); }
void prepare(Point& point, char* stack, void (*start)()) {
  auto** top = reinterpret_cast<void**>(stack + kStackBytes);
  *--top = nullptr;  // where a caller's address would be: start() never returns, and finds the stack aligned
  *--top = reinterpret_cast<void*>(start);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  point = top;
}
#else
using Point = ucontext_t;
void switch_stack(Point* from, Point* to) { swapcontext(from, to); }
void prepare(Point& point, char* stack, void (*start)()) {
  getcontext(&point);
  point.uc_stack = {stack, 0, kStackBytes};
  makecontext(&point, start, 0);
}
#endif

}  // namespace

struct Fiber::Context {
  void (*body)();
  char* stack;
  Point inside, outside;
  // What AddressSanitizer keeps of either side, and the stack outside.
  void* fake_inside = nullptr;
  void* fake_outside = nullptr;
  const void* stack_outside = nullptr;
  std::size_t stack_outside_bytes = 0;
};

namespace {
thread_local void* running = nullptr;  // the Context of the fiber that runs

void announce_switch([[maybe_unused]] void** fake, [[maybe_unused]] const void* stack,
                     [[maybe_unused]] std::size_t bytes) {
#ifdef EMULATION_ASAN
  __sanitizer_start_switch_fiber(fake, stack, bytes);
#endif
}
void finish_switch([[maybe_unused]] void* fake, [[maybe_unused]] const void** stack,
                   [[maybe_unused]] std::size_t* bytes) {
#ifdef EMULATION_ASAN
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
#endif
}
}  // namespace

Fiber::Fiber(void (*body)()) : context_(new Context{.body = body, .stack = nullptr, .inside = {}, .outside = {}}) {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  context_->stack = static_cast<char*>(memory);
  prepare(context_->inside, context_->stack, &Fiber::start);
}

Fiber::~Fiber() {
#ifdef EMULATION_ASAN
  __asan_unpoison_memory_region(context_->stack, kStackBytes);  // the functions on it never returned
#endif
  munmap(context_->stack, kStackBytes);
  delete context_;
}

void Fiber::start() {
  auto* self = static_cast<Context*>(running);
  finish_switch(nullptr, &self->stack_outside, &self->stack_outside_bytes);
  self->body();
  std::abort();
}

void Fiber::resume() {
  running = context_;
  announce_switch(&context_->fake_outside, context_->stack, kStackBytes);
  switch_stack(&context_->outside, &context_->inside);
  finish_switch(context_->fake_outside, nullptr, nullptr);
  running = nullptr;
}

void Fiber::suspend() {
  auto* self = static_cast<Context*>(running);
  announce_switch(&self->fake_inside, self->stack_outside, self->stack_outside_bytes);
  switch_stack(&self->inside, &self->outside);
  finish_switch(self->fake_inside, &self->stack_outside, &self->stack_outside_bytes);
}

}  // namespace cuda_emulation
