// Rewrites of what the blocks and the schedule have written, one file each. The order in which
// compile.cpp runs them: recompute, narrow, ep_chunks, prices, dispatchers, graph_scopes, lifetimes
// on segments; weave on the items of two steps of the schedule; then narrow_weights,
// distributed_optimizer or fsdp, and offload on the program, grad_overlap on items, contention on
// the program.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "engine/plan/program.h"
#include "engine/plan/segment_writer.h"
#include "engine/spec/plan_knobs.h"
#include "engine/spec/planned_links.h"

namespace moetune::plan {

/// Selective recomputation: where the backward segment says that dropped buffers are made again,
/// the forward instructions that write them.
void recompute(Segment& backward, const Segment& forward, const spec::Knobs& knobs);

/// Full recomputation: the forward segment of one half of a layer, run again in the backward pass.
/// Its losses are not counted again and nobody reads the layer's output. `ends_layer`: it is the
/// layer's last half.
Segment recomputed(const Segment& forward, bool ends_layer);

/// Cuts the rows of experts into chunks: the next chunk is sent before the experts work on one.
void ep_chunks(Segment& segment);

/// Removes the lists of a chunk's rows, which are needed only where there are several chunks.
void drop_chunk_lists(Instr& instr);

/// What a recipe of 8 or 4 bits quantizes to.
struct NarrowTypes {
  spec::PrecisionRecipe recipe = spec::PrecisionRecipe::bf16;
  bool has_transposes = true;  ///< each copy by rows and by columns
};
NarrowTypes narrow_types(spec::PrecisionRecipe recipe, const spec::HardwareSpec& hardware);

/// Buffers whose narrow copy a layer keeps for its backward pass, by Buf; `alone`: the wide one
/// ends with the forward pass.
struct KeptNarrow {
  std::set<uint8_t> copies;
  std::set<uint8_t> alone;

  void add(const KeptNarrow& other) {
    copies.insert(other.copies.begin(), other.copies.end());
    alone.insert(other.alone.begin(), other.alone.end());
  }
};

/// Has the products of both directions of a half read narrow copies of their operands, and makes
/// these. Behind recompute.
KeptNarrow narrow(Segment& forward, Segment& backward, const NarrowTypes& types,
                  const spec::Knobs& knobs);
/// Allocations and ends of the copies in one of the layer's segments, behind lifetimes.
void narrow_lifetimes(Segment& segment, const KeptNarrow& kept);
/// Copies of the weights that narrow products of the program read.
void narrow_weights(StepProgram& program, const BlockContext& context, const NarrowTypes& types);

/// Gives every operation its cost, from the shapes of its operands.
void prices(Segment& segment, const spec::TrainingSpec& training, const Precision& precision);

/// Has experts' rows exchanged by that dispatcher instead of an all-to-all; `placement`: of those
/// who exchange them. What is replaced has its prices.
void dispatchers(Segment& segment, const BlockContext& context, spec::Dispatcher dispatcher,
                 const spec::Placement& placement);

/// Keeps the captured graphs that the knobs ask for.
void graph_scopes(Segment& segment, const spec::Knobs& knobs);

/// Writes the allocations and their ends where the blocks say which part is needed, from the rows
/// of the buffer table, in its order.
void lifetimes(Segment& segment, const spec::Knobs& knobs, PassKind pass,
               const Precision& precision);

/// What `next` does, behind what `segment` does.
void append(Segment& segment, const Segment& next);
/// Weaves a forward and a backward step of different micro-batches into each other.
class Weaver {
 public:
  explicit Weaver(StepProgram& program) : program_(program) {}
  /// Items [first, middle) are the forward step, those from there to the end the backward one.
  void weave(size_t first, size_t middle);

 private:
  const std::vector<int32_t>& pieces_of(int32_t segment);
  [[nodiscard]] std::vector<std::vector<Item>> runs_of(size_t first, size_t end, bool is_backward);

  StepProgram& program_;
  std::map<int32_t, std::vector<int32_t>> pieces_;  ///< segments by what they are cut from
};

/// Each rank updates a shard of every bucket instead of all of it. `context` is one outside of
/// layers.
void distributed_optimizer(StepProgram& program, const BlockContext& context);

/// Each rank has a shard of the weights and gradients, too: units are gathered before they run.
void fsdp(StepProgram& program, const BlockContext& context, spec::Fsdp kind);

/// Of what layers save, what these modules stand for waits in the host's memory.
void offload(StepProgram& program, const BlockContext& context, const spec::OffloadSet& modules);

/// That share of the optimizer's state is in the host's memory, but for its update.
void offload_optimizer(StepProgram& program, const BlockContext& context, double ratio);

/// Moves the reduction of a layer's gradients behind the layer's last backward segment.
void grad_overlap(std::vector<Item>& items,
                  const std::vector<std::shared_ptr<const Segment>>& segments);

/// Notes for every instruction what it shares with the communication that the program allows to be
/// in flight beside it.
void contention(StepProgram& program, const spec::HardwareSpec& hardware);

}  // namespace moetune::plan
