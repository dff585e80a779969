// Lines that DeepSpeed prints about steps and memory. Readers of rows in line_forms.cpp.
#pragma once

#include <cstddef>
#include <string_view>

namespace moetune::sweeps {

class LogCollector;

namespace deepspeed_lines {

bool read_rate(std::string_view text, size_t at, LogCollector& log);
bool read_pipeline(std::string_view text, size_t at, LogCollector& log);
bool read_step(std::string_view text, size_t at, LogCollector& log);
bool read_memory(std::string_view text, size_t at, LogCollector& log);

}  // namespace deepspeed_lines
}  // namespace moetune::sweeps
