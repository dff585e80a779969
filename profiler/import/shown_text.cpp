#include "profiler/import/shown_text.h"

#include "profiler/imported_trace.h"

namespace moetune::profiler {

std::string shown_text(std::string_view text, size_t max_bytes) {
  NameTable clean;
  std::string line = clean[clean.intern(text.substr(0, max_bytes))];
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace moetune::profiler
