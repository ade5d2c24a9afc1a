// One of the two units that compile the kernels for tests, benchmarks and examples; see KVAXIS_SEPARATE_KERNELS.
#define KVAXIS_DEFINE_KERNELS
#include <kvaxis/kvaxis.hpp>
