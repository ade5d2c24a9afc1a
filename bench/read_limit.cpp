// The read limit: the time to stream the bytes of a cache through one thread, doing next to nothing with them. Three
// loops, by the width of their loads; the fastest one on this machine is the limit that other rows are compared with.
#include <algorithm>
#include <kvaxis/simd/intrinsics.hpp>

#include "common.hpp"

namespace bench {
namespace {

// The exclusive or of n bytes, a multiple of 64: eight accumulators, because one would wait for itself.
#define KVAXIS_READ_LOOP(name, width)                                                         \
  std::uint64_t name(const std::byte* from, std::size_t n) {                                  \
    using words = std::uint64_t __attribute__((vector_size(width), aligned(8), may_alias));   \
    const auto* p = reinterpret_cast<const words*>(from);                                     \
    words a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};                                             \
    std::size_t left = n / width;                                                             \
    for (; left >= 8; left -= 8, p += 8) {                                                    \
      a ^= p[0], b ^= p[1], c ^= p[2], d ^= p[3], e ^= p[4], f ^= p[5], g ^= p[6], h ^= p[7]; \
    }                                                                                         \
    for (; left > 0; --left) a ^= *p++;                                                       \
    a ^= b ^ c ^ d ^ e ^ f ^ g ^ h;                                                           \
    std::uint64_t sum = 0;                                                                    \
    for (std::size_t i = 0; i < width / 8; ++i) sum ^= a[i];                                  \
    return sum;                                                                               \
  }

KVAXIS_READ_LOOP(read_words, 8)
#if defined(__x86_64__)
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX2)
KVAXIS_READ_LOOP(read_avx2, 32)
KVAXIS_TARGET_POP
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512)
KVAXIS_READ_LOOP(read_avx512, 64)
KVAXIS_TARGET_POP
#elif defined(__aarch64__)
KVAXIS_READ_LOOP(read_neon, 16)
#endif
#undef KVAXIS_READ_LOOP

using read_fn = std::uint64_t (*)(const std::byte*, std::size_t);

read_fn loop_of(kvaxis::isa isa) {
#if defined(__x86_64__)
  return isa >= kvaxis::isa::avx512 ? &read_avx512 : isa >= kvaxis::isa::avx2 ? &read_avx2 : &read_words;
#elif defined(__aarch64__)
  return isa == kvaxis::isa::scalar ? &read_words : &read_neon;
#else
  return &read_words;
#endif
}

void read_layer(read_fn loop, const std::vector<segment>& layer) {
  std::uint64_t sum = 0;
  for (const segment& s : layer) sum ^= loop(s.data, s.bytes);
  benchmark::DoNotOptimize(sum);
}

// Seconds per layer: the median of five stretches of at least 2 ms. They go on where the last one ended, so that a set
// larger than the caches is always read from memory.
double layer_seconds(read_fn loop, const std::vector<std::vector<segment>>& layers) {
  static std::size_t next = 0;
  double seconds[5];
  for (double& s : seconds) {
    int count = 0;
    const double start = thread_seconds();
    do {
      read_layer(loop, layers[next++ % layers.size()]);
      ++count;
      s = thread_seconds() - start;
    } while (s < 2e-3);
    s /= count;
  }
  std::nth_element(seconds, seconds + 2, seconds + 5);
  return seconds[2];
}

}  // namespace

double read_seconds(const cache_set& set, side s) {
  const auto layers = set.segments(s);
  double best = 1e9;
  kvaxis::for_each_isa([&](kvaxis::isa isa) { best = std::min(best, layer_seconds(loop_of(isa), layers)); });
  return best;
}

void register_read_limit() {
  const auto add = [](kvaxis::isa isa, const shape& s) {
    if (s.group != 1) return;  // no query takes part
    benchmark::RegisterBenchmark(s.name("read_limit", isa_name(isa)).c_str(), [isa, s](benchmark::State& state) {
      const cache_set& set = caches_of(s);
      const auto layers = set.segments(side::both);
      std::size_t i = 0;
      const double start = thread_seconds();
      for (auto _ : state) read_layer(loop_of(isa), layers[i++ % layers.size()]);
      set_counters(state, s, set, side::both, thread_seconds() - start);
    });
  };
  kvaxis::for_each_isa([=](kvaxis::isa isa) { for_each_shape([=](const shape& s) { add(isa, s); }); });
  for_each_curve_shape([=](const shape& s) { kvaxis::for_each_isa([=](kvaxis::isa isa) { add(isa, s); }); });
}

}  // namespace bench
