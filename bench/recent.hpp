// Large things by name, built at first use; the least recently used ones go when together they are too many bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <string>
#include <utility>

namespace bench {

template <class T>
class recent {
 public:
  explicit recent(std::size_t limit) : limit_(limit) {}

  // make() answers the thing and its bytes. What get() answered is valid until the next call.
  template <class Make>
  const T& get(const std::string& name, Make&& make) {
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const held& h) { return h.name == name; });
    if (found != held_.end()) {
      held_.splice(held_.begin(), held_, found);
    } else {
      auto [thing, bytes] = make();
      held_.push_front({name, std::move(thing), bytes});
      total_ += bytes;
      for (; total_ > limit_ && held_.size() > 1; held_.pop_back()) total_ -= held_.back().bytes;
    }
    return held_.front().thing;
  }

 private:
  struct held {
    std::string name;
    T thing;
    std::size_t bytes;
  };
  std::list<held> held_;  // the last used first
  std::size_t limit_;
  std::size_t total_ = 0;
};

}  // namespace bench
