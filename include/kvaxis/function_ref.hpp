// A callable by reference: two pointers, no allocation. The callable must outlive the call it is passed to.
#pragma once

#include <type_traits>
#include <utility>

#include "config.hpp"

KVAXIS_BEGIN_NAMESPACE

template <class Signature>
class function_ref;

template <class R, class... Args>
class function_ref<R(Args...)> {
 public:
  constexpr function_ref() noexcept = default;

  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, function_ref> &&
                                              std::is_invocable_r_v<R, F&, Args...>>>
  function_ref(F&& f) noexcept  // NOLINT(google-explicit-constructor): lambdas are passed in place
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }
  explicit constexpr operator bool() const noexcept { return call_ != nullptr; }

 private:
  void* object_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

// parallel_for(n, f) runs f(0) ... f(n - 1) in any order, on any threads, and returns when all are done. An empty one
// means "serial". Threads belong to the engine; results do not depend on how the tasks were spread.
using task = function_ref<void(int)>;
using parallel_for = function_ref<void(int, task)>;

KVAXIS_END_NAMESPACE
