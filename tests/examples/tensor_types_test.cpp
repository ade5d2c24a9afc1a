// Blocks of GGUF tensors, packed here bit by bit from where the format puts every bit. (The types whose layout is plain
// are tested with the reader.)
#include <gtest/gtest.h>

#include <guard_page.hpp>
#include <kvaxis/formats/half.hpp>
#include <llm/tensor_types.hpp>
#include <vector>

namespace {

using llm::tensor_type;

// Of two blocks that lie one after the other.
struct packed {
  tensor_type type;
  llm::block_size size;
  std::vector<std::uint8_t> bytes;

  packed(tensor_type of, llm::block_size expected) : type(of), size{}, bytes(2 * expected.bytes) {
    EXPECT_TRUE(find_block_size(static_cast<std::uint32_t>(of), size));
    EXPECT_EQ(size.bytes, expected.bytes);
    EXPECT_EQ(size.numbers, expected.numbers);
  }
  void put_half(int block, std::size_t at, float number) {
    const std::uint16_t bits = kvaxis::to_float16(number).bits;
    put(block, at, 0, bits & 255);
    put(block, at + 1, 0, bits >> 8);
  }
  void put(int block, std::size_t at, std::size_t bit, int value) {
    std::uint8_t& to = bytes[static_cast<std::size_t>(block) * size.bytes + at];
    to = static_cast<std::uint8_t>(to | value << bit);
  }
  [[nodiscard]] std::vector<float> numbers() const {
    const guard_buffer<std::uint8_t> from(bytes.data(), bytes.size(), guard::end);
    guard_buffer<float> out(2 * size.numbers, guard::end);
    dequantize_blocks(type, from.data(), 2, out.data());
    return {out.data(), out.data() + 2 * size.numbers};
  }
};

// Codes that take all values and differ between blocks.
int code(int block, std::size_t i, int values) { return (static_cast<int>(i) * 7 + 3 * block + 1) % values; }

TEST(TensorTypes, q5_0) {
  packed p(tensor_type::q5_0, {32, 22});
  std::vector<float> expected;
  for (const int block : {0, 1}) {
    const float scale = block == 0 ? 0.5F : -2.0F;
    p.put_half(block, 0, scale);
    for (std::size_t i = 0; i < 32; ++i) {
      const int c = code(block, i, 32);
      p.put(block, 2 + i / 8, i % 8, c >> 4);
      p.put(block, 6 + i % 16, i < 16 ? 0 : 4, c & 15);
      expected.push_back(scale * static_cast<float>(c - 16));
    }
  }
  EXPECT_EQ(p.numbers(), expected);
}

TEST(TensorTypes, q4_k) {
  packed p(tensor_type::q4_k, {256, 144});
  std::vector<float> expected;
  for (const int block : {0, 1}) {
    const float scale = block == 0 ? 0.25F : 1.0F, minimum_scale = 0.125F;
    p.put_half(block, 0, scale);
    p.put_half(block, 2, minimum_scale);
    for (std::size_t run = 0; run < 8; ++run) {
      const int run_scale = code(block, run + 8, 64), run_minimum = code(block, run + 23, 64);
      if (run < 4) {
        p.put(block, 4 + run, 0, run_scale);
        p.put(block, 8 + run, 0, run_minimum);
      } else {
        p.put(block, 8 + run, 0, run_scale & 15);
        p.put(block, 8 + run, 4, run_minimum & 15);
        p.put(block, run, 6, run_scale >> 4);
        p.put(block, 4 + run, 6, run_minimum >> 4);
      }
      for (std::size_t i = 0; i < 32; ++i) {
        const int c = code(block, run * 32 + i + run, 16);
        p.put(block, 16 + run / 2 * 32 + i, run % 2 * 4, c);
        expected.push_back(scale * static_cast<float>(run_scale * c) - minimum_scale * static_cast<float>(run_minimum));
      }
    }
  }
  EXPECT_EQ(p.numbers(), expected);
}

TEST(TensorTypes, q6_k) {
  packed p(tensor_type::q6_k, {256, 210});
  std::vector<float> expected;
  for (const int block : {0, 1}) {
    const float scale = block == 0 ? 0.5F : 0.0625F;
    p.put_half(block, 208, scale);
    const auto run_scale = [&](std::size_t run) { return code(block, run, 256) * 37 % 256 - 128; };
    for (std::size_t run = 0; run < 16; ++run) p.put(block, 192 + run, 0, run_scale(run) & 255);
    for (std::size_t i = 0; i < 256; ++i) {
      const int c = code(block, i + i / 64, 64);
      const std::size_t half = i / 128, in_half = i % 128;
      p.put(block, half * 64 + in_half % 64, in_half / 64 * 4, c & 15);
      p.put(block, 128 + half * 32 + in_half % 32, in_half / 32 * 2, c >> 4);
      expected.push_back(scale * static_cast<float>(run_scale(i / 16) * (c - 32)));
    }
  }
  EXPECT_EQ(p.numbers(), expected);
}

TEST(TensorTypes, others_are_unknown) {
  llm::block_size size{};
  for (const std::uint32_t type : {2U, 7U, 13U, 15U, 0xFFFFFFFFU}) EXPECT_FALSE(find_block_size(type, size)) << type;
}

}  // namespace
