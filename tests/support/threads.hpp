// A function on several threads at once.
#pragma once

#include <thread>
#include <vector>

namespace test {

// f(0) .. f(n - 1), each on a thread of its own.
template <class F>
void on_threads(int n, const F& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([&f, i] { f(i); });
  for (std::thread& t : threads) t.join();
}

}  // namespace test
