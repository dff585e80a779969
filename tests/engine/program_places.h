// Where the operands of a program are, by the addresses that its allocations got and the tables of
// buffers, parameters and constant tables; written without the engine's executor, to judge it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/program.h"
#include "engine/spec/trial_spec.h"
#include "tests/fakes/recording/tape.h"

namespace moetune::engine::testing {

using recording::Operand;

/// The rows of one chunk, as one rank sees them.
struct ChunkRows {
  int64_t first_sent = 0;
  int64_t num_sent = 0;
  int64_t first_received = 0;
  int64_t num_received = 0;
  std::vector<int64_t> sent_to;        ///< by peer
  std::vector<int64_t> received_from;  ///< by peer
};

/// How many rows go where in one layer and micro-batch.
struct RoutedRows {
  int64_t num_received = 0;
  std::vector<ChunkRows> forward;
  std::vector<ChunkRows> backward;
};

/// From the counts [source rank, forward chunks then backward chunks, expert] of a group, as its
/// member `own` sees them.
RoutedRows routed_rows(const plan::LayerDims& dims, int64_t own, std::span<const int32_t> counts);

/// A sentence about what is wrong with an operand.
struct Unplaced {
  std::string why;
};

class Places {
 public:
  Places(const spec::TrialSpec& trial, const plan::StepProgram& program)
      : trial_(trial), program_(program) {}

  /// What the next calls are about. A frame without buffers has ended.
  void enter(const plan::Item& item);

  /// The routing that was fetched for the item's layer and micro-batch.
  void bind(RoutedRows rows) { own().rows = std::move(rows); }
  /// Null where none was fetched.
  [[nodiscard]] const RoutedRows* rows() const;
  /// Of the instruction's chunk; null where it has none or nothing was fetched.
  [[nodiscard]] const ChunkRows* chunk(const plan::Instr& instr) const;
  /// Rows that the instruction's size follows.
  [[nodiscard]] int64_t received(const plan::Instr& instr) const;

  /// Gives what an alloc makes its address; `data` null where it has no bytes. Throws Unplaced when
  /// it is there already.
  void place(const plan::Ref& ref, const void* data);
  /// What a free ends, which is forgotten. Throws Unplaced when it is not there.
  Operand take(const plan::Ref& ref);
  /// Bytes that an alloc of the item asks for, by the tables.
  [[nodiscard]] int64_t bytes_of(const plan::Ref& ref) const;

  /// The operand that a reference of the item stands for; without data where it is none. Throws
  /// Unplaced.
  [[nodiscard]] Operand find(const plan::Ref& ref, const plan::Instr& instr) const;
  /// A bucket's part.
  [[nodiscard]] Operand bucket(size_t index, plan::BucketPart part) const;

  /// Whether any buffer of a layer or of a stage's end is there.
  [[nodiscard]] bool has_buffers() const;

  [[nodiscard]] const plan::StepProgram& program() const { return program_; }
  [[nodiscard]] const spec::TrialSpec& trial() const { return trial_; }
  [[nodiscard]] const plan::Item& item() const { return item_; }
  [[nodiscard]] const plan::Segment& segment() const { return *segment_; }

 private:
  struct Frame {
    std::map<uint8_t, Operand> buffers;  ///< by Buf
    std::optional<RoutedRows> rows;
  };
  using Key = std::pair<int32_t, int32_t>;  ///< frame, micro-batch

  Frame& own() { return frames_[{item_.frame, item_.micro_batch}]; }
  [[nodiscard]] Key key_of(plan::Space space) const;
  [[nodiscard]] Operand shape_of(const plan::Ref& ref) const;
  [[nodiscard]] Operand whole(const plan::Ref& ref) const;
  [[nodiscard]] Operand parameter(const plan::Ref& ref) const;

  const spec::TrialSpec& trial_;
  const plan::StepProgram& program_;
  plan::Item item_;
  const plan::Segment* segment_ = nullptr;
  std::map<Key, Frame> frames_;
  std::map<std::pair<size_t, uint8_t>, Operand> buckets_;  ///< by index, BucketPart
  std::map<uint8_t, Operand> tables_;
  const void* scalars_ = nullptr;
};

}  // namespace moetune::engine::testing
