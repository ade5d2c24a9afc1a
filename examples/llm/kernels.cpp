// One of the two units that compile the kernels for all others here; see kvaxis/config.hpp.
#define KVAXIS_DEFINE_KERNELS
#include <kvaxis/kvaxis.hpp>
