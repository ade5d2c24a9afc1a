// What the benchmarks share: shapes and their names, caches to read from, counters.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <kvaxis/cache/any_kv_cache.hpp>
#include <string>
#include <vector>

namespace bench {

constexpr int kv_heads = 8;
constexpr int query_groups[] = {1, 4, 8};  // query heads per kv head
constexpr int head_dims[] = {64, 128, 256};
constexpr int contexts[] = {1024, 4096, 16384, 65536};
constexpr int curve_contexts[] = {2048, 8192, 32768, 131072, 262144, 524288};  // attention and read limit only
constexpr int memory_context = 65536;  // from here on what is read comes from memory, not from a cache of the CPU
constexpr const char* policies[] = {
    "k:int4-channel64-pre,v:int4-token64",
    "k:int4-channel64-auto,v:int4-token64",
    "k:int8-channel64-pre,v:int8-token64",
    "k:e4m3-channel64-pre,v:e4m3-token64",
    "k:f16,v:f16",
};

// What a row of the results is about. The name is <kind>/<isa>/<policy>/heads:<h>/dim:<d>/ctx:<tokens>.
struct shape {
  const char* policy = policies[0];
  int group = 1;
  int dim = 128;
  int context = 1024;
  int kv_heads = bench::kv_heads;
  int value_dim = dim;
  int rotary = dim;  // the last channels

  [[nodiscard]] int query_heads() const { return group * kv_heads; }
  [[nodiscard]] std::string name(const char* kind, const char* isa) const;
};

template <class F>
void for_each_shape(F&& f) {
  for (const char* policy : policies) {
    for (const int dim : head_dims) {
      for (const int context : contexts) {
        for (const int group : query_groups) f(shape{policy, group, dim, context});
      }
    }
  }
}

// The shapes between and beyond those, for time against context.
template <class F>
void for_each_curve_shape(F&& f) {
  for (const char* policy : policies) {
    for (const int context : curve_contexts) {
      for (const int group : query_groups) f(shape{policy, group, 128, context});
    }
  }
}

// Attention that shares its heads or compresses them: DeepSeek's MLA on the latent that it stores (all query heads on one
// key of 512 latent and 64 rotated channels), the same decompressed into heads of its own, and one kv head alone.
template <class F>
void for_each_shared_shape(F&& f) {
  for (const int context : {4096, memory_context}) {
    for (const char* policy : {"k:int4-channel64-pre,v:latent", "k:int4-channel64-auto,v:latent",
                               "k:int4-token64-pre,v:latent", "k:int8-channel64-auto,v:latent", "k:f16,v:latent"}) {
      for (const int group : {16, 128}) f(shape{policy, group, 576, context, 1, 512, 64});
    }
    for (const char* policy : policies) {
      f(shape{policy, 1, 192, context, kv_heads, 128, 64});
      f(shape{policy, 32, 128, context, 1});
    }
  }
}

// Codes of other widths, hot pairs with more bits, transforms, and a codec that has no kernels.
template <class F>
void for_each_packed_shape(F&& f) {
  for (const char* policy :
       {"k:int2-channel64-auto,v:int2-token32", "k:int3-channel64-auto,v:int3-token64",
        "k:int4-channel64-hot8x6-lsq,v:int3-hadamard-token64-lsq", "k:int5-channel64-auto,v:int3-token64",
        "k:int6-channel64-auto,v:int6-token64", "k:nf4a-channel64-pre,v:nf4-token64"}) {
    for (const int context : {4096, memory_context}) {
      for (const int group : query_groups) f(shape{policy, group, 128, context});
    }
  }
}

// Keys, values and queries: normal numbers, f32, the same in every run; every second pair of channels of the keys is
// shifted by 4, as real keys are, so that `auto` keeps about a fifth of the pairs hot. Caches are filled with these tokens
// over and over.
struct tokens {
  static constexpr int count = 1024;
  std::vector<float> keys;     // [count][kv_heads][dim]; with fewer kv heads or channels the first ones serve
  std::vector<float> values;   // [count][kv_heads][dim]
  std::vector<float> queries;  // [128][dim]
};
const tokens& tokens_of(int dim);

kvaxis::any_kv_cache make_cache(const shape& s, int window);
kvaxis::attend_options options_of(const shape& s, kvaxis::arithmetic arithmetic);

// A stretch of memory that a kernel reads.
struct segment {
  const std::byte* data;
  std::size_t bytes;
};
enum class side { keys, values, both };

// Equal caches, everything folded, used in turn. From `memory_context` on they are so many that their bytes exceed
// `memory_set_bytes`: each is then read from memory, not from the last use of its lines in a shared cache.
constexpr std::size_t memory_set_bytes = std::size_t{600} << 20;
struct cache_set {
  std::vector<kvaxis::any_kv_cache> layers;
  [[nodiscard]] const kvaxis::any_kv_cache& layer(std::size_t i) const { return layers[i % layers.size()]; }
  [[nodiscard]] std::size_t bytes(side s) const;  // of one layer's blocks
  [[nodiscard]] double bits_per_value(side s) const;
  [[nodiscard]] std::vector<std::vector<segment>> segments(side s) const;  // [layer]
};
// Built at first use; the least recently used ones go when too many bytes are held.
const cache_set& caches_of(const shape& s);

// One thread's CPU seconds. On a machine with other work, wall-clock time would measure that.
double thread_seconds();

// Reading at the machine's best speed: seconds per layer of the set, by the fastest of the loops of read_limit.cpp.
double read_seconds(const cache_set& set, side s);

// How far the kernels are from the same sums in double over the decoded numbers (largest difference, relative to the
// root mean square), and how far decoding takes those sums from the ones over the original numbers (relative, root mean
// square).
struct accuracy {
  double error = 0;
  double loss = 0;
};
accuracy accuracy_of(kvaxis::isa isa, const shape& s, side what, kvaxis::arithmetic arithmetic);

// The counters of a row whose iterations took `seconds` together: bytes/s, ns_per_key (a key, a value, or both, of one
// kv head), bits_per_value, and read_ratio, the time over that of reading the same bytes.
void set_counters(benchmark::State& state, const shape& s, const cache_set& set, side what, double seconds);
void set_accuracy(benchmark::State& state, const accuracy& a);

// Skips a benchmark, or stops the program outside of one, when a call was refused.
bool failed(benchmark::State& state, const kvaxis::status& s);

void register_attend();
void register_scores();
void register_values();
void register_append();
void register_lists();
void register_naive();
void register_read_limit();

// False, and a line on the standard error stream, if naive and fused results differ.
bool check_naive();
bool check_kernels();

}  // namespace bench
