// Which instruction set runs: found once at run time (CPU and operating system must both agree), chosen by the environment
// variable KVAXIS_ISA (a name of isa_name(), or the best below it), changed by set_isa() in tests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../config.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

KVAXIS_BEGIN_NAMESPACE

// Those of the architecture that is compiled for, each better than the one before; tables of functions are indexed by
// them.
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
enum class isa : int {
  scalar,       // the specification; plain C++ at the translation unit's own flags
  avx2,         // AVX2 + FMA + F16C
  avx2_vnni,    // with AVX-VNNI
  avx512,       // AVX-512 F, BW, DQ, VL
  avx512_vnni,  // with VNNI
  avx512_fp16,  // with FP16 besides
  avx512_amx,   // with AMX-INT8 besides
};
inline constexpr std::array isa_name_list = {"scalar",      "avx2",        "avx2_vnni", "avx512",
                                             "avx512_vnni", "avx512_fp16", "avx512_amx"};
#elif defined(__aarch64__)
enum class isa : int {
  scalar,
  neon,      // what every Armv8-A machine has
  neon_dot,  // with DotProd
};
inline constexpr std::array isa_name_list = {"scalar", "neon", "neon_dot"};
#else
enum class isa : int { scalar };
inline constexpr std::array isa_name_list = {"scalar"};
#endif

// Whether one of them computes with binary16.
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
inline constexpr bool has_half_arithmetic = true;
#else
inline constexpr bool has_half_arithmetic = false;
#endif

// What a table indexed by isa holds: `name` of every namespace of simd/. Units of integers and of binary16 have
// namespaces of their own, see attention/integer.hpp and attention/half.hpp, and share the rest.
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
#define KVAXIS_ISA_TABLE(name) \
  { &scalar::name, &avx2::name, &avx2::name, &avx512::name, &avx512::name, &avx512::name, &avx512::name }
#elif defined(__aarch64__)
#define KVAXIS_ISA_TABLE(name) \
  { &scalar::name, &neon::name, &neon::name }
#else
#define KVAXIS_ISA_TABLE(name) \
  { &scalar::name }
#endif

constexpr int isa_count = static_cast<int>(isa_name_list.size());

[[nodiscard]] constexpr const char* isa_name(isa which) noexcept {
  return isa_name_list[static_cast<std::size_t>(which)];
}

namespace detail {

#if defined(__x86_64__)
// Whether this process may use the registers of AMX: Linux gives them to who asks, to all threads at once. Signal frames
// then have 8 KB more, so that it refuses where a thread's alternate signal stack is too small for them.
inline bool may_use_amx() noexcept {
#if defined(__linux__)
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}
#endif

// A bit for every instruction set of this machine.
inline unsigned detect_isas() noexcept {
  const auto bit_of = [](isa which) { return 1U << static_cast<unsigned>(which); };
  unsigned found = bit_of(isa::scalar);
#if defined(KVAXIS_EMULATE)
  found = (1U << isa_count) - 1U;
#elif defined(__x86_64__)
  const auto has = [](unsigned word, int bit) { return (word >> bit & 1U) != 0; };
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !has(ecx, 27)) return found;  // bit 27: OSXSAVE
  const bool fma_f16c = has(ecx, 12) && has(ecx, 29);
  unsigned saved_low = 0;  // XCR0: the register state that the operating system saves
  unsigned saved_high = 0;
  __asm__ volatile("xgetbv" : "=a"(saved_low), "=d"(saved_high) : "c"(0));
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  if (!fma_f16c || !has(ebx, 5) || (saved_low & 0x06U) != 0x06U) return found;
  found |= bit_of(isa::avx2);
  if (has(ebx, 16) && has(ebx, 17) && has(ebx, 30) && has(ebx, 31) && (saved_low & 0xE6U) == 0xE6U) {
    found |= bit_of(isa::avx512);
    const bool vnni = has(ecx, 11);
    const bool fp16 = vnni && has(edx, 23);
    if (vnni) found |= bit_of(isa::avx512_vnni);
    if (fp16) found |= bit_of(isa::avx512_fp16);
    const bool amx = fp16 && has(edx, 24) && has(edx, 25) && (saved_low & 0x60000U) == 0x60000U;
    // Some virtual machines have the bits but no shapes to choose from.
    if (amx && __get_cpuid_count(0x1D, 0, &eax, &ebx, &ecx, &edx) != 0 && eax >= 1) {
      found |= bit_of(isa::avx512_amx);
    }
  }
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && has(eax, 4)) found |= bit_of(isa::avx2_vnni);
#elif defined(__aarch64__)
  found |= bit_of(isa::neon);
#if defined(__linux__)
  if ((getauxval(AT_HWCAP) >> 20 & 1U) != 0) found |= bit_of(isa::neon_dot);  // bit 20: HWCAP_ASIMDDP
#elif defined(__ARM_FEATURE_DOTPROD)
  found |= bit_of(isa::neon_dot);  // every Mac has it, and its compiler says so
#endif
#endif
  return found;
}

inline bool is_usable(isa which) noexcept {
  static const unsigned found = detect_isas();
  if ((found >> static_cast<unsigned>(which) & 1U) == 0) return false;
#if defined(__x86_64__) && !defined(KVAXIS_EMULATE)
  if (which == isa::avx512_amx) {
    static const bool permitted = may_use_amx();
    return permitted;
  }
#endif
  return true;
}

// The best one of this machine up to `most`.
inline isa lower_isa(isa most) noexcept {
  while (!is_usable(most)) most = static_cast<isa>(static_cast<int>(most) - 1);
  return most;
}

// AMX must be asked for: nobody has measured it.
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
constexpr isa default_isa = isa::avx512_fp16;
#else
constexpr isa default_isa = static_cast<isa>(isa_count - 1);
#endif

inline isa initial_isa() noexcept {
  const char* wanted = std::getenv("KVAXIS_ISA");
  for (int i = 0; i < isa_count && wanted != nullptr; ++i) {
    if (std::strcmp(wanted, isa_name(static_cast<isa>(i))) == 0) return lower_isa(static_cast<isa>(i));
  }
  return lower_isa(default_isa);
}

inline std::atomic<isa>& isa_slot() noexcept {
  static std::atomic<isa> slot{initial_isa()};
  return slot;
}

}  // namespace detail

// The best instruction set of this machine that nobody needs to ask for, whatever KVAXIS_ISA says.
[[nodiscard]] inline isa best_isa() noexcept { return detail::lower_isa(detail::default_isa); }

[[nodiscard]] inline bool has_isa(isa which) noexcept { return detail::lower_isa(which) == which; }

// Calls f(isa) for every instruction set of this machine, the best one last.
template <class F>
void for_each_isa(F&& f) {
  for (int i = 0; i < isa_count; ++i) {
    if (has_isa(static_cast<isa>(i))) f(static_cast<isa>(i));
  }
}

[[nodiscard]] inline isa active_isa() noexcept { return detail::isa_slot().load(std::memory_order_relaxed); }

// For tests and benchmarks. What this machine lacks is lowered to the best below it.
inline void set_isa(isa which) noexcept {
  detail::isa_slot().store(detail::lower_isa(which), std::memory_order_relaxed);
}

KVAXIS_END_NAMESPACE
