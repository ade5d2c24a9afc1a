// Version, platform macros, and the one way in which a call of the library can fail.
#pragma once

#include <cstdint>
#if defined(__cpp_exceptions)
#include <stdexcept>
#include <string>
#endif

#define KVAXIS_VERSION_MAJOR 0
#define KVAXIS_VERSION_MINOR 1
#define KVAXIS_VERSION_PATCH 0

// Everything, types included, lives in an inline namespace named after the compiler flags that change the code a header
// becomes. Translation units that exchange a cache but were built with other flags then fail to link instead of mixing.
#if defined(__AVX512F__)
#define KVAXIS_ABI_BASE x86_avx512
#elif defined(__AVX2__)
#define KVAXIS_ABI_BASE x86_avx2
#elif defined(__x86_64__)
#define KVAXIS_ABI_BASE x86_64
#elif defined(__aarch64__)
#define KVAXIS_ABI_BASE aarch64
#else
#define KVAXIS_ABI_BASE generic
#endif
#if defined(__FAST_MATH__)
#define KVAXIS_ABI_MATH fast_math
#else
#define KVAXIS_ABI_MATH strict
#endif
#if defined(KVAXIS_EMULATE)
#define KVAXIS_ABI_KIND emulated
#elif defined(KVAXIS_SEPARATE_KERNELS)
#define KVAXIS_ABI_KIND separate
#else
#define KVAXIS_ABI_KIND native
#endif
#define KVAXIS_JOIN_(a, b, c) v0_1_##a##_##b##_##c
#define KVAXIS_JOIN(a, b, c) KVAXIS_JOIN_(a, b, c)
#define KVAXIS_ABI KVAXIS_JOIN(KVAXIS_ABI_BASE, KVAXIS_ABI_MATH, KVAXIS_ABI_KIND)

#define KVAXIS_BEGIN_NAMESPACE \
  namespace kvaxis {           \
  inline namespace KVAXIS_ABI {
#define KVAXIS_END_NAMESPACE \
  }                          \
  }

#define KVAXIS_INLINE inline __attribute__((always_inline))

// Every unit that calls a cache compiles the kernels, which takes many seconds. A program of many units may do it once:
// KVAXIS_SEPARATE_KERNELS is then defined for all of them, one defines KVAXIS_DEFINE_KERNELS and includes kvaxis.hpp, and
// for make_cache() another one defines KVAXIS_DEFINE_CODECS and includes make_cache.hpp.
#if !defined(KVAXIS_SEPARATE_KERNELS)
#define KVAXIS_KERNEL inline
#define KVAXIS_DEFINE_KERNELS
#define KVAXIS_DEFINE_CODECS
#else
#define KVAXIS_KERNEL
#endif

// A target region: the functions between PUSH and POP are compiled for the named instruction sets, whatever the flags
// of the translation unit. The emulated build of the tests leaves the regions out.
#define KVAXIS_PRAGMA(x) _Pragma(#x)
#if defined(KVAXIS_EMULATE)
#define KVAXIS_TARGET_PUSH(t)
#define KVAXIS_TARGET_POP
#elif defined(__clang__)
#define KVAXIS_TARGET_PUSH(t) KVAXIS_PRAGMA(clang attribute push(__attribute__((target(t))), apply_to = function))
#define KVAXIS_TARGET_POP KVAXIS_PRAGMA(clang attribute pop)
#else
#define KVAXIS_TARGET_PUSH(t) KVAXIS_PRAGMA(GCC push_options) KVAXIS_PRAGMA(GCC target(t))
#define KVAXIS_TARGET_POP KVAXIS_PRAGMA(GCC pop_options)
#endif

KVAXIS_BEGIN_NAMESPACE

// How attention sums products with integer codes; on avx512_fp16 also with E4M3. Other codecs are summed in f32.
enum class arithmetic : int {
  automatic,  // integer, with a second limb where the rounding would add more than a quarter of the codes' own error;
              // hot pairs of 4 bits and E4M3 in binary16 where the CPU has it, else in f32
  f32,        // no rounding of queries and weights
  int8,       // as automatic, one limb whatever it costs (8-bit codes: two)
};

// Limits of the whole library; create() and append() refuse what lies outside.
constexpr int min_head_dim = 8;
constexpr int max_head_dim = 576;
constexpr int max_tile_tokens = 256;
constexpr int max_kv_heads = 1024;
constexpr int max_layers = 4096;                                    // of one sequence
constexpr int max_queries = 1 << 20;                                // in one call
constexpr int max_query_group = 256;                                // query heads of one kv head
constexpr std::int64_t max_position = (std::int64_t{1} << 31) - 1;  // |position| and |distance| stay at or below it

enum class errc : std::int32_t {
  ok,
  invalid_argument,  // a value or a combination that has no meaning
  out_of_range,      // a number beyond `limit`
  non_finite,        // NaN or infinity in keys, values or queries; `limit` is the token's index in the call
  out_of_memory,     // the allocator returned nullptr; `limit` is the number of bytes asked for
  unsupported,       // a valid request that this cache does not serve
  sink_failed,       // what takes a file's bytes answered false; `limit` is the number of bytes before
};

// What a call answers. `argument` names the offending argument (a string literal), `limit` the bound that it broke.
// Nothing has changed when a call did not return ok.
struct [[nodiscard]] status {
  errc code = errc::ok;
  const char* argument = "";
  std::int64_t limit = 0;

  [[nodiscard]] constexpr bool ok() const noexcept { return code == errc::ok; }
  explicit constexpr operator bool() const noexcept { return ok(); }
};

[[nodiscard]] constexpr const char* describe(errc code) noexcept {
  switch (code) {
    case errc::ok: return "ok";
    case errc::invalid_argument: return "invalid argument";
    case errc::out_of_range: return "out of range";
    case errc::non_finite: return "not a finite number";
    case errc::out_of_memory: return "out of memory";
    case errc::unsupported: return "unsupported";
    case errc::sink_failed: return "bytes not taken";
  }
  return "unknown error";
}

#if defined(__cpp_exceptions)
class error : public std::runtime_error {
 public:
  explicit error(const status& s)
      : std::runtime_error(std::string("kvaxis: ") + describe(s.code) + ": " + s.argument + " (limit " +
                           std::to_string(s.limit) + ")"),
        what_happened(s) {}

  status what_happened;
};

// For callers who prefer exceptions: throws kvaxis::error unless `s` is ok.
inline void check(const status& s) {
  if (!s.ok()) throw error(s);
}
#endif

KVAXIS_END_NAMESPACE
