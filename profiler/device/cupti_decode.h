// CUPTI's buffers as plain records. Only cupti_decode.cpp knows the layouts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/device/device_activity.h"

namespace moetune::profiler {

/// Appends the records of one buffer to `out`. Records of unknown kinds are skipped and counted; a
/// buffer that ends in the middle of a record, or in something that is none, is read up to there
/// and counted. Kernel names are copied, so that the buffer can go.
void decode_cupti_buffer(uint8_t* buffer, size_t valid_bytes, DeviceActivities& out);

/// Frees what CUPTI allocated for records of the buffer and left to us; once per buffer.
void free_cupti_attachments(uint8_t* buffer, size_t valid_bytes);

}  // namespace moetune::profiler
