// Command lines of the examples: a program takes the options that it knows, and whatever is left over is an error.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

class usage_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class arguments {
 public:
  arguments(int argc, char** argv) : left_(argv + 1, argv + argc) {}

  // Whether the option was there.
  bool flag(const std::string& name) {
    const auto at = std::find(left_.begin(), left_.end(), name);
    if (at == left_.end()) return false;
    left_.erase(at);
    return true;
  }

  // The word after the option, if it was there.
  std::optional<std::string> text(const std::string& name) {
    const auto at = std::find(left_.begin(), left_.end(), name);
    if (at == left_.end()) return std::nullopt;
    if (at + 1 == left_.end()) throw usage_error(name + " needs a value");
    std::string value = at[1];
    left_.erase(at, at + 2);
    return value;
  }

  // The same as a whole number from `low` to `high`.
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t low, std::int64_t high) {
    const std::optional<std::string> word = text(name);
    if (!word) return std::nullopt;
    std::int64_t out = 0;
    const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), out);
    if (error != std::errc() || end != word->data() + word->size() || out < low || out > high) {
      throw usage_error(name + " needs a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return out;
  }

  // The same as a number above zero.
  std::optional<double> positive(const std::string& name) {
    const std::optional<std::string> word = text(name);
    if (!word) return std::nullopt;
    double out = 0;
    const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), out);
    if (error != std::errc() || end != word->data() + word->size() || !(out > 0) || out > 1e9) {
      throw usage_error(name + " needs a number above 0");
    }
    return out;
  }

  // To be called when every known option has been taken.
  void finish() const {
    if (!left_.empty()) throw usage_error("unknown option, or one given twice: " + left_.front());
  }

 private:
  std::vector<std::string> left_;
};

// The main function of an example: prints `help` on --help, else runs body(arguments&). 0, 1 for a failure, 2 for
// options that are wrong.
template <class Body>
int run_example(const char* name, const char* help, int argc, char** argv, Body body) {
  try {
    arguments given(argc, argv);
    if (given.flag("--help")) {
      std::fputs(help, stdout);
    } else {
      body(given);
    }
    return 0;
  } catch (const usage_error& e) {
    std::fprintf(stderr, "%s: %s (%s --help tells more)\n", name, e.what(), name);
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  }
}
