#include "tokenizer.hpp"

#include "byte_pair_tokenizer.hpp"
#include "sentence_piece_tokenizer.hpp"

namespace llm {

tokenizer::tokenizer(const std::vector<std::string_view>& tokens, special_tokens special)
    : tokens_(tokens.begin(), tokens.end()), special_(special) {
  for (int id = 0; id < size(); ++id) ids_.emplace(tokens_[static_cast<std::size_t>(id)], id);
}

int tokenizer::find(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  return found == ids_.end() ? -1 : found->second;
}

std::vector<int> tokenizer::beginning() const {
  return special_.beginning < 0 ? std::vector<int>{} : std::vector<int>{special_.beginning};
}

int tokenizer::known(int token) const {
  if (token >= 0) return token;
  if (special_.unknown < 0) throw gguf_error("the vocabulary has no token for a byte of the text");
  return special_.unknown;
}

std::unique_ptr<const tokenizer> read_tokenizer(const gguf_file& file) {
  const std::string prefix = "tokenizer.ggml.";
  const std::vector<std::string_view> tokens = file.texts(prefix + "tokens");
  const auto id = [&](const char* name) {
    const std::string key = prefix + name + "_token_id";
    return file.has(key) ? static_cast<int>(file.integer(key, 0, static_cast<std::int64_t>(tokens.size()) - 1)) : -1;
  };
  const auto flag = [&](const char* name, bool otherwise) {
    return file.has(prefix + name) ? file.integer(prefix + name, 0, 1) != 0 : otherwise;
  };
  const std::string_view model = file.text(prefix + "model");
  const bool is_byte_pair = model == "gpt2";
  if (!is_byte_pair && model != "llama") {
    throw gguf_error("the tokenizer is neither a byte-level BPE ('gpt2') nor one of SentencePiece ('llama')");
  }
  const special_tokens special{id("unknown"), flag("add_bos_token", !is_byte_pair) ? id("bos") : -1};
  if (is_byte_pair) {
    return std::make_unique<byte_pair_tokenizer>(tokens, file.texts(prefix + "merges"),
                                                 find_pre_tokenizer(file.text(prefix + "pre")), special);
  }
  return std::make_unique<sentence_piece_tokenizer>(tokens, file.reals(prefix + "scores"),
                                                    file.integers(prefix + "token_type"),
                                                    flag("add_space_prefix", true), special);
}

std::size_t complete_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<std::uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // the lead byte comes before it
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace llm
