// Rewrites of what the blocks and the schedule have written, one file each. The order in which
// compile.cpp runs them: recompute, ep_chunks, prices, graph_scopes, lifetimes on segments; then
// distributed_optimizer or fsdp, and offload on the program, grad_overlap on items, contention on
// the program.
#pragma once

#include <vector>

#include "engine/plan/program.h"
#include "engine/plan/segment_writer.h"
#include "engine/spec/plan_knobs.h"

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

/// Gives every operation its cost, from the shapes of its operands.
void prices(Segment& segment, const spec::TrainingSpec& training, const Precision& precision);

/// Keeps the captured graphs that the knobs ask for.
void graph_scopes(Segment& segment, const spec::Knobs& knobs);

/// Writes the allocations and their ends where the blocks say which part is needed, from the rows
/// of the buffer table, in its order.
void lifetimes(Segment& segment, const spec::Knobs& knobs, PassKind pass,
               const Precision& precision);

/// What `next` does, behind what `segment` does.
void append(Segment& segment, const Segment& next);

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
