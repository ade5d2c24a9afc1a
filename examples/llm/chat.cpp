#include "chat.hpp"

namespace llm {
namespace {

int control_token(const tokenizer& tokenizer, const char* spelling) {
  const int token = tokenizer.find(spelling);
  if (token < 0) throw gguf_error("this model does not know the chat format; use --raw to continue a text");
  return token;
}

void append(const tokenizer& tokenizer, const std::string& text, std::vector<int>& to) {
  const std::vector<int> tokens = tokenizer.encode(text);
  to.insert(to.end(), tokens.begin(), tokens.end());
}

std::vector<int> message(const tokenizer& tokenizer, const std::string& text) {
  std::vector<int> out{control_token(tokenizer, "<|im_start|>")};
  append(tokenizer, text, out);
  out.push_back(control_token(tokenizer, "<|im_end|>"));
  append(tokenizer, "\n", out);
  return out;
}

}  // namespace

std::vector<int> system_message(const tokenizer& tokenizer, const std::string& text) {
  return message(tokenizer, "system\n" + text);
}

std::vector<int> question(const tokenizer& tokenizer, const std::string& text) {
  std::vector<int> out = message(tokenizer, "user\n" + text);
  out.push_back(control_token(tokenizer, "<|im_start|>"));
  append(tokenizer, "assistant\n", out);
  return out;
}

bool is_end(const tokenizer& tokenizer, int token) {
  for (const char* const end : {"<|im_end|>", "<|endoftext|>", "<eos>"}) {
    if (token == tokenizer.find(end)) return true;
  }
  return false;
}

}  // namespace llm
