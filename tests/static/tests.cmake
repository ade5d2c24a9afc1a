# Wrong policies do not compile, and the message says why.
set(messages
    "not a codec. A codec has bits, name, params, fit"
    "the codec's bits must be 2 to 6, 8, 16 or 32"
    "the scale is given, so the codec must be linear"
    "the group is a number of channels, a multiple of 16"
    "use per_channel for such keys"
    "rotation is pre, automatic, tile_rotated, post or a number of hot pairs"
    "per_channel keys need a group of 32, 64, 128 or 256 tokens"
    "per_channel values need a group of 32, 64, 128 or 256 tokens"
    "the group of per_channel values must divide the group of the keys"
    "latent values are those of the cache's own keys"
    "the policy in brackets is that of the keys")
set(compile "${CMAKE_CXX_COMPILER}" -std=c++17 -fsyntax-only "-I${PROJECT_SOURCE_DIR}/include"
            "${CMAKE_CURRENT_LIST_DIR}/refusals.cpp")

add_test(NAME static.right_policies_compile COMMAND ${compile} -DREFUSAL=0)
set_tests_properties(static.right_policies_compile PROPERTIES LABELS "any_isa;build")
set(number 0)
foreach(message IN LISTS messages)
  math(EXPR number "${number} + 1")
  add_test(NAME static.refusal_${number} COMMAND ${compile} -DREFUSAL=${number})
  set_tests_properties(static.refusal_${number} PROPERTIES LABELS "any_isa;build" PASS_REGULAR_EXPRESSION
                                                           "error: [^\n]*${message}")
endforeach()
