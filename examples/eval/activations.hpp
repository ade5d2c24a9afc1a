// Writes keys, values and queries of chosen layers into a small file, as real data for tests.
//
// The file, all little-endian: the 8 bytes "kvaxact1"; seven int32: layers, tokens, queries, kv_heads, query_heads,
// head_dim, and 1 if rotation pairs are interleaved channels (2i, 2i + 1), 0 if they are (i, i + head_dim / 2); a
// float64: the theta of the rotation. Then for each layer an int32, its number in the model, and three arrays of f16:
// keys [token][kv_head][dim] and queries [query][query_head][dim], both before the rotation, and values
// [token][kv_head][dim], in the order keys, values, queries. The tokens stand at positions 0 .. tokens - 1; the queries
// are those of the last `queries` of them.
#pragma once

#include <string>
#include <vector>

#include "../llm/model.hpp"

namespace eval {

// Keeps the queries of the last eighth of the tokens. Throws llm::gguf_error if the layers, at least one, do not rotate alike
// or if the file cannot be written.
void dump_activations(const llm::model& model, thread_pool& pool, const std::vector<int>& tokens,
                      const std::vector<int>& layers, const std::string& path);

}  // namespace eval
