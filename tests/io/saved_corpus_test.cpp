// Inputs of the fuzzer, replayed. The good ones among them are what a save writes: the bytes of a file do not change from
// one version of the library to the next, nor between compilers and instruction sets.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <kvaxis/io/inspect_file.hpp>

#include "../fuzz/restore_fuzz.hpp"
#include "guard_page.hpp"

namespace {

const std::filesystem::path folder = KVAXIS_FUZZ_CORPUS "/restore";

std::vector<char> contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A cache of the target's with 43 tokens or none, as an input.
std::vector<char> good_input(std::size_t target, int tokens) {
  const fuzz::target& t = fuzz::targets[target];
  std::vector<kvaxis::any_kv_cache> caches = fuzz::make_caches(t);
  std::vector<const kvaxis::any_kv_cache*> layers;
  for (kvaxis::any_kv_cache& c : caches) {
    test::tokens(test::shape(2, t.head_dim, 8), tokens, target + layers.size(), 0.5F, 0.5F).append_all_to(c, -20);
    layers.push_back(&c);
  }
  kvaxis::save_options o;
  o.share = {t.first_head, t.heads};
  const test::bytes file = test::save(layers, o);
  std::vector<char> out = {static_cast<char>(target)};
  for (const std::byte b : file) out.push_back(static_cast<char>(b));
  return out;
}

// With KVAXIS_WRITE_CORPUS the files are written anew; the version of the file must then be another one.
TEST(SavedCorpus, files_that_were_saved_are_what_a_save_writes) {
  for (std::size_t i = 0; i < fuzz::targets.size(); ++i) {
    for (const int tokens : {0, 43}) {
      const std::filesystem::path path = folder / ("saved-" + std::to_string(i) + "-" + std::to_string(tokens));
      const std::vector<char> want = good_input(i, tokens);
      if (std::getenv("KVAXIS_WRITE_CORPUS") != nullptr) {
        std::ofstream(path, std::ios::binary).write(want.data(), static_cast<std::streamsize>(want.size()));
      }
      EXPECT_EQ(contents_of(path) == want, true) << path;
    }
  }
}

TEST(SavedCorpus, every_input) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    const std::vector<char> bytes = contents_of(entry.path());
    ASSERT_FALSE(bytes.empty());
    const guard_buffer<char> input(bytes.data(), bytes.size(), guard::end);
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()), 0);
    ++count;
  }
  EXPECT_GE(count, 10);
}

}  // namespace
