// lists/<operation>/ctx:<tokens>: what an engine does to the list of tiles of one layer, 8 kv heads of 128. Each iteration
// works on a fork of its own; only the operation is timed, and in `drop` the end of a fork.
#include <chrono>
#include <optional>

#include "common.hpp"

namespace bench {
namespace {

constexpr int list_contexts[] = {4096, 131072};
constexpr int window = 128;
const shape layer{"k:int4-channel64-auto,v:int4-token64"};

using operation = kvaxis::status (*)(kvaxis::any_kv_cache& cache, kvaxis::any_kv_cache& scratch);

struct named_operation {
  const char* name;
  operation run;
};

constexpr named_operation operations[] = {
    {"roll_back_8", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache&) { return c.truncate(c.size() - 8); }},
    {"roll_back_half", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache&) { return c.truncate(c.size() / 2); }},
    {"erase_half", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache&) { return c.erase(4, c.size() / 2); }},
    {"move_all", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache&) { return c.move(4, c.size() - 4, -1000); }},
    {"keep_last_2048", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache&) { return c.keep_last(2048); }},
    {"fork", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache& out) { return c.fork(out); }},
    {"splice_all", [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache& out) { return out.splice(0, c, 0, c.size(), 7); }},
    {"drop",
     [](kvaxis::any_kv_cache& c, kvaxis::any_kv_cache&) {
       c = kvaxis::any_kv_cache();
       return kvaxis::status{};
     }},
};

kvaxis::any_kv_cache& filled_cache(int context) {
  static std::optional<kvaxis::any_kv_cache> cache;
  if (!cache.has_value() || cache->size() != context) {
    cache.emplace(make_cache(layer, window));
    const tokens& t = tokens_of(128);
    for (int i = 0; i < context; i += tokens::count) {
      kvaxis::check(cache->append(t.keys.data(), t.values.data(), tokens::count));
    }
  }
  return *cache;
}

void run(benchmark::State& state, const named_operation& o, int context) {
  const kvaxis::any_kv_cache& cache = filled_cache(context);
  const kvaxis::any_kv_cache empty = make_cache(layer, window);
  for (auto _ : state) {
    kvaxis::any_kv_cache fork;
    kvaxis::any_kv_cache scratch;
    if (failed(state, cache.fork(fork)) || failed(state, empty.fork(scratch))) return;
    const auto start = std::chrono::steady_clock::now();
    if (failed(state, o.run(fork, scratch))) return;
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  state.counters["entries"] = cache.view().entry_count;
}

}  // namespace

void register_lists() {
  for (const int context : list_contexts) {
    for (const named_operation& o : operations) {
      const std::string name = "lists/" + std::string(o.name) + "/ctx:" + std::to_string(context);
      benchmark::RegisterBenchmark(name.c_str(), [&o, context](benchmark::State& s) { run(s, o, context); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace bench
