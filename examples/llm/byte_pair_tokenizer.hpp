// Byte-level BPE, the tokenizer of GPT-2 and of its many descendants: text is cut into words by a fixed pattern, the
// bytes of a word become symbols, and adjacent symbols are merged in the order of the vocabulary's list of merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer.hpp"

namespace llm {

// What cuts text into words. `smollm` splits every digit off before the pattern of GPT-2 is applied.
enum class pre_tokenizer { gpt2, smollm };

// The one that files call `name`. Throws gguf_error.
pre_tokenizer find_pre_tokenizer(std::string_view name);

// The words of `text`, in order and without gaps. Bytes that are not UTF-8 count as symbols.
std::vector<std::string_view> split_words(std::string_view text, pre_tokenizer kind);

class byte_pair_tokenizer final : public tokenizer {
 public:
  // Tokens in the byte-level alphabet, merges such as "a b". Throws gguf_error.
  byte_pair_tokenizer(const std::vector<std::string_view>& tokens, const std::vector<std::string_view>& merges,
                      pre_tokenizer kind, special_tokens special);

  [[nodiscard]] std::vector<int> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(int token) const override;

 private:
  struct merge {
    int rank, result;
  };
  static std::uint64_t pair_key(int left, int right);
  void encode_word(std::string_view word, std::vector<int>& out) const;

  std::unordered_map<std::uint64_t, merge> merges_;
  std::vector<int> byte_tokens_;  // -1 where the vocabulary has no token for a byte
  pre_tokenizer kind_;
};

}  // namespace llm
