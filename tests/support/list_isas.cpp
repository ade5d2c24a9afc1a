// Prints the instruction sets that tests/run.sh has to run: one line, best last.
#include <cstdio>

#include "machine.hpp"

int main() {
  std::puts(isa_names().c_str());
  return 0;
}
