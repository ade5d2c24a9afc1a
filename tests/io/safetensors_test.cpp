// The safetensors reader: files as they should be, and every way in which one can be wrong.
#include <gtest/gtest.h>

#include <cstdint>
#include <guard_page.hpp>
#include <numbers.hpp>
#include <string>
#include <vector>

#include "files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvaxis::errc;
using kvaxis::safetensors;
using kvaxis::tensor_view;

kvaxis::status open(const std::string& file) {
  // The last byte lies at the end of a page.
  guard_buffer<char> memory(file.data(), file.size(), guard::end);
  safetensors out;
  return safetensors::open(memory.data(), memory.size(), out);
}

// A file with one tensor, its three fields as given.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::size_t data_bytes) {
  return test::file_of("{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}",
                       std::string(data_bytes, 'x'));
}

const char valid_header[] =
    "{ \"__metadata__\" : {\"format\":\"pt\", \"note\":\"\\u00e9{}[]\"},\n"
    " \"b\":{\"dtype\":\"F16\",\"shape\":[2, 3],\"data_offsets\":[8,20]},\t\"empty\":{\"dtype\":\"I8\",\"shape\":[0,7],"
    "\"data_offsets\":[8,8]},\r\n \"a\\\"\\u0041\":{\"data_offsets\":[0,8],\"shape\":[],\"dtype\":\"F64\"} }   ";
const char valid_data[] = "01234567abcdefghijkl";

TEST(Safetensors, finds_tensors_by_name) {
  const std::string file = test::file_of(valid_header, valid_data);
  const safetensors f = test::opened(file);
  tensor_view t;
  ASSERT_TRUE(f.find("b", t).ok());
  EXPECT_EQ(t.dtype, "F16");
  EXPECT_EQ(t.rank, 2);
  EXPECT_EQ(t.shape[0], 2U);
  EXPECT_EQ(t.shape[1], 3U);
  EXPECT_EQ(t.count, 6U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(t.data), t.bytes), "abcdefghijkl");
  ASSERT_TRUE(f.find("a\"A", t).ok());
  EXPECT_EQ(t.dtype, "F64");
  EXPECT_EQ(t.rank, 0);
  EXPECT_EQ(t.count, 1U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(t.data), t.bytes), "01234567");
  ASSERT_TRUE(f.find("empty", t).ok());
  EXPECT_EQ(t.count, 0U);
  EXPECT_EQ(t.bytes, 0U);
}

TEST(Safetensors, goes_through_the_header_in_order) {
  const std::string file = test::file_of(valid_header, valid_data);
  std::vector<std::string> names;
  ASSERT_TRUE(test::opened(file)
                  .for_each([&](kvaxis::json_text name, const tensor_view&) { names.emplace_back(name.written()); })
                  .ok());
  EXPECT_EQ(names, (std::vector<std::string>{"b", "empty", "a\\\"\\u0041"}));
}

TEST(Safetensors, every_type_has_its_size) {
  struct type {
    const char* name;
    std::size_t bits;
  };
  for (const type& t :
       {type{"F64", 64},    type{"F32", 32},    type{"F16", 16},        type{"BF16", 16},       type{"F8_E4M3", 8},
        type{"F8_E5M2", 8}, type{"F8_E8M0", 8}, type{"F8_E4M3FNUZ", 8}, type{"F8_E5M2FNUZ", 8}, type{"F6_E2M3", 6},
        type{"F6_E3M2", 6}, type{"F4", 4},      type{"C64", 64},        type{"BOOL", 8},        type{"U8", 8},
        type{"I8", 8},      type{"U16", 16},    type{"I16", 16},        type{"U32", 32},        type{"I32", 32},
        type{"U64", 64},    type{"I64", 64}}) {
    EXPECT_TRUE(open(one(t.name, "[4]", "[0," + std::to_string(t.bits / 2) + "]", t.bits / 2)).ok()) << t.name;
    const std::string wrong = "[0," + std::to_string(t.bits / 2 + 1) + "]";
    EXPECT_STREQ(open(one(t.name, "[4]", wrong, t.bits / 2 + 1)).argument,
                 "safetensors: shape and data_offsets differ");
  }
  // A length that ends within a byte.
  EXPECT_STREQ(open(one("F4", "[3]", "[0,1]", 1)).argument, "safetensors: shape and data_offsets differ");
}

TEST(Safetensors, an_empty_file_of_tensors_is_one) {
  EXPECT_TRUE(open(test::file_of("{}")).ok());
  EXPECT_TRUE(open(test::file_of("{\"__metadata__\":{}}")).ok());
}

struct fault {
  std::string file;
  errc code;
  const char* argument;
};

TEST(Safetensors, names_what_is_wrong) {
  const auto json = [](const char* header) {
    return fault{test::file_of(header), errc::invalid_argument, "safetensors: JSON"};
  };
  const char* const offsets = "safetensors: data_offsets";
  const char* const differ = "safetensors: shape and data_offsets differ";
  const char* const hole = "safetensors: data_offsets: a hole or an overlap";
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string a_again = R"("a2":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string b = R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})";
  const std::vector<fault> faults = {
      {"1234567", errc::out_of_range, "safetensors: size of the file"},
      {std::string(8, '\0'), errc::invalid_argument, "safetensors: JSON"},
      {std::string(8, '\xFF'), errc::out_of_range, "safetensors: size of the header"},
      {test::file_of("{}").substr(0, 9), errc::out_of_range, "safetensors: size of the header"},
      json(" {}"),
      json("[]"),
      json("{"),
      json("{}{}"),
      json("{},"),
      json("{} x"),
      json("{\"a\"}"),
      json("{\"a\":1}"),
      json("{\"a\":[]}"),
      json("{\"a\":null}"),
      json("{\"__metadata__\":{},}"),
      json("{\"a"),
      json("{a:{}}"),
      json("{\"__metadata__\":{\"a\":1}}"),
      json("{\"__metadata__\":{\"a\":{}}}"),
      json("{\"__metadata__\":null}"),
      json("{\"t\":{\"dtype\":7}}"),
      json("{\"t\":{\"shape\":3}}"),
      json("{\"t\":{\"shape\":[1 2]}}"),
      json("{\"t\":{\"shape\":[1.0]}}"),
      json("{\"t\":{\"shape\":[1e2]}}"),
      {test::file_of(std::string("{}\0", 3)), errc::invalid_argument, "safetensors: JSON"},
      {test::file_of(std::string(10000, '{')), errc::invalid_argument, "safetensors: JSON"},
      {test::file_of("{\"t\":{\"shape\":" + std::string(10000, '[')), errc::invalid_argument, "safetensors: integer"},
      {test::file_of("{\"a\xFF\":{}}"), errc::invalid_argument, "safetensors: text"},
      {test::file_of("{\"\\ud800\":{}}"), errc::invalid_argument, "safetensors: text"},
      {test::file_of("{\"a\nb\":{}}"), errc::invalid_argument, "safetensors: text"},
      {test::file_of("{\"__metadata__\":{\"a\":\"\xC0\x80\"}}"), errc::invalid_argument, "safetensors: text"},
      {test::file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), errc::invalid_argument,
       "safetensors: __metadata__ given twice"},
      {test::file_of("{\"__metadata__\":{},\"__\\u006detadata__\":{}}"), errc::invalid_argument,
       "safetensors: __metadata__ given twice"},
      {test::file_of("{\"t\":{}}"), errc::invalid_argument, "safetensors: field missing"},
      {test::file_of("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}"), errc::invalid_argument, "safetensors: field missing"},
      {test::file_of("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}"), errc::invalid_argument,
       "safetensors: field given twice"},
      {test::file_of("{\"t\":{\"shape\":[],\"shape\":[]}}"), errc::invalid_argument, "safetensors: field given twice"},
      {test::file_of("{\"t\":{\"strides\":[1]}}"), errc::unsupported, "safetensors: unknown field"},
      {one("F33", "[1]", "[0,1]", 1), errc::unsupported, "safetensors: dtype"},
      {one("f32", "[1]", "[0,4]", 4), errc::unsupported, "safetensors: dtype"},
      {one("U8", "[-1]", "[0,1]", 1), errc::invalid_argument, "safetensors: integer"},
      {one("U8", "[01]", "[0,1]", 1), errc::invalid_argument, "safetensors: integer"},
      {one("U8", "[+1]", "[0,1]", 1), errc::invalid_argument, "safetensors: integer"},
      {one("U8", "[\"1\"]", "[0,1]", 1), errc::invalid_argument, "safetensors: integer"},
      {one("U8", "[18446744073709551616]", "[0,1]", 1), errc::out_of_range, "safetensors: integer"},
      {one("U8", "[18446744073709551617]", "[0,1]", 1), errc::out_of_range, "safetensors: integer"},
      {one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1), errc::unsupported, "safetensors: shape: dimensions"},
      {one("U8", "[4294967296,4294967296]", "[0,0]", 0), errc::out_of_range, "safetensors: shape"},
      {one("F64", "[2305843009213693952]", "[0,0]", 0), errc::out_of_range, "safetensors: shape"},
      {one("U8", "[4294967297,4294967296,0]", "[0,0]", 0), errc::out_of_range, "safetensors: shape"},
      {one("U8", "[1]", "[0]", 1), errc::invalid_argument, offsets},
      {one("U8", "[1]", "[]", 1), errc::invalid_argument, offsets},
      {one("U8", "[1]", "[0,1,1]", 1), errc::unsupported, offsets},
      {one("U8", "[1]", "[1,0]", 1), errc::invalid_argument, offsets},
      {one("U8", "[2]", "[0,2]", 1), errc::out_of_range, offsets},
      {one("U8", "[1]", "[18446744073709551614,18446744073709551615]", 1), errc::out_of_range, offsets},
      {one("F32", "[2]", "[0,4]", 4), errc::invalid_argument, differ},
      {one("F32", "[]", "[0,8]", 8), errc::invalid_argument, differ},
      {one("U8", "[1]", "[0,1]", 2), errc::invalid_argument, hole},
      {one("U8", "[1]", "[1,2]", 2), errc::invalid_argument, hole},
      {test::file_of("{}", "x"), errc::invalid_argument, hole},
      {test::file_of("{" + b + "}", "12345678"), errc::invalid_argument, hole},
      {test::file_of("{" + a + "," + a_again + "}", "1234"), errc::invalid_argument, hole},
      {test::file_of("{" + a + "," + a_again + "," + b + "}", "12345678"), errc::invalid_argument, hole},
      {test::file_of("{" + a + "," + a_again + "}", "12345678"), errc::invalid_argument, hole},
  };
  for (const fault& f : faults) {
    const kvaxis::status s = open(f.file);
    EXPECT_EQ(s.code, f.code) << f.file.substr(8, 100);
    EXPECT_STREQ(s.argument, f.argument) << f.file.substr(8, 100);
  }
  EXPECT_TRUE(open(test::file_of("{" + b + "," + a + "}", "12345678")).ok());  // in any order
  safetensors out;
  EXPECT_STREQ(safetensors::open(nullptr, 10, out).argument, "safetensors: file");
}

TEST(Safetensors, headers_beyond_the_limit_of_the_format_are_refused) {
  guard_buffer<std::uint8_t> memory(8 + safetensors::max_header_bytes + 1, guard::end);
  for (std::size_t i = 0; i < 8; ++i)
    memory[i] = static_cast<std::uint8_t>((safetensors::max_header_bytes + 1) >> 8 * i);
  safetensors out;
  const kvaxis::status s = safetensors::open(memory.data(), memory.size(), out);
  EXPECT_STREQ(s.argument, "safetensors: size of the header");
  EXPECT_EQ(s.limit, 100'000'000);
}

TEST(Safetensors, the_limit_is_the_offset_of_the_fault) {
  EXPECT_EQ(open(test::file_of("{\"t\":{\"dtype\":\"?\"}}")).limit, 8 + 17);
  EXPECT_EQ(open(test::file_of("{\"a\xFF\":{}}")).limit, 8 + 3);
}

TEST(Safetensors, a_failure_changes_nothing) {
  const std::string file = test::file_of(valid_header, valid_data);
  safetensors f = test::opened(file);
  EXPECT_FALSE(safetensors::open("1234567", 7, f).ok());
  tensor_view t;
  ASSERT_TRUE(f.find("b", t).ok());
  const std::byte* const data = t.data;
  EXPECT_STREQ(f.find("c", t).argument, "safetensors: no tensor of this name");
  EXPECT_EQ(t.data, data);
  EXPECT_STREQ(safetensors().find("b", t).argument, "safetensors: not opened");
}

TEST(Safetensors, a_name_given_twice_is_not_found) {
  const std::string file = test::file_maker()
                               .add<char>("a", "U8", "[2]", {'1', '2'})
                               .add<char>("b", "U8", "[1]", {'3'})
                               .add<char>("\\u0061", "U8", "[1]", {'4'})
                               .file();
  const safetensors f = test::opened(file);
  tensor_view t;
  EXPECT_STREQ(f.find("a", t).argument, "safetensors: name given twice");
  EXPECT_TRUE(f.find("b", t).ok());
}

// A mapped file may change under the reader.
TEST(Safetensors, checks_the_header_again_on_every_walk) {
  std::string file = test::file_of(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1234");
  const safetensors f = test::opened(file);
  file[file.find("[0,4]") + 3] = '9';
  tensor_view t;
  EXPECT_EQ(f.find("t", t).code, errc::out_of_range);
}

TEST(Safetensors, a_file_cut_anywhere_is_refused) {
  const std::string file = test::file_of(valid_header, valid_data);
  ASSERT_TRUE(open(file).ok());
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(open(file.substr(0, n)).ok()) << n;
}

// The fuzzer's body ends the program where a view leaves the file.
TEST(Safetensors, random_damage_never_reads_outside) {
  const std::string file = test::file_maker()
                               .add<float>("model.layers.0.self_attn.k_scale", "F32", "[2,1,1]", {0.5F, 1.0F})
                               .add<float>("model.layers.0.self_attn.v_scale", "F32", "[1]", {2.0F})
                               .file();
  test::numbers random(1);
  for (int i = 0; i < 20000; ++i) {
    guard_buffer<char> memory(file.data(), file.size(), i % 2 == 0 ? guard::end : guard::begin);
    const int flips = 1 + random.below(3);
    for (int j = 0; j < flips; ++j) {
      char& byte = memory[static_cast<std::size_t>(random.below(static_cast<int>(file.size())))];
      byte = static_cast<char>(static_cast<int>(byte) ^ (1 << random.below(8)));
    }
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(memory.data()), memory.size()), 0);
  }
}

}  // namespace
