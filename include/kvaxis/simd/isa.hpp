// Which instruction set runs: found once at run time (CPU and operating system must both agree), lowered by the
// environment variable KVAXIS_ISA, which names a lower one, changed by set_isa() in tests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../config.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

KVAXIS_BEGIN_NAMESPACE

// Those of the architecture that is compiled for, each better than the one before; tables of functions are indexed by
// them.
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
enum class isa : int {
  scalar,  // the specification; plain C++ at the translation unit's own flags
  avx2,    // AVX2 + FMA + F16C
  avx512,  // AVX-512 F, BW, DQ, VL
};
inline constexpr std::array isa_name_list = {"scalar", "avx2", "avx512"};
#elif defined(__aarch64__)
enum class isa : int {
  scalar,
  neon,  // what every Armv8-A machine has
};
inline constexpr std::array isa_name_list = {"scalar", "neon"};
#else
enum class isa : int { scalar };
inline constexpr std::array isa_name_list = {"scalar"};
#endif

constexpr int isa_count = static_cast<int>(isa_name_list.size());

[[nodiscard]] constexpr const char* isa_name(isa which) noexcept {
  return isa_name_list[static_cast<std::size_t>(which)];
}

namespace detail {

inline isa detect_isa() noexcept {
#if defined(KVAXIS_EMULATE)
  return isa::avx512;
#elif defined(__x86_64__)
  const auto has = [](unsigned word, int bit) { return (word >> bit & 1U) != 0; };
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !has(ecx, 27)) return isa::scalar;  // bit 27: OSXSAVE
  const bool fma_f16c = has(ecx, 12) && has(ecx, 29);
  unsigned saved_low = 0;  // XCR0: the register state that the operating system saves
  unsigned saved_high = 0;
  __asm__ volatile("xgetbv" : "=a"(saved_low), "=d"(saved_high) : "c"(0));
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return isa::scalar;
  const bool avx2 = fma_f16c && has(ebx, 5) && (saved_low & 0x06U) == 0x06U;
  const bool avx512 =
      avx2 && has(ebx, 16) && has(ebx, 17) && has(ebx, 30) && has(ebx, 31) && (saved_low & 0xE6U) == 0xE6U;
  return avx512 ? isa::avx512 : avx2 ? isa::avx2 : isa::scalar;
#elif defined(__aarch64__)
  return isa::neon;
#else
  return isa::scalar;
#endif
}

inline isa initial_isa() noexcept {
  const isa best = detect_isa();
  const char* wanted = std::getenv("KVAXIS_ISA");
  if (wanted == nullptr) return best;
  for (int i = 0; i <= static_cast<int>(best); ++i) {
    if (std::strcmp(wanted, isa_name(static_cast<isa>(i))) == 0) return static_cast<isa>(i);
  }
  return best;
}

inline std::atomic<isa>& isa_slot() noexcept {
  static std::atomic<isa> slot{initial_isa()};
  return slot;
}

}  // namespace detail

// The best instruction set of this machine, whatever KVAXIS_ISA says.
[[nodiscard]] inline isa best_isa() noexcept {
  static const isa best = detail::detect_isa();
  return best;
}

[[nodiscard]] inline isa active_isa() noexcept { return detail::isa_slot().load(std::memory_order_relaxed); }

// For tests and benchmarks. A request beyond best_isa() is lowered to it.
inline void set_isa(isa which) noexcept {
  detail::isa_slot().store(which < best_isa() ? which : best_isa(), std::memory_order_relaxed);
}

KVAXIS_END_NAMESPACE
