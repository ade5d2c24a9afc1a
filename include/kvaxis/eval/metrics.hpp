// How far decoded numbers are from exact ones. Rows are tokens, queries or distributions; sums are in double.
#pragma once

#include <Eigen/Core>
#include <cmath>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

// sum (x - y)^2 / sum x^2, x the exact matrix, which must not be all zero. -10 log10 of it is the signal-to-noise ratio
// in dB.
template <class A, class B>
[[nodiscard]] double normalized_square_error(const Eigen::MatrixBase<A>& exact, const Eigen::MatrixBase<B>& decoded) {
  const auto x = exact.template cast<double>();
  return (x - decoded.template cast<double>()).squaredNorm() / x.squaredNorm();
}

// Its root: the error in units of the data's root mean square.
template <class A, class B>
[[nodiscard]] double relative_error(const Eigen::MatrixBase<A>& exact, const Eigen::MatrixBase<B>& decoded) {
  return std::sqrt(normalized_square_error(exact, decoded));
}

// The relative error of all products q . k, from queries [query][channel] and keys [token][channel]. Scale-free, so the
// softmax scale is left out; queries and keys must both be rotated, or both not.
template <class Q, class A, class B>
[[nodiscard]] double logit_error(const Eigen::MatrixBase<Q>& queries, const Eigen::MatrixBase<A>& exact_keys,
                                 const Eigen::MatrixBase<B>& decoded_keys) {
  const Eigen::MatrixXd q = queries.template cast<double>();
  const Eigen::MatrixXd exact = q * exact_keys.template cast<double>().transpose();
  const Eigen::MatrixXd decoded = q * decoded_keys.template cast<double>().transpose();
  return relative_error(exact, decoded);
}

// The natural logarithms of the probabilities that finite logits, a row or a column, stand for.
template <class A>
[[nodiscard]] Eigen::ArrayXd log_softmax(const Eigen::MatrixBase<A>& logits) {
  Eigen::ArrayXd out = logits.template cast<double>().reshaped().array();
  out -= out.maxCoeff();
  out -= std::log(out.exp().sum());
  return out;
}

// KL(exact || decoded) in nats of two such distributions.
[[nodiscard]] inline double divergence(const Eigen::ArrayXd& exact, const Eigen::ArrayXd& decoded) {
  return (exact.exp() * (exact - decoded)).sum();
}

// Its mean over the rows of two matrices of logits.
template <class A, class B>
[[nodiscard]] double softmax_divergence(const Eigen::MatrixBase<A>& exact, const Eigen::MatrixBase<B>& decoded) {
  double sum = 0.0;
  for (Eigen::Index i = 0; i < exact.rows(); ++i) {
    sum += divergence(log_softmax(exact.row(i)), log_softmax(decoded.row(i)));
  }
  return sum / static_cast<double>(exact.rows());
}

KVAXIS_END_NAMESPACE
