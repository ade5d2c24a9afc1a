// The other one: the kernels of all codecs.
#define KVAXIS_DEFINE_CODECS
#include <kvaxis/cache/make_cache.hpp>
