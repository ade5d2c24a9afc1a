// The corpora of the fuzzers, replayed: each file ends at a page that cannot be read.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <guard_page.hpp>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

TEST(Corpus, safetensors) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVAXIS_FUZZ_CORPUS "/safetensors")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const guard_buffer<char> memory(bytes.data(), bytes.size(), guard::end);
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(memory.data()), memory.size()), 0);
    ++files;
  }
  EXPECT_GT(files, 5);
}

}  // namespace
