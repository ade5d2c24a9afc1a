// Encoding one block in vectors: parameters and codes of the library's own codecs, byte for byte those of
// detail::encode_block. Included once per instruction set by block.hpp, inside a target region.
//
// The numbers come as rows [token][channel], vectors run over the channels. A word takes the codes of four tokens, a
// byte each: that is a value block's word, and a key block's once its 4 x 4 bytes are transposed.
#ifndef KVAXIS_TARGET
#include "block.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// All ones in the first n lanes.
KVAXIS_INLINE vu first_lanes(int n) {
  static constexpr std::uint32_t ones = 0xFFFFFFFFU;
  static constexpr std::uint32_t mask[32] = {ones, ones, ones, ones, ones, ones, ones, ones,
                                             ones, ones, ones, ones, ones, ones, ones, ones};
  return load_words(mask + 16 - (n < 0 ? 0 : n > 16 ? 16 : n));
}

// The range of every group, in the order of the block's parameters; 0 .. 0 for groups without a number.
KVAXIS_INLINE void ranges_over_tokens(const block_layout& b, const row_view& x, float* low, float* high) {
  const int channels = b.key ? b.rows : b.lanes;  // padded, the numbers there are 0
  for (int begin = 0; begin < x.tokens; begin += b.group_length) {
    const int end = begin + b.group_length < x.tokens ? begin + b.group_length : x.tokens;
    const int group = begin / b.group_length * channels;
    for (int c = 0; c < channels; c += lanes) {  // the last vector runs into the next groups, which come later
      const float* column = x.data + c;
      vf least = load(column + begin * x.stride);
      vf most = least;
      for (int t = begin + 1; t < end; ++t) {
        const vf number = load(column + t * x.stride);
        least = min(least, number);
        most = max(most, number);
      }
      store(low + group + c, least);
      store(high + group + c, most);
    }
  }
}

KVAXIS_INLINE void ranges_over_channels(const block_layout& b, const row_view& x, float* low, float* high) {
  const int tokens = b.key ? b.lanes : b.rows;
  for (int t = 0; t < x.tokens; ++t) {
    const float* row = x.data + t * x.stride;
    int group = t;
    for (int begin = 0; begin < x.channels; begin += b.group_length, group += tokens) {
      const int end = begin + b.group_length < x.channels ? begin + b.group_length : x.channels;
      vf least = set1(row[begin]);
      vf most = least;
      for (int c = begin; c < end; c += lanes) {
        vf number = load(row + c);
        if (c + lanes > end) number = select(first_lanes(end - c), number, set1(row[begin]));
        least = min(least, number);
        most = max(most, number);
      }
      low[group] = min_lane(least);
      high[group] = max_lane(most);
    }
  }
}

// Fits all groups and stores their parameters. In place, the ranges become what the codes are made with: low the centre,
// high the inverse of the scale.
template <class Codec>
KVAXIS_INLINE void fit_groups(const block_layout& b, float* low, float* high, std::byte* block) {
  const int groups = b.groups();
  if constexpr (codec_parameters<Codec>::member_bytes == 2) {
    constexpr int members = codec_parameters<Codec>::members;
    std::byte* const out = block + b.codes_bytes;
    for (int g = 0; g < groups; g += lanes) {
      const vf least = load(low + g);
      const vf most = load(high + g);
      vu scale;
      vu offset = set1_words(0);
      if constexpr (members == 2) {
        fit_halves(least, most, Codec::unit_max, scale, offset);
      } else {
        scale = smallest_half_scale(max(sub(zero(), least), most), Codec::unit_max - Codec::zero);
      }
      const vf s = half_to_float(scale);
      const vf first = members == 2 ? half_to_float(offset) : mul(s, set1(Codec::offset_factor));
      store(low + g, fma(s, set1(Codec::zero), first));
      store(high + g, select_above(s, 0.0F, inverse(s)));
      std::uint32_t words[2][lanes];
      store_words(words[0], scale);
      store_words(words[1], offset);
      for (int m = 0; m < members; ++m) {
        for (int i = 0; i < lanes && g + i < groups; ++i) {
          const auto half = static_cast<std::uint16_t>(words[m][i]);
          std::memcpy(out + 2 * (m * groups + g + i), &half, 2);
        }
      }
    }
  } else {
    for (int g = 0; g < groups; ++g) {
      const typename Codec::params p = Codec::fit_range(low[g], high[g]);
      detail::store_parameters<Codec>(b, block, g, p);
      low[g] = p.offset;
      high[g] = p.scale > 0.0F ? scalar::inverse({p.scale}).v : 0.0F;
    }
  }
}

KVAXIS_INLINE vu join_bytes(vu upper, vu lowest) { return add_words(shift_left<8>(upper), lowest); }

// Makes the codes of a block, (x - centre) * inverse: both have a number for each group, which belong to channels or to
// tokens.
template <class Codec, bool PerChannel>
struct code_maker {
  row_view x;
  const float* centre;
  const float* inverse;
  int group_length;    // tokens of a channel's group
  int group_step;      // from a channel's group to the next
  const int* segment;  // of every 16 channels: its groups' first
  int token_step;      // from a token's group to the next

  KVAXIS_INLINE vu code(int t, int c, vf middle, vf steps) const {
    const vf number = load(x.data + t * x.stride + c);
    if constexpr (code_kind_of<Codec> == code_kind::integer) {
      return integer_code(number, middle, steps, Codec::zero, Codec::unit_min, Codec::unit_max);
    } else {
      constexpr int mantissa_bits = unit_of<Codec> == unit_kind::e4m3 ? 3 : 2;
      constexpr int bias = unit_of<Codec> == unit_kind::e4m3 ? 7 : 15;
      return minifloat_code<mantissa_bits, bias>(mul(sub(number, middle), steps), Codec::unit_max);
    }
  }

  // Where the groups of a token begin. Outside of the loop over channels, which would keep the division.
  KVAXIS_INLINE int groups_of(int t) const { return PerChannel ? t / group_length * group_step : t * token_step; }

  // Tokens t .. t + 3, the first in the lowest byte, and channels c, c + 1, ...; `groups` are those of t.
  KVAXIS_INLINE vu four_tokens(int t, int c, int groups) const {
    vu word;
    if constexpr (PerChannel) {
      const int group = groups + c;
      const vf middle = load(centre + group);
      const vf steps = load(inverse + group);
      word = join_bytes(code(t + 3, c, middle, steps), code(t + 2, c, middle, steps));
      word = join_bytes(word, code(t + 1, c, middle, steps));
      word = join_bytes(word, code(t, c, middle, steps));
    } else {
      const int group = groups + segment[c / 16];
      const auto of_token = [&](int i) {
        return code(t + i, c, set1(centre[group + i * token_step]), set1(inverse[group + i * token_step]));
      };
      word = join_bytes(join_bytes(join_bytes(of_token(3), of_token(2)), of_token(1)), of_token(0));
    }
    if (c + lanes > x.channels) word = bit_and(word, first_lanes(x.channels - c));
    if (t + 4 > x.tokens) word = bit_and(word, set1_words(0xFFFFFFFFU >> 8 * (t + 4 - x.tokens)));
    return word;
  }

  KVAXIS_INLINE void key_block(const block_layout& b, std::byte* block) const {
    const int words = quad_words(b.bits, b.lanes);
    for (int t = 0; t < words && t < x.tokens; t += 4) {
      const bool has_upper = Codec::bits == 4 && t + words < x.tokens;
      const int groups = groups_of(t);
      const int upper = groups_of(t + words);
      for (int c = 0; c < b.rows; c += lanes) {
        vu word = four_tokens(t, c, groups);
        if (has_upper) word = add_words(word, shift_left<4>(four_tokens(t + words, c, upper)));
        store_quads(block + 4 * t, b.quad_bytes(), c, b.rows, word);
      }
    }
  }

  KVAXIS_INLINE void value_block(const block_layout& b, std::byte* block) const {
    const int words = quad_words(b.bits, b.lanes);
    for (int t = 0; t < x.tokens; t += 4) {
      auto* const quad = reinterpret_cast<std::uint32_t*>(block + static_cast<std::size_t>(t / 4) * b.quad_bytes());
      const int groups = groups_of(t);
      for (int c = 0; c < words; c += lanes) {
        vu word = four_tokens(t, c, groups);
        if (Codec::bits == 4) word = add_words(word, shift_left<4>(four_tokens(t, c + words, groups)));
        store_words(quad + c, word);
      }
    }
  }
};

template <class Codec>
KVAXIS_INLINE void encode_scaled(const block_layout& b, given_scale given, const row_view& x, std::uint32_t* scratch,
                                 std::byte* block) {
  const int groups = b.members > 0 ? b.groups() : 1;
  auto* const low = reinterpret_cast<float*>(scratch);
  float* const high = low + groups + 16;
  const bool per_channel = b.members > 0 && b.across != b.key;
  int segment[max_head_dim / 16 + 2] = {};
  if (b.members > 0) {
    std::memset(low, 0, static_cast<std::size_t>(2 * (groups + 16)) * sizeof(float));
    if (per_channel) {
      ranges_over_tokens(b, x, low, high);
    } else {
      ranges_over_channels(b, x, low, high);
      const int tokens = b.key ? b.lanes : b.rows;
      for (int i = 0; 16 * i < x.channels; ++i) segment[i] = 16 * i / b.group_length * tokens;
    }
    fit_groups<Codec>(b, low, high, block);
  } else {
    low[0] = fused(given.scale, static_cast<float>(Codec::zero), given.offset);
    high[0] = given.scale > 0.0F ? scalar::inverse({given.scale}).v : 0.0F;
  }
  const int token_step = b.members > 0 ? 1 : 0;
  const auto make = [&](const auto& codes) { b.key ? codes.key_block(b, block) : codes.value_block(b, block); };
  if (per_channel) {
    make(code_maker<Codec, true>{x, low, high, b.group_length, b.key ? b.rows : b.lanes, segment, token_step});
  } else {
    make(code_maker<Codec, false>{x, low, high, 0, 0, segment, token_step});
  }
}

// The codes of 16 or 32 bits that are the number itself.
template <class Codec>
KVAXIS_INLINE void encode_identity(const block_layout& b, const row_view& x, std::byte* block) {
  constexpr std::size_t size = Codec::bits / 8;
  const auto offset_of = [&](int row, int lane) {
    const code_place at = place_of(Codec::bits, b.lanes, row, lane);
    return static_cast<std::size_t>(4 * at.word + at.shift / 8);
  };
  std::uint32_t codes[max_head_dim + 16];
  for (int t = 0; t < x.tokens; ++t) {
    for (int c = 0; c < x.channels; c += lanes) {
      const vf number = load(x.data + t * x.stride + c);
      if constexpr (Codec::unit == unit_kind::f32) store_words(codes + c, exponent_bits(number));
      if constexpr (Codec::unit == unit_kind::f16) store_words(codes + c, to_half(number));
      if constexpr (Codec::unit == unit_kind::bf16) store_words(codes + c, bfloat_code(number));
    }
    if (b.key) {
      const std::size_t first[] = {offset_of(0, t), offset_of(1, t), offset_of(2, t), offset_of(3, t)};
      for (int c = 0; c < x.channels; ++c) {
        std::memcpy(block + static_cast<std::size_t>(c / 4) * b.quad_bytes() + first[c % 4], codes + c, size);
      }
    } else {
      std::byte* const row = block + static_cast<std::size_t>(t / 4) * b.quad_bytes() + offset_of(t % 4, 0);
      for (int c = 0; c < x.channels; ++c) std::memcpy(row + 4 * c, codes + c, size);
    }
  }
}

// As detail::encode_block, for the library's own codecs.
template <class Codec>
void encode_block(const block_layout& b, given_scale given, const row_view& x, std::uint32_t* scratch,
                  std::byte* block) noexcept {
  std::memset(block, 0, b.bytes);
  if constexpr (code_kind_of<Codec> == code_kind::identity) {
    encode_identity<Codec>(b, x, block);
  } else {
    encode_scaled<Codec>(b, given, x, scratch, block);
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
