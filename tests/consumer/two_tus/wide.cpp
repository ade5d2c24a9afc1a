// Compiled with -mavx2.
#include "../use.hpp"

std::vector<float> wide_result() { return attend_once(); }
