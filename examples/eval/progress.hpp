// How far a long job is, on stderr: a bar on a terminal, elsewhere a line for each finished part.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace eval {

class progress {
 public:
  // `total`: the work of all parts, in any unit.
  explicit progress(double total) : total_(total), is_terminal_(isatty(STDERR_FILENO) != 0), start_(clock::now()) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  void begin(const std::string& part) {
    part_ = part;
    part_start_ = clock::now();
    show();
  }
  void add(double work) {
    done_ += work;
    show();
  }
  // Ends the part, which was so many tokens.
  void end(int tokens) {
    const double seconds = since(part_start_);
    if (is_terminal_) {
      if (done_ > 0.999999 * total_) std::fprintf(stderr, "\r\033[K");
    } else {
      std::fprintf(stderr, "%3.0f %%  %s: %d tokens in %.1f s, %.0f tokens/s\n", 100 * done_ / total_, part_.c_str(),
                   tokens, seconds, tokens / seconds);
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  static double since(clock::time_point then) { return std::chrono::duration<double>(clock::now() - then).count(); }

  void show() const {
    if (!is_terminal_) return;
    constexpr int width = 30;
    const double share = done_ / total_, seconds = since(start_);
    const std::string bar(static_cast<std::size_t>(width * share), '#');
    std::fprintf(stderr, "\r\033[K[%-*s] %3.0f %%", width, bar.c_str(), 100 * share);
    if (share > 0) std::fprintf(stderr, ", %.0f s left", seconds / share - seconds);
    std::fprintf(stderr, "  %.60s", part_.c_str());
  }

  double total_, done_ = 0;
  bool is_terminal_;
  clock::time_point start_, part_start_;
  std::string part_;
};

}  // namespace eval
