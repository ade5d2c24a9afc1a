// kvaxis_peers: our attention and that of ggml in one run, so that what disturbs one disturbs the other.
#include <ggml-cpu.h>

#include "common.hpp"
#include "program.hpp"
#include "rows.hpp"

namespace {

// Our kernels for the instruction set that this build of ggml has, or the best ones.
std::string our_isa() {
  const std::string isa = KVAXIS_PEERS_ISA;
  return isa == "native" ? isa_name(kvaxis::best_isa()) : isa;
}

constexpr const char* usage =
    "kvaxis_peers [--smoke] [--contexts] [--all] [Google Benchmark's flags]\n"
    "  Rows are named as in kvaxis_bench; ours: attend prefill read_limit. Of ggml, with its types in place of a "
    "policy:\n"
    "    ggml_flash          ggml_flash_attn_ext, as llama.cpp calls it: keys and values by token\n"
    "    ggml_mul_mat        two products with a softmax between, values transposed: llama.cpp without flash "
    "attention\n"
    "    ggml_flash_by_head  ggml_flash_attn_ext over keys and values by head\n"
    "    ggml_grouped        two products over keys by head, each for all query heads of a kv head\n"
    "    ..._prefill         for the last 512 of 4096 tokens, as our prefill\n"
    "  Without a filter: the rows of the tables (some minutes, up to 10 GB).\n"
    "  --contexts  attention from 1024 to 524288 tokens at four query heads per kv head, for plot.py\n"
    "  --all       every row\n"
    "  --smoke     one token at 1024, a few milliseconds each: that it runs, not what it measures\n";

bool check() {
  ggml_cpu_init();
  return bench::check_kernels() && bench::check_ggml();
}

void add_rows() {
  benchmark::AddCustomContext("ggml", std::string(ggml_version()) + ", built for " + KVAXIS_PEERS_ISA);
  benchmark::AddCustomContext("our instruction set", our_isa());
  bench::register_attend();
  bench::register_prefill();
  bench::register_ggml();
  bench::register_read_limit();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string ours = our_isa();
  const std::string one_token = "(attend/" + ours + "|ggml_(flash|mul_mat|flash_by_head|grouped))/.*";
  const std::string prompt = "(prefill/" + ours + "|ggml_.*_prefill)/.*/heads:(1|4)";
  const std::string reading = "read_limit/" + ours + "/.*";
  return bench::run_program(
      {usage,
       "^((" + one_token + "|" + reading + ")/dim:128/ctx:(4096|65536)|" + prompt + "/dim:128/.*)$",
       {{"--contexts", {"--benchmark_filter=^(" + one_token + "/heads:4|" + reading + ")/dim:128/ctx:[0-9]+$"}},
        {"--all", {"--benchmark_filter=."}},
        {"--smoke", {"--benchmark_filter=/heads:4/dim:128/ctx:1024$", "--benchmark_min_time=0.001"}}},
       &check,
       &add_rows},
      argc, argv);
}
