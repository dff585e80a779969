// Collects the tables of parameters and buffers that all blocks declare, for those who need them
// together.
#include "engine/plan/blocks/blocks.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace moetune::plan {
namespace {

const std::vector<Block>& blocks() {
  static const std::vector<Block> kBlocks = {embedding(), residual(), gqa(),       mla(),
                                             gdn(),       mamba(),    dense_mlp(), moe(),
                                             mtp(),       mtp_head(), head()};
  return kBlocks;
}

BlockKind block_of_mixer(spec::Mixer mixer) {
  switch (mixer) {
    case spec::Mixer::mla:
      return BlockKind::mla;
    case spec::Mixer::gdn:
      return BlockKind::gdn;
    case spec::Mixer::mamba:
      return BlockKind::mamba;
    default:
      return BlockKind::gqa;
  }
}

/// Rows in the order of their ids. Each id must be declared exactly once.
template <typename Row, size_t kCount>
std::array<Row, kCount> table_of(std::vector<std::span<const Row>> Block::*declared) {
  std::array<const Row*, kCount> places{};
  for (const Block& block : blocks()) {
    for (const std::span<const Row> rows : block.*declared) {
      for (const Row& row : rows) {
        const Row*& place = places[static_cast<size_t>(row.id)];
        MOETUNE_CHECK(place == nullptr || place == &row, "{} and {} have the same id", row.name,
                      place->name);
        place = &row;
      }
    }
  }
  std::array<Row, kCount> table{};
  for (size_t i = 0; i < kCount; ++i) {
    MOETUNE_CHECK(places[i] != nullptr, "no block declares the id {}", i);
    table[i] = *places[i];
  }
  return table;
}

}  // namespace

const Block& block_of(BlockKind kind) {
  for (const Block& block : blocks()) {
    if (block.kind == kind) return block;
  }
  MOETUNE_CHECK(false, "{} declares nothing", name_of(kind));
  return blocks().front();
}

std::vector<Part> parts_of(const Block& block) {
  std::vector<Part> parts;
  for (const std::span<const BufferRow> rows : block.buffers) {
    for (const BufferRow& row : rows) {
      if (std::ranges::find(parts, row.part) == parts.end()) parts.push_back(row.part);
    }
  }
  std::ranges::sort(parts);
  return parts;
}

std::vector<BlockKind> halves_of(const LayerDims& dims) {
  std::vector<BlockKind> halves;
  if (dims.mixer != spec::Mixer::none) halves.push_back(block_of_mixer(dims.mixer));
  if (dims.has_feed_forward) {
    halves.push_back(dims.is_moe ? BlockKind::moe : BlockKind::dense_mlp);
  }
  MOETUNE_CHECK(!halves.empty(), "a layer of {} tokens without a mixer or a feed-forward half",
                dims.tokens);
  return halves;
}

const ParamRow& param_row(ParamKind kind) {
  static const auto kTable =
      table_of<ParamRow, static_cast<size_t>(ParamKind::count)>(&Block::params);
  return kTable[static_cast<size_t>(kind)];
}

std::span<const BufferRow> buffer_table() {
  static const auto kTable = table_of<BufferRow, static_cast<size_t>(Buf::count)>(&Block::buffers);
  return kTable;
}

const BufferRow& buffer_row(Buf id) { return buffer_table()[static_cast<size_t>(id)]; }

}  // namespace moetune::plan
