// The frame around a timed call of a cache: buffers, instruction set, layers in turn, counters.
#pragma once

#include "common.hpp"

namespace bench {

struct buffers {
  kvaxis::attend_options options;
  std::vector<std::byte> memory;
  std::vector<float> in;   // weights
  std::vector<float> out;  // logits or sums

  [[nodiscard]] kvaxis::workspace workspace() { return {memory.data(), memory.size()}; }
};

// Registers a row of `kind`; call(cache, queries, buffers) is one layer's work and answers a status.
template <class Call>
void register_fused(const char* kind, side what, kvaxis::arithmetic arithmetic, kvaxis::isa isa, const shape& s,
                    Call call) {
  benchmark::RegisterBenchmark(s.name(kind, isa_name(isa)).c_str(), [=](benchmark::State& state) {
    const cache_set& set = caches_of(s);
    const float* queries = tokens_of(s.dim).queries.data();
    buffers b;
    b.options = options_of(s, arithmetic);
    b.memory.resize(set.layers[0].workspace_bytes(1, b.options));
    const auto heads = static_cast<std::size_t>(b.options.query_heads);
    const std::size_t logits = heads * static_cast<std::size_t>(s.context);
    if (what == side::values) b.in.assign(logits, 1.0F / static_cast<float>(s.context));
    b.out.resize(what == side::keys ? logits : heads * static_cast<std::size_t>(s.value_dim));
    kvaxis::set_isa(isa);
    std::size_t i = 0;
    const double start = thread_seconds();
    for (auto _ : state) {
      if (failed(state, call(set.layer(i++), queries, s.context, b))) return;
      benchmark::DoNotOptimize(b.out.data());
      benchmark::ClobberMemory();
    }
    set_counters(state, s, set, what, thread_seconds() - start);
    set_accuracy(state, accuracy_of(isa, s, what, arithmetic));
  });
}

// The same for every instruction set and shape.
template <class Call>
void register_fused(const char* kind, side what, kvaxis::arithmetic arithmetic, Call call) {
  kvaxis::for_each_isa([=](kvaxis::isa isa) {
    for_each_shape([=](const shape& s) { register_fused(kind, what, arithmetic, isa, s, call); });
  });
}

}  // namespace bench
