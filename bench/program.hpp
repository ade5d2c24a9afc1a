// The main function of a benchmark program: which rows a flag stands for, checks before anything is timed.
#pragma once

#include <string>
#include <vector>

namespace bench {

struct preset {
  const char* flag;
  std::vector<std::string> arguments;  // for Google Benchmark, in its place
};

struct program {
  const char* usage;
  std::string rows;  // the filter where neither a preset nor a filter is given
  std::vector<preset> presets;
  bool (*check)();
  void (*add_rows)();
};

int run_program(const program& p, int argc, char** argv);

}  // namespace bench
