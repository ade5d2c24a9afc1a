// The tests' main function: prints the machine, and checks that KVAXIS_ISA, where it is set, is what runs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "machine.hpp"

namespace {

class machine_environment : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* active = kvaxis::isa_name(kvaxis::active_isa());
    std::printf("CPU: %s; instruction sets: %s; active: %s\n", cpu_name().c_str(), isa_names().c_str(), active);
    const char* wanted = std::getenv("KVAXIS_ISA");
    ASSERT_STREQ(active, wanted != nullptr ? wanted : active);
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new machine_environment);
  return RUN_ALL_TESTS();
}
