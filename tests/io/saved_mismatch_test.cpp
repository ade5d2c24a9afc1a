// A file goes only into a cache with the same settings; what differs is named, and the cache stays as it was.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "policies.hpp"
#include "saved_files.hpp"
#include "square4.hpp"

namespace {

const std::string policy = "k:int4-channel64-auto,v:int4-token64";

kvaxis::cache_config small() {
  kvaxis::cache_config c = test::rope_shape(2, 64);
  c.window = 8;
  c.pins = 4;
  return c;
}

kvaxis::any_kv_cache filled(const std::string& name, const kvaxis::cache_config& c, int n = 77) {
  kvaxis::any_kv_cache cache = test::cache_of(name, c);
  test::tokens(c, n, 1, 0.5F, 0.5F).append_all_to(cache);
  return cache;
}

// The file of one cache does not go into the other, nor the other way round.
void expect_refused(kvaxis::any_kv_cache& a, kvaxis::any_kv_cache& b, const std::string& argument) {
  for (const bool swapped : {false, true}) {
    kvaxis::any_kv_cache& from = swapped ? b : a;
    kvaxis::any_kv_cache& to = swapped ? a : b;
    const std::string before = test::snapshot(to);
    const kvaxis::status s = test::restore(test::save(from), to);
    EXPECT_EQ(s.code, kvaxis::errc::invalid_argument);
    EXPECT_EQ(s.argument, argument);
    EXPECT_EQ(test::snapshot(to) == before, true);
  }
}

struct difference {
  const char* argument;
  std::function<void(kvaxis::cache_config&)> change;
};

TEST(Mismatch, B41_settings_of_the_cache) {
  const auto other_rope = [](const kvaxis::rope_parameters& p) {
    return [p](kvaxis::cache_config& c) { kvaxis::check(kvaxis::make_rope(p, c.rope)); };
  };
  kvaxis::rope_parameters theta;
  theta.head_dim = 64;
  theta.theta = 1e6;
  kvaxis::rope_parameters layout;
  layout.head_dim = 64;
  layout.layout = kvaxis::rope_layout::interleaved;
  kvaxis::rope_parameters partial;
  partial.head_dim = 64;
  partial.rotary_dim = 32;
  const std::vector<difference> differences = {
      {"file: kv_heads", [](auto& c) { c.kv_heads = 3; }},
      {"file: value_dim", [](auto& c) { c.value_dim = 48; }},
      {"file: window", [](auto& c) { c.window = 9; }},
      {"file: pins", [](auto& c) { c.pins = 5; }},
      {"file: half_window", [](auto& c) { c.half_window = true; }},
      {"file: growth", [](auto& c) { c.growth = 2.5F; }},
      {"file: rope.pairs.frequency", other_rope(theta)},
      {"file: rope.pairs", other_rope(layout)},
      {"file: rope.pairs_count", other_rope(partial)},
      {"file: rope.attention_factor", [](auto& c) { c.rope.attention_factor = 1.25; }},
      {"file: rope.pairs.frequency",
       [](auto& c) { c.rope.pairs[31].frequency = std::nextafter(c.rope.pairs[31].frequency, 1.0); }},
      {"file: rope.pairs", [](auto& c) { std::swap(c.rope.pairs[31].a, c.rope.pairs[31].b); }},
  };
  for (const difference& d : differences) {
    SCOPED_TRACE(d.argument);
    kvaxis::any_kv_cache a = filled(policy, small());
    kvaxis::cache_config other = small();
    d.change(other);
    kvaxis::any_kv_cache b = filled(policy, other);
    expect_refused(a, b, d.argument);
  }
}

TEST(Mismatch, B41_policies) {
  const struct {
    const char* a;
    const char* b;
    const char* argument;
  } pairs[] = {
      {"k:int4-channel32-auto,v:int4-token64", "k:int4-channel64-auto,v:int4-token64", "file: tile_tokens"},
      {"k:int4-channel64-auto,v:int4-token64", "k:int4-channel64-auto,v:int4-token32",
       "file: value policy: group length"},
      {"k:int4-channel64-auto,v:int4-channel64", "k:int4-channel64-auto,v:int4-channel32",
       "file: value policy: group length"},
      {"k:int4-token32-pre,v:int4-token64", "k:int4-token64-pre,v:int4-token64", "file: key policy: group length"},
      {"k:int4-token64-pre,v:int4-token64", "k:int4-channel64-pre,v:int4-token64", "file: key policy: axis"},
      {"k:int4-channel64-pre,v:int4-token64", "k:int4-channel64-pre,v:int4-channel64", "file: value policy: axis"},
      {"k:int4-channel64-auto,v:int4-token64", "k:int4-channel64-pre,v:int4-token64", "file: key policy: rotation"},
      {"k:int4-channel64-auto,v:int4-token64", "k:int4-channel64-tile,v:int4-token64", "file: key policy: rotation"},
      {"k:int4-channel64-hot4,v:int4-token64", "k:int4-channel64-hot5,v:int4-token64", "file: key policy: rotation"},
      {"k:int4-channel64-pre,v:int4-token64", "k:int4-channel64-post,v:int4-token64", "file: rope.pairs_count"},
  };
  for (const auto& p : pairs) {
    SCOPED_TRACE(std::string(p.a) + " and " + p.b);
    kvaxis::any_kv_cache a = filled(p.a, small());
    kvaxis::any_kv_cache b = filled(p.b, small());
    expect_refused(a, b, p.argument);
  }
}

// Many of these have the same number of bytes per token.
TEST(Mismatch, B42_every_codec_with_every_other) {
  const std::vector<std::string> codecs = {"int4", "int8", "int4s", "int8s", "int4f32", "int8f32",
                                           "e4m3", "e5m2", "f32",   "f16",   "bf16"};
  std::vector<kvaxis::any_kv_cache> as_keys;
  std::vector<kvaxis::any_kv_cache> as_values;
  std::size_t same_size = 0;
  for (const std::string& codec : codecs) {
    as_keys.push_back(filled("k:" + codec + "-channel64-pre,v:f16", small()));
    as_values.push_back(filled("k:f16,v:" + codec + "-token64", small()));
  }
  for (std::size_t a = 0; a < codecs.size(); ++a) {
    for (std::size_t b = a + 1; b < codecs.size(); ++b) {
      SCOPED_TRACE(codecs[a] + " and " + codecs[b]);
      if (test::saved_bytes(as_keys[a]) == test::saved_bytes(as_keys[b])) ++same_size;
      expect_refused(as_keys[a], as_keys[b], "file: key codec");
      expect_refused(as_values[a], as_values[b], "file: value codec");
    }
  }
  EXPECT_GE(same_size, 3U);
}

TEST(Mismatch, B42_shapes_with_the_same_number_of_bytes) {
  const auto post = [](int kv_heads, int dim) {
    kvaxis::cache_config c = test::shape(kv_heads, dim);
    c.window = 8;
    return filled("k:int8-token32-post,v:int8-token32", c);
  };
  kvaxis::any_kv_cache four = post(4, 64);
  kvaxis::any_kv_cache two = post(2, 128);
  ASSERT_EQ(test::saved_bytes(four), test::saved_bytes(two) + 2 * 16);  // but for the scales of heads
  expect_refused(four, two, "file: kv_heads");
  kvaxis::any_kv_cache wide = post(4, 80);
  expect_refused(four, wide, "file: head_dim");
}

TEST(Mismatch, B19_the_flavour_of_8_bit_floating_point_is_in_the_file) {
  const std::string name = "k:e4m3-tensor@0.5-pre,v:e5m2-token64";
  kvaxis::any_kv_cache cache = filled(name, small());
  const test::bytes file = test::save(cache);
  const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  const std::size_t keys = text.find(std::string("e4m3") + std::string(28, '\0') + "e4m3fn" + std::string(2, '\0'));
  ASSERT_NE(keys, std::string::npos);
  EXPECT_NE(text.find(std::string("e5m2") + std::string(28, '\0') + "e5m2" + std::string(4, '\0')), std::string::npos);
  test::bytes other = file;
  std::memcpy(other.data() + keys + 32, "e4m3fnuz", 8);
  test::fix_checksums(other);
  const std::string before = test::snapshot(cache);
  const kvaxis::status s = test::restore(other, cache);
  EXPECT_EQ(s.code, kvaxis::errc::invalid_argument);
  EXPECT_EQ(s.argument, std::string("file: key codec"));
  EXPECT_EQ(test::snapshot(cache) == before, true);
}

TEST(Mismatch, B41_scales_that_were_given) {
  const float scales[] = {0.02F, 0.03F};
  const float offsets[] = {-1.5F, -2.0F};
  const auto with = [&](int side, bool last_only) {
    kvaxis::cache_config c = small();
    static float changed[4][2];
    for (int i = 0; i < 2; ++i) {
      changed[0][i] = changed[2][i] = scales[i];
      changed[1][i] = changed[3][i] = offsets[i];
    }
    if (side >= 0) changed[side][1] += 0.25F;
    if (side >= 0 && !last_only) changed[side][0] += 0.25F;
    c.scales_count = 2;
    c.k_scale = changed[0];
    c.k_offset = changed[1];
    c.v_scale = changed[2];
    c.v_offset = changed[3];
    return filled("k:int8-tensor-pre,v:int8-tensor", c);
  };
  const char* names[] = {"file: k_scale", "file: k_offset", "file: v_scale", "file: v_offset"};
  for (int side = 0; side < 4; ++side) {
    for (const bool last_only : {false, true}) {
      kvaxis::any_kv_cache a = with(-1, false);
      kvaxis::any_kv_cache b = with(side, last_only);
      expect_refused(a, b, names[side]);
      EXPECT_EQ(test::restore(test::save(a), b).limit, last_only ? 1 : 0);
    }
  }
}

// Settings that have no meaning do not count: the rotation of values, RoPE where the engine rotates.
TEST(Mismatch, only_what_gives_the_bytes_their_meaning_counts) {
  using keys = kvaxis::per_token<test::square4, 32, kvaxis::post>;
  kvaxis::cache_config c = small();
  kvaxis::any_kv_cache a;
  kvaxis::check(kvaxis::any_kv_cache::create(c, kvaxis::bind<keys>, test::find(policy).values, {}, a));
  test::tokens(c, 100, 2).append_all_to(a);
  c.rope = {};
  c.non_finite = kvaxis::on_bad_input::replace;
  kvaxis::bound_policy values = test::find(policy).values;
  values.policy.rotation = kvaxis::tile_rotated;
  kvaxis::any_kv_cache b;
  kvaxis::check(kvaxis::any_kv_cache::create(c, kvaxis::bind<keys>, values, {}, b));
  ASSERT_TRUE(test::restore(test::save(a), b).ok());
  EXPECT_EQ(test::contents(a) == test::contents(b), true);
}

struct long_name : test::square4 {
  static constexpr const char* name = "a_name_of_32_characters_is_too_lo";
};
struct spaced_name : test::square4 {
  static constexpr const char* name = "square 4";
};

TEST(Mismatch, a_codec_whose_name_does_not_fit_a_file_is_not_saved) {
  const auto save_status = [](const kvaxis::bound_policy& keys) {
    kvaxis::any_kv_cache cache;
    kvaxis::check(kvaxis::any_kv_cache::create(small(), keys, test::find(policy).values, {}, cache));
    const kvaxis::any_kv_cache* layer = &cache;
    test::memory_sink sink;
    const kvaxis::status s = kvaxis::save(&layer, 1, {}, sink);
    EXPECT_EQ(sink.file.empty(), !s.ok());
    return s;
  };
  EXPECT_TRUE(save_status(kvaxis::bind<kvaxis::per_channel<test::square4, 64>>).ok());
  for (const auto& keys :
       {kvaxis::bind<kvaxis::per_channel<long_name, 64>>, kvaxis::bind<kvaxis::per_channel<spaced_name, 64>>}) {
    EXPECT_EQ(save_status(keys).code, kvaxis::errc::unsupported);
  }
}

}  // namespace
