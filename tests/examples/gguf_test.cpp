// The GGUF reader of the llm example: right numbers from a sound file, and a clear error, never a crash or an
// over-read, from a damaged one. Files lie before an unreadable page.
#include "../../examples/llm/gguf.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <guard_page.hpp>
#include <limits>

#include "../../examples/llm/mapped_file.hpp"
#include "gguf_parts.hpp"

namespace {

using llm::gguf_error;
using llm::gguf_file;
using namespace gguf_parts;

// Reads the first `size` bytes of `file` from memory that ends where they end.
void read(const bytes& file, std::size_t size) {
  const guard_buffer<std::uint8_t> memory(file.data(), size, guard::end);
  const gguf_file contents(memory.data(), size);
}

// The message of the error that reading the file ends in; empty if it ends in none.
std::string error_of(const bytes& file) {
  try {
    read(file, file.size());
  } catch (const gguf_error& e) {
    return e.what();
  }
  return "";
}

std::vector<float> row(const gguf_file& file, const std::string& name, std::size_t index) {
  const llm::gguf_tensor& tensor = file.tensors().at(name);
  std::vector<float> out(tensor.columns);
  dequantize_row(tensor, index, out.data());
  return out;
}

TEST(Gguf, metadata) {
  const bytes file = sound().file();
  const gguf_file contents(file.data(), file.size());
  EXPECT_EQ(contents.integer("small", 0, 255), 200);
  EXPECT_EQ(contents.integer("count", 7, 7), 7);
  EXPECT_EQ(contents.real("real"), 0.5);
  EXPECT_EQ(contents.text("name"), "a name");
  EXPECT_EQ(contents.texts("words"), (std::vector<std::string_view>{"one", "", "three"}));
  EXPECT_EQ(contents.integers("numbers"), (std::vector<std::int32_t>{-1, 5}));
  EXPECT_EQ(contents.reals("reals"), (std::vector<float>{0.25F, -2.0F}));
  EXPECT_TRUE(contents.has("name"));
  EXPECT_FALSE(contents.has("names"));
}

TEST(Gguf, metadata_of_another_kind_is_refused) {
  const bytes file = sound().file();
  const gguf_file contents(file.data(), file.size());
  EXPECT_THROW((void)contents.integer("missing", 0, 9), gguf_error);
  EXPECT_THROW((void)contents.integer("count", 8, 9), gguf_error);
  EXPECT_THROW((void)contents.integer("count", 0, 6), gguf_error);
  EXPECT_THROW((void)contents.integer("huge", 0, std::numeric_limits<std::int64_t>::max()), gguf_error);
  EXPECT_THROW((void)contents.integer("name", 0, 9), gguf_error);
  EXPECT_THROW((void)contents.integer("numbers", 0, 9), gguf_error);
  EXPECT_THROW((void)contents.real("count"), gguf_error);
  EXPECT_THROW((void)contents.text("words"), gguf_error);
  EXPECT_THROW((void)contents.texts("name"), gguf_error);
  EXPECT_THROW((void)contents.texts("numbers"), gguf_error);
  EXPECT_THROW((void)contents.integers("words"), gguf_error);
  EXPECT_THROW((void)contents.integers("reals"), gguf_error);
  EXPECT_THROW((void)contents.reals("numbers"), gguf_error);
}

TEST(Gguf, tensors) {
  const bytes file = sound().file();
  const guard_buffer<std::uint8_t> memory(file.data(), file.size(), guard::end);
  const gguf_file contents(memory.data(), memory.size());
  ASSERT_EQ(contents.tensors().size(), 4U);
  EXPECT_EQ(contents.tensors().at("f32").rows, 2U);
  EXPECT_EQ(row(contents, "f32", 1), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(row(contents, "f16", 0), (std::vector<float>{1, -2.5F}));
  const std::vector<float> q4 = row(contents, "q4_1", 0), q8 = row(contents, "q8_0", 0),
                           q8_last = row(contents, "q8_0", 1);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(q4[i], 0.5F * static_cast<float>(i) - 1.0F);
    EXPECT_EQ(q4[i + 16], 0.5F * static_cast<float>(15 - i) - 1.0F);
  }
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(q8[i], 0.25F * (static_cast<float>(i) - 16.0F));
    EXPECT_EQ(q8_last[i], 0.25F * (8.0F * static_cast<float>(i) - 128.0F));
  }
}

TEST(Gguf, a_file_cut_at_any_byte_is_refused) {
  const bytes file = sound().file();
  ASSERT_NO_THROW(read(file, file.size()));
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_THROW(read(file, size), gguf_error) << size;
}

// Whatever a byte of the header is changed to, the file is either refused or read within its bounds.
TEST(Gguf, any_changed_byte_of_the_header_does_no_harm) {
  std::size_t header_size = 0;
  const bytes file = sound().file(&header_size);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < header_size; ++at) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      bytes changed = file;
      changed[at] = static_cast<std::uint8_t>(changed[at] ^ change);
      const guard_buffer<std::uint8_t> memory(changed.data(), changed.size(), guard::end);
      try {
        const gguf_file contents(memory.data(), memory.size());
        for (const auto& [name, tensor] : contents.tensors()) row(contents, name, tensor.rows - 1);
      } catch (const gguf_error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, header_size);
}

TEST(Gguf, absurd_counts_are_refused) {
  for (const std::uint64_t count : {std::uint64_t{1} << 20, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    parts p = sound();
    p.tensor_count = count;
    EXPECT_NE(error_of(p.file()), "") << "tensors " << count;
    p = sound();
    p.value_count = count;
    EXPECT_NE(error_of(p.file()), "") << "values " << count;

    for (const std::uint32_t element : {type_u8, type_i32, type_u64, type_string}) {
      p = sound();
      p.add_list("list", element, count);
      EXPECT_NE(error_of(p.file()), "") << "elements " << count << " of type " << element;
    }
    p = sound();
    ++p.value_count;
    put_key(p.values, "text", type_string);
    put(p.values, count);
    EXPECT_NE(error_of(p.file()), "") << "letters " << count;
  }
}

TEST(Gguf, unknown_types_are_refused) {
  for (const std::uint32_t type : {13U, 14U, 0xFFFFFFFFU}) {
    parts p = sound();
    p.add_number("value", type, std::uint64_t{0});
    EXPECT_NE(error_of(p.file()).find("has type " + std::to_string(type)), std::string::npos);
  }
  parts p = sound();  // a list of lists
  p.add_list("lists", type_array, 0);
  EXPECT_NE(error_of(p.file()), "");
  for (const std::uint32_t type : {2U, 4U, 9U, 13U, 0xFFFFFFFFU}) {
    p = sound();
    p.add_tensor("other", {32}, type, 0);
    EXPECT_NE(error_of(p.file()).find("'other' has type " + std::to_string(type)), std::string::npos);
  }
}

TEST(Gguf, impossible_tensors_are_refused) {
  constexpr std::uint64_t much = std::uint64_t{1} << 63;
  struct shape {
    std::vector<std::uint64_t> lengths;
    std::uint32_t type;
    std::uint64_t offset;
  };
  for (const shape& s :
       {shape{{}, 0, 0}, shape{{1, 1, 1, 1, 1}, 0, 0}, shape{{0}, 0, 0}, shape{{4, 0}, 0, 0}, shape{{much}, 0, 0},
        shape{{much, 2}, 0, 0}, shape{{2, much}, 0, 0}, shape{{std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0},
        shape{{31}, 3, 0}, shape{{33}, 8, 0}, shape{{128}, 12, 0}, shape{{384}, 14, 0}, shape{{4}, 0, 8},
        shape{{4}, 0, 1024}, shape{{4}, 0, ~std::uint64_t{31}}, shape{{1000}, 0, 0}, shape{{32, 3}, 8, 96}}) {
    parts p = sound();
    p.add_tensor("bad", s.lengths, s.type, s.offset);
    EXPECT_NE(error_of(p.file()), "") << (s.lengths.empty() ? 0 : s.lengths[0]) << " type " << s.type << " at "
                                      << s.offset;
  }
}

TEST(Gguf, names_that_occur_twice_are_refused) {
  parts p = sound();
  p.add_tensor("f32", {3}, 0, 0);
  EXPECT_NE(error_of(p.file()).find("twice"), std::string::npos);
  p = sound();
  p.add_number("name", type_u8, std::uint8_t{0});
  EXPECT_NE(error_of(p.file()).find("twice"), std::string::npos);
}

TEST(Gguf, alignment) {
  const auto with_alignment = [](std::uint32_t alignment) {
    parts p = sound();
    p.add_number("general.alignment", type_u32, alignment);
    return p;
  };
  const bytes file = with_alignment(16).file(nullptr, 16);
  const gguf_file contents(file.data(), file.size());
  EXPECT_EQ(row(contents, "f32", 1), (std::vector<float>{3, 4, 5}));
  for (const std::uint32_t alignment : {0U, 3U, 48U, 0x80000000U, 0xFFFFFFFFU}) {
    EXPECT_NE(error_of(with_alignment(alignment).file()), "") << alignment;
  }
  EXPECT_NE(error_of(with_alignment(64).file(nullptr, 64)), "");  // the offsets 32 and 96 are not multiples of it
}

TEST(Gguf, other_files_are_refused) {
  bytes file = sound().file();
  file[0] = 'g';
  EXPECT_NE(error_of(file).find("not a GGUF file"), std::string::npos);
  for (const std::uint32_t version : {0U, 1U, 4U, 0x03000000U}) {
    parts p = sound();
    p.version = version;
    EXPECT_NE(error_of(p.file()).find("version"), std::string::npos);
  }
  EXPECT_THROW(llm::mapped_file("no such file"), std::runtime_error);
  EXPECT_THROW(llm::mapped_file("/"), std::runtime_error);
  const std::string empty = testing::TempDir() + "kvaxis_empty.gguf";
  std::FILE* const made = std::fopen(empty.c_str(), "wb");
  ASSERT_NE(made, nullptr);
  std::fclose(made);
  EXPECT_THROW(llm::mapped_file{empty}, std::runtime_error);
  std::remove(empty.c_str());
}

}  // namespace
