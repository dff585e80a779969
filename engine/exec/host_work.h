// What the host makes for the device: the constant tables of a rank, and the index lists of rows
// that the router has sent somewhere.
#pragma once

#include <vector>

#include "engine/plan/buffers.h"
#include "engine/plan/route.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// The tables of the rank, with their sizes.
std::array<plan::TableRow, static_cast<size_t>(plan::Table::count)> rank_tables(
    const RankContext& rank);

/// Puts a table's values on the device; those that change with every step have none yet.
void upload_table(RankContext& rank, plan::Table table, const kernels::Tensor& tensor);

/// The index lists of one layer and micro-batch: row_maps [4, rows] (arrival order -> canonical
/// row, and each chunk's canonical rows expert by expert; forward, then backward chunks) and
/// offsets [1 + chunks, local experts + 1] (where each expert's rows begin: canonical, then by
/// chunk).
void write_route(const plan::LayerDims& dims, const plan::Route& route,
                 std::vector<int32_t>& row_maps, std::vector<int32_t>& offsets);

}  // namespace moetune::engine
