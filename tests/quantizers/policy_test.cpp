// Policies as types and as data, what counts as a codec, and the concept where the compiler has it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/policy.hpp>
#include <string>
#include <type_traits>

namespace {

using kvaxis::is_codec;
using kvaxis::is_linear;
using kvaxis::unit_kind;

struct no_codec {};

struct minimal {  // all that a codec needs
  static constexpr int bits = 8;
  static constexpr const char* name = "minimal";
  struct params {
    float a, b, c;
  };
  static params fit(const float* x, int n) noexcept { return {x[0], x[n - 1], 1.0F}; }
  static void encode(params, const float*, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) codes[i] = 0;
  }
  static float decode(params p, std::uint32_t) noexcept { return p.a; }
};

struct wrong_fit : minimal {
  static float fit(const float*, int) noexcept { return 0.0F; }
};
struct wrong_decode : minimal {
  static const char* decode(params, std::uint32_t) noexcept { return ""; }
};
struct no_encode {
  static constexpr int bits = 8;
  static constexpr const char* name = "no_encode";
  struct params {};
  static params fit(const float*, int) noexcept { return {}; }
  static float decode(params, std::uint32_t) noexcept { return 0.0F; }
};

static_assert(is_codec<kvaxis::int4> && is_codec<kvaxis::int8s> && is_codec<kvaxis::e4m3> && is_codec<kvaxis::f32>);
static_assert(is_codec<minimal> && !is_linear<minimal>);
static_assert(!is_codec<no_codec> && !is_codec<int> && !is_codec<wrong_fit> && !is_codec<wrong_decode> &&
              !is_codec<no_encode>);

#if defined(__cpp_concepts)
static_assert(kvaxis::codec<kvaxis::int4> && kvaxis::codec<minimal> && !kvaxis::codec<no_codec>);
template <class C>
constexpr int chosen() {
  return 0;
}
template <kvaxis::codec C>
constexpr int chosen() {
  return C::bits;
}
static_assert(chosen<kvaxis::int4>() == 4 && chosen<minimal>() == 8 && chosen<no_codec>() == 0);
#elif __cplusplus >= 202002L
#error "a C++20 compiler without concepts"
#endif

static_assert(kvaxis::unit_of<kvaxis::int4> == unit_kind::u4 && kvaxis::unit_of<kvaxis::int8f32> == unit_kind::u8 &&
              kvaxis::unit_of<kvaxis::e5m2> == unit_kind::e5m2 && kvaxis::unit_of<minimal> == unit_kind::none);
static_assert(kvaxis::limit_of<kvaxis::int4> == 65504.0F && kvaxis::limit_of<minimal> == FLT_MAX);

template <class C>
constexpr bool has_parameters(int members, int bytes) {
  return kvaxis::codec_parameters<C>::members == members && kvaxis::codec_parameters<C>::member_bytes == bytes;
}
static_assert(has_parameters<kvaxis::int4>(2, 2) && has_parameters<kvaxis::int8f32>(2, 4) &&
              has_parameters<kvaxis::int4s>(1, 2) && has_parameters<kvaxis::e4m3>(1, 2) &&
              has_parameters<kvaxis::bf16>(0, 0) && has_parameters<minimal>(3, 4));

TEST(Policy, types_carry_their_data) {
  using keys = kvaxis::per_channel<kvaxis::int4, 128, 4>;
  using values = kvaxis::per_token<kvaxis::int8, 32>;
  using tensor = kvaxis::per_tensor<kvaxis::e4m3, kvaxis::post>;
  static_assert(std::is_same_v<keys::codec, kvaxis::int4>);
  static_assert(keys::value.axis == kvaxis::axis::channel && keys::value.group == 128 && keys::value.rotation == 4);
  static_assert(values::value.axis == kvaxis::axis::token && values::value.group == 32);
  static_assert(tensor::value.axis == kvaxis::axis::tensor && tensor::value.rotation == kvaxis::post);
  static_assert(kvaxis::per_channel<kvaxis::int4>::value.group == 64);
  static_assert(kvaxis::per_channel<kvaxis::int4>::value.rotation == kvaxis::pre);
  static_assert(kvaxis::per_channel<kvaxis::int4, 64, kvaxis::automatic>::value.rotation == kvaxis::automatic);
  // Numbers of hot pairs cannot be mistaken for the named rotations.
  EXPECT_EQ(kvaxis::tile_rotated, 0);
  EXPECT_LT(kvaxis::pre, 0);
  EXPECT_LT(kvaxis::automatic, 0);
  EXPECT_LT(kvaxis::post, 0);
}

TEST(Policy, parameters_become_a_scale_and_an_offset) {
  using kvaxis::codec_parameters;
  using kvaxis::to_float16;
  EXPECT_EQ(codec_parameters<kvaxis::int4>::scale({to_float16(0.5F), to_float16(-3.0F)}), 0.5F);
  EXPECT_EQ(codec_parameters<kvaxis::int4>::offset({to_float16(0.5F), to_float16(-3.0F)}), -3.0F);
  EXPECT_EQ(codec_parameters<kvaxis::int8f32>::offset({0.1F, 1e30F}), 1e30F);
  EXPECT_EQ(codec_parameters<kvaxis::int4s>::offset({to_float16(0.5F)}), -4.0F) << "the middle code, 8, is zero";
  EXPECT_EQ(codec_parameters<kvaxis::e4m3>::offset({to_float16(0.5F)}), 0.0F);
  EXPECT_EQ(codec_parameters<kvaxis::f16>::scale({}), 1.0F);
  EXPECT_EQ(codec_parameters<kvaxis::f16>::offset({}), 0.0F);
}

// B59: the axes on two tokens of four channels, as documented beside the policies.
TEST(Policy, B59_the_scales_of_both_axes_by_example) {
  const float x[2][4] = {{1, 14, 3, 4}, {5, 7, -7, 0}};
  const float by_channel[4] = {5.0F / 7, 2, 1, 4.0F / 7};
  const float by_token[2] = {2, 1};
  for (int c = 0; c < 4; ++c) {
    const float column[2] = {x[0][c], x[1][c]};
    const float scale = to_float(kvaxis::int4s::fit(column, 2).scale);
    EXPECT_GE(scale * 7, by_channel[c] * 7) << c;
    EXPECT_NEAR(scale, by_channel[c], by_channel[c] * 0x1p-10) << c;
  }
  for (int t = 0; t < 2; ++t) EXPECT_EQ(to_float(kvaxis::int4s::fit(x[t], 4).scale), by_token[t]);
}

}  // namespace
