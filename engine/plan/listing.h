// A program as people and other programs read it: one line an instruction in the order in which
// they run, with its work bound to the rows of a routing and the instruction that it waits for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/program.h"
#include "engine/plan/route.h"

namespace moetune::plan {

/// One instruction of a step. Points into the program.
struct ListedInstr {
  const Item* item = nullptr;
  const Segment* segment = nullptr;
  const Instr* instr = nullptr;
  /// FLOPs and bytes as the engine's trace has them: what an op reads and writes, what this rank
  /// sends in a collective or message (none where it receives or fetches). Of an alloc or a free
  /// the aligned size, of an upload what goes to the device.
  OpCost cost;
  /// Wait: the last launch on the recorded stream before its record, and what that stream had been
  /// told to wait for since; fetch: the same of its own stream. Numbers in the list.
  std::vector<int64_t> waits_for;
};

/// Setup and step of a program. Left out is what is neither played nor shown: orderings that only
/// memory used again needs, and the places where observers look.
std::vector<ListedInstr> list_instructions(const StepProgram& program, const Bindings& bindings);

/// Where and what: "layer 3, micro-batch 1: moe forward".
std::string item_title(const StepProgram& program, const Item& item);

/// What an instruction is about: its op, the buffer that is made or ended, what is uploaded, done
/// by the host or marked. Empty for record and wait.
std::string subject_of(const StepProgram& program, const Item& item, const Instr& instr);

/// An operand by its name.
std::string name_of(const StepProgram& program, const Item& item, const Ref& ref);

/// Whether two segments hold the same instructions, but for the bucket that they touch and
/// the tag of messages.
bool are_alike(const Segment& a, const Segment& b);

}  // namespace moetune::plan
