// What turns text into a model's tokens and back.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf.hpp"

namespace llm {

// Tokens with a meaning of their own; -1 where a vocabulary has none.
struct special_tokens {
  int unknown = -1;    // stands for a byte that has no token
  int beginning = -1;  // what every text begins with
};

class tokenizer {
 public:
  virtual ~tokenizer() = default;
  tokenizer(const tokenizer&) = delete;  // ids_ points into tokens_
  tokenizer& operator=(const tokenizer&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(tokens_.size()); }
  // The id of a token as it is spelled in the vocabulary, such as "<|im_end|>", or -1.
  [[nodiscard]] int find(std::string_view spelling) const;
  // The tokens that the model wants before a text: one or none.
  [[nodiscard]] std::vector<int> beginning() const;

  // The tokens of plain text; nothing in it is taken for a control token, and none is added.
  [[nodiscard]] virtual std::vector<int> encode(std::string_view text) const = 0;
  // The bytes of a token. One token may be only a part of a UTF-8 sequence.
  [[nodiscard]] virtual std::string decode(int token) const = 0;

 protected:
  tokenizer(const std::vector<std::string_view>& tokens, special_tokens special);

  [[nodiscard]] std::string_view spelling(int token) const { return tokens_.at(static_cast<std::size_t>(token)); }
  // `token`, or the unknown one if it is -1. Throws gguf_error if there is none.
  [[nodiscard]] int known(int token) const;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int> ids_;
  special_tokens special_;
};

// The tokenizer that the file asks for. Throws gguf_error.
std::unique_ptr<const tokenizer> read_tokenizer(const gguf_file& file);

// The number of bytes at the front of `text` that are complete UTF-8 sequences; what follows is the beginning of one.
std::size_t complete_utf8(std::string_view text);

}  // namespace llm
