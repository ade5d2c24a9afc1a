#include "../use.hpp"

std::vector<float> plain_result() { return attend_once(); }
