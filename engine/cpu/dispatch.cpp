// Which of the compiled instruction sets to use, decided once at run time.

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "engine/cpu/kernels.h"
#include "engine/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

// HALFGRAD_HAVE_<ISA> says which copies of the kernels were built; see engine/meson.build.
namespace halfgrad::cpu {

namespace baseline {
Kernels make_kernels();
}
namespace avx2 {
Kernels make_kernels();
}
namespace avx512 {
Kernels make_kernels();
}

namespace {

std::atomic<const Kernels*> chosen{nullptr};

bool known_isa(const char* isa) {
  for (const char* const* name = kIsaNames; *name != nullptr; ++name)
    if (std::strcmp(*name, isa) == 0) return true;
  return false;
}

const Kernels& choose() {
  const char* wanted = std::getenv("HALFGRAD_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    check(known_isa(wanted), "HALFGRAD_ISA is \"{}\", expected baseline, avx2 or avx512", wanted);
    const Kernels* table = kernels_for(wanted);
    check(table != nullptr,
          "HALFGRAD_ISA is \"{}\", which this machine or this build of halfgrad does not have; "
          "unset it to get the best there is",
          wanted);
    return *table;
  }
  for (const char* isa : {"avx512", "avx2"})
    if (const Kernels* table = kernels_for(isa)) return *table;
  return *kernels_for("baseline");
}

#if defined(__x86_64__)
// The conversion instructions for half; __builtin_cpu_supports does not know their name in every compiler.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
[[maybe_unused]] bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

const Kernels* kernels_for(const char* isa) {
  if (std::strcmp(isa, "baseline") == 0) {
    static const Kernels table = baseline::make_kernels();
    return &table;
  }
#ifdef HALFGRAD_HAVE_AVX2
  if (std::strcmp(isa, "avx2") == 0 && has_avx2()) {
    static const Kernels table = avx2::make_kernels();
    return &table;
  }
#endif
#ifdef HALFGRAD_HAVE_AVX512
  if (std::strcmp(isa, "avx512") == 0 && has_avx512()) {
    static const Kernels table = avx512::make_kernels();
    return &table;
  }
#endif
  return nullptr;
}

const Kernels& kernels() {
  const Kernels* table = chosen.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = &choose();
    chosen.store(table, std::memory_order_release);
  }
  return *table;
}

void use_kernels(const Kernels& table) { chosen.store(&table, std::memory_order_release); }

}  // namespace halfgrad::cpu
