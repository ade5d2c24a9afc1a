// axes: one scale per channel against one scale per token, on keys with outlier channels.
#include <kvaxis/eigen.hpp>
#include <kvaxis/eval/metrics.hpp>
#include <kvaxis/quantizers/round_trip.hpp>
#include <kvaxis/rope/rope.hpp>

#include "common/arguments.hpp"
#include "common/normal.hpp"
#include "common/table.hpp"

namespace {

constexpr const char help[] = R"(usage: axes [--json] [--seed N]

Quantizes 512 x 128 normally distributed keys whose channels 3, 17, 44 and 91 are 60 times as large, with one scale per
token and with one per channel, and prints the relative errors of
  all        all numbers
  normal     the channels without outliers
  logits     products with 512 normal queries
  balanced   products with queries whose outlier channels are divided by 60, so that these channels do not dominate
before RoPE, and after it (half-split, theta 10000, positions 0 to 511). RoPE carries an outlier to both channels of its
pair, so there 8 channels are outliers, and `normal` and `balanced` refer to the other 120.

  --json     the same figures as JSON
  --seed N   another sample (1)
  --help     this text
)";

constexpr int tokens = 512;
constexpr int dim = 128;
constexpr int queries = 512;
constexpr int outliers[] = {3, 17, 44, 91};
constexpr float outlier_factor = 60.0F;

using kvaxis::row_matrix;

// Keys as they are stored, queries for them, and which channels are outliers.
struct sample {
  std::string name;
  row_matrix keys = row_matrix(tokens, dim);
  row_matrix queries = row_matrix(::queries, dim);
  row_matrix balanced;
  std::vector<int> normal_channels;

  void finish(const std::vector<bool>& is_outlier) {
    balanced = queries;
    for (int c = 0; c < dim; ++c) {
      if (is_outlier[static_cast<std::size_t>(c)]) {
        balanced.col(c) /= outlier_factor;
      } else {
        normal_channels.push_back(c);
      }
    }
  }
};

sample before_rope(std::uint64_t seed) {
  sample s;
  s.name = "before RoPE";
  normal_numbers normal(seed);
  normal.fill(s.keys.data(), static_cast<std::size_t>(s.keys.size()));
  normal.fill(s.queries.data(), static_cast<std::size_t>(s.queries.size()));
  std::vector<bool> is_outlier(dim);
  for (const int c : outliers) {
    s.keys.col(c) *= outlier_factor;
    is_outlier[static_cast<std::size_t>(c)] = true;
  }
  s.finish(is_outlier);
  return s;
}

sample after_rope(const sample& before) {
  kvaxis::rope_parameters parameters;
  parameters.head_dim = dim;
  kvaxis::rope rope;
  kvaxis::check(kvaxis::make_rope(parameters, rope));
  sample s;
  s.name = "after RoPE";
  s.keys = before.keys;
  s.queries = before.queries;
  for (int t = 0; t < tokens; ++t) kvaxis::rotate(rope, t, s.keys.row(t).data());
  std::vector<bool> is_outlier(dim);
  for (const int c : outliers) {
    is_outlier[static_cast<std::size_t>(c)] = true;
    is_outlier[static_cast<std::size_t>((c + dim / 2) % dim)] = true;
  }
  s.finish(is_outlier);
  return s;
}

struct errors {
  double bits, all, normal, logits, balanced;
};

template <class Policy>
errors measure(const sample& s) {
  row_matrix decoded(tokens, dim);
  kvaxis::check(kvaxis::round_trip<Policy>(s.keys.data(), tokens, dim, decoded.data()));
  return {kvaxis::group_bits<Policy>(tokens, dim), kvaxis::relative_error(s.keys, decoded),
          kvaxis::relative_error(s.keys(Eigen::all, s.normal_channels), decoded(Eigen::all, s.normal_channels)),
          kvaxis::logit_error(s.queries, s.keys, decoded), kvaxis::logit_error(s.balanced, s.keys, decoded)};
}

struct comparison {
  errors token, channel;
};

struct section {
  comparison int4, int8, e4m3;
};

class report {
 public:
  report()
      : table_({{"keys", ""},
                {"groups", ""},
                {"codec", "codec"},
                {"axis", "one scale"},
                {"bits_per_value", "bits"},
                {"tensor_error", "all"},
                {"normal_channel_error", "normal"},
                {"logit_error", "logits"},
                {"balanced_logit_error", "balanced"}}) {}

  template <int TokenGroup, int ChannelGroup>
  section add(const sample& s, const char* groups) {
    return {add<kvaxis::int4, TokenGroup, ChannelGroup>(s, groups),
            add<kvaxis::int8, TokenGroup, ChannelGroup>(s, groups),
            add<kvaxis::e4m3, TokenGroup, ChannelGroup>(s, groups)};
  }

  void print() const {
    constexpr std::size_t rows = 9;  // of a section
    const char* const titles[] = {
        "before RoPE; a scale for the 128 channels of a token, or for the 512 tokens of a channel",
        "before RoPE, at equal bits; a scale for 64 channels of a token, or for 64 tokens of a channel",
        "after RoPE; a scale for the 128 channels of a token, or for the 512 tokens of a channel",
        "after RoPE, at equal bits; a scale for 64 channels of a token, or for 64 tokens of a channel"};
    for (std::size_t i = 0; i * rows < table_.size(); ++i) {
      std::printf("Relative errors %s\n", titles[i]);
      table_.print(i * rows, (i + 1) * rows);
      std::printf("\n");
    }
  }
  void print_json() const { table_.print_json(); }

 private:
  template <class Codec, int TokenGroup, int ChannelGroup>
  comparison add(const sample& s, const char* groups) {
    const errors a = measure<kvaxis::per_token<Codec, TokenGroup>>(s);
    const errors b = measure<kvaxis::per_channel<Codec, ChannelGroup>>(s);
    const auto row = [&](const char* axis, const cell& bits, const errors& e) {
      table_.add({s.name, groups, Codec::name, axis, bits, cell(e.all, 3), cell(e.normal, 3), cell(e.logits, 3),
                  cell(e.balanced, 3)});
    };
    row("per token", cell(a.bits, 5), a);
    row("per channel", cell(b.bits, 5), b);
    row("ratio", cell(), {0, a.all / b.all, a.normal / b.normal, a.logits / b.logits, a.balanced / b.balanced});
    return {a, b};
  }

  table table_;
};

void explain(const section& whole, const section& equal, const section& rotated) {
  const errors &token = whole.int4.token, &channel = whole.int4.channel;
  std::printf(
      "No big gain: over all numbers int4 with a scale per channel is %.1f times as accurate as with a scale per "
      "token, and\n"
      "%.1f times in plain logits. The outlier channels hold 99 %% of the energy, and both axes round those channels "
      "well.\n\n",
      token.all / channel.all, token.logits / channel.logits);
  std::printf(
      "A big gain: %.0f times on the normal channels and %.0f times in balanced logits; %.0f and %.0f times at equal "
      "bits. With a\n"
      "scale per token the outlier sets the step for the whole token and the normal channels vanish in it: an error "
      "above 1\n"
      "is worse than storing zeros.\n\n",
      token.normal / channel.normal, token.balanced / channel.balanced,
      equal.int4.token.normal / equal.int4.channel.normal, equal.int4.token.balanced / equal.int4.channel.balanced);
  std::printf(
      "int8 has the same ratios at errors %.0f times smaller. E4M3 numbers have exponents of their own, so the axis "
      "makes no\n"
      "difference to the normal channels (%.2f times); there E4M3 is %.1f times less accurate than int8 with a scale "
      "per channel.\n\n",
      channel.normal / whole.int8.channel.normal, whole.e4m3.token.normal / whole.e4m3.channel.normal,
      whole.e4m3.channel.normal / whole.int8.channel.normal);
  std::printf(
      "After RoPE the ratios on normal channels and in balanced logits stay, but an outlier then spoils two channels, "
      "and over\n"
      "all numbers int4 with a scale per channel has an error of %.3g instead of %.3g. What any of this does to a "
      "language\n"
      "model is another question: eval answers it on a real one.\n",
      rotated.int4.channel.all, channel.all);
}

void run(arguments& given) {
  const bool json = given.flag("--json");
  const std::int64_t seed = given.integer("--seed", 0, INT32_MAX).value_or(1);
  given.finish();
  const sample before = before_rope(static_cast<std::uint64_t>(seed));
  const sample after = after_rope(before);
  report out;
  const section whole = out.add<dim, tokens>(before, "whole");
  const section equal = out.add<64, 64>(before, "64");
  const section rotated = out.add<dim, tokens>(after, "whole");
  out.add<64, 64>(after, "64");
  if (!json) {
    out.print();
    explain(whole, equal, rotated);
    return;
  }
  std::printf("{\n  \"tokens\": %d,\n  \"channels\": %d,\n  \"outlier_channels\": [%d, %d, %d, %d],\n", tokens, dim,
              outliers[0], outliers[1], outliers[2], outliers[3]);
  std::printf("  \"outlier_factor\": %g,\n  \"queries\": %d,\n  \"seed\": %d,\n", static_cast<double>(outlier_factor),
              queries, static_cast<int>(seed));
  out.print_json();
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) { return run_example("axes", help, argc, argv, run); }
