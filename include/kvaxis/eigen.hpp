// Eigen at the border of the cache: rows are tokens, the columns [kv_head][dim]. Row-major matrices and blocks of their
// rows or columns are used in place; Eigen copies any other expression first.
#pragma once

#include <Eigen/Core>
#include <climits>
#include <cstdint>

#include "cache/any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

using row_matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using rows_ref = Eigen::Ref<row_matrix, 0, Eigen::OuterStride<>>;
using const_rows_ref = Eigen::Ref<const row_matrix, 0, Eigen::OuterStride<>>;

namespace detail {

template <class Read>
status read_rows(const any_kv_cache& cache, std::int64_t first_token, int dim, rows_ref out, Read read) noexcept {
  if (out.cols() != static_cast<Eigen::Index>(cache.format()->kv_heads) * dim) {
    return {errc::invalid_argument, "out: columns", static_cast<std::int64_t>(cache.format()->kv_heads) * dim};
  }
  if (first_token < 0) return {errc::out_of_range, "first_token", 0};
  if (first_token > cache.size() - out.rows()) return {errc::out_of_range, "first_token", cache.size() - out.rows()};
  for (Eigen::Index t = 0; t < out.rows(); ++t) {
    for (int h = 0; h < cache.format()->kv_heads; ++h) {
      if (status s = read(first_token + t, h, out.row(t).data() + static_cast<Eigen::Index>(h) * dim); !s.ok())
        return s;
    }
  }
  return {};
}

}  // namespace detail

// any_kv_cache::append() from keys [token][kv_head * head_dim] and values [token][kv_head * value_dim], an empty matrix for
// latent values. Errors: also a wrong number of columns, or of rows.
inline status append(any_kv_cache& cache, const const_rows_ref& keys, const const_rows_ref& values,
                     std::int64_t first_position = next, fold_mode mode = fold_mode::now) noexcept {
  const tile_format* const f = cache.format();
  if (f == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const std::int64_t key_columns = static_cast<std::int64_t>(f->kv_heads) * f->head_dim;
  const std::int64_t value_columns = f->is_latent() ? 0 : static_cast<std::int64_t>(f->kv_heads) * f->value_dim;
  if (keys.cols() != key_columns) return {errc::invalid_argument, "keys: columns", key_columns};
  if (values.cols() != value_columns) return {errc::invalid_argument, "values: columns", value_columns};
  if (!f->is_latent() && values.rows() != keys.rows()) return {errc::invalid_argument, "values: rows", keys.rows()};
  if (keys.rows() > INT_MAX) return {errc::out_of_range, "keys: rows", INT_MAX};
  // The stride of a single row may be anything.
  const auto packed = [](const const_rows_ref& m) {
    return rows(m.data(), m.rows() > 1 ? static_cast<std::int64_t>(m.outerStride()) : 0);
  };
  return cache.append(packed(keys), packed(values), static_cast<int>(keys.rows()), first_position, mode);
}

// out.rows() keys from token `first_token` on, as read_key() gives them, into [token][kv_head * head_dim].
inline status read_keys(const any_kv_cache& cache, std::int64_t first_token, rows_ref out) noexcept {
  if (cache.format() == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const auto read = [&](std::int64_t t, int h, float* to) { return cache.read_key(t, h, to); };
  return detail::read_rows(cache, first_token, cache.format()->head_dim, out, read);
}

// The same for values, into [token][kv_head * value_dim].
inline status read_values(const any_kv_cache& cache, std::int64_t first_token, rows_ref out) noexcept {
  if (cache.format() == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const auto read = [&](std::int64_t t, int h, float* to) { return cache.read_value(t, h, to); };
  return detail::read_rows(cache, first_token, cache.format()->value_dim, out, read);
}

KVAXIS_END_NAMESPACE
