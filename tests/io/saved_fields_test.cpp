// Files in which one field has a value that it may not have: each is refused by its name, and nothing has changed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policies.hpp"
#include "saved_files.hpp"

namespace {

kvaxis::cache_config small() {
  kvaxis::cache_config c = test::rope_shape(1, 10, 8);
  c.window = 4;
  c.pins = 3;
  c.tile_tokens = 32;
  return c;
}

kvaxis::any_kv_cache filled(const std::string& policy, const kvaxis::cache_config& c, int n,
                            const kvaxis::allocator& memory = {}) {
  kvaxis::any_kv_cache cache = test::cache_of(policy, c, memory);
  test::tokens(c, n, 1, 0.5F, 0.5F).append_all_to(cache);
  return cache;
}

class Fields : public ::testing::Test {
 protected:
  static constexpr const char* policy = "k:int4-channel32-hot2,v:int8f32-token16";
  // Pins, a folded tile, a whole one in full precision, the open one.
  Fields() : file_(test::save(filled(policy, config(), 3 + 32 + 32 + 5))), cache_(filled(policy, config(), 9)) {
    before_ = test::snapshot(cache_);
    pins_ = test::payload_of(file_, "tile", 0);
    folded_ = test::payload_of(file_, "tile", 1);
    open_ = test::payload_of(file_, "tile", 3);
    list_ = test::payload_of(file_, "list");
    done_ = test::payload_of(file_, "done");
  }
  static kvaxis::cache_config config() {
    kvaxis::cache_config c = small();
    c.window = 33;
    return c;
  }
  void expect_refused(const test::bytes& file, const char* argument) {
    const kvaxis::status s = test::restore(file, cache_);
    EXPECT_EQ(s.argument, std::string(argument));
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(test::snapshot(cache_) == before_, true);
  }
  template <class T>
  void expect_refused_with(std::size_t at, T number, const char* argument) {
    SCOPED_TRACE(number);
    expect_refused(test::with_number(file_, at, number), argument);
  }
  [[nodiscard]] std::size_t entry(int i) const { return list_ + static_cast<std::size_t>(i) * 24; }

  test::bytes file_;
  kvaxis::any_kv_cache cache_;
  std::string before_;
  std::size_t pins_, folded_, open_, list_, done_;
};

TEST_F(Fields, the_file_is_good_before_it_is_changed) { EXPECT_TRUE(test::restore(file_, cache_).ok()); }

TEST_F(Fields, head) {
  const std::size_t head = test::payload_of(file_, "kvax");
  expect_refused_with(head, std::uint32_t{0}, "file: version");
  expect_refused_with(head, std::uint32_t{2}, "file: version");
  expect_refused_with(head + 4, std::uint32_t{0}, "file: number of layers");
  expect_refused_with(head + 4, std::uint32_t{2}, "file: number of layers");
  expect_refused_with(head + 4, std::uint32_t{0xFFFFFFFF}, "file: number of layers");
  expect_refused_with(head + 8, std::uint32_t{1}, "file: first layer");
  expect_refused_with(head + 8, std::uint32_t{0xFFFFFFFF}, "file: first layer");
  expect_refused_with(head + 12, std::uint32_t{1}, "file: head");
  expect_refused_with(head - 12, std::uint32_t{1}, "file: not one of saved caches");
  expect_refused_with(head - 16, std::uint8_t{'K'}, "file: not one of saved caches");
}

TEST_F(Fields, description) {
  const std::size_t d = test::payload_of(file_, "layr");
  expect_refused_with(d - 12, std::uint32_t{1}, "file: layer");
  expect_refused_with(d, std::uint32_t{1025}, "file: kv_heads");
  expect_refused_with(d, std::uint32_t{2}, "file: kv_heads");
  expect_refused_with(d + 4, std::uint32_t{1}, "file: first head");
  expect_refused_with(d + 4, std::uint32_t{0xFFFFFFFF}, "file: first head");
  expect_refused_with(d + 8, std::uint32_t{0}, "file: first head");
  expect_refused_with(d + 8, std::uint32_t{2}, "file: end head");
  expect_refused_with(d + 12, std::uint32_t{8}, "file: head_dim");
  expect_refused_with(d + 24, std::uint32_t{34}, "file: window");
  expect_refused_with(d + 40, std::uint32_t{0xFFFFFFFF}, "file: rope.pairs_count");
  expect_refused_with(d + 40, std::uint32_t{4}, "file: size of a description");
  for (const std::uint32_t n : {1U, 4U, 0xFFFFFFFFU}) {
    expect_refused_with(d + 44, n, n == 1 ? "file: key codec" : "file: older_tiers_count");
  }
  expect_refused_with(d + 56, std::uint64_t{1}, "file: older_tiers: newer_tokens");
  expect_refused_with(d + 64 + 31, std::uint8_t{'x'}, "file: key codec");
  expect_refused_with(d + 64, std::uint8_t{0}, "file: key codec");
  expect_refused_with(d + 64 + 40, std::uint32_t{0xFFFFFFFF}, "file: key policy: axis");
  expect_refused_with(d + 128 + 40, std::uint32_t{4}, "file: value policy: axis");
  expect_refused_with(d + 64 + 52, std::uint32_t{5}, "file: key codec: bits");
  expect_refused_with(d + 64 + 56, std::uint32_t{1}, "file: key codec: members");
  expect_refused_with(d + 128 + 60, std::uint32_t{2}, "file: value codec: bytes of a member");
}

TEST_F(Fields, tiles) {
  for (const std::uint32_t n : {0U, 2U, 0xFFFFFFFFU}) expect_refused_with(folded_, n, "file: number of a tile");
  expect_refused_with(folded_ + 4, std::uint8_t{2}, "file: kind of a tile");
  expect_refused_with(folded_ + 5, std::uint8_t{1}, "file: tier of a tile");
  expect_refused_with(folded_ + 6, std::uint16_t{1}, "file: kind of a tile");
  for (const std::uint32_t n : {0U, 4U, 31U, 257U, 0xFFFFFFFFU}) {
    expect_refused_with(folded_ + 8, n, "file: slots of a tile");
    expect_refused_with(open_ + 8, n, n == 31 ? "file: capacity of a tile" : "file: slots of a tile");
  }
  for (const std::uint32_t n : {33U, 64U, 256U}) {
    expect_refused_with(folded_ + 8, n, "file: capacity of a tile");
    expect_refused_with(pins_ + 8, n, "file: capacity of a tile");
    expect_refused_with(open_ + 8, n, "file: capacity of a tile");
  }
  expect_refused_with(folded_ + 12, std::uint32_t{1}, "file: slots of a tile");
  for (const std::uint32_t n : {0U, 31U, 33U, 0xFFFFFFFFU}) {
    expect_refused_with(folded_ + 16, n, "file: slots of a tile");
  }
  expect_refused_with(open_ + 12, std::uint32_t{5}, "file: slots of a tile");
  expect_refused_with(open_ + 12, std::uint32_t{0xFFFFFFFF}, "file: slots of a tile");
  expect_refused_with(open_ + 12, std::uint32_t{1}, "file: size of a tile");
  expect_refused_with(open_ + 16, std::uint32_t{33}, "file: slots of a tile");
  expect_refused_with(open_ + 16, std::uint32_t{6}, "file: size of a tile");
  expect_refused_with(open_ + 4, std::uint8_t{1}, "file: slots of a tile");   // in full precision, and says otherwise
  expect_refused_with(folded_ + 4, std::uint8_t{0}, "file: size of a tile");  // the other way round
}

TEST_F(Fields, hot_pairs) {
  const std::size_t mask = folded_ + 20;
  std::uint32_t good = kvaxis::detail::load_little<std::uint32_t>(file_.data() + mask);
  ASSERT_EQ(__builtin_popcount(good), 2);
  expect_refused_with(mask, std::uint32_t{0}, "file: hot pairs");
  expect_refused_with(mask, std::uint32_t{7}, "file: hot pairs");
  expect_refused_with(mask, std::uint32_t{1U << 5 | 1U}, "file: hot pairs");  // there are five pairs
  expect_refused_with(mask, std::uint32_t{1U << 31 | 1U}, "file: hot pairs");
}

// What codecs never make: scales that are negative or no numbers, offsets that are none, and pairs of them whose codes
// do not fit a float.
TEST_F(Fields, parameters) {
  const std::size_t keys = folded_ + 20 + 4 + 12 * 32 / 2;  // 12 scales, 12 offsets, 2 bytes each
  const std::size_t values = keys + 2 * 12 * 2 + 32 * 16;   // 32 scales, 32 offsets, 4 bytes each
  for (const unsigned half : {0x7C00U, 0x7C01U, 0xFC00U, 0x7FFFU, 0x8000U, 0xBC00U}) {
    for (const std::size_t channel : {0U, 1U, 9U, 11U}) {
      expect_refused_with(keys + 2 * channel, static_cast<std::uint16_t>(half), "file: scale or offset");
    }
  }
  for (const unsigned half : {0x7C00U, 0xFC00U, 0x7E00U}) {
    expect_refused_with(keys + 24 + 2 * 11, static_cast<std::uint16_t>(half), "file: scale or offset");
  }
  for (const float x : {kvaxis::bits_float(0x7F800000U), kvaxis::bits_float(0xFFC00000U), -1.0F, -0.0F, 3e38F}) {
    expect_refused_with(values + 4 * 31, kvaxis::float_bits(x), "file: scale or offset");
  }
  for (const float x : {kvaxis::bits_float(0xFF800000U), kvaxis::bits_float(0x7FC00000U)}) {
    expect_refused_with(values + 128 + 4 * 31, kvaxis::float_bits(x), "file: scale or offset");
  }
  EXPECT_TRUE(test::restore(test::with_number(file_, keys + 24, std::uint16_t{0xFBFF}), cache_).ok());
  EXPECT_TRUE(test::restore(test::with_number(file_, values + 128, kvaxis::float_bits(-1e38F)), cache_).ok());
}

TEST_F(Fields, rows) {
  const std::size_t key = open_ + 20;  // 5 keys of 10 channels, 5 values of 8
  const std::size_t value = key + 5 * 10 * 4;
  for (const float x : {kvaxis::bits_float(0x7F800000U), kvaxis::bits_float(0x7FC00000U), 1e38F, -65505.0F}) {
    expect_refused_with(key + 4 * 49, kvaxis::float_bits(x), "file: key");
  }
  // Pairs that are stored rotated grow; the limit is the one of append().
  expect_refused_with(key, kvaxis::float_bits(60000.0F), "file: key");
  for (const float x : {kvaxis::bits_float(0xFF800000U), kvaxis::bits_float(0x7F800001U), 3e38F}) {
    expect_refused_with(value + 4 * 39, kvaxis::float_bits(x), "file: value");
  }
  EXPECT_TRUE(test::restore(test::with_number(file_, value + 4 * 39, kvaxis::float_bits(1e38F)), cache_).ok());
}

TEST_F(Fields, B32_entries) {
  for (const std::uint32_t n : {4U, 0x80000000U, 0xFFFFFFFFU}) {
    expect_refused_with(entry(1), n, "file: tile of an entry");
    expect_refused_with(entry(1) + 4, n, "file: flags of an entry");
  }
  const auto position = [](std::int64_t p) { return static_cast<std::uint64_t>(p); };
  const std::int64_t most = kvaxis::max_position;
  for (const std::int64_t p : {most, most - 31, -most - 1, INT64_MAX, INT64_MIN}) {
    expect_refused_with(entry(1) + 8, position(p), "file: position of an entry");
  }
  for (const std::int64_t p : {most - 32, -most, std::int64_t{0}}) {
    EXPECT_TRUE(test::restore(test::with_number(file_, entry(1) + 8, position(p)), cache_).ok());
  }
  kvaxis::check(test::restore(file_, cache_));
  before_ = test::snapshot(cache_);
  for (const std::uint32_t n : {1U, 32U, 256U, 257U, 0xFFFFFFFFU}) {
    expect_refused_with(entry(1) + 16, n, "file: slots of an entry");
  }
  for (const std::uint32_t n : {0U, 33U, 257U, 0x80000000U, 0xFFFFFFFFU}) {
    expect_refused_with(entry(1) + 20, n, "file: slots of an entry");
  }
  expect_refused_with(entry(3) + 20, std::uint32_t{6}, "file: slots of an entry");  // a slot that is not in the file
  expect_refused_with(entry(1) + 4, std::uint32_t{1}, "file: open entry");
  expect_refused_with(entry(2) + 4, std::uint32_t{1}, "file: open entry");
  expect_refused_with(entry(3) + 4, std::uint32_t{3}, "file: pinned entry");
  expect_refused_with(entry(1) + 4, std::uint32_t{2}, "file: pinned entry");
  expect_refused_with(entry(3) + 4, std::uint32_t{2}, "file: pinned entry");
}

TEST_F(Fields, B43_counters) {
  for (const std::uint32_t n : {0U, 3U, 5U, 0xFFFFFFFFU}) {
    expect_refused_with(done_, n, "file: number of entries");
    expect_refused_with(done_ + 4, n, "file: number of tiles");
  }
  expect_refused_with(done_ + 8, std::uint64_t{1} << 63, "file: replaced");
}

// Sections that are missing, twice there, or in another order.
TEST_F(Fields, sections) {
  const std::vector<std::size_t> at = test::sections(file_);
  const auto part = [&](std::size_t i) {
    const std::size_t end = i + 1 < at.size() ? at[i + 1] : file_.size();
    return test::bytes(file_.begin() + static_cast<std::ptrdiff_t>(at[i]),
                       file_.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const auto joined = [&](const std::vector<std::size_t>& order) {
    test::bytes out;
    for (const std::size_t i : order) {
      const test::bytes p = part(i);
      out.insert(out.end(), p.begin(), p.end());
    }
    return out;
  };
  ASSERT_EQ(at.size(), 9U);  // head, description, four tiles, list, done, end
  EXPECT_TRUE(test::restore(joined({0, 1, 2, 3, 4, 5, 6, 7, 8}), cache_).ok());
  cache_ = filled(policy, config(), 9);
  before_ = test::snapshot(cache_);
  expect_refused(joined({1, 2, 3, 4, 5, 6, 7, 8}), "file: not one of saved caches");
  expect_refused(joined({0, 2, 3, 4, 5, 6, 7, 8}), "file: order of sections");
  expect_refused(joined({0, 0, 1, 2, 3, 4, 5, 6, 7, 8}), "file: type of a section");
  expect_refused(joined({0, 1, 1, 2, 3, 4, 5, 6, 7, 8}), "file: order of sections");
  expect_refused(joined({0, 1, 2, 3, 5, 6, 7, 8}), "file: number of a tile");
  expect_refused(joined({0, 1, 2, 3, 4, 6, 7, 8}), "file: number of tiles");
  expect_refused(joined({0, 1, 2, 2, 3, 4, 5, 6, 7, 8}), "file: number of a tile");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 7, 8}), "file: number of entries");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 6, 6, 7, 8}), "file: number of entries");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 6, 8}), "file: a layer is missing");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 6, 7, 7, 8}), "file: order of sections");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 6, 7, 2, 8}), "file: order of sections");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 6, 7}), "file: truncated");
  expect_refused(joined({0, 1, 2, 3, 4, 5, 6, 7, 8, 8}), "file: order of sections");
  expect_refused(joined({0, 8}), "file: a layer is missing");
  test::bytes unknown = file_;
  unknown[at[4]] = std::byte{'T'};
  test::fix_checksums(unknown);
  expect_refused(unknown, "file: type of a section");
}

// A list that is empty, of another size, or longer than a section may be; the end with something in it.
TEST_F(Fields, sizes_of_sections) {
  const auto with_payload = [&](const std::string& type, std::size_t bytes) {
    test::bytes out = file_;
    const std::size_t at = test::payload_of(out, type);
    const auto was = static_cast<std::size_t>(kvaxis::detail::load_little<std::uint64_t>(out.data() + at - 8));
    const auto begin = out.begin() + static_cast<std::ptrdiff_t>(at);
    if (bytes < was) out.erase(begin, begin + static_cast<std::ptrdiff_t>(was - bytes));
    if (bytes > was) out.insert(begin, bytes - was, std::byte{0});
    kvaxis::detail::store_little(out.data() + at - 8, std::uint64_t{bytes});
    test::fix_checksums(out);
    return out;
  };
  expect_refused(with_payload("kvax", 15), "file: not one of saved caches");
  expect_refused(with_payload("kvax", 17), "file: not one of saved caches");
  expect_refused(with_payload("layr", 0), "file: key codec");
  expect_refused(with_payload("layr", 60), "file: older_tiers_count");
  expect_refused(with_payload("tile", 0), "file: size of a tile");
  expect_refused(with_payload("tile", 19), "file: size of a tile");
  for (const std::size_t n : {0U, 1U, 23U, 25U, 24U * 1025U}) {
    expect_refused(with_payload("list", n), "file: size of a list");
  }
  expect_refused(with_payload("done", 15), "file: size of a layer's end");
  expect_refused(with_payload("done", 17), "file: size of a layer's end");
  expect_refused(with_payload("end ", 1), "file: end");
}

TEST(Codes, B10_B15_no_code_that_is_not_a_number) {
  const struct {
    const char* codec;
    std::vector<std::uint32_t> bad;
    std::vector<std::uint32_t> good;
    std::size_t bytes;
  } kinds[] = {
      {"e4m3-token16", {0x7F, 0xFF}, {0x7E, 0xFE, 0x78, 0x80}, 1},
      {"e5m2-token16", {0x7C, 0x7D, 0x7F, 0xFC, 0xFF}, {0x7B, 0xFB, 0x80}, 1},
      {"f16", {0x7C00, 0x7C01, 0x7FFF, 0xFC00, 0xFE00}, {0x7BFF, 0xFBFF, 0x8000}, 2},
      {"bf16", {0x7F80, 0x7F81, 0xFF80, 0xFFFF}, {0x7F7F, 0xFF7F, 0x8000}, 2},
      {"f32", {0x7F800000, 0x7FC00000, 0xFF800000, 0xFFFFFFFF}, {0x7F7FFFFF, 0xFF7FFFFF, 0x80000000}, 4},
  };
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.codec);
    kvaxis::cache_config c = small();
    c.window = 0;
    c.pins = 0;
    const std::string policy = std::string("k:int8-token16-pre,v:") + kind.codec;
    kvaxis::any_kv_cache cache = filled(policy, c, 32);
    ASSERT_EQ(cache.folded_tokens(), 32);
    const test::bytes file = test::save(cache);
    const std::size_t codes = test::payload_of(file, "tile") + 20 + 12 * 32 + 2 * 32 * 2;  // behind the keys
    const std::size_t end = test::payload_of(file, "list") - 20 - (kind.bytes == 1 ? 32 * 2 : 0);
    for (const std::size_t at : {codes, codes + kind.bytes, codes + 4 + 3 * kind.bytes, end - kind.bytes}) {
      const auto with = [&](std::uint32_t code) {
        test::bytes changed = file;
        for (std::size_t i = 0; i < kind.bytes; ++i) changed[at + i] = static_cast<std::byte>(code >> (8 * i));
        test::fix_checksums(changed);
        return test::restore(changed, cache);
      };
      for (const std::uint32_t code : kind.bad) EXPECT_EQ(with(code).argument, std::string("file: code")) << code;
      for (const std::uint32_t code : kind.good) EXPECT_TRUE(with(code).ok()) << code;
    }
  }
}

}  // namespace
