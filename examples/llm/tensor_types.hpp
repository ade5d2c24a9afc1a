// The types of tensors in GGUF files: rows are cut into blocks of a fixed number of numbers, each stored on its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm {

// The types that are known here, with the file's numbers for them.
enum class tensor_type : std::uint32_t { f32 = 0, f16 = 1, q4_1 = 3, q5_0 = 6, q8_0 = 8, q4_k = 12, q6_k = 14 };
inline constexpr const char* known_tensor_types =
    "F32 (0), F16 (1), Q4_1 (3), Q5_0 (6), Q8_0 (8), Q4_K (12), Q6_K (14)";

struct block_size {
  std::size_t numbers, bytes;
};
// False if `type`, a number out of a file, is none of the known types.
bool find_block_size(std::uint32_t type, block_size& out);

// The numbers of `blocks` blocks that lie one after the other.
void dequantize_blocks(tensor_type type, const std::uint8_t* from, std::size_t blocks, float* out);

}  // namespace llm
