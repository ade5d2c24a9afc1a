// Includes the file named by KVAXIS_INL once per instruction set, inside its target region if it has one, and with
// KVAXIS_TARGET set to the namespace whose vocabulary it uses; with KVAXIS_INTEGER also for those that add integer units
// alone, save AMX, which has code of its own. No include guard: that is its purpose.
#include "scalar.hpp"
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
#include "vnni.hpp"
#elif defined(__aarch64__)
#include "neon_dot.hpp"
#endif

#define KVAXIS_TARGET scalar
#include KVAXIS_INL
#undef KVAXIS_TARGET

#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
#define KVAXIS_TARGET avx2
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX2)
#include KVAXIS_INL
KVAXIS_TARGET_POP
#undef KVAXIS_TARGET

#define KVAXIS_TARGET avx512
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512)
#include KVAXIS_INL
KVAXIS_TARGET_POP
#undef KVAXIS_TARGET

#if defined(KVAXIS_INTEGER)
#define KVAXIS_TARGET avx2_vnni
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX2_VNNI)
#include KVAXIS_INL
KVAXIS_TARGET_POP
#undef KVAXIS_TARGET

#define KVAXIS_TARGET avx512_vnni
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512_VNNI)
#include KVAXIS_INL
KVAXIS_TARGET_POP
#undef KVAXIS_TARGET
#endif
#elif defined(__aarch64__)
#define KVAXIS_TARGET neon
#include KVAXIS_INL
#undef KVAXIS_TARGET

#if defined(KVAXIS_INTEGER)
#define KVAXIS_TARGET neon_dot
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_NEON_DOT)
#include KVAXIS_INL
KVAXIS_TARGET_POP
#undef KVAXIS_TARGET
#endif
#endif

#undef KVAXIS_INL
#undef KVAXIS_INTEGER
