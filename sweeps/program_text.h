// The program of a rank as JSON and as text: what `moetune program` prints.
#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>

#include "engine/plan/listing.h"
#include "tuner/memory_model.h"

namespace moetune::sweeps {

struct PrintedProgram {
  const plan::StepProgram& program;
  const plan::Bindings& bindings;
  tuner::RankMemory memory;
  std::string routing;  ///< where the rows of experts are from, for people
};

/// {"rank", "world_size", "instructions": [{"verb", "op", "pass", "layer", "micro_batch", "chunk",
/// "stream", "group", "flops", "bytes", "waits"}], "peak_bytes"}, an instruction a line. Numbers
/// that are not there are -1, names null. Ends early when `out` fails.
void write_program_json(std::ostream& out, const PrintedProgram& printed);

struct ProgramTextOptions {
  bool is_whole = false;        ///< else an item that repeats a listed one is only counted
  std::optional<size_t> width;  ///< lines are cut to it
};
/// The same for people: a head, then item by item a line an instruction. Ends early when `out`
/// fails.
void write_program_text(std::ostream& out, const PrintedProgram& printed,
                        const ProgramTextOptions& options);

}  // namespace moetune::sweeps
