#include <kvaxis/config.hpp>

kvaxis::status checked_elsewhere(const kvaxis::status& s);

int main() { return checked_elsewhere(kvaxis::status{}).ok() ? 0 : 1; }
