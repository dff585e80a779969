// Rewrites of what the blocks and the schedule have written, one file each. The order in which
// compile.cpp runs them: recompute, ep_chunks, prices, graph_scopes, lifetimes on segments; then
// distributed_optimizer on the program, grad_overlap on items, contention on the program.
#pragma once

#include <vector>

#include "engine/plan/program.h"
#include "engine/plan/segment_writer.h"

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

/// Each rank updates a shard of every bucket instead of all of it. `context` is one outside of
/// layers.
void distributed_optimizer(StepProgram& program, const BlockContext& context);

/// Moves the reduction of a layer's gradients behind the layer's last backward segment.
void grad_overlap(std::vector<Item>& items,
                  const std::vector<std::shared_ptr<const Segment>>& segments);

/// Notes for every instruction what it shares with the communication that the program allows to be
/// in flight beside it.
void contention(StepProgram& program, const spec::HardwareSpec& hardware);

}  // namespace moetune::plan
