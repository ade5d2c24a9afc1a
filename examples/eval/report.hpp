// The results as a table for people and as JSON, from the same cells.
#pragma once

#include <vector>

#include "../common/table.hpp"
#include "retrieval.hpp"
#include "text.hpp"

namespace eval {

table make_table(const std::vector<text_result>& results);
table make_table(const std::vector<retrieval_result>& results);

}  // namespace eval
