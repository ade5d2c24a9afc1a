// The BPE of SentencePiece, the tokenizer of Llama 1 and 2, Mistral and Gemma: text is one piece, its characters are the
// symbols, and of all adjacent symbols whose union is a token, those whose token has the highest score are merged first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer.hpp"

namespace llm {

// What a token is for, with the file's numbers.
enum class token_kind : std::int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,  // found in the text before anything is merged, and never merged with its neighbors
  unused = 5,
  byte = 6  // "<0x0A>": a byte of a character that is no token
};

class sentence_piece_tokenizer final : public tokenizer {
 public:
  // Of each token the score and the token_kind; tokens spell a space as U+2581. `space_prefix`: a text is encoded as if
  // a space stood before it. Throws gguf_error.
  sentence_piece_tokenizer(const std::vector<std::string_view>& tokens, std::vector<float> scores,
                           const std::vector<std::int32_t>& kinds, bool space_prefix, special_tokens special);

  [[nodiscard]] std::vector<int> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(int token) const override;

 private:
  struct user_token {
    std::string spelling;
    int id;
  };

  [[nodiscard]] token_kind kind(int token) const { return kinds_[static_cast<std::size_t>(token)]; }
  [[nodiscard]] int find_normal(std::string_view spelling) const;
  [[nodiscard]] const user_token* first_user_token(std::string_view text) const;
  void encode_piece(std::string_view text, std::vector<int>& out) const;

  std::vector<float> scores_;
  std::vector<token_kind> kinds_;
  std::array<int, 256> byte_tokens_;                      // -1 where the vocabulary has none
  std::array<std::vector<user_token>, 256> user_tokens_;  // by their first byte; longer ones first
  bool space_prefix_;
};

}  // namespace llm
