// The part of CUPTI that samples counters, as cupti_counters.cpp's tests are linked with it: chips
// with the metrics that a test gives them, calls that fail on demand, samples that a test wrote.
// Its objects are on the heap and its images are real bytes, so that a sanitizer sees what is used
// after its end, past its end, or never given back.
#pragma once

#include <cupti.h>
#include <cupti_pmsampling.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace fake {

/// A sample as the hardware has it: in percent, and in bytes.
struct HardwareSample {
  uint64_t start = 0;
  uint64_t end = 0;
  std::array<double, 4> values{};  ///< SM, tensor, read, write
};

/// What a reading of the buffer reports besides its samples.
struct Reading {
  CUptiResult result = CUPTI_SUCCESS;
  bool has_overflow = false;
  /// COUNT: what is true, END_OF_RECORDS or COUNTER_DATA_FULL.
  CUpti_PmSampling_DecodeStopReason reason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNT;
};

struct CounterMachine {
  std::string chip = "GH100";
  int current_device = 0;
  /// Metrics of the chip with the passes that each costs, alone or with others.
  std::map<std::string, size_t> metrics = {
      {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 0},
      {"sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed", 0},
      {"dram__bytes_read.sum", 0},
      {"dram__bytes_write.sum", 0},
  };
  /// By name of the function: what it returns from its `failing_call`-th call on, from 0.
  std::map<std::string, CUptiResult> failing;
  int failing_call = 0;
  /// Sizes that CUPTI asks for; 0: what it needs.
  size_t strange_image_size = 0;
  bool has_strange_image_size = false;
  /// More than there are, in the info on an image.
  size_t num_claimed_samples = 0;

  std::vector<HardwareSample> buffer;  ///< what the hardware has sampled
  std::deque<Reading> readings;        ///< of the next ones; empty: as it should be

  // What happened.
  std::map<std::string, int> calls;
  int num_initialised = 0;
  int num_hosts = 0;
  int num_samplers = 0;
  bool is_sampling = false;
  bool was_misused = false;  ///< an order of calls that CUPTI does not survive
  bool was_synchronised = false;
  size_t num_discarded = 0;  ///< samples that nobody read before the next start
  CUpti_PmSampling_SetConfig_Params config{};
};
extern CounterMachine counters;

void reset_counters();

}  // namespace fake
