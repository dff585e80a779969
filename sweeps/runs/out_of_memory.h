// What messages about missing memory of a device or of the host say. Readers of rows in
// failure_forms.cpp.
#pragma once

#include "sweeps/runs/failure_forms.h"

namespace moetune::sweeps::out_of_memory {

// Of a device.
/// PyTorch's allocator, with its figures.
FailureReader read_allocator;
FailureReader read_exception_class;
FailureReader read_quoted;
/// Words that only programs on ROCm print.
FailureReader read_rocm;
FailureReader read_queue_without_memory;

// Of the host.
FailureReader read_memory_error;
FailureReader read_container;
FailureReader read_bad_alloc;
FailureReader read_job_limit;

}  // namespace moetune::sweeps::out_of_memory
