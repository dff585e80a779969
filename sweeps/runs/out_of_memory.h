// What messages about missing memory of a device or of the host say. Readers of rows in
// failure_forms.cpp.
#pragma once

#include <cstddef>
#include <string_view>

namespace moetune::sweeps {

class LogCollector;
struct FailureForm;

namespace out_of_memory {

// Of a device.
/// PyTorch's allocator, with its figures.
bool read_allocator(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_exception_class(const FailureForm& form, std::string_view text, size_t at,
                          LogCollector& log);
bool read_quoted(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
/// Words that only programs on ROCm print.
bool read_rocm(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_queue_without_memory(const FailureForm& form, std::string_view text, size_t at,
                               LogCollector& log);

// Of the host.
bool read_memory_error(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log);
bool read_container(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_bad_alloc(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_job_limit(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);

}  // namespace out_of_memory
}  // namespace moetune::sweeps
