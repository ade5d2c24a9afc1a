// The rows that kvaxis_peers adds to those of the other benchmarks.
#pragma once

namespace bench {

// The paths of ggml_attention.hpp, with ggml's types of keys and values in place of a policy.
void register_ggml();
// False, and a line on the standard error stream, if one of ggml's paths is far from attention in double.
bool check_ggml();

// prefill/: our attention for the last tokens of a prompt.
constexpr int prefill_queries = 512;
constexpr int prefill_context = 4096;
void register_prefill();

}  // namespace bench
