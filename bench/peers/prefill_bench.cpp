#include "ggml_attention.hpp"
#include "rows.hpp"

namespace bench {

void register_prefill() {
  kvaxis::for_each_isa([](kvaxis::isa isa) {
    for_each_shape([isa](const shape& s) {
      if (s.dim != ggml_dim || s.context != prefill_context) return;
      benchmark::RegisterBenchmark(s.name("prefill", isa_name(isa)).c_str(), [isa, s](benchmark::State& state) {
        const cache_set& set = caches_of(s);
        const kvaxis::any_kv_cache& cache = set.layer(0);
        const std::vector<float> queries = queries_of(s.group, prefill_queries);
        std::vector<float> out(queries.size());
        kvaxis::attend_options options;
        options.query_heads = s.group * kv_heads;
        std::vector<std::byte> memory(cache.workspace_bytes(prefill_queries, options));
        kvaxis::set_isa(isa);
        const double start = thread_seconds();
        for (auto _ : state) {
          const kvaxis::status done = cache.attend(queries.data(), prefill_queries, prefill_context - prefill_queries,
                                                   options, out.data(), nullptr, {memory.data(), memory.size()});
          if (failed(state, done)) return;
          benchmark::DoNotOptimize(out.data());
          benchmark::ClobberMemory();
        }
        set_counters(state, s, set, side::both, thread_seconds() - start);
      });
    });
  });
}

}  // namespace bench
