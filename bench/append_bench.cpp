// append/: tokens one by one into an empty cache with a window of 128, folding as it falls due. fold/: the folding
// alone. No query takes part: heads:1.
#include "common.hpp"

namespace bench {
namespace {

constexpr int window = 128;

template <class Body>
void register_rows(const char* kind, Body body) {
  kvaxis::for_each_isa([=](kvaxis::isa isa) {
    for_each_shape([=](const shape& s) {
      if (s.group != 1) return;
      benchmark::RegisterBenchmark(s.name(kind, isa_name(isa)).c_str(), [=](benchmark::State& state) {
        kvaxis::any_kv_cache cache = make_cache(s, window);
        if (failed(state, cache.reserve(s.context))) return;
        kvaxis::set_isa(isa);
        const double seconds = body(state, s, cache) / static_cast<double>(state.iterations());
        const double keys = static_cast<double>(s.context) * kv_heads;
        state.counters["ns_per_key"] = 1e9 * seconds / keys;
        state.counters["bytes/s"] = keys * 2 * s.dim * sizeof(float) / seconds;  // of what comes in, f32
      });
    });
  });
}

double append_tokens(benchmark::State& state, const shape& s, kvaxis::any_kv_cache& cache) {
  const tokens& t = tokens_of(s.dim);
  const double start = thread_seconds();
  for (auto _ : state) {
    cache.clear();
    for (int i = 0; i < s.context; ++i) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(i % tokens::count) * kv_heads * s.dim;
      if (failed(state, cache.append(t.keys.data() + at, t.values.data() + at, 1))) return 0;
    }
  }
  return thread_seconds() - start;
}

double fold_tokens(benchmark::State& state, const shape& s, kvaxis::any_kv_cache& cache) {
  const tokens& t = tokens_of(s.dim);
  double total = 0;
  for (auto _ : state) {
    state.PauseTiming();
    cache.clear();
    for (int i = 0; i < s.context; i += tokens::count) {
      const kvaxis::status added =
          cache.append(t.keys.data(), t.values.data(), tokens::count, kvaxis::next, kvaxis::fold_mode::deferred);
      if (failed(state, added)) return 0;
    }
    const double start = thread_seconds();
    state.ResumeTiming();
    if (failed(state, cache.flush())) return 0;
    total += thread_seconds() - start;
  }
  return total;
}

}  // namespace

void register_append() {
  register_rows("append", &append_tokens);
  register_rows("fold", &fold_tokens);
}

}  // namespace bench
