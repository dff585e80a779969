// A diagnosis' page as data, with something in every section: for its tests and to look at.
#pragma once

#include <string>

#include "reports/diagnosis_page.h"

namespace moetune::tests {

/// `text` is in every text that somebody else could have written.
inline reports::DiagnosisPage sample_diagnosis(const std::string& text = "") {
  reports::DiagnosisPage page;
  page.title = text + "Diagnosis of run-17";
  page.date = "2026-11-24 10:00 UTC";
  page.facts = {{"run", text + "megatron-lm, 50 steps, 8 ranks"},
                {"status", text + "ok"},
                {"layout", "tp 2, cp 1, pp 2, ep 4, micro-batch 2, global batch 256"},
                {"speed", "812 ms a step (810 ms to 815 ms), 161478 tokens/s a GPU"}};
  page.wall = "communication";
  page.sub_cause = text + "transfer";
  page.summary = text + "communication: 31.2 % of the time (transfer)";
  page.share_ratio = 0.312;
  page.communication = {.volume_ratio = 0.406, .exposed_ratio = 0.312, .blocking_ratio = 0.287};
  page.shares = {{"communication", 0.312}, {"host", 0.081}, {"pipeline", 0.054},
                 {"imbalance", 0.021},     {"memory", 0.0}, {"compute", 0.512},
                 {"unknown", 0.02}};
  page.evidence = {text + "253 ms: transfers that nothing covered",
                   "66.1 ms: the host launched late"};
  for (int rank = 0; rank < 4; ++rank) {
    const int64_t late = 9'000'000LL * rank;
    page.bars.push_back({.rank = std::to_string(rank),
                         .window = text + "step 5 by launch",
                         .device = text + "NVIDIA H100 80GB HBM3",
                         .window_ns = 812'000'000,
                         .compute_ns = 470'000'000 - late,
                         .comm_ns = 330'000'000,
                         .exposed_comm_ns = 240'000'000 + late,
                         .exposed_copy_ns = 8'000'000,
                         .idle_ns = 90'000'000,
                         .host_late_ns = 62'000'000,
                         .num_kernels = 5140});
  }
  page.remedies = {{{text + "--overlap-grad-reduce", text + "--overlap-param-gather"},
                    0.312,
                    "overlap",
                    text + "Gradients are reduced behind the backward pass.",
                    ""},
                   {{text + "--expert-model-parallel-size 8"},
                    0.2,
                    "inside_the_node",
                    "Experts inside a node send over the fast links.",
                    text + "ep_divides_experts: 6 experts"},
                   {{}, 0.081, "loader", text + "The loader is late.", ""}};
  page.notes = {text + "rank3.json.gz holds no device work: left out"};
  return page;
}

}  // namespace moetune::tests
