// What a tool sees of a file.
#include <gtest/gtest.h>

#include <kvaxis/io/inspect_file.hpp>
#include <string>

#include "guard_page.hpp"
#include "policies.hpp"
#include "saved_files.hpp"

namespace {

struct two_layers {
  kvaxis::any_kv_cache first;
  kvaxis::any_kv_cache second;
  test::bytes file;

  two_layers() {
    kvaxis::cache_config c = test::rope_shape(4, 64, 48);
    c.window = 10;
    c.pins = 3;
    first = test::cache_of("k:int4-channel64-hot4,v:int8-token16", c);
    test::tokens(c, 150, 1).append_all_to(first);
    c.window = 0;
    c.tile_tokens = 128;
    second = test::cache_of("k:e4m3-tensor@0.5-post,v:f16", c);
    test::tokens(c, 20, 2).append_all_to(second, -100);
    kvaxis::save_options o;
    o.first_layer = 5;
    o.first_head = 2;
    o.end_head = 3;
    file = test::save({&first, &second}, o);
  }
};

TEST(Inspect, describes_a_file) {
  const two_layers saved;
  const guard_buffer<std::byte> file(saved.file.data(), saved.file.size(), guard::end);
  kvaxis::saved_file f;
  kvaxis::saved_layer l[3];
  ASSERT_TRUE(kvaxis::inspect(file.data(), file.size(), f, l, 3).ok());
  EXPECT_EQ(f.version, 1);
  EXPECT_EQ(f.layers, 2);
  EXPECT_EQ(f.first_layer, 5);
  EXPECT_EQ(f.tiles, 4 + 2);
  EXPECT_EQ(l[0].policy, std::string("k:int4-channel64-hot4,v:int8-token16"));
  EXPECT_EQ(l[1].policy, std::string("k:e4m3-tensor-post,v:f16-tensor"));
  for (const kvaxis::saved_layer& layer : {l[0], l[1]}) {
    EXPECT_EQ(layer.kv_heads, 4);
    EXPECT_EQ(layer.first_head, 2);
    EXPECT_EQ(layer.end_head, 3);
    EXPECT_EQ(layer.head_dim, 64);
    EXPECT_EQ(layer.value_dim, 48);
    EXPECT_EQ(layer.pins, 3);
    EXPECT_EQ(layer.older_tiers, 0);
  }
  EXPECT_EQ(l[0].tokens, 150);
  EXPECT_EQ(l[0].tile_tokens, 64);
  EXPECT_EQ(l[0].rope_pairs, 32);
  EXPECT_EQ(l[0].window, 10);
  EXPECT_EQ(l[1].tokens, 20);
  EXPECT_EQ(l[1].tile_tokens, 128);
  EXPECT_EQ(l[1].rope_pairs, 0);
  EXPECT_EQ(l[1].window, 0);
  EXPECT_EQ(l[2].kv_heads, 0);
}

TEST(Inspect, as_many_layers_as_there_is_room_for) {
  const two_layers saved;
  kvaxis::saved_file f;
  kvaxis::saved_layer l;
  ASSERT_TRUE(kvaxis::inspect(saved.file.data(), saved.file.size(), f).ok());
  EXPECT_EQ(f.layers, 2);
  ASSERT_TRUE(kvaxis::inspect(saved.file.data(), saved.file.size(), f, &l, 1).ok());
  EXPECT_EQ(l.tokens, 150);
}

TEST(Inspect, refusals) {
  const two_layers saved;
  kvaxis::saved_file f;
  kvaxis::saved_layer l[2];
  const auto argument = [&](const test::bytes& file) {
    f.version = -1;
    const kvaxis::status s = kvaxis::inspect(file.data(), file.size(), f, l, 2);
    EXPECT_EQ(f.version == -1, !s.ok());
    return std::string(s.argument);
  };
  for (std::size_t n = 0; n < saved.file.size(); n += n < 400 ? 1 : 97) {
    EXPECT_EQ(argument({saved.file.begin(), saved.file.begin() + static_cast<std::ptrdiff_t>(n)}), "file: truncated");
  }
  test::bytes file = saved.file;
  file[60] ^= std::byte{1};
  EXPECT_EQ(argument(file), "file: checksum");
  file = saved.file;
  file.insert(file.end(), saved.file.begin(), saved.file.end());
  EXPECT_EQ(argument(file), "file: end");
  const std::size_t head = test::payload_of(saved.file, "kvax");
  EXPECT_EQ(argument(test::with_number(saved.file, head, std::uint32_t{2})), "file: version");
  EXPECT_EQ(argument(test::with_number(saved.file, head + 4, std::uint32_t{0})), "file: number of layers");
  EXPECT_EQ(argument(test::with_number(saved.file, head + 4, std::uint32_t{1})), "file: layer");
  EXPECT_EQ(argument(test::with_number(saved.file, head - 16, std::uint32_t{0})), "file: not one of saved caches");
  const std::size_t layer = test::payload_of(saved.file, "layr");
  EXPECT_EQ(argument(test::with_number(saved.file, layer, std::uint32_t{1025})), "file: kv_heads");
  EXPECT_EQ(argument(test::with_number(saved.file, layer + 4, std::uint32_t{3})), "file: first head");
  EXPECT_EQ(argument(test::with_number(saved.file, layer + 8, std::uint32_t{5})), "file: end head");
  EXPECT_EQ(argument(test::with_number(saved.file, layer + 8, std::uint32_t{4})), "file: size of a description");
  EXPECT_EQ(argument(test::with_number(saved.file, layer + 40, std::uint32_t{289})), "file: rope.pairs_count");
  EXPECT_EQ(argument(test::with_number(saved.file, layer + 64, std::uint8_t{7})), "file: key codec");
  EXPECT_EQ(argument(test::with_number(saved.file, layer + 64 + 40, std::uint32_t{4})), "file: key policy: axis");
  EXPECT_EQ(argument(test::with_number(saved.file, layer - 16, std::uint8_t{'t'})), "file: type of a section");
  const std::size_t done = test::payload_of(saved.file, "done");
  EXPECT_EQ(argument(test::with_number(saved.file, done - 12, std::uint32_t{9})), "file: layer");
  EXPECT_EQ(kvaxis::inspect(nullptr, 5, f).argument, std::string("data"));
  EXPECT_EQ(kvaxis::inspect(saved.file.data(), 5, f, nullptr, 1).argument, std::string("layers"));
}

}  // namespace
