// How torchtitan logs its start, its steps and its memory: readers of rows of line_forms.cpp.
#pragma once

#include <cstddef>
#include <string_view>

namespace moetune::sweeps {

class LogCollector;

namespace titan_lines {

bool read_mark(std::string_view text, size_t at, LogCollector& log);
bool read_version(std::string_view text, size_t at, LogCollector& log);
bool read_step(std::string_view text, size_t at, LogCollector& log);
bool read_torn_step(std::string_view text, size_t at, LogCollector& log);
bool read_mesh(std::string_view text, size_t at, LogCollector& log);
bool read_listed_mesh(std::string_view text, size_t at, LogCollector& log);
bool read_trainer(std::string_view text, size_t at, LogCollector& log);
bool read_start(std::string_view text, size_t at, LogCollector& log);
bool read_model(std::string_view text, size_t at, LogCollector& log);
bool read_capacity(std::string_view text, size_t at, LogCollector& log);
bool read_retries(std::string_view text, size_t at, LogCollector& log);
bool begin_configuration(std::string_view text, size_t at, LogCollector& log);

}  // namespace titan_lines
}  // namespace moetune::sweeps
