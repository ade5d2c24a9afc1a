// ChatML, the format that SmolLM2-Instruct and many other models were tuned on.
#pragma once

#include <string>
#include <vector>

#include "tokenizer.hpp"

namespace llm {

// Of the template of SmolLM2-Instruct.
inline constexpr const char* default_system_prompt =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

// These throw gguf_error if the model does not know the format.
std::vector<int> system_message(const tokenizer& tokenizer, const std::string& text);
// The message of a user, and the beginning of the assistant's.
std::vector<int> question(const tokenizer& tokenizer, const std::string& text);

// Whether the token ends a message or a text.
bool is_end(const tokenizer& tokenizer, int token);

}  // namespace llm
