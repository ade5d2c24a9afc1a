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

// Mean over the rows of KL(softmax(exact) || softmax(decoded)) in nats; both hold finite logits.
template <class A, class B>
[[nodiscard]] double softmax_divergence(const Eigen::MatrixBase<A>& exact, const Eigen::MatrixBase<B>& decoded) {
  double sum = 0.0;
  for (Eigen::Index i = 0; i < exact.rows(); ++i) {
    const Eigen::ArrayXd a = exact.row(i).template cast<double>().transpose().array();
    const Eigen::ArrayXd b = decoded.row(i).template cast<double>().transpose().array();
    const Eigen::ArrayXd log_p = a - a.maxCoeff() - std::log((a - a.maxCoeff()).exp().sum());
    const Eigen::ArrayXd log_q = b - b.maxCoeff() - std::log((b - b.maxCoeff()).exp().sum());
    sum += (log_p.exp() * (log_p - log_q)).sum();
  }
  return sum / static_cast<double>(exact.rows());
}

KVAXIS_END_NAMESPACE
