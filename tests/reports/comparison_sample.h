// The page of two runs as data, with something in every section: for its tests and to look at.
#pragma once

#include <string>

#include "reports/comparison_page.h"
#include "tests/reports/diagnosis_sample.h"

namespace moetune::tests {

/// `text` is in every text that somebody else could have written.
inline reports::ComparisonPage sample_comparison(const std::string& text = "") {
  const reports::DiagnosisPage diagnosis = sample_diagnosis(text);
  reports::ComparisonPage page;
  page.title = text + "run-17 and run-18";
  page.date = diagnosis.date;
  page.before.name = text + "run-17";
  page.before.wall = diagnosis.wall;
  page.before.sub_cause = diagnosis.sub_cause;
  page.before.summary = diagnosis.summary;
  page.before.share_ratio = diagnosis.share_ratio;
  page.before.shares = diagnosis.shares;
  page.before.bars = diagnosis.bars;
  page.before.facts = diagnosis.facts;
  page.after = page.before;
  page.after.name = text + "run-18";
  page.after.wall = "host";
  page.after.sub_cause = text + "launch";
  page.after.summary = text + "host (launch): without it the step would be 12.1 % shorter";
  page.after.share_ratio = 0.121;
  page.after.shares[0].ratio = 0.1;  // 0.312 before
  for (reports::DiagnosedBar& bar : page.after.bars) {
    bar.window_ns -= 200'000'000;
    bar.exposed_comm_ns -= 200'000'000;
  }
  page.figures = {
      {text + "step_time_s", "s", {0.812, 0.81, 0.815}, {0.609, 0.605, 0.611}, -0.25, true},
      {"step_time_s", "s", {0.812, 0.81, 0.815}, {0.609, 0.605, 0.611}, -0.25, true},
      {"exposed_comm_us", "us", {253'000, 250'000, 256'000}, {53'000, 50'000, 56'000}, -0.79, true},
      {"peak_memory_bytes",
       "bytes",
       {1 << 30, 1 << 30, 1 << 30},
       {1 << 30, 1 << 30, 1 << 30},
       0.0,
       {}}};
  page.kernels = {{text + "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
                   "us",
                   {240'000, 239'000, 241'000},
                   {41'000, 40'000, 42'000},
                   -0.829,
                   true},
                  {"void at::native::vectorized_elementwise_kernel<4>",
                   "us",
                   {0, 0, 0},
                   {12, 11, 13},
                   {},
                   true}};
  page.settings = {{text + "--micro-batch-size 1", text + "--micro-batch-size 2"},
                   {"", text + "--overlap-grad-reduce"},
                   {text + "--recompute-granularity full", ""}};
  page.are_settings_known = true;
  page.differences = {text + "device differs: NVIDIA H100 80GB HBM3 and NVIDIA H200"};
  page.notes = {text + "the first run: rank3.json.gz holds no device work: left out"};
  return page;
}

}  // namespace moetune::tests
