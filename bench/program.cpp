#include "program.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "common.hpp"

namespace bench {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

void add_context() {
  std::string ran;
  std::string lacking;
  for (int i = 0; i < kvaxis::isa_count; ++i) {
    const auto isa = static_cast<kvaxis::isa>(i);
    (kvaxis::has_isa(isa) ? ran : lacking) += std::string(isa_name(isa)) + " ";
  }
  benchmark::AddCustomContext("cpu", cpu_name());
  benchmark::AddCustomContext("instruction sets", ran);
  benchmark::AddCustomContext("unmeasured (the CPU lacks them)", lacking.empty() ? "none" : lacking);
}

}  // namespace

int run_program(const program& p, int argc, char** argv) {
  std::vector<std::string> arguments = {argv[0]};
  bool has_filter = false;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--help") {
      std::fputs(p.usage, stdout);
      return 0;
    }
    const auto chosen = std::find_if(p.presets.begin(), p.presets.end(), [&](const preset& x) { return a == x.flag; });
    if (chosen != p.presets.end()) {
      arguments.insert(arguments.end(), chosen->arguments.begin(), chosen->arguments.end());
    } else {
      arguments.push_back(a);
    }
    has_filter = has_filter || a.rfind("--benchmark_filter", 0) == 0 || chosen != p.presets.end();
  }
  if (!has_filter) arguments.push_back("--benchmark_filter=" + p.rows);

  std::vector<char*> pointers;
  for (std::string& a : arguments) pointers.push_back(a.data());
  int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;
  if (!p.check()) return 1;

  add_context();
  p.add_rows();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
