#include "product.hpp"

#include <Eigen/Dense>

namespace llm {

void multiply(const float* x, std::ptrdiff_t rows, std::ptrdiff_t inner, const float* weights, std::ptrdiff_t first,
              std::ptrdiff_t count, float* out, std::ptrdiff_t stride) {
  using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const matrix> left(x, rows, inner);
  const Eigen::Map<const matrix> right(weights + first * inner, count, inner);
  Eigen::Map<matrix, 0, Eigen::OuterStride<>> to(out + first, rows, count, Eigen::OuterStride<>(stride));
  to.noalias() = left * right.transpose();
}

}  // namespace llm
