// The C library's long double functions, called and never replaced: with -ffast-math on x86 a compiler would otherwise
// put the FSIN instruction in their place, which is wrong for large angles.
#pragma once

#include <cmath>

using long_double_function = long double (*)(long double);
using long_double_function2 = long double (*)(long double, long double);
inline const volatile long_double_function exact_sine = &::sinl;
inline const volatile long_double_function exact_cosine = &::cosl;
inline const volatile long_double_function exact_log = &::logl;
inline const volatile long_double_function2 exact_power = &::powl;
constexpr long double exact_pi = 3.14159265358979323846264338327950288L;
