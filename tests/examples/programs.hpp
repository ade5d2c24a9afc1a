// Runs the examples as programs and takes their output apart.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

struct outcome {
  int exit_code = -1;
  std::string text;
};

// Runs an example; its messages on stderr are part of the text.
inline outcome run(const std::string& command) {
  outcome out;
  FILE* pipe = popen((KVAXIS_EXAMPLES "/" + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.text.append(buffer, n);
  const int state = pclose(pipe);
  if (WIFEXITED(state)) out.exit_code = WEXITSTATUS(state);
  return out;
}

inline std::string file_text(const std::string& path) {
  std::ifstream file(KVAXIS_SOURCE "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<std::string> lines_with(const std::string& text, const std::string& what) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) {
    if (line.find(what) != std::string::npos) out.push_back(line);
  }
  return out;
}

// The number after `"key": `; NaN where there is none.
inline double number(const std::string& text, const std::string& key) {
  const std::size_t at = text.find('"' + key + "\": ");
  return at == std::string::npos ? std::nan("") : std::strtod(text.c_str() + at + key.size() + 4, nullptr);
}

// Every number of the results stands in the table too.
inline void expect_same_figures(const std::string& command, const std::vector<std::string>& keys) {
  const outcome table = run(command);
  const outcome json = run(command + " --json");
  ASSERT_EQ(table.exit_code, 0) << table.text;
  ASSERT_EQ(json.exit_code, 0) << json.text;
  const std::vector<std::string> rows = lines_with(json.text, keys[0]);
  ASSERT_FALSE(rows.empty());
  for (const std::string& row : rows) {
    for (const std::string& key : keys) {
      const std::size_t begin = row.find('"' + key + "\": ") + key.size() + 4;
      const std::string figure = row.substr(begin, row.find_first_of(",}", begin) - begin);
      EXPECT_TRUE(figure == "null" || table.text.find(figure) != std::string::npos) << key << ": " << figure;
    }
  }
}
