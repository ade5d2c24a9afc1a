// A small pool of threads for the examples. An object of it can be passed wherever the library takes a parallel_for.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <kvaxis/function_ref.hpp>
#include <mutex>
#include <thread>
#include <vector>

class thread_pool {
 public:
  // `threads` counts the calling thread, which works too; 0 takes one per processor.
  explicit thread_pool(int threads = 0) {
    if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
  }
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;
  ~thread_pool() {
    start(0, {}, true);
    for (std::thread& helper : helpers_) helper.join();
  }

  [[nodiscard]] int size() const { return static_cast<int>(helpers_.size()) + 1; }

  // Runs f(0) ... f(n - 1) and returns when all are done. One call at a time; f must not throw.
  void operator()(int n, kvaxis::task f) {
    if (n <= 1 || helpers_.empty()) {
      for (int i = 0; i < n; ++i) f(i);
      return;
    }
    start(n, f, false);
    drain(n, f);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void start(int n, kvaxis::task f, bool stop) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = f;
      count_ = n;
      next_ = 0;
      busy_ = static_cast<int>(helpers_.size());
      stop_ = stop;
      ++round_;
    }
    wake_.notify_all();
  }

  void drain(int n, kvaxis::task f) {
    for (int i = next_++; i < n; i = next_++) f(i);
  }

  void help() {
    for (unsigned seen = 0;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (stop_) return;
      const int n = count_;
      const kvaxis::task f = task_;
      lock.unlock();
      drain(n, f);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  kvaxis::task task_;
  std::atomic<int> next_{0};
  int count_ = 0, busy_ = 0;
  unsigned round_ = 0;
  bool stop_ = false;
};
