// What a device's memory is made of, line by line, with how each line is known: the rows of
// memory_rows.h and of saved_terms, as people and JSON are shown them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/planner/memory_rows.h"

namespace moetune::tuner::planner {

struct MemoryLineRow {
  MemoryLine line;
  std::string_view key;        ///< in JSON
  std::string_view words;      ///< for people
  double MemoryParts::*bytes;  ///< null: no part of the sum of a peak
};
/// In the order in which they are printed: first the parts of a peak.
std::span<const MemoryLineRow> memory_lines();
/// Those that a peak is the sum of.
std::span<const MemoryLineRow> memory_parts();
const MemoryLineRow& row_of(MemoryLine line);

/// All rows.
std::span<const MemoryRow> memory_rows();
/// source, measured, assumed
std::string_view name_of(Evidence evidence);
/// Figure and formula of a row, as "4 bytes for each trained parameter".
std::string formula_text(const MemoryRow& row);
/// What drops a saved tensor by recomputing it, and what offloads it.
std::string formula_text(const SavedTerm& term);

struct LineBytes {
  MemoryLine line = MemoryLine::weights;
  double bytes = 0;
  std::vector<const MemoryRow*> rows;  ///< that hold for the run
};
/// All lines with bytes, of a stage of the run on a device of `capacity_bytes` (0: no limit).
std::vector<LineBytes> memory_breakdown(const PlanRun& run, const StageMemory& memory,
                                        double capacity_bytes);

/// The rows as tables in Markdown: docs/memory.md has them.
std::string memory_rows_markdown();

}  // namespace moetune::tuner::planner
