// own_codec: a 4-bit codec that the library does not know, written here, on every instruction set of this machine.
#include <algorithm>
#include <kvaxis/eigen.hpp>
#include <kvaxis/eval/metrics.hpp>
#include <kvaxis/eval/reference.hpp>
#include <kvaxis/kvaxis.hpp>

#include "common/arguments.hpp"
#include "common/normal.hpp"
#include "common/table.hpp"

// Levels |u|^1.2 for 16 equal steps of u: closer together in the middle, where most numbers of a bell-shaped group are.
struct power4 {
  static constexpr int bits = 4;
  static constexpr const char* name = "power4";
  static constexpr float limit = 65504.0F;  // of the parameters' type; append refuses larger numbers
  static constexpr float levels[8] = {0.0388F, 0.1450F, 0.2676F, 0.4007F, 0.5417F, 0.6893F, 0.8422F, 1.0F};
  struct params {
    kvaxis::float16 scale, centre;
  };

  static params fit(const float* x, int n) noexcept {
    const auto [low, high] = std::minmax_element(x, x + n);
    const kvaxis::float16 centre = kvaxis::to_float16((*low + *high) / 2);
    const float middle = kvaxis::to_float(centre);
    return {kvaxis::to_float16(std::max(*high - middle, middle - *low)), centre};
  }
  static float decode(params p, std::uint32_t code) noexcept {
    const float level = code < 8 ? -levels[7 - code] : levels[code - 8];
    return kvaxis::fused(kvaxis::to_float(p.scale), level, kvaxis::to_float(p.centre));  // one rounding, always
  }
  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) {
      codes[i] = 0;  // the nearest level: on to the next one while that is nearer
      while (codes[i] < 15 && x[i] - decode(p, codes[i]) > decode(p, codes[i] + 1) - x[i]) ++codes[i];
    }
  }
};

namespace {

constexpr const char help[] = R"(usage: own_codec [--json]

Attends to 512 tokens in a cache whose keys and values are in a codec of its own, `power4`, and in the library's int4, on
every instruction set of this machine. Prints the relative errors of keys and attention, the divergence of the attention
weights (KL, nats), and the largest difference to the scalar code. What is read back must be the same bits everywhere.

  --json   the same figures as JSON
  --help   this text
)";

constexpr int kv_heads = 2;
constexpr int query_heads = 8;
constexpr int dim = 64;
constexpr int tokens = 512;

using kvaxis::row_matrix;

struct data {
  row_matrix keys = row_matrix(tokens, kv_heads* dim);
  row_matrix values = row_matrix(tokens, kv_heads* dim);
  row_matrix queries = row_matrix(query_heads, dim);
  kvaxis::cache_config config;
  kvaxis::attend_options options;

  data() {
    normal_numbers normal(1);
    for (row_matrix* m : {&keys, &values, &queries}) normal.fill(m->data(), static_cast<std::size_t>(m->size()));
    config.kv_heads = kv_heads;
    config.head_dim = dim;
    config.window = 0;
    config.pins = 0;
    kvaxis::check(kvaxis::make_rope({dim}, config.rope));
    options.query_heads = query_heads;
  }
};

// What a cache makes of the data with the active instruction set.
struct result {
  row_matrix keys = row_matrix(tokens, kv_heads* dim);
  row_matrix scores = row_matrix(query_heads, tokens);
  row_matrix out = row_matrix(query_heads, dim);
};

template <class Cache>
result run_cache(const data& d) {
  Cache cache;
  kvaxis::check(Cache::create(d.config, cache));
  kvaxis::check(kvaxis::append(cache, d.keys, d.values));
  result r;
  kvaxis::check(kvaxis::read_keys(cache, 0, r.keys));
  std::vector<std::byte> memory(cache.workspace_bytes(1, d.options));
  const kvaxis::workspace workspace{memory.data(), memory.size()};
  kvaxis::check(cache.scores(d.queries.data(), 1, tokens, d.options, r.scores.data(), workspace));
  kvaxis::check(cache.attend(d.queries.data(), 1, tokens, d.options, r.out.data(), nullptr, workspace));
  return r;
}

template <class Codec>
void add_rows(const data& d, table& out) {
  using cache = kvaxis::kv_cache<kvaxis::per_channel<Codec>, kvaxis::per_token<Codec>>;
  kvaxis::reference_layer layer;
  layer.kv_heads = kv_heads;
  layer.head_dim = layer.value_dim = dim;
  layer.tokens = tokens;
  layer.keys = d.keys.data();
  layer.values = d.values.data();
  layer.rope = d.config.rope;
  const Eigen::MatrixXd scores = kvaxis::reference_scores(layer, d.queries.data(), 1, tokens, d.options);
  const Eigen::MatrixXd exact = kvaxis::reference_attend(layer, d.queries.data(), 1, tokens, d.options);
  result first;
  kvaxis::for_each_isa([&](kvaxis::isa isa) {
    kvaxis::set_isa(isa);
    const result r = run_cache<cache>(d);
    if (isa == kvaxis::isa::scalar) first = r;
    if (r.keys != first.keys) throw std::runtime_error("the keys read back differ between instruction sets");
    out.add({Codec::name, kvaxis::isa_name(isa), cell(cache::bits(dim), 4),
             cell(kvaxis::relative_error(d.keys, r.keys), 3), cell(kvaxis::softmax_divergence(scores, r.scores), 3),
             cell(kvaxis::relative_error(exact, r.out), 3),
             cell(static_cast<double>((r.out - first.out).cwiseAbs().maxCoeff()), 2)});
  });
}

void run(arguments& given) {
  const bool json = given.flag("--json");
  given.finish();
  const data d;
  table t({{"codec", "codec"},
           {"isa", "isa"},
           {"bits_per_value", "bits"},
           {"key_error", "key error"},
           {"weights_divergence", "weights' KL"},
           {"attention_error", "attention error"},
           {"difference_to_scalar", "difference to scalar"}});
  add_rows<kvaxis::int4>(d, t);
  add_rows<power4>(d, t);
  if (json) {
    std::printf("{\n");
    t.print_json();
    std::printf("}\n");
    return;
  }
  t.print(0, t.size());
  std::printf("\nThe keys read back are the same bits on all of them.\n");
}

}  // namespace

int main(int argc, char** argv) { return run_example("own_codec", help, argc, argv, run); }
