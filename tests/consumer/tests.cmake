# Installs the library, and builds and runs the consumer against the installed tree and against the sources.
set(work "${CMAKE_CURRENT_BINARY_DIR}/consumer")
set(source "${CMAKE_CURRENT_LIST_DIR}")
set(options "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS}"
            -DCMAKE_BUILD_TYPE=Release)
set(installed "-DCMAKE_PREFIX_PATH=${work}/prefix")

add_test(NAME consumer.install COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${work}/prefix")

add_test(
  NAME consumer.find_package
  COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${source}" "${work}/find_package" --build-generator
          "${CMAKE_GENERATOR}" --build-options ${options} ${installed} --test-command consumer)

add_test(
  NAME consumer.add_subdirectory
  COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${source}" "${work}/add_subdirectory" --build-generator
          "${CMAKE_GENERATOR}" --build-target consumer --build-options ${options} "-DKVAXIS_SOURCE=${PROJECT_SOURCE_DIR}"
          --test-command consumer)

add_test(NAME consumer.two_tus COMMAND "${work}/find_package/two_tus")

add_test(NAME consumer.refused_version
         COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${work}/refused" -G "${CMAKE_GENERATOR}" ${options} ${installed}
                 -DKVAXIS_WANTED=99)
set_tests_properties(consumer.refused_version PROPERTIES PASS_REGULAR_EXPRESSION
                     "requested version \"99\".*kvaxisConfig.cmake, version: ${PROJECT_VERSION}")

add_test(NAME consumer.exchange_does_not_link COMMAND "${CMAKE_COMMAND}" --build "${work}/find_package" --target exchange)
set_tests_properties(consumer.exchange_does_not_link PROPERTIES PASS_REGULAR_EXPRESSION
                     "undefined reference to .*checked_elsewhere")

set_tests_properties(consumer.install PROPERTIES FIXTURES_SETUP installed)
set_tests_properties(consumer.find_package PROPERTIES FIXTURES_REQUIRED installed FIXTURES_SETUP built)
set_tests_properties(consumer.refused_version PROPERTIES FIXTURES_REQUIRED installed)
set_tests_properties(consumer.two_tus consumer.exchange_does_not_link PROPERTIES FIXTURES_REQUIRED built)
set_tests_properties(
  consumer.install consumer.find_package consumer.add_subdirectory consumer.two_tus consumer.refused_version
  consumer.exchange_does_not_link PROPERTIES LABELS "any_isa;build")
