// A plan's page as data, with something in every section: for its tests and to look at.
#pragma once

#include <string>

#include "reports/plan_page.h"

namespace moetune::tests {

inline constexpr double kGiB = 1 << 30;

inline profiler::StepTrace sample_trace(int rank) {
  profiler::StepTrace trace;
  trace.rank = rank;
  trace.end_ns = 1'000'000;
  for (int i = 0; i < 4; ++i) {
    profiler::TraceRecord& record = trace.records.emplace_back();
    record.id = i;
    record.rank = rank;
    record.name = i == 3 ? "dispatch.forward" : "core_attn.forward";
    record.micro_batch = i;
    record.start_ns = 250'000 * i;
    record.end_ns = record.start_ns + 200'000;
  }
  return trace;
}

/// `text` is in every text that somebody else could have written.
inline reports::PlanPage sample_plan(const std::string& text = "") {
  reports::PlanPage page;
  page.model = text + "model";
  page.hardware = text + "machine";
  page.date = "2026-11-24 10:00 UTC";
  page.num_devices = 16;
  page.seq_length = 4096;
  page.global_batch_size = 1024;
  page.num_points = 1000;
  page.num_legal = 500;
  page.num_fit = 20;
  page.has_experts = true;
  page.assumptions = {text + "balanced routing"};
  page.capacity_bytes = 80 * kGiB;
  page.allocatable_bytes = 75 * kGiB;
  reports::PlanRow row;
  row.layout = text + "tp 2";
  row.choices = text + "recompute full";
  row.step_ns = {2e9, 1e9, 3e9};
  row.tflops = {300, 250, 350};
  row.tokens_per_s = {1234, 1000, 1500};
  row.peak_bytes = {60 * kGiB, 55 * kGiB, 65 * kGiB};
  row.needed_bytes = 60 * kGiB;
  row.load_that_fits = 1.37;
  row.load_text = "1.37";
  row.wall = "communication";
  row.grade = text + "calibrated";
  page.rows = {row, row};
  page.rows[1].to_first = {{text + "tp", text + "2", text + "4"}};
  page.rows[1].why_slower = text + "bubble takes more";
  const reports::PlanMark mark = {text + "tp 2 cp 1", 60 * kGiB, 1234, true};
  page.front = {mark, {text + "tp 1 cp 1", 90 * kGiB, 1300, false}};
  page.regions = {{2, 1, 8, 1, 9, 4, mark, ""},
                  {1, 1, 8, 1, 5, 0, reports::PlanMark{text + "tp 1", 500 * kGiB, 1500, false}, ""},
                  {4, 1, 8, 1, 0, 0, {}, text + "tp_divides_heads"}};
  page.memory_terms = {text + "weights", "saved activations"};
  page.stages = {{text + "loss", {20 * kGiB, 40 * kGiB}, 0, 60 * kGiB},
                 {text + "loss", {10 * kGiB, 5 * kGiB}, 8, 15 * kGiB}};
  page.step_parts = {{text + "products", 1.5}, {"bubble", 0.5}};
  reports::PlanPlayed& played = page.played.emplace();
  played.step_ns = 1'000'000;
  played.stage_parts_ns = {{{"compute", 800'000}, {"blocking_ep", 200'000}},
                           {{"compute", 600'000}, {"bubble", 400'000}}};
  played.wall = "communication";
  played.traces = {sample_trace(0), sample_trace(8)};
  played.num_records = 8;
  played.num_micro_batches = 4;
  played.left_out = {text + "FSDP"};
  page.batches = {{512, 1.01e9, {{1222, 1000, 1490}, text + "calibrated"}},
                  {1024, 2e9, {{1234, 1010, 1507}, text + "calibrated"}}};
  page.smallest_good_batch = 512;
  page.against = reports::PlanAgainst{text + "tp 4",    text + "none",  row.step_ns, row.tflops,
                                      row.tokens_per_s, row.peak_bytes, "fits",      {}};
  page.against->changes = {{{text + "ep", "1", "8"}, 0.25, -3 * kGiB, ""},
                           {{text + "cross_entropy", "te", "native"}, {}, kGiB, ""},
                           {{text + "vpp", "1", "2"}, {}, {}, text + "vpp_needs_pp"}};
  page.against->order = text + "Each change alone:";
  page.against->changes[0].flags = {text + "--expert-model-parallel-size 8"};
  page.against->changes[0].speed = {{1540, 1261, 1881}, text + "analytic"};
  page.against->changes[2].rule_text = text + "vpp 2 without pipeline stages";
  page.against->path = {
      {text + "--expert-model-parallel-size 8", 0.25, 1.25, 57 * kGiB, -kGiB, "fits"},
      {text + "--cross-entropy-fusion-impl native", {}, 1.25, 90 * kGiB, 15 * kGiB, "oom"}};
  page.against->path[0].speed = {{1540, 1261, 1881}, text + "analytic"};
  page.against->notes = {text + "known, but not priced: --seed"};
  page.published_note = text + "1 of 2 like runs";
  reports::PlanPublished& published = page.published.emplace_back();
  published.title = text + "run-1: 64 H100";
  published.tflops = 310;
  published.tokens_per_s = 1400;
  published.priced_tflops = row.tflops;
  published.priced_tokens_per_s = row.tokens_per_s;
  published.grade = text + "calibrated";
  published.facts = {text + "yours is priced at 0.75 times what is published"};
  published.assumed = {text + "routing balanced"};
  published.conditions = {{{text + "GPUs", text + "64", "16"}, 1.02, ""},
                          {{text + "devices", text + "H200", "H100"}, {}, text + "no such node"}};
  published.path = page.against->path;
  published.changes = page.against->changes;
  page.thumbs = {{text + "Two replicas.", false, 0.125}};
  page.helps = {{{text + "precision", "bf16", "mxfp8"}, 0.4, kGiB, ""}};
  return page;
}

}  // namespace moetune::tests
