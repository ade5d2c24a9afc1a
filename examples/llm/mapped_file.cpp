#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace llm {

mapped_file::mapped_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  struct stat about = {};
  const bool is_file = ::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
  void* const memory =
      is_file ? ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  ::close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot read " + path + ": not a file, or empty");
  data_ = static_cast<const std::uint8_t*>(memory);
  size_ = static_cast<std::size_t>(about.st_size);
}

mapped_file::~mapped_file() { ::munmap(const_cast<std::uint8_t*>(data_), size_); }

}  // namespace llm
