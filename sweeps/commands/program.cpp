// moetune program: what a rank runs in a step, read from its program; nothing is run.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/load.h"
#include "sweeps/program_text.h"
#include "sweeps/stored_routing.h"
#include "sweeps/table.h"
#include "tuner/profile_bindings.h"

namespace moetune::sweeps {
namespace {

constexpr const char* kHelp =
    R"(Prints the program of one rank: what it runs in a step, in order, behind the memory that it makes
before the first one. Nothing is run. SPEC is a trial as JSON, or a sweep file, whose base is used.

JSON is {"rank", "world_size", "instructions": [{"verb", "op", "pass", "layer", "micro_batch",
"chunk", "stream", "group", "flops", "bytes", "waits"}], "peak_bytes"}:
  verb                        op, comm, send, recv, alloc, free, record, wait, upload, fetch, host,
                              acquire, release or mark (a captured graph begins or ends)
  op, group                   names, null where there is none
  layer, micro_batch, chunk   numbers from 0, -1 where there is none
  flops                       of an op, else 0
  bytes                       of an op what it reads and writes; of comm and send what this rank
                              sends; of recv and fetch 0, as in a trace; of alloc and free the
                              size; of upload what goes to the device; else 0
  waits                       of wait and fetch the number, from 0, of the instruction whose end
                              they wait for: the last launch on a stream; of a send not its end,
                              but that the message has a slot
peak_bytes is what the ledger will say at most, kernels' workspaces on a device included
(workspace_bytes of the hardware file and cuDNN's), which no instruction makes.
Orderings that only memory used again needs, on real devices, are left out.)";

int checked_rank(const CommandOptions& options, const plan::Layout& layout) {
  const int64_t rank = options.integer("rank", 0, 0);
  if (rank >= layout.world_size()) {
    throw base::UsageError(fmt::format("--rank is {}, expected 0 to {}: the layout has {} ranks",
                                       rank, layout.world_size() - 1, layout.world_size()));
  }
  return static_cast<int>(rank);
}

struct Routing {
  std::unique_ptr<plan::Bindings> bindings;
  std::string text;
};

Routing routing_of(const CommandOptions& options, const spec::TrialSpec& trial, int rank) {
  if (!options.has("routing")) {
    return {std::make_unique<plan::BalancedBindings>(trial, rank), "balanced"};
  }
  const std::string database = options.database("routing");
  StoredRouting stored = read_stored_routing(database, trial);
  const std::string source = fmt::format("trial {} of {}", stored.trial_id, database);
  try {
    return {std::make_unique<tuner::ProfileBindings>(std::move(stored.profile), trial, rank),
            fmt::format("as in the first step of {}; of a repeated item they differ", source)};
  } catch (const base::Error& error) {
    throw base::UsageError(fmt::format("--routing: {}: {}", source, error.what()));
  }
}

}  // namespace

CommandOptions program_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "program SPEC [--rank R] [--set KNOB=VALUE ...] [--routing DB] [--all] [--format text|json]",
      kHelp);
  options.add_trial();
  options.add()("rank", po::value<std::string>()->value_name("R"), "of which rank, default 0");
  options.add()("routing", po::value<std::string>()->value_name("DB"),
                "rows of experts as a trial of this runs database has recorded them in its first "
                "step; default: balanced");
  options.add()("all", "list every item, also those that repeat what is listed");
  options.add_format();
  return options;
}

int run_program_command(const CommandOptions& options) {
  const spec::TrialSpec trial = options.trial().spec;
  check_can_run(trial, options.text("spec"));
  const int rank = checked_rank(options, plan::layout_of(trial.knobs));
  const Routing routing = routing_of(options, trial, rank);
  const plan::StepProgram program = plan::compile(trial, rank);
  plan::check(program);
  const PrintedProgram printed{program, *routing.bindings,
                               tuner::rank_memory(trial, program, *routing.bindings), routing.text};
  if (options.wants_json()) {
    write_program_json(std::cout, printed);
  } else {
    write_program_text(std::cout, printed, {options.has("all"), terminal_width(STDOUT_FILENO)});
  }
  return 0;
}

}  // namespace moetune::sweeps
