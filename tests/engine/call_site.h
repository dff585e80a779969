// What the tables of ops and of communication say their calls with.
#pragma once

#include <string_view>
#include <vector>

#include "tests/engine/program_places.h"
#include "tests/fakes/recording/tape.h"

namespace moetune::engine::testing {

using recording::Entry;
using recording::Number;

/// Recomputation and the update run forward functions.
enum class Way : uint8_t { forward, backward, wgrad };

inline Way way_of(plan::Pass pass) {
  if (pass == plan::Pass::wgrad) return Way::wgrad;
  return pass == plan::Pass::backward ? Way::backward : Way::forward;
}

/// An instruction with its operands in the order of its references.
struct Site {
  const Places& places;
  const plan::Instr& instr;
  std::vector<Operand> refs;

  [[nodiscard]] const plan::LayerDims& dims() const { return places.segment().dims; }
  [[nodiscard]] bool is_backward() const { return instr.pass == plan::Pass::backward; }

  /// A call on the instruction's stream.
  [[nodiscard]] Entry call(std::string_view function) const {
    Entry entry;
    entry.name = function;
    entry.stream = static_cast<int>(instr.stream);
    return entry;
  }
};

inline Site site_of(const Places& places, const plan::Instr& instr) {
  Site site{places, instr, {}};
  for (const plan::Ref& ref : instr.refs) site.refs.push_back(places.find(ref, instr));
  return site;
}

inline void require(bool is_true, const char* why) {
  if (!is_true) throw Unplaced{why};
}

/// Adds an operand unless it is null.
inline void add(Entry& entry, std::string_view role, Operand operand) {
  if (operand.data == nullptr) return;
  operand.role = role;
  entry.operands.push_back(operand);
}

inline Operand as_bytes(const Operand& operand) {
  return recording::bytes_at(operand.role, operand.data, operand.bytes());
}

/// `elements` further on.
inline Operand shifted(Operand operand, int64_t elements) {
  if (operand.data == nullptr) return operand;
  operand.data = static_cast<const char*>(operand.data) + elements * operand.element_bytes();
  return operand;
}

inline Operand rows_of(const Operand& operand, int64_t first, int64_t count) {
  Operand part = shifted(operand, first * operand.ld);
  part.rows = count;
  return part;
}

/// `count` elements of flat memory.
inline Operand piece_of(const Operand& operand, int64_t first, int64_t count) {
  Operand part = shifted(operand, first);
  part.cols = part.ld = count;
  return part;
}

inline Operand as_column(Operand operand) {
  operand.rows = operand.numel();
  operand.cols = operand.ld = 1;
  return operand;
}

/// Whether a reference is a buffer of a layer or of a stage's end.
inline bool is_buffer(plan::Space space) {
  return space == plan::Space::frame || space == plan::Space::next || space == plan::Space::edge ||
         space == plan::Space::scratch;
}

}  // namespace moetune::engine::testing
