// kvaxis_bench: registers every row, checks that what is timed is right, runs a choice of rows.
#include <cstdio>
#include <cstring>
#include <fstream>

#include "common.hpp"

namespace {

// The rows that the README's tables are made of; all others are a matter of --benchmark_filter.
constexpr const char* key_rows =
    "^((scores|values)/.*/k:int4.*/dim:128/ctx:4096"
    "|naive(_values)?/.*/k:int4.*/dim:128/ctx:4096"
    "|attend/(avx2|avx512|neon)/k:int4.*/dim:128/ctx:(4096|65536)"
    "|attend/(avx2|avx512|neon)/.*/heads:4/dim:128/ctx:65536"
    "|attend/scalar/k:int4.*/heads:4/dim:128/ctx:65536"
    "|read_limit/.*/dim:128/ctx:65536"
    "|(append|fold)/.*/dim:128/ctx:4096)$";

constexpr const char* usage =
    "kvaxis_bench [--smoke] [--all] [Google Benchmark's flags]\n"
    "  Rows are named <kind>/<isa>/<policy>/heads:<query heads per kv head>/dim:<head_dim>/ctx:<tokens>;\n"
    "  kinds: attend scores values naive naive_values append fold read_limit. 8 kv heads, one thread, CPU time.\n"
    "  Without a filter: the rows of the tables in bench/README.md (about two minutes).\n"
    "  --all     every row (half an hour); the same as --benchmark_filter=.\n"
    "  --smoke   every kind at its smallest, a few milliseconds each: that it runs, not what it measures\n";

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

int main(int argc, char** argv) {
  std::vector<std::string> arguments = {argv[0]};
  bool has_filter = false;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--help") {
      std::fputs(usage, stdout);
      return 0;
    }
    has_filter = has_filter || a.rfind("--benchmark_filter", 0) == 0 || a == "--all" || a == "--smoke";
    if (a == "--all") {
      arguments.emplace_back("--benchmark_filter=.");
    } else if (a == "--smoke") {
      arguments.emplace_back("--benchmark_filter=/heads:(1|8)/dim:(64|256)/ctx:1024$");
      arguments.emplace_back("--benchmark_min_time=0.001");
    } else {
      arguments.push_back(a);
    }
  }
  if (!has_filter) arguments.push_back(std::string("--benchmark_filter=") + key_rows);

  std::vector<char*> pointers;
  for (std::string& a : arguments) pointers.push_back(a.data());
  int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;
  if (!bench::check_kernels() || !bench::check_naive()) return 1;

  add_context();
  bench::register_attend();
  bench::register_scores();
  bench::register_values();
  bench::register_naive();
  bench::register_append();
  bench::register_read_limit();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
