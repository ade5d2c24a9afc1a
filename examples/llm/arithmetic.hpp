// The option --arithmetic.
#pragma once

#include <kvaxis/attention/options.hpp>

#include "../common/arguments.hpp"

inline kvaxis::arithmetic take_arithmetic(arguments& given, kvaxis::arithmetic otherwise) {
  const std::optional<std::string> name = given.text("--arithmetic");
  if (!name) return otherwise;
  if (*name == "automatic") return kvaxis::arithmetic::automatic;
  if (*name == "f32") return kvaxis::arithmetic::f32;
  if (*name == "int8") return kvaxis::arithmetic::int8;
  throw usage_error("--arithmetic is automatic, f32 or int8");
}
