// What the drivers of tests/fuzz share: the input as a file, a database with some of its bytes
// changed, and which exceptions are answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "embedded/fuzz_parsers.h"

namespace moetune::tests {

/// The input of one parser, from anybody.
using FuzzDriver = void (*)(std::string_view input);

/// Runs a driver. base::Error and its kinds say what is wrong with the input; whatever else it
/// throws leaves this.
void run_driver(FuzzDriver driver, std::string_view input);

/// Writes the input to a file of this process, always the same one, and returns its path. `name`
/// is the file's name. What lies beside it goes.
std::string as_file(std::string_view input, const std::string& name);

/// The bytes of a file.
std::string bytes_of(const std::string& path);

/// `base` with what the input says of it: records of five bytes and more, the place (three bytes,
/// modulo the size), a number from 1 to 8 and so many bytes to put there; the number 0 cuts it
/// there. So a database stays one that is read, whatever is changed in it. An input that begins as
/// a file of SQLite is taken as it is.
std::string patched(const std::string& base, std::string_view input);

/// patched(), of the database that `make` writes at a path, which it does once.
std::string patched_database(std::string_view input, const std::string& name,
                             const std::function<void(const std::string& path)>& make);

/// Every driver, as tests/fuzz/CMakeLists.txt lists them.
#define MOETUNE_DECLARE_DRIVER(name) void fuzz_##name(std::string_view input);
MOETUNE_FUZZ_PARSERS(MOETUNE_DECLARE_DRIVER)
#undef MOETUNE_DECLARE_DRIVER

}  // namespace moetune::tests
