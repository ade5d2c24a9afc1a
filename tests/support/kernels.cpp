// One of the two units that compile the kernels for all units of the tests; see config.hpp.
#define KVAXIS_DEFINE_KERNELS
#include <kvaxis/kvaxis.hpp>
