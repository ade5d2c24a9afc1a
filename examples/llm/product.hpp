// The one operation of a model that takes nearly all of its time, in a file of its own that may be compiled for one CPU.
#pragma once

#include <cstddef>

namespace llm {

// out [rows][stride], columns first .. first + count - 1 = x [rows][inner] times weights [..][inner], row first + i for column i.
void multiply(const float* x, std::ptrdiff_t rows, std::ptrdiff_t inner, const float* weights, std::ptrdiff_t first,
              std::ptrdiff_t count, float* out, std::ptrdiff_t stride);

}  // namespace llm
