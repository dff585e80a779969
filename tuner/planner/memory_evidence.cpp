// Breakdowns of a stage's memory, and the tables of how it is known.
#include "tuner/planner/memory_evidence.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/spec/planned_links.h"
#include "kernels/base/units.h"

namespace moetune::tuner::planner {

namespace {

constexpr MemoryLineRow kLines[] = {
    {MemoryLine::weights, "weights", "weights", &MemoryParts::weights},
    {MemoryLine::gradients, "gradients", "gradients", &MemoryParts::gradients},
    {MemoryLine::optimizer, "optimizer", "optimizer", &MemoryParts::optimizer},
    {MemoryLine::narrow_weights, "narrow_weights", "weights in 8 bits or less",
     &MemoryParts::narrow_weights},
    {MemoryLine::dummy_gradients, "dummy_gradients", "dummy gradients",
     &MemoryParts::dummy_gradients},
    {MemoryLine::workspaces, "workspaces", "workspaces", &MemoryParts::workspaces},
    {MemoryLine::gathered, "gathered", "gathered FSDP units", &MemoryParts::gathered},
    {MemoryLine::exchange_buffers, "exchange_buffers", "buffers of the dispatcher",
     &MemoryParts::exchange_buffers},
    {MemoryLine::activations, "activations", "saved activations", &MemoryParts::activations},
    {MemoryLine::transient, "transient", "temporary at the peak", &MemoryParts::transient},
    {MemoryLine::graph_pool, "graph_pool", "of these in the pool of graphs", nullptr},
    {MemoryLine::fragments, "fragments", "fragments", nullptr},
    {MemoryLine::beside_pytorch, "beside_pytorch", "context, communicators", nullptr},
    {MemoryLine::cached, "cached", "reserved beside allocated", nullptr},
};

constexpr bool is_in_order_of_lines() {
  for (size_t i = 0; i < std::size(kLines); ++i) {
    if (kLines[i].line != static_cast<MemoryLine>(i)) return false;
  }
  return std::size(kLines) == static_cast<size_t>(MemoryLine::count);
}
static_assert(is_in_order_of_lines(), "kLines must be in the order of MemoryLine");

double bytes_of(MemoryLine line, const StageMemory& memory, double capacity_bytes) {
  const double peak = memory.peak.total();
  switch (line) {
    case MemoryLine::graph_pool:
      return memory.in_graphs;
    case MemoryLine::fragments:
      return figure_of<MemoryRule::fragments>() * peak;
    case MemoryLine::beside_pytorch:
      return figure_of<MemoryRule::beside_pytorch>();
    case MemoryLine::cached:
      return reserved_bytes(memory.allocated(), memory.in_graphs,
                            capacity_beside_buffers(memory, capacity_bytes)) -
             memory.allocated() - memory.in_graphs;
    default:
      return memory.peak.*row_of(line).bytes;
  }
}

MemoryView view_of(const PlanRun& run, const StageMemory& memory) {
  const PipelineOutline outline = outline_of(run);
  const PipelineOutline::Stage& stage = outline.stages[static_cast<size_t>(memory.stage)];
  MemoryView view{run, memory};
  view.has_embedding = stage.has_embedding;
  view.has_head = stage.has_head;
  view.has_experts = stage.has_experts;
  const int64_t ranks = int64_t{run.knobs.ep} * run.knobs.etp;
  view.has_far_experts =
      spec::placement_of(*run.hardware, spec::GridGroup{ranks, 1, 0}).num_nodes > 1;
  view.has_mtp = std::ranges::any_of(stage.parts, &PipelineOutline::Part::has_mtp);
  return view;
}

template <class E>
std::string names_of(const spec::NamedSet<E>& set) {
  std::string names;
  for (const auto& row : spec::NameTable<E>::kRows) {
    if (!set.has(row.value)) continue;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

}  // namespace

std::span<const MemoryLineRow> memory_lines() { return kLines; }

std::span<const MemoryLineRow> memory_parts() {
  return std::span(kLines).first(static_cast<size_t>(MemoryLine::graph_pool));
}

const MemoryLineRow& row_of(MemoryLine line) { return kLines[static_cast<size_t>(line)]; }

std::span<const MemoryRow> memory_rows() { return kMemoryRows; }

std::string_view name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::source:
      return "source";
    case Evidence::measured:
      return "measured";
    case Evidence::assumed:
      return "assumed";
  }
  return "?";
}

std::string formula_text(const MemoryRow& row) {
  if (row.figure == 0) return std::string(row.formula);
  constexpr double kMiB = 1 << 20;
  const std::string figure = row.figure >= kMiB
                                 ? base::format_bytes(static_cast<int64_t>(row.figure))
                                 : fmt::format("{:g}", row.figure);
  return fmt::format("{} {}", figure, row.formula);
}

std::string formula_text(const SavedTerm& term) {
  std::string text = "dropped by full";
  if (!term.dropped_by.empty()) text += ", " + names_of(term.dropped_by);
  if (term.left != nullptr) text += " (a part stays)";
  if (!term.offloaded_by.empty()) text += "; offloaded by " + names_of(term.offloaded_by);
  return text;
}

std::vector<LineBytes> memory_breakdown(const PlanRun& asked, const StageMemory& memory,
                                        double capacity_bytes) {
  PlanRun run = asked;
  run.knobs = computed_knobs(asked);
  const MemoryView view = view_of(run, memory);
  std::vector<LineBytes> lines;
  for (const MemoryLineRow& row : kLines) {
    LineBytes line{row.line, bytes_of(row.line, memory, capacity_bytes), {}};
    if (line.bytes <= 0) continue;
    for (const MemoryRow& of_line : kMemoryRows) {
      if (of_line.line != row.line) continue;
      if (of_line.is_there == nullptr || of_line.is_there(view)) line.rows.push_back(&of_line);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string memory_rows_markdown() {
  std::string text = "| line | term | how much | known from | |\n|---|---|---|---|---|\n";
  for (const MemoryRow& row : kMemoryRows) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", row_of(row.line).words, row.name,
                        formula_text(row), name_of(row.evidence), row.basis);
  }
  text +=
      "\n| tensor that a layer saves | until its backward, unless | known from |\n|---|---|---|\n";
  for (const SavedTerm& term : saved_terms()) {
    text +=
        fmt::format("| {} | {} | {} |\n", term.name, formula_text(term), name_of(term.evidence));
  }
  return text;
}

}  // namespace moetune::tuner::planner
