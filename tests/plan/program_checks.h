// What tests ask of every program, whoever has written it: what its checker says, and that the
// ranks of a step, played together, do all that their programs say.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "kernels/base/error.h"

namespace moetune::plan::testing {

inline int num_ranks(const spec::TrialSpec& trial) { return layout_of(trial.knobs).world_size(); }

/// What the checker of programs says of one; empty: it holds all.
inline std::string error_of(const StepProgram& program) {
  try {
    check(program);
  } catch (const base::Error& error) {
    return error.what();
  }
  return {};
}

/// Bytes that a step allocates and does not free.
inline int64_t bytes_left(const StepProgram& program, const Bindings& bindings) {
  int64_t bytes = 0;
  for_each(program, [&](const Item& item, const Segment&, const Instr& instr) {
    if (instr.verb != Verb::alloc && instr.verb != Verb::free) return;
    const int64_t rows =
        instr.is_routed ? bindings.at(item.layer, item.micro_batch).num_received : 0;
    bytes += (instr.verb == Verb::alloc ? 1 : -1) * cost_at(instr, rows).bytes;
  });
  return bytes;
}

/// The ranks of a step and their routing.
struct RanksOfStep {
  std::vector<StepProgram> programs;
  std::vector<BalancedBindings> bindings;

  RanksOfStep(const spec::TrialSpec& trial, const Planned& planned) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      programs.push_back(compile(trial, rank, planned));
      bindings.emplace_back(trial, rank);
    }
  }

  [[nodiscard]] std::vector<PlayedRank> played() const {
    std::vector<PlayedRank> ranks;
    for (size_t i = 0; i < programs.size(); ++i) ranks.push_back({&programs[i], &bindings[i]});
    return ranks;
  }
};

/// From whom, to whom, which: how often.
using Messages = std::map<std::tuple<int, int, int64_t>, int>;

inline Messages messages_of(const std::vector<StepProgram>& programs, Verb verb) {
  Messages messages;
  for (const StepProgram& program : programs) {
    for_each(program, [&](const Item& item, const Segment&, const Instr& instr) {
      if (instr.verb != verb) return;
      const int peer =
          program.layout.group_ranks(instr.group, program.rank)[static_cast<size_t>(instr.peer)];
      const std::pair<int, int> way =
          verb == Verb::send ? std::pair(program.rank, peer) : std::pair(peer, program.rank);
      ++messages[{way.first, way.second, message_tag(instr, item)}];
    });
  }
  return messages;
}

/// What a rank calls in its groups, in order; of sizes that the router knows without the size.
using Calls = std::vector<std::tuple<Op, Pass, spec::CollectiveKind, int64_t>>;

inline std::map<Group, Calls> calls_of(const StepProgram& program) {
  std::map<Group, Calls> calls;
  for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    if (instr.verb != Verb::comm) return;
    const int64_t bytes = instr.is_routed || instr.is_by_node ? 0 : instr.cost.bytes;
    calls[instr.group].emplace_back(instr.op, instr.pass, instr.kind, bytes);
  });
  return calls;
}

/// Plays a step with ten nanoseconds an operation. Nobody waits forever (that throws), members of a
/// group call the same, each message is received, and nothing of a program is left out.
inline void play_all(const spec::TrialSpec& trial, const RanksOfStep& step) {
  int64_t num_ops = 0;
  int64_t num_collectives = 0;
  std::vector<std::map<Group, Calls>> calls;
  for (const StepProgram& program : step.programs) calls.push_back(calls_of(program));
  for (const StepProgram& program : step.programs) {
    for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
      num_ops += instr.verb == Verb::op || instr.verb == Verb::copy || instr.verb == Verb::host;
      num_collectives += instr.verb == Verb::comm;
    });
    for (const auto& [group, own] : calls[static_cast<size_t>(program.rank)]) {
      const int first = program.layout.group_ranks(group, program.rank).front();
      BOOST_TEST((calls[static_cast<size_t>(first)].at(group) == own),
                 "rank " << program.rank << " calls other collectives than rank " << first << " in "
                         << name_of(group));
    }
  }
  BOOST_TEST((messages_of(step.programs, Verb::send) == messages_of(step.programs, Verb::recv)));
  PlayOptions options;
  options.sees_collective = [&](int, int64_t start_ns, int64_t end_ns) {
    BOOST_TEST(start_ns <= end_ns);
    --num_collectives;
  };
  const auto ten = [&](const Position&, const Instr& instr, const OpCost&) {
    // What a collective's kernel packs is asked for, too.
    if (instr.verb != Verb::comm) --num_ops;
    return int64_t{10};
  };
  const PlayResult result = play(trial.hardware, step.played(), ten, options);
  BOOST_TEST(num_ops == 0);
  BOOST_TEST(num_collectives == 0);
  BOOST_TEST(result.step_ns > 0);
}

inline void play_all(const spec::TrialSpec& trial, const Planned& planned) {
  play_all(trial, RanksOfStep(trial, planned));
}

}  // namespace moetune::plan::testing
