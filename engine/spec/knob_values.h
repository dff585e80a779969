// What knobs choose from by name: enums and sets, each with its one table.
#pragma once

#include <array>
#include <cstdint>

#include "engine/spec/named_set.h"
#include "engine/spec/names.h"

namespace moetune::spec {

/// How context-parallel ranks see each other's keys and values.
enum class CpCommType : uint8_t {
  all_gather,
  p2p,  ///< they travel around a ring
};

/// What AdamW keeps a moment in.
enum class MomentType : uint8_t { fp32, bf16 };

/// What is computed again in the backward pass.
enum class RecomputeModule : uint8_t {
  norm,
  core_attn,
  moe_act,
  experts,
  full,  ///< each layer as a whole, from its input
};

/// Parts of a step that are captured as a graph; none is no member of a set.
enum class GraphScope : uint8_t { none, attn, moe_router, moe_preprocess, full_iteration };

template <>
struct NameTable<CpCommType> {
  static constexpr std::array kRows = {Named<CpCommType>{CpCommType::all_gather, "all_gather"},
                                       Named<CpCommType>{CpCommType::p2p, "p2p"}};
};

template <>
struct NameTable<MomentType> {
  static constexpr std::array kRows = {Named<MomentType>{MomentType::fp32, "fp32"},
                                       Named<MomentType>{MomentType::bf16, "bf16"}};
};

template <>
struct NameTable<RecomputeModule> {
  static constexpr std::array kRows = {
      SetMember<RecomputeModule>{RecomputeModule::norm, "norm"},
      SetMember<RecomputeModule>{RecomputeModule::core_attn, "core_attn"},
      SetMember<RecomputeModule>{RecomputeModule::moe_act, "moe_act"},
      SetMember<RecomputeModule>{RecomputeModule::experts, "experts"},
      SetMember<RecomputeModule>{RecomputeModule::full, "full", true}};
};

template <>
struct NameTable<GraphScope> {
  static constexpr std::array kRows = {
      SetMember<GraphScope>{GraphScope::attn, "attn"},
      SetMember<GraphScope>{GraphScope::moe_router, "moe_router"},
      SetMember<GraphScope>{GraphScope::moe_preprocess, "moe_preprocess"},
      SetMember<GraphScope>{GraphScope::full_iteration, "full_iteration"}};
};

using RecomputeSet = NamedSet<RecomputeModule>;
using GraphSet = NamedSet<GraphScope>;

}  // namespace moetune::spec
