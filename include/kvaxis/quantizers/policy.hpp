// A quantizer policy: an axis (which numbers share a scale) and a codec (how such a group becomes codes), and for keys
// where they are rotated.
//
//   using Keys   = kvaxis::per_channel<kvaxis::int4, 64>;   // one scale for 64 tokens of a channel
//   using Values = kvaxis::per_token<kvaxis::int4, 64>;     // one scale for 64 channels of a token
//   using Fp8    = kvaxis::per_tensor<kvaxis::e4m3>;        // one scale per head, given in the configuration
//   using Latent = kvaxis::latent<Keys>;                    // values that are channels of the key, stored once
//
// Two tokens, four channels, symmetric codes of a largest code 7: [1 14 3 4; 5 7 -7 0]
//   per_channel: scales 5/7 14/7 7/7 4/7 (one a column)      per_token: scales 14/7 7/7 (one a row)
#pragma once

#include "affine.hpp"
#include "codec.hpp"
#include "identity.hpp"
#include "least_squares.hpp"
#include "minifloat.hpp"
#include "wrapped.hpp"

KVAXIS_BEGIN_NAMESPACE

enum class role : int { key, value };
enum class axis : int { channel, token, tensor, latent };

// Where keys are rotated (RoPE). A *hot* pair is stored before rotation and rotated inside the kernel; the other pairs
// are stored rotated by the token's offset in its tile, which is cheaper to read and less accurate. Both can be moved
// to other positions exactly. A number N > 0 makes the N pairs hot whose ranges rotation would widen most; of wide_pairs<>
// the N pairs of the largest range are hot and have more bits, and the others are chosen as by `automatic`.
constexpr int pre = -1;          // every pair is hot
constexpr int automatic = -2;    // those whose summed range^2 rotation would more than double
constexpr int post = -3;         // no RoPE in the cache: keys and queries come in as the engine rotated them
constexpr int tile_rotated = 0;  // no pair is hot

// A policy as data; what the type-erased cache works with.
struct policy {
  kvaxis::axis axis = axis::channel;
  int group = 64;  // tokens of a channel, or channels of a token; not used by the other axes
  int rotation = pre;
};

namespace detail {

template <class Codec>
constexpr bool check_codec() noexcept {
  static_assert(is_codec<Codec>,
                "policy: not a codec. A codec has bits, name, params, fit(const float*, int), "
                "encode(params, const float*, int, std::uint32_t*) and decode(params, std::uint32_t); see codec.hpp");
  if constexpr (is_codec<Codec>) {
    static_assert(packable(Codec::bits), "policy: the codec's bits must be 2 to 6, 8, 16 or 32");
  }
  return true;
}

}  // namespace detail

template <class Codec, int G = 64, int Rotation = pre>
struct per_channel {
  static_assert(detail::check_codec<Codec>());
  static_assert(G > 0, "per_channel: the group is a number of tokens, at least 1");
  static_assert(Rotation >= post,
                "per_channel: rotation is pre, automatic, tile_rotated, post or a number of hot pairs");
  static_assert(detail::wide_extra<Codec> == 0 || Rotation > 0, "per_channel: wide_pairs needs a number of hot pairs");
  static_assert(!detail::is_transformed<Codec>::value, "per_channel: hadamard is for per_token");
  using codec = Codec;
  static constexpr policy value{axis::channel, G, Rotation};
};

template <class Codec, int G = 64, int Rotation = pre>
struct per_token {
  static_assert(detail::check_codec<Codec>());
  static_assert(detail::wide_extra<Codec> == 0, "per_token: wide_pairs is for per_channel keys");
  static_assert(G > 0 && G % 16 == 0, "per_token: the group is a number of channels, a multiple of 16");
  static_assert(
      Rotation == pre || Rotation == tile_rotated || Rotation == post,
      "per_token: automatic and hot pairs are chosen by the range of a channel; use per_channel for such keys");
  using codec = Codec;
  static constexpr policy value{axis::token, G, Rotation};
};

template <class Codec, int Rotation = pre>
struct per_tensor {
  static_assert(detail::check_codec<Codec>());
  static_assert(detail::wide_extra<Codec> == 0, "per_tensor: wide_pairs is for per_channel keys");
  static_assert(is_linear<Codec>, "per_tensor: the scale is given, so the codec must be linear; see codec.hpp");
  static_assert(
      Rotation == pre || Rotation == tile_rotated || Rotation == post,
      "per_tensor: automatic and hot pairs are chosen by the range of a channel; use per_channel for such keys");
  using codec = Codec;
  static constexpr policy value{axis::tensor, 0, Rotation};
};

// Values that are the first value_dim channels of each key (the latent of DeepSeek's MLA) and are stored with it alone.
// Keys is the cache's own key policy.
template <class Keys>
struct latent {
  static_assert(Keys::value.axis != axis::latent, "latent: the policy in brackets is that of the keys");
  using codec = typename Keys::codec;
  static constexpr policy value{axis::latent, 0, pre};
};

// What kv_cache<> stores: of the formats whose KL divergence is within a quarter of that of `pre` keys summed in f32, the
// fastest of 4.5 bits. bench/README.md has the figures.
using default_keys = per_channel<int4, 64, automatic>;
using default_values = per_token<int4, 64>;

KVAXIS_END_NAMESPACE
