// naive/ and naive_values/: the same work as scores/ and values/ by the path of naive.hpp. In place of an instruction
// set the name says which flags and which decoding.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <kvaxis/quantizers/names.hpp>

#include "common.hpp"
#include "naive.hpp"

namespace bench {
namespace {

struct variant {
  const char* name;
  naive_decode how;
  decltype(&naive_plain::scores) scores;
  decltype(&naive_plain::sums) sums;
};
constexpr variant variants[] = {
    {"O2", naive_decode::loop, &naive_plain::scores, &naive_plain::sums},
    {"O3-native", naive_decode::loop, &naive_native::scores, &naive_native::sums},
    {"O2-nibbles", naive_decode::nibbles, &naive_plain::scores, &naive_plain::sums},
    {"O3-native-nibbles", naive_decode::nibbles, &naive_native::scores, &naive_native::sums},
    {"O2-read-back", naive_decode::read_back, &naive_plain::scores, &naive_plain::sums},
    {"O3-native-read-back", naive_decode::read_back, &naive_native::scores, &naive_native::sums},
};

// The naive path rotates every pair, so it reads what `pre` stores.
bool applies(const variant& v, const shape& s) {
  if (std::strstr(s.policy, "-auto") != nullptr) return false;
  return v.how != naive_decode::nibbles || std::strcmp(s.policy, policies[0]) == 0;
}

// A layer's folded tiles as plain data, for a query at the position behind the last key.
class naive_layer {
 public:
  naive_layer(const shape& s, const kvaxis::any_kv_cache& cache) {
    const kvaxis::sequence_view view = cache.view();
    const kvaxis::tile_format& f = *view.format;
    in_.codec = f.key_codec->name;
    in_.dim = s.dim;
    in_.tiles = view.entry_count;
    in_.tile_tokens = f.tokens;
    in_.offset_cos =
        table(f.pairs * f.tokens, [&](int i) { return std::cos(f.frequency[i / f.tokens] * (i % f.tokens)); });
    in_.offset_sin =
        table(f.pairs * f.tokens, [&](int i) { return std::sin(f.frequency[i / f.tokens] * (i % f.tokens)); });
    const auto angle = [&](int i) { return f.frequency[i % f.pairs] * (s.context - i / f.pairs * f.tokens); };
    in_.tile_cos = table(f.pairs * view.entry_count, [&](int i) { return std::cos(angle(i)); });
    in_.tile_sin = table(f.pairs * view.entry_count, [&](int i) { return std::sin(angle(i)); });
    in_.heads = s.group;
    const float* q = tokens_of(s.dim).queries.data();
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.dim));
    queries_ =
        table(s.group * kv_heads * s.dim, [&](int i) { return scale * q[i / s.dim * s.dim + f.order[i % s.dim]]; });
    for (int head = 0; head < kv_heads; ++head) {
      for (int i = 0; i < view.entry_count; ++i) {
        key_blocks_.push_back(view.entries[i].tile->key_block(head));
        value_blocks_.push_back(view.entries[i].tile->value_block(head));
      }
    }
  }

  [[nodiscard]] naive_input head(int i) const {
    naive_input in = in_;
    in.key_blocks = key_blocks_.data() + i * in.tiles;
    in.value_blocks = value_blocks_.data() + i * in.tiles;
    in.queries = queries_ + i * in.heads * in.dim;
    return in;
  }

 private:
  template <class F>
  const float* table(int count, F&& f) {
    std::vector<float>& made = tables_.emplace_back(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) made[static_cast<std::size_t>(i)] = static_cast<float>(f(i));
    return made.data();
  }

  naive_input in_;
  std::vector<std::vector<float>> tables_;
  const float* queries_ = nullptr;
  std::vector<const std::byte*> key_blocks_;  // [kv head][tile]
  std::vector<const std::byte*> value_blocks_;
};

std::vector<float> run(const variant& v, const shape& s, const naive_layer& layer, side what,
                       const std::vector<float>& weights, std::vector<float> out) {
  for (int head = 0; head < kv_heads; ++head) {
    const std::ptrdiff_t logits = static_cast<std::ptrdiff_t>(head) * s.group * s.context;
    if (what == side::keys) {
      v.scores(layer.head(head), v.how, out.data() + logits);
    } else {
      v.sums(layer.head(head), v.how, weights.data() + logits, out.data() + head * s.group * s.dim);
    }
  }
  return out;
}

std::size_t out_size(const shape& s, side what) {
  return static_cast<std::size_t>(s.group * kv_heads) *
         static_cast<std::size_t>(what == side::keys ? s.context : s.dim);
}

void register_side(const char* kind, side what) {
  for (const variant& v : variants) {
    for_each_shape([=](const shape& s) {
      if (!applies(v, s)) return;
      benchmark::RegisterBenchmark(s.name(kind, v.name).c_str(), [=](benchmark::State& state) {
        const cache_set& set = caches_of(s);
        const naive_layer layer(s, set.layers[0]);
        const std::vector<float> weights(out_size(s, side::keys), 1.0F / static_cast<float>(s.context));
        std::vector<float> out(out_size(s, what));
        const double start = thread_seconds();
        for (auto _ : state) {
          out = run(v, s, layer, what, weights, std::move(out));
          benchmark::DoNotOptimize(out.data());
          benchmark::ClobberMemory();
        }
        set_counters(state, s, set, what, thread_seconds() - start);
      });
    });
  }
}

// The largest difference between the naive and the fused results, relative to the largest result.
double difference(const variant& v, const shape& s, side what) {
  const kvaxis::any_kv_cache& cache = caches_of(s).layers[0];
  const tokens& t = tokens_of(s.dim);
  kvaxis::attend_options o;
  o.query_heads = s.group * kv_heads;
  o.arithmetic = kvaxis::arithmetic::f32;
  std::vector<std::byte> memory(cache.workspace_bytes(1, o));
  std::vector<float> fused(out_size(s, what));
  const std::vector<float> weights(t.values.begin(), t.values.begin() + o.query_heads * s.context);
  const kvaxis::workspace w{memory.data(), memory.size()};
  if (what == side::keys) {
    kvaxis::check(cache.scores(t.queries.data(), 1, s.context, o, fused.data(), w));
  } else {
    kvaxis::check(cache.weighted_sum(weights.data(), 1, o, fused.data(), w));
  }
  const std::vector<float> naive = run(v, s, naive_layer(s, cache), what, weights, std::vector<float>(fused.size()));
  float worst = 0;
  float largest = 0;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    worst = std::max(worst, std::fabs(fused[i] - naive[i]));
    largest = std::max(largest, std::fabs(fused[i]));
  }
  return worst / largest;
}

}  // namespace

void register_naive() {
  register_side("naive", side::keys);
  register_side("naive_values", side::values);
}

bool check_naive() {
  constexpr double tolerance = 1e-5;
  bool good = true;
  for (const variant& v : variants) {
    for (const char* policy : policies) {
      for (const side what : {side::keys, side::values}) {
        const shape s{policy, 4, 128, tokens::count};
        if (!applies(v, s)) continue;
        const double found = difference(v, s, what);
        if (found < tolerance) continue;
        std::fprintf(stderr, "kvaxis_bench: naive %s and fused %s differ by %g: %s\n", v.name,
                     what == side::keys ? "scores" : "values", found, policy);
        good = false;
      }
    }
  }
  return good;
}

}  // namespace bench
