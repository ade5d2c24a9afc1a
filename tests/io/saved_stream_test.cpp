// Saving while the sequence grows, receiving section by section.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policies.hpp"
#include "saved_files.hpp"

namespace {

const std::string policy = "k:int4-channel32-auto,v:int4-token16";

kvaxis::cache_config small() {
  kvaxis::cache_config c = test::rope_shape(2, 24);
  c.window = 10;
  c.pins = 3;
  return c;
}

// Two layers that fill up together.
struct sequence {
  std::vector<kvaxis::any_kv_cache> layers;
  std::vector<test::tokens> data;

  sequence() {
    for (std::uint64_t i = 0; i < 2; ++i) {
      layers.push_back(test::cache_of(policy, small()));
      data.emplace_back(small(), 400, i);
    }
  }
  void append(int n) {
    for (std::size_t i = 0; i < 2; ++i) {
      kvaxis::check(data[i].append_to(layers[i], static_cast<int>(layers[i].size()), n));
    }
  }
  [[nodiscard]] std::vector<const kvaxis::any_kv_cache*> sources() const { return {&layers[0], &layers[1]}; }
  [[nodiscard]] std::vector<kvaxis::any_kv_cache*> targets() { return {&layers[0], &layers[1]}; }

  [[nodiscard]] kvaxis::cache_writer writer() const {
    kvaxis::cache_writer w;
    kvaxis::check(kvaxis::cache_writer::create(sources().data(), 2, {}, w));
    return w;
  }
  [[nodiscard]] kvaxis::cache_reader reader() {
    kvaxis::cache_reader r;
    kvaxis::check(kvaxis::cache_reader::create(targets().data(), 2, {}, r));
    return r;
  }
};

void expect_same(const sequence& a, const sequence& b) {
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(test::contents(a.layers[i]) == test::contents(b.layers[i]), true);
}

int tiles_in(const test::bytes& file, std::size_t from) {
  int n = 0;
  for (const std::size_t at : test::sections(file)) n += at >= from && test::section_name(file, at) == "tile" ? 1 : 0;
  return n;
}

TEST(Stream, tiles_go_out_once_and_as_soon_as_they_are_folded) {
  sequence from;
  kvaxis::cache_writer writer = from.writer();
  test::memory_sink sink;
  kvaxis::check(writer.send_new(sink));
  EXPECT_EQ(tiles_in(sink.file, 0), 0);
  int sent = 0;
  for (int round = 0; round < 9; ++round) {
    from.append(33);
    const std::size_t before = sink.file.size();
    kvaxis::check(writer.send_new(sink));
    const int folded = static_cast<int>(from.layers[0].folded_tokens() / 32);
    EXPECT_EQ(tiles_in(sink.file, before), 2 * (folded - sent));
    sent = folded;
    const std::size_t after = sink.file.size();
    kvaxis::check(writer.send_new(sink));
    EXPECT_EQ(sink.file.size(), after);
  }
  ASSERT_GT(sent, 7);
  const std::size_t before = sink.file.size();
  kvaxis::check(writer.finish(sink));
  EXPECT_EQ(tiles_in(sink.file, before), tiles_in(test::save(from.sources()), 0) - 2 * sent);
  EXPECT_EQ(sink.file.size(), test::save(from.sources()).size());
  sequence to;
  to.append(20);
  const std::vector<kvaxis::any_kv_cache*> layers = to.targets();
  ASSERT_TRUE(kvaxis::restore(sink.file.data(), sink.file.size(), layers.data(), 2).ok());
  expect_same(to, from);
  from.append(50);
  to.append(50);
  expect_same(to, from);
}

// One section after the other, as a pipe gives them; nothing happens to the target before the commit.
TEST(Stream, section_by_section) {
  sequence from;
  from.append(200);
  const test::bytes file = test::save(from.sources());
  sequence to;
  to.append(70);
  const std::string before = test::snapshot(to.layers[0]) + test::snapshot(to.layers[1]);
  kvaxis::cache_reader reader = to.reader();
  std::size_t at = 0;
  while (at < file.size()) {
    EXPECT_FALSE(reader.complete());
    std::size_t n = 0;
    kvaxis::check(reader.section_bytes(file.data() + at, n));
    ASSERT_LE(n, file.size() - at);
    kvaxis::check(reader.accept(file.data() + at, n));
    at += n;
  }
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(test::snapshot(to.layers[0]) + test::snapshot(to.layers[1]) == before, true);
  kvaxis::cache_reader moved = std::move(reader);
  kvaxis::check(moved.commit());
  expect_same(to, from);
  EXPECT_EQ(moved.commit().code, kvaxis::errc::invalid_argument);
  EXPECT_EQ(moved.accept(file.data(), file.size()).code, kvaxis::errc::invalid_argument);
}

// A cache may be used while its new content comes in.
TEST(Stream, the_target_goes_on_until_the_commit) {
  sequence from;
  from.append(100);
  const test::bytes file = test::save(from.sources());
  sequence to;
  kvaxis::cache_reader reader = to.reader();
  for (const std::size_t at : test::sections(file)) {
    std::size_t n = 0;
    kvaxis::check(reader.section_bytes(file.data() + at, n));
    kvaxis::check(reader.accept(file.data() + at, n));
    to.append(17);
  }
  EXPECT_GT(to.layers[0].size(), 150);
  kvaxis::check(reader.commit());
  expect_same(to, from);
}

TEST(Stream, a_cache_that_was_made_anew_gets_nothing) {
  sequence from;
  from.append(100);
  const test::bytes file = test::save(from.sources());
  sequence to;
  kvaxis::cache_reader reader = to.reader();
  kvaxis::check(reader.accept(file.data(), file.size()));
  to.layers[1] = test::cache_of("k:int8-channel32-auto,v:int4-token16", small());
  EXPECT_EQ(reader.commit().argument, std::string("reader: a cache was made anew"));
  EXPECT_EQ(to.layers[0].size() + to.layers[1].size(), 0);
}

TEST(Stream, a_sink_that_fails) {
  sequence from;
  from.append(100);
  const test::bytes file = test::save(from.sources());
  std::size_t room = 0;
  const auto limited = [&room](const void*, std::size_t n) {
    if (n > room) return false;
    room -= n;
    return true;
  };
  for (std::size_t limit = 0; limit < file.size(); limit += limit < 2000 ? 1 : 211) {
    room = limit;
    kvaxis::cache_writer writer = from.writer();
    const kvaxis::status s = writer.finish(limited);
    EXPECT_EQ(s.code, kvaxis::errc::sink_failed);
    EXPECT_EQ(static_cast<std::size_t>(s.limit), limit - room);
    room = file.size();
    EXPECT_EQ(writer.finish(limited).code, kvaxis::errc::invalid_argument);
    EXPECT_EQ(writer.send_new(limited).code, kvaxis::errc::invalid_argument);
    EXPECT_EQ(room, file.size());
  }
  room = file.size();
  kvaxis::cache_writer writer = from.writer();
  EXPECT_TRUE(writer.finish(limited).ok());
  EXPECT_EQ(room, 0U);
  EXPECT_EQ(writer.finish(limited).code, kvaxis::errc::invalid_argument);
}

// All layers of a sequence, and a fork of it with its shared tiles.
TEST(Stream, of_a_sequence) {
  const test::policies p = test::find(policy);
  std::vector<kvaxis::layer_config> layers(3, {small(), p.keys, p.values});
  layers[1].config.kv_heads = 4;
  kvaxis::sequence from;
  kvaxis::check(kvaxis::sequence::create(layers.data(), 3, {}, from));
  kvaxis::sequence to;
  kvaxis::check(from.fork(to));
  for (int i = 0; i < 3; ++i) test::tokens(layers[static_cast<std::size_t>(i)].config, 150, 5).append_all_to(from[i]);
  kvaxis::sequence fork;
  kvaxis::check(from.fork(fork));
  kvaxis::check(fork.truncate(130));
  for (const kvaxis::sequence* s : {&from, &fork}) {
    test::memory_sink sink;
    kvaxis::check(kvaxis::save(*s, {}, sink));
    std::uint64_t bytes = 0;
    kvaxis::check(kvaxis::saved_bytes(*s, {}, bytes));
    EXPECT_EQ(bytes, sink.file.size());
    kvaxis::check(kvaxis::restore(sink.file.data(), sink.file.size(), to));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(test::contents(to[i]) == test::contents((*s)[i]), true);
  }
  kvaxis::sequence empty;
  test::memory_sink sink;
  EXPECT_EQ(kvaxis::save(empty, {}, sink).argument, std::string("count"));
  EXPECT_EQ(kvaxis::restore(nullptr, 0, empty).argument, std::string("count"));
}

TEST(Stream, arguments) {
  sequence s;
  kvaxis::any_kv_cache none;
  const std::vector<kvaxis::any_kv_cache*> good = s.targets();
  const std::vector<kvaxis::any_kv_cache*> twice = {good[0], good[1], good[0]};
  const std::vector<kvaxis::any_kv_cache*> with_null = {good[0], nullptr};
  const std::vector<kvaxis::any_kv_cache*> with_empty = {good[0], &none};
  const auto reading = [](const std::vector<kvaxis::any_kv_cache*>& layers, int n) {
    kvaxis::cache_reader r;
    return kvaxis::cache_reader::create(layers.empty() ? nullptr : layers.data(), n, {}, r);
  };
  const auto writing = [](const std::vector<kvaxis::any_kv_cache*>& layers, int n) {
    const std::vector<const kvaxis::any_kv_cache*> same(layers.begin(), layers.end());
    kvaxis::cache_writer w;
    return kvaxis::cache_writer::create(same.empty() ? nullptr : same.data(), n, {}, w);
  };
  EXPECT_TRUE(reading(good, 2).ok());
  EXPECT_EQ(reading(twice, 3).argument, std::string("layers"));
  EXPECT_EQ(reading(twice, 3).limit, 2);
  EXPECT_TRUE(writing(twice, 3).ok());
  for (const auto& call :
       {reading(with_null, 2), reading(with_empty, 2), writing(with_null, 2), writing(with_empty, 2)}) {
    EXPECT_EQ(call.argument, std::string("layers"));
    EXPECT_EQ(call.limit, 1);
  }
  for (const int n : {0, -1, kvaxis::max_layers + 1}) {
    EXPECT_EQ(reading(good, n).argument, std::string("count"));
    EXPECT_EQ(writing(good, n).argument, std::string("count"));
  }
  EXPECT_EQ(reading({}, 1).argument, std::string("layers"));
  EXPECT_EQ(writing({}, 1).argument, std::string("layers"));
  kvaxis::save_options o;
  o.first_layer = -1;
  const kvaxis::any_kv_cache* layer = good[0];
  kvaxis::cache_writer writer;
  EXPECT_EQ(kvaxis::cache_writer::create(&layer, 1, o, writer).argument, std::string("first_layer"));
  test::memory_sink sink;
  EXPECT_EQ(writer.send_new(sink).code, kvaxis::errc::invalid_argument);
  kvaxis::cache_reader reader;
  EXPECT_EQ(reader.accept(nullptr, 0).code, kvaxis::errc::invalid_argument);
  EXPECT_EQ(reader.commit().code, kvaxis::errc::invalid_argument);
  reader = s.reader();
  EXPECT_EQ(reader.accept(nullptr, 1).argument, std::string("data"));
  EXPECT_TRUE(reader.accept(nullptr, 0).ok());
  EXPECT_EQ(reader.commit().argument, std::string("file: truncated"));
  std::size_t n = 0;
  EXPECT_EQ(reader.section_bytes(nullptr, n).argument, std::string("header"));
}

// A length that no section has is refused before anybody makes room for it.
TEST(Stream, B49_lengths_of_sections_have_a_limit) {
  sequence s;
  s.append(150);
  const test::bytes file = test::save(s.sources());
  kvaxis::cache_reader reader = s.reader();
  for (const std::size_t at : test::sections(file)) {
    const std::string type = test::section_name(file, at);
    std::byte header[kvaxis::section_header_bytes];
    std::memcpy(header, file.data() + at, sizeof header);
    std::size_t n = 0;
    kvaxis::check(reader.section_bytes(header, n));
    for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{1} << 32, UINT64_MAX - 19, UINT64_MAX}) {
      kvaxis::detail::store_little(header + 8, bytes);
      EXPECT_EQ(reader.section_bytes(header, n).argument, std::string("file: size of a section")) << type;
    }
    if (type == "kvax" || type == "end ") continue;
    std::memcpy(header, file.data() + at, sizeof header);
    header[4] = std::byte{2};
    EXPECT_EQ(reader.section_bytes(header, n).argument, std::string("file: layer")) << type;
    header[0] = std::byte{0};
    EXPECT_EQ(reader.section_bytes(header, n).argument, std::string("file: type of a section")) << type;
  }
}

}  // namespace
