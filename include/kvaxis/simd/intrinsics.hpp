// The intrinsics header, once, for the files of this folder.
#pragma once

#include "../config.hpp"

#if defined(KVAXIS_EMULATE)
#include KVAXIS_EMULATE
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns inside its own avx512fintrin.h
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#define KVAXIS_TARGET_AVX2 "avx2,fma,f16c"
#define KVAXIS_TARGET_AVX2_VNNI "avx2,fma,f16c,avxvnni"
#define KVAXIS_TARGET_AVX512 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#define KVAXIS_TARGET_AVX512_VNNI "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define KVAXIS_TARGET_AVX512_FP16 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512fp16"
#define KVAXIS_TARGET_AVX512_AMX "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8"

// For GCC the extension belongs to Armv8.2, and nothing is inlined into a region that lacks a part of the flags: it has
// all that older CPUs may have, and where these macros tell of a newer one it adds to the flags.
#if defined(__clang__)
#define KVAXIS_TARGET_NEON_DOT "dotprod"
#elif defined(__ARM_FEATURE_DOTPROD) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC) || defined(__ARM_FEATURE_SVE) || \
    defined(__ARM_FEATURE_JCVT)
#define KVAXIS_TARGET_NEON_DOT "+dotprod"
#else
#define KVAXIS_TARGET_NEON_DOT "arch=armv8.2-a+dotprod+crypto"
#endif
