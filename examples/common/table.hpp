// A table that prints itself for people and as JSON, from the same cells.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

// A text or a number as it is printed; an empty cell is null in JSON.
struct cell {
  std::string text;
  bool is_text = true;

  cell() = default;
  cell(const char* words) : text(words) {}                                     // NOLINT
  cell(std::string words) : text(std::move(words)) {}                          // NOLINT
  cell(std::int64_t number) : text(std::to_string(number)), is_text(false) {}  // NOLINT
  cell(double number, int digits) : is_text(false) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, number);
    text = buffer;
  }
};

class table {
 public:
  // A column has a key in JSON and a title for people; an empty title hides it from them.
  struct column {
    std::string key;
    std::string title;
  };
  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<cell> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }

  // The rows first .. end - 1, texts to the left, numbers to the right.
  void print(std::size_t first, std::size_t end) const {
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      widths.push_back(columns_[c].title.size());
      for (std::size_t r = first; r < end; ++r) widths[c] = std::max(widths[c], rows_[r][c].text.size());
    }
    const auto print_line = [&](const auto& text_of) {
      std::string line;
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (columns_[c].title.empty()) continue;
        const std::string text = text_of(c), space(widths[c] - text.size(), ' ');
        line += (line.empty() ? "" : "  ") + (rows_[first][c].is_text ? text + space : space + text);
      }
      std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
    };
    print_line([&](std::size_t c) { return columns_[c].title; });
    for (std::size_t r = first; r < end; ++r) print_line([&](std::size_t c) { return rows_[r][c].text; });
  }

  // "results": a list with one object per row and line. Texts here hold nothing that JSON would want escaped.
  void print_json() const {
    std::printf("  \"results\": [\n");
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      std::printf("    {");
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const cell& x = rows_[r][c];
        const std::string value = x.text.empty() ? "null" : x.is_text ? '"' + x.text + '"' : x.text;
        std::printf("%s\"%s\": %s", c == 0 ? "" : ", ", columns_[c].key.c_str(), value.c_str());
      }
      std::printf("}%s\n", r + 1 == rows_.size() ? "" : ",");
    }
    std::printf("  ]\n");
  }

 private:
  std::vector<column> columns_;
  std::vector<std::vector<cell>> rows_;
};
