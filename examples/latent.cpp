// latent: what both axes do to attention whose heads share what is stored: DeepSeek's latent, the same decompressed, and
// fewer kv heads than query heads.
#include <kvaxis/eigen.hpp>
#include <kvaxis/eval/metrics.hpp>
#include <kvaxis/eval/reference.hpp>
#include <kvaxis/kvaxis.hpp>

#include "common/arguments.hpp"
#include "common/normal.hpp"
#include "common/table.hpp"

namespace {

constexpr const char help[] = R"(usage: latent [--json] [--seed N]

Relative errors of attention on synthetic keys, against double precision on the same keys before quantization, with one
scale for 64 tokens of a channel or for 64 channels of a token of the keys:
  MLA latent        one key of 512 latent and 64 rotated channels for 16 query heads; its latent serves as values
  MLA decompressed  the same layer, keys of 128 + 64 channels and values of 128 for each head
  GQA, MQA          4 kv heads, or one, of 128 channels for 16 query heads
The latents are not those of a model: 64 normally distributed factors of falling weight in 512 channels, noise, and four
channels 10 times as large, which the projections divide by 10 again; the rotated channels have a mean. GQA and MQA keys
are made alike, with 32 factors in 128 channels, all rotated. 1024 tokens, all quantized, 8 queries behind them.
  logits      of all logits
  divergence  mean KL divergence of the softmax, in nats
  output      of what the heads hand on (128 channels each; the latent's after the projection)

  --json     the same figures as JSON
  --seed N   another sample (1)
  --help     this text
)";

constexpr int tokens = 1024;
constexpr int queries = 8;
constexpr int heads = 16;
constexpr int head_channels = 128;
constexpr int latent_channels = 512;
constexpr int rotated_channels = 64;
constexpr int outliers[] = {3, 17, 44, 91};
constexpr float outlier_factor = 10.0F;

using kvaxis::row_matrix;

class sample {
 public:
  explicit sample(std::uint64_t seed) : normal_(seed) {}

  row_matrix normals(int rows, int columns, float scale = 1.0F) {
    row_matrix m(rows, columns);
    normal_.fill(m.data(), static_cast<std::size_t>(m.size()));
    return m * scale;
  }
  // Rows of mean square 1 that follow a few factors of falling weight, then the outliers.
  row_matrix correlated(int channels, int factors) {
    row_matrix mix = normals(factors, channels);
    for (int i = 0; i < factors; ++i) mix.row(i) /= std::sqrt(1.0F + static_cast<float>(i) / 4.0F);
    row_matrix m = normals(tokens, factors) * mix + normals(tokens, channels, 0.5F);
    for (int t = 0; t < tokens; ++t) m.row(t) *= std::sqrt(static_cast<float>(channels)) / m.row(t).norm();
    for (const int c : outliers) m.col(c) *= outlier_factor;
    return m;
  }
  // A projection that has learned where the outliers are: columns of the output, one row per channel.
  row_matrix projection(int channels, int columns) {
    row_matrix m = normals(channels, columns, 1.0F / std::sqrt(static_cast<float>(channels)));
    for (const int c : outliers) m.row(c) /= outlier_factor;
    return m;
  }
  row_matrix rotated(int columns) {
    const row_matrix mean = normals(1, columns, 2.0F);
    return normals(tokens, columns).rowwise() + mean.row(0);
  }

 private:
  normal_numbers normal_;
};

struct layer {
  const char* name;
  kvaxis::cache_config config;
  row_matrix keys;     // [token][kv_head * head_dim]
  row_matrix values;   // [token][kv_head * value_dim]
  row_matrix queries;  // [query * query_head][head_dim]
  row_matrix up;       // of latent values: [channel][query_head * head_channels]

  layer(const char* what, int kv_heads, int head_dim, int value_dim, int rotary) : name(what) {
    config.kv_heads = kv_heads;
    config.head_dim = head_dim;
    config.value_dim = value_dim;
    config.window = config.pins = 0;
    kvaxis::rope_parameters rope;
    rope.head_dim = head_dim;
    rope.first_channel = head_dim - rotary;
    kvaxis::check(kvaxis::make_rope(rope, config.rope));
  }
  // What the heads hand on, from rows of attention [query * query_head][value_dim].
  [[nodiscard]] Eigen::MatrixXd outputs(const Eigen::MatrixXd& attention) const {
    if (up.size() == 0) return attention;
    Eigen::MatrixXd out(attention.rows(), head_channels);
    for (Eigen::Index i = 0; i < out.rows(); ++i) {
      const auto of_head = up.middleCols(i % heads * head_channels, head_channels);
      out.row(i) = attention.row(i) * of_head.cast<double>();
    }
    return out;
  }
};

// q . (k_up c) = (k_up^T q) . c: both layers have the same logits and, after v_up, the same outputs.
std::vector<layer> mla_layers(sample& random) {
  layer latent("MLA latent", 1, latent_channels + rotated_channels, latent_channels, rotated_channels);
  layer plain("MLA decompressed", heads, head_channels + rotated_channels, head_channels, rotated_channels);
  const row_matrix c = random.correlated(latent_channels, 64);
  const row_matrix rotated = random.rotated(rotated_channels);
  const row_matrix k_up = random.projection(latent_channels, heads * head_channels);
  latent.up = random.projection(latent_channels, heads * head_channels);
  latent.values = c;
  latent.keys.resize(tokens, latent_channels + rotated_channels);
  latent.keys << c, rotated;
  plain.values = c * latent.up;
  plain.keys.resize(tokens, heads * (head_channels + rotated_channels));
  const row_matrix k = c * k_up;
  for (int h = 0; h < heads; ++h) {
    plain.keys.middleCols(h * (head_channels + rotated_channels), head_channels + rotated_channels)
        << k.middleCols(h * head_channels, head_channels),
        rotated;
  }
  plain.queries = random.normals(queries * heads, head_channels + rotated_channels);
  latent.queries.resize(queries * heads, latent_channels + rotated_channels);
  for (Eigen::Index i = 0; i < latent.queries.rows(); ++i) {
    const row_matrix up = k_up.middleCols(i % heads * head_channels, head_channels);
    latent.queries.row(i) << plain.queries.row(i).leftCols(head_channels) * up.transpose(),
        plain.queries.row(i).rightCols(rotated_channels);
  }
  return {latent, plain};
}

layer grouped_layer(const char* name, int kv_heads, sample& random) {
  layer l(name, kv_heads, head_channels, head_channels, head_channels);
  l.keys.resize(tokens, kv_heads * head_channels);
  for (int h = 0; h < kv_heads; ++h) {
    l.keys.middleCols(h * head_channels, head_channels) = random.correlated(head_channels, 32);
  }
  l.values = random.normals(tokens, kv_heads * head_channels);
  l.queries = random.normals(queries * heads, head_channels);
  for (const int c : outliers) l.queries.col(c) /= outlier_factor;
  return l;
}

class report {
 public:
  void add(const layer& l) {
    const kvaxis::cache_config& c = l.config;
    options_.query_heads = heads;
    options_.scale = 1.0F / std::sqrt(static_cast<float>(head_channels + (c.head_dim > head_channels ? 64 : 0)));
    options_.arithmetic = kvaxis::arithmetic::f32;
    const kvaxis::reference_layer exact{c.kv_heads,    c.head_dim,      c.value_dim, tokens,
                                        l.keys.data(), l.values.data(), nullptr,     c.rope};
    logits_ = kvaxis::reference_scores(exact, l.queries.data(), queries, tokens, options_);
    outputs_ = l.outputs(kvaxis::reference_attend(exact, l.queries.data(), queries, tokens, options_));
    add_codec<kvaxis::int4>(l);
    add_codec<kvaxis::int8>(l);
  }
  void print() const { table_.print(0, table_.size()); }
  void print_json() const { table_.print_json(); }

 private:
  template <class Codec>
  void add_codec(const layer& l) {
    add_axis<kvaxis::per_channel<Codec>, kvaxis::per_token<Codec>>(l, "per channel");
    add_axis<kvaxis::per_token<Codec>, kvaxis::per_token<Codec>>(l, "per token");
  }
  template <class Keys, class Values>
  void add_axis(const layer& l, const char* axis) {
    if (l.up.size() > 0) return measure<kvaxis::kv_cache<Keys, kvaxis::latent<Keys>>>(l, axis, row_matrix());
    measure<kvaxis::kv_cache<Keys, Values>>(l, axis, l.values);
  }
  template <class Cache>
  void measure(const layer& l, const char* axis, const row_matrix& values) {
    Cache cache;
    kvaxis::check(cache.create(l.config, cache));
    kvaxis::check(kvaxis::append(cache, l.keys, values));
    std::vector<std::byte> memory(cache.workspace_bytes(queries, options_));
    const kvaxis::workspace w{memory.data(), memory.size()};
    row_matrix logits(queries * heads, tokens);
    row_matrix out(queries * heads, l.config.value_dim);
    kvaxis::check(cache.scores(l.queries.data(), queries, tokens, options_, logits.data(), w));
    kvaxis::check(cache.attend(l.queries.data(), queries, tokens, options_, out.data(), nullptr, w));
    table_.add({l.name, cache.format()->key_codec->name, axis,
                cell(Cache::bits(l.config.head_dim, l.config.value_dim), 4),
                cell(static_cast<double>(cache.bytes().folded) / tokens, 5),
                cell(kvaxis::relative_error(logits_, logits), 3), cell(kvaxis::softmax_divergence(logits_, logits), 3),
                cell(kvaxis::relative_error(outputs_, l.outputs(out.cast<double>())), 3)});
  }

  kvaxis::attend_options options_;
  Eigen::MatrixXd logits_;
  Eigen::MatrixXd outputs_;
  table table_{{{"layer", "synthetic layer"},
                {"codec", "codec"},
                {"axis", "keys' scales"},
                {"bits_per_value", "bits"},
                {"bytes_per_token", "bytes/token"},
                {"logit_error", "logits"},
                {"divergence", "divergence"},
                {"output_error", "output"}}};
};

void run(arguments& given) {
  const bool json = given.flag("--json");
  const std::int64_t seed = given.integer("--seed", 0, INT32_MAX).value_or(1);
  given.finish();
  sample random(static_cast<std::uint64_t>(seed));
  report out;
  for (const layer& l : mla_layers(random)) out.add(l);
  out.add(grouped_layer("GQA", 4, random));
  out.add(grouped_layer("MQA", 1, random));
  if (!json) return out.print();
  std::printf("{\n  \"tokens\": %d,\n  \"query_heads\": %d,\n  \"seed\": %d,\n", tokens, heads, static_cast<int>(seed));
  out.print_json();
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) { return run_example("latent", help, argc, argv, run); }
