// kvaxis_bench: registers every row, checks that what is timed is right, runs a choice of rows.
#include "common.hpp"
#include "program.hpp"

namespace {

// The rows that the README's tables are made of; all others are a matter of --benchmark_filter.
constexpr const char* key_rows =
    "^((scores|values)/.*/k:int4.*/dim:128/ctx:4096"
    "|naive(_values)?/.*/k:int4.*/dim:128/ctx:4096"
    "|attend(_f32)?/(avx2(_vnni)?|avx512(_vnni|_fp16|_amx)?|neon(_dot)?)/k:int4.*/dim:128/ctx:(4096|65536)"
    "|attend/(avx2|avx512(_vnni|_fp16)?|neon(_dot)?)/.*/heads:4/dim:128/ctx:65536"
    "|attend/(avx2|avx512(_vnni|_fp16|_amx)?|neon(_dot)?)/.*/(heads:(16|128)/dim:576|heads:1/dim:192|heads:32/dim:128)/"
    "ctx:4096"
    "|attend/scalar/k:int4.*/heads:4/dim:128/ctx:65536"
    "|read_limit/.*/dim:128/ctx:65536"
    "|(append|fold)/.*/dim:128/ctx:4096"
    "|lists/.*/manual_time)$";

constexpr const char* usage =
    "kvaxis_bench [--smoke] [--contexts] [--all] [Google Benchmark's flags]\n"
    "  Rows are named <kind>/<isa>/<policy>/heads:<query heads per kv head>/dim:<head_dim>/ctx:<tokens>;\n"
    "  kinds: attend attend_f32 scores values naive naive_values append fold read_limit. 8 kv heads, one thread, CPU "
    "time. v:latent and heads:32 have one kv head.\n"
    "  And lists/<operation>/ctx:<tokens>: roll back, eviction, fork, shift, splice, in microseconds.\n"
    "  Without a filter: the rows of the tables in bench/README.md (about two minutes).\n"
    "  --contexts  attention and read limit from 1024 to 524288 tokens, for plot.py (ten minutes, up to 8 GB)\n"
    "  --all       every row but those of --contexts alone (half an hour)\n"
    "  --smoke     every kind at its smallest, a few milliseconds each: that it runs, not what it measures\n";

bool check() { return bench::check_kernels() && bench::check_naive(); }

void add_rows() {
  bench::register_attend();
  bench::register_scores();
  bench::register_values();
  bench::register_naive();
  bench::register_append();
  bench::register_lists();
  bench::register_read_limit();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string best = isa_name(kvaxis::best_isa());
  const std::string curves = "attend/(avx2|" + best + ")/.*/heads:4|read_limit/" + best;
  return bench::run_program({usage,
                             key_rows,
                             {{"--contexts", {"--benchmark_filter=^(" + curves + "/.*)/dim:128/ctx:[0-9]+$"}},
                              {"--all", {"--benchmark_filter=-/ctx:(2048|8192|32768|131072|262144|524288)$"}},
                              {"--smoke",
                               {"--benchmark_filter=/heads:(1|8)/dim:(64|256)/ctx:1024$|auto,v:latent/heads:16/"
                                ".*ctx:4096$|^lists/.*ctx:4096/",
                                "--benchmark_min_time=0.001"}}},
                             &check,
                             &add_rows},
                            argc, argv);
}
