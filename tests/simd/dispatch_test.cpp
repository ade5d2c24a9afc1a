// Which instruction set is chosen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <isa_test.hpp>
#include <kvaxis/simd/isa.hpp>
#include <string>

namespace {

using kvaxis::isa;

// Sets KVAXIS_ISA for the lifetime of the object; null: unset.
class environment_scope {
 public:
  explicit environment_scope(const char* value) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  environment_scope(const environment_scope&) = delete;
  environment_scope& operator=(const environment_scope&) = delete;
  ~environment_scope() { set(before_.empty() ? nullptr : before_.c_str()); }

 private:
  static constexpr const char* name = "KVAXIS_ISA";
  static void set(const char* value) { value != nullptr ? setenv(name, value, 1) : unsetenv(name); }
  std::string before_;
};

isa chosen_with(const char* environment) {
  const environment_scope scope(environment);
  return kvaxis::detail::initial_isa();
}

// The best of this machine that is not better than `wanted`.
isa lowered(isa wanted) {
  isa best = isa::scalar;
  kvaxis::for_each_isa([&](isa which) { best = which <= wanted ? which : best; });
  return best;
}

TEST(Dispatch, names) {
  EXPECT_STREQ(kvaxis::isa_name(isa::scalar), "scalar");
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
  EXPECT_STREQ(kvaxis::isa_name(isa::avx2), "avx2");
  EXPECT_STREQ(kvaxis::isa_name(isa::avx2_vnni), "avx2_vnni");
  EXPECT_STREQ(kvaxis::isa_name(isa::avx512), "avx512");
  EXPECT_STREQ(kvaxis::isa_name(isa::avx512_vnni), "avx512_vnni");
  EXPECT_STREQ(kvaxis::isa_name(isa::avx512_fp16), "avx512_fp16");
  EXPECT_STREQ(kvaxis::isa_name(isa::avx512_amx), "avx512_amx");
#elif defined(__aarch64__)
  EXPECT_STREQ(kvaxis::isa_name(isa::neon), "neon");
  EXPECT_STREQ(kvaxis::isa_name(isa::neon_dot), "neon_dot");
#endif
}

TEST(Dispatch, the_environment_chooses_what_the_machine_has) {
  const isa best = kvaxis::best_isa();
  EXPECT_EQ(chosen_with(nullptr), best);
  EXPECT_EQ(chosen_with("scalar"), isa::scalar);
  for (int i = 0; i < kvaxis::isa_count; ++i) EXPECT_EQ(chosen_with(kvaxis::isa_name(isa{i})), lowered(isa{i}));
  for (const char* unknown : {"", "AVX2", "avx", "avx512f", "NEON"}) EXPECT_EQ(chosen_with(unknown), best) << unknown;
}

TEST(Dispatch, a_request_beyond_the_machine_is_lowered) {
  const isa_scope restore(kvaxis::active_isa());
  for (int i = 0; i < kvaxis::isa_count; ++i) {
    kvaxis::set_isa(isa{i});
    EXPECT_EQ(kvaxis::active_isa(), lowered(isa{i}));
  }
}

}  // namespace
