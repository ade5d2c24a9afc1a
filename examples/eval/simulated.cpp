#include "simulated.hpp"

#include <kvaxis/eval/ggml_blocks.hpp>
#include <kvaxis/quantizers/hadamard.hpp>
#include <string_view>

#include "../common/arguments.hpp"

namespace eval {
namespace {

using kvaxis::ggml_type;

// As a codec of the library: the f32 identity, but for what is stored. A group is a whole head.
template <ggml_type Type, bool Hadamard>
struct simulated : kvaxis::f32 {
  static constexpr const char* name = "simulated";
  // Blocks take numbers up to that of binary16, and the transform can make one sqrt(channels) < 32 times as large.
  static constexpr float limit = kvaxis::max_float16 / 32;

  static void encode_linear(float, float, const float* x, int n, std::uint32_t* codes) noexcept {
    float row[kvaxis::max_head_dim];
    for (int i = 0; i < n; ++i) row[i] = x[i];
    if (Hadamard) kvaxis::hadamard(row, n);
    static_cast<void>(kvaxis::ggml_round_trip(Type, row, n));  // within the limit it takes every number
    if (Hadamard) kvaxis::hadamard(row, n);
    kvaxis::f32::encode_linear(1.0F, 0.0F, row, n, codes);
  }
};

struct named_codec {
  std::string_view name;
  double bits;
  const kvaxis::codec_table* plain;
  const kvaxis::codec_table* hadamard;
};

template <ggml_type Type>
constexpr named_codec make(std::string_view name) {
  return {name, 8.0 * kvaxis::ggml_block_bytes(Type) / kvaxis::ggml_block_numbers,
          &kvaxis::table_of<simulated<Type, false>>, &kvaxis::table_of<simulated<Type, true>>};
}

constexpr named_codec codecs[] = {make<ggml_type::q8_0>("q8_0"), make<ggml_type::q5_0>("q5_0"),
                                  make<ggml_type::q5_1>("q5_1"), make<ggml_type::q4_0>("q4_0"),
                                  make<ggml_type::q4_1>("q4_1"), make<ggml_type::iq4_nl>("iq4_nl")};

struct side {
  const kvaxis::codec_table* codec;
  double bits;
};

side find_side(std::string_view name) {
  constexpr std::string_view ending = "-hadamard";
  const std::size_t cut = name.size() < ending.size() ? name.size() : name.size() - ending.size();
  const bool hadamard = name.substr(cut) == ending;
  const std::string_view stem = hadamard ? name.substr(0, cut) : name;
  for (const named_codec& c : codecs) {
    if (c.name == stem) return {hadamard ? c.hadamard : c.plain, c.bits};
  }
  throw usage_error("there is no simulated codec " + std::string(name));
}

}  // namespace

policy find_policy(const std::string& name, int head_dim) {
  constexpr std::string_view prefix = "sim:";
  if (name.compare(0, prefix.size(), prefix) != 0) return {name, name};
  if (head_dim % kvaxis::ggml_block_numbers != 0) {
    throw usage_error(name + ": heads are not a multiple of 32 channels");
  }
  const std::string_view sides = std::string_view(name).substr(prefix.size());
  const std::size_t comma = sides.find(',');
  const side keys = find_side(sides.substr(0, comma));
  const side values = comma == std::string_view::npos ? keys : find_side(sides.substr(comma + 1));
  const std::string group = std::to_string(head_dim);
  return {name, "k:f32-token" + group + "-post,v:f32-token" + group, keys.codec, values.codec,
          (keys.bits + values.bits) / 2};
}

}  // namespace eval
