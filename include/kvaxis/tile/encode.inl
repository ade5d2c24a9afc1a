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

// Parameters of the groups g, g + 1, ..., as the block stores them, and what the codes are made with: the centre and the
// inverse of the scale, in the place of the ranges.
KVAXIS_INLINE void put_groups(const codec_table& codec, const block_layout& b, int g, int count, vu scale, vu offset,
                              float* low, float* high, std::byte* block) {
  const vf s = half_to_float(scale);
  const vf first = b.members == 2 ? half_to_float(offset) : mul(s, set1(codec.offset_factor));
  float centres[lanes];
  float inverses[lanes];
  std::uint32_t words[2][lanes];
  store(centres, fma(s, set1(static_cast<float>(codec.zero)), first));
  store(inverses, select_above(s, 0.0F, inverse(s)));
  store_words(words[0], scale);
  store_words(words[1], offset);
  std::byte* const out = block + b.codes_bytes;
  const int groups = b.groups();
  for (int i = 0; i < lanes && i < count; ++i) {
    low[g + i] = centres[i];
    high[g + i] = inverses[i];
    for (int m = 0; m < b.members; ++m) {
      const auto half = static_cast<std::uint16_t>(words[m][i]);
      std::memcpy(out + 2 * (m * groups + g + i), &half, 2);
    }
  }
}

// Fits all groups by their ranges.
KVAXIS_INLINE void fit_groups(const codec_table& codec, const block_layout& b, float* low, float* high,
                              std::byte* block) {
  const int groups = b.groups();
  const float levels = codec.unit_max - static_cast<float>(codec.zero);
  if (b.member_bytes == 2) {
    for (int g = 0; g < groups; g += lanes) {
      const vf least = load(low + g);
      const vf most = load(high + g);
      vu scale;
      vu offset = set1_words(0);
      if (b.members == 2) {
        fit_halves(least, most, levels, scale, offset);
      } else {
        scale = smallest_half_scale(max_magnitude(most, least), levels);
      }
      put_groups(codec, b, g, groups - g, scale, offset, low, high, block);
    }
    return;
  }
  for (int g = 0; g < groups; ++g) {
    float parameters[2];
    detail::fit_floats(low[g], high[g], levels, parameters[0], parameters[1]);
    for (int m = 0; m < 2; ++m) std::memcpy(block + b.codes_bytes + 4 * (m * groups + g), &parameters[m], 4);
    low[g] = parameters[1];
    high[g] = parameters[0] > 0.0F ? scalar::inverse({parameters[0]}).v : 0.0F;
  }
}

template <class Numbers>
KVAXIS_INLINE void refine_groups(const codec_table& codec, const block_layout& b, const Numbers& number, int n, int g,
                                 int count, float* low, float* high, std::byte* block) {
  float range[2][lanes] = {};
  for (int i = 0; i < lanes && i < count; ++i) {
    range[0][i] = low[g + i];
    range[1][i] = high[g + i];
  }
  vu scale;
  vu offset;
  if (b.members == 2) {
    fit_least_squares<true>(number, n, load(range[0]), load(range[1]), codec.zero, codec.unit_max, scale, offset);
  } else {
    fit_least_squares<false>(number, n, load(range[0]), load(range[1]), codec.zero, codec.unit_max, scale, offset);
  }
  put_groups(codec, b, g, count, scale, offset, low, high, block);
}

// Fits all groups by least squares, from their ranges on.
inline void refine_over_tokens(const codec_table& codec, const block_layout& b, const row_view& x, float* low,
                               float* high, std::byte* block) {
  const int channels = b.key ? b.rows : b.lanes;
  for (int begin = 0; begin < x.tokens; begin += b.group_length) {
    const int n = begin + b.group_length < x.tokens ? b.group_length : x.tokens - begin;
    for (int c = 0; c < x.channels; c += lanes) {
      const float* const column = x.data + begin * x.stride + c;
      refine_groups(
          codec, b, [&](int i) { return load(column + i * x.stride); }, n, begin / b.group_length * channels + c,
          x.channels - c, low, high, block);
    }
  }
}

inline void refine_over_channels(const codec_table& codec, const block_layout& b, const row_view& x, float* low,
                                 float* high, std::byte* block) {
  float columns[max_head_dim * lanes];  // a token a lane
  const int tokens = b.key ? b.lanes : b.rows;
  int group = 0;
  for (int begin = 0; begin < x.channels; begin += b.group_length, group += tokens) {
    const int n = begin + b.group_length < x.channels ? b.group_length : x.channels - begin;
    for (int t = 0; t < x.tokens; t += lanes) {
      for (int i = 0; i < n; ++i) {
        for (int l = 0; l < lanes; ++l) {
          columns[i * lanes + l] = t + l < x.tokens ? x.data[(t + l) * x.stride + begin + i] : 0.0F;
        }
      }
      refine_groups(
          codec, b, [&](int i) { return load(columns + i * lanes); }, n, group + t, x.tokens - t, low, high, block);
    }
  }
}

KVAXIS_INLINE vu join_bytes(vu upper, vu lowest) { return add_words(shift_left<8>(upper), lowest); }

// The code of (x - centre) * inverse.
struct integer_maker {
  int zero;
  float least;
  float most;
  KVAXIS_INLINE vu operator()(vf x, vf centre, vf inverse) const {
    return integer_code(x, centre, inverse, zero, least, most);
  }
};
template <unit_kind U>
struct minifloat_maker {
  float most;
  KVAXIS_INLINE vu operator()(vf x, vf centre, vf inverse) const {
    constexpr int mantissa_bits = U == unit_kind::e4m3 ? 3 : 2;
    constexpr int bias = U == unit_kind::e4m3 ? 7 : 15;
    return minifloat_code<mantissa_bits, bias>(mul(sub(x, centre), inverse), most);
  }
};

// Makes the codes of a block; every group, of a channel or of a token, has a centre and an inverse scale.
template <class Maker, bool PerChannel>
struct block_maker {
  Maker maker;
  row_view x;
  const float* centre;
  const float* inverse;
  int group_length;    // tokens of a channel's group
  int group_step;      // from a channel's group to the next
  const int* segment;  // of every 16 channels: its groups' first
  int token_step;      // from a token's group to the next

  KVAXIS_INLINE vu code(int t, int c, vf middle, vf steps) const {
    return maker(load(x.data + t * x.stride + c), middle, steps);
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

  // Codes of 4 or 8 bits; `words` are those of a quad.
  template <int Bits>
  KVAXIS_INLINE void key_block(const block_layout& b, std::byte* block) const {
    const int words = quad_words(Bits, b.lanes);
    const std::size_t quad_bytes = static_cast<std::size_t>(words) * 4U;
    for (int t = 0; t < words && t < x.tokens; t += 4) {
      const bool has_upper = Bits == 4 && t + words < x.tokens;
      const int groups = groups_of(t);
      const int upper = groups_of(t + words);
      for (int c = 0; c < b.rows; c += lanes) {
        vu word = four_tokens(t, c, groups);
        if (has_upper) word = add_words(word, shift_left<4>(four_tokens(t + words, c, upper)));
        store_quads(block + 4 * t, quad_bytes, c, b.rows, word);
      }
    }
  }

  template <int Bits>
  KVAXIS_INLINE void value_block(const block_layout& b, std::byte* block) const {
    const int words = quad_words(Bits, b.lanes);
    for (int t = 0; t < x.tokens; t += 4) {
      auto* const quad = reinterpret_cast<std::uint32_t*>(block) + static_cast<std::ptrdiff_t>(t / 4) * words;
      const int groups = groups_of(t);
      for (int c = 0; c < words; c += lanes) {
        vu word = four_tokens(t, c, groups);
        if (Bits == 4) word = add_words(word, shift_left<4>(four_tokens(t, c + words, groups)));
        store_words(quad + c, word);
      }
    }
  }

  template <int Bits>
  KVAXIS_INLINE void make(const block_layout& b, std::byte* block) const {
    b.key ? key_block<Bits>(b, block) : value_block<Bits>(b, block);
  }
};

// Codes of other widths are made as bytes first, at the end of the scratch: a quarter of it.
template <class Codes>
KVAXIS_INLINE void make_codes(const Codes& codes, const block_layout& b, std::uint32_t* scratch, std::byte* block) {
  if (b.bits == 4) return codes.template make<4>(b, block);
  if (b.bits == 8) return codes.template make<8>(b, block);
  std::uint32_t* const bytes = scratch + b.rows / 4 * 3 * b.lanes;
  std::memset(bytes, 0, static_cast<std::size_t>(b.rows) * static_cast<std::size_t>(b.lanes));
  codes.template make<8>(b, reinterpret_cast<std::byte*>(bytes));
  for (int quad = 0; quad < b.rows / 4; ++quad) {
    narrow_quad(b.bits, b.lanes, bytes + quad * b.lanes,
                reinterpret_cast<std::uint32_t*>(block + static_cast<std::size_t>(quad) * b.quad_bytes()));
  }
}

template <class Maker>
KVAXIS_INLINE void encode_scaled(const Maker& maker, const codec_table& codec, const block_layout& b, given_scale given,
                                 const row_view& x, std::uint32_t* scratch, std::byte* block) {
  const int groups = b.members > 0 ? b.groups() : 1;
  auto* const low = reinterpret_cast<float*>(scratch);
  float* const high = low + groups + 16;
  const bool per_channel = b.members > 0 && b.across != b.key;
  int segment[max_head_dim / 16 + 2] = {};
  std::memset(block, 0, b.bytes);
  if (b.members > 0) {
    std::memset(low, 0, static_cast<std::size_t>(2 * (groups + 16)) * sizeof(float));
    if (per_channel) {
      ranges_over_tokens(b, x, low, high);
    } else {
      ranges_over_channels(b, x, low, high);
      const int tokens = b.key ? b.lanes : b.rows;
      for (int i = 0; 16 * i < x.channels; ++i) segment[i] = 16 * i / b.group_length * tokens;
    }
    if (!codec.refined) {
      fit_groups(codec, b, low, high, block);
    } else if (per_channel) {
      refine_over_tokens(codec, b, x, low, high, block);
    } else {
      refine_over_channels(codec, b, x, low, high, block);
    }
  } else {
    low[0] = fused(given.scale, static_cast<float>(codec.zero), given.offset);
    high[0] = given.scale > 0.0F ? scalar::inverse({given.scale}).v : 0.0F;
  }
  if (per_channel) {
    const int step = b.key ? b.rows : b.lanes;
    make_codes(block_maker<Maker, true>{maker, x, low, high, b.group_length, step, segment, 0}, b, scratch, block);
  } else {
    const int token_step = b.members > 0 ? 1 : 0;
    make_codes(block_maker<Maker, false>{maker, x, low, high, 0, 0, segment, token_step}, b, scratch, block);
  }
}

// As detail::encode_block, for integer codecs, minifloats, and codecs that keep the number itself.
inline void encode_integers(const codec_table& codec, const block_layout& b, given_scale given, const row_view& x,
                            std::uint32_t* scratch, std::byte* block) noexcept {
  encode_scaled(integer_maker{codec.zero, codec.unit_min, codec.unit_max}, codec, b, given, x, scratch, block);
}

template <unit_kind U>
void encode_minifloats(const codec_table& codec, const block_layout& b, given_scale given, const row_view& x,
                       std::uint32_t* scratch, std::byte* block) noexcept {
  encode_scaled(minifloat_maker<U>{codec.unit_max}, codec, b, given, x, scratch, block);
}

template <unit_kind U>
void encode_identity(const codec_table&, const block_layout& b, given_scale, const row_view& x, std::uint32_t*,
                     std::byte* block) noexcept {
  constexpr int bits = U == unit_kind::f32 ? 32 : 16;
  constexpr std::size_t size = bits / 8;
  std::memset(block, 0, b.bytes);
  const auto offset_of = [&](int row, int lane) {
    const code_place at = place_of(bits, b.lanes, row, lane);
    return static_cast<std::size_t>(4 * at.word + at.shift / 8);
  };
  std::uint32_t codes[max_head_dim + 16];
  for (int t = 0; t < x.tokens; ++t) {
    for (int c = 0; c < x.channels; c += lanes) {
      const vf number = load(x.data + t * x.stride + c);
      if constexpr (U == unit_kind::f32) store_words(codes + c, exponent_bits(number));
      if constexpr (U == unit_kind::f16) store_words(codes + c, to_half(number));
      if constexpr (U == unit_kind::bf16) store_words(codes + c, bfloat_code(number));
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

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
