// Tests that run on every instruction set: derive from isa_test, use TEST_P, and close with KVAXIS_ON_EVERY_ISA(fixture).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <kvaxis/simd/isa.hpp>
#include <string>
#include <vector>

// All that this machine has, scalar first.
inline std::vector<kvaxis::isa> every_isa() {
  std::vector<kvaxis::isa> out;
  kvaxis::for_each_isa([&](kvaxis::isa which) { out.push_back(which); });
  return out;
}

// The same; only the one that KVAXIS_ISA names where it is set, so that three runs with three names are
// as much work as one run without.
inline std::vector<kvaxis::isa> isas_under_test() {
  if (std::getenv("KVAXIS_ISA") != nullptr) return {kvaxis::active_isa()};
  return every_isa();
}

// Makes an instruction set the active one for the lifetime of the object.
class isa_scope {
 public:
  explicit isa_scope(kvaxis::isa which) : before_(kvaxis::active_isa()) {
    kvaxis::set_isa(which);
    EXPECT_EQ(kvaxis::active_isa(), which) << "this machine lacks " << kvaxis::isa_name(which);
  }
  isa_scope(const isa_scope&) = delete;
  isa_scope& operator=(const isa_scope&) = delete;
  ~isa_scope() { kvaxis::set_isa(before_); }

 private:
  kvaxis::isa before_;
};

class isa_test : public ::testing::TestWithParam<kvaxis::isa> {
 private:
  isa_scope scope_{GetParam()};
};

inline std::string isa_test_name(const ::testing::TestParamInfo<kvaxis::isa>& tested) {
  return kvaxis::isa_name(tested.param);
}

#define KVAXIS_ON_EVERY_ISA(fixture) \
  INSTANTIATE_TEST_SUITE_P(every_isa, fixture, ::testing::ValuesIn(isas_under_test()), isa_test_name)
