// Byte-level BPE, the tokenizer of GPT-2 and of its many descendants: text is cut into words by a fixed pattern, the
// bytes of a word become symbols, and adjacent symbols are merged in the order of the vocabulary's list of merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf.hpp"

namespace llm {

// What cuts text into words. `smollm` splits every digit off before the pattern of GPT-2 is applied.
enum class pre_tokenizer { gpt2, smollm };

// The words of `text`, in order and without gaps. Bytes that are not UTF-8 count as symbols.
std::vector<std::string_view> split_words(std::string_view text, pre_tokenizer kind);

class tokenizer {
 public:
  // The parts of a vocabulary as a GGUF file holds them: tokens in the byte-level alphabet, merges such as "a b".
  // `unknown` is the token for a byte that has none, or -1. Throws gguf_error.
  tokenizer(const std::vector<std::string_view>& tokens, const std::vector<std::string_view>& merges,
            pre_tokenizer kind, int unknown);
  explicit tokenizer(const gguf_file& file);  // throws gguf_error
  tokenizer(const tokenizer&) = delete;       // ids_ points into tokens_
  tokenizer& operator=(const tokenizer&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(tokens_.size()); }
  // The tokens of plain text; nothing in it is taken for a control token, and none is added.
  [[nodiscard]] std::vector<int> encode(std::string_view text) const;
  // The bytes of a token. One token may be only a part of a UTF-8 sequence.
  [[nodiscard]] std::string decode(int token) const;
  // The id of a token as it is spelled in the vocabulary, such as "<|im_end|>", or -1.
  [[nodiscard]] int find(std::string_view spelling) const;

 private:
  struct merge {
    int rank, result;
  };
  static std::uint64_t pair_key(int left, int right);
  void encode_word(std::string_view word, std::vector<int>& out) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int> ids_;
  std::unordered_map<std::uint64_t, merge> merges_;
  std::vector<int> byte_tokens_;  // -1 where the vocabulary has no token for a byte
  pre_tokenizer kind_;
  int unknown_;
};

// The number of bytes at the front of `text` that are complete UTF-8 sequences; what follows is the beginning of one.
std::size_t complete_utf8(std::string_view text);

}  // namespace llm
