// The modes of a trial as enums, each with its one table of names.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/spec/names.h"
#include "kernels/base/dtype.h"
#include "kernels/base/modes.h"

namespace moetune::spec {

using base::ClockMode;
using base::DType;
using base::TraceLevel;

enum class BackendKind : uint8_t { cpu, cuda };

/// What to break on purpose, so that what happens to a failing trial can be tested end to end.
enum class FaultKind : uint8_t { none, crash, kill, hang, nan, nan_gradient, error };

template <>
struct NameTable<ClockMode> {
  static constexpr std::array kRows = {
      Named<ClockMode>{ClockMode::wall, "wall"},
      Named<ClockMode>{ClockMode::virtual_measured, "virtual_measured"},
      Named<ClockMode>{ClockMode::virtual_modelled, "virtual_modelled"}};
};

template <>
struct NameTable<TraceLevel> {
  static constexpr std::array kRows = {Named<TraceLevel>{TraceLevel::none, "none"},
                                       Named<TraceLevel>{TraceLevel::ops, "ops"},
                                       Named<TraceLevel>{TraceLevel::all, "all"}};
};

/// What a trial may compute in.
template <>
struct NameTable<DType> {
  static constexpr std::array kRows = {Named<DType>{DType::bf16, base::name_of(DType::bf16)},
                                       Named<DType>{DType::f32, base::name_of(DType::f32)},
                                       Named<DType>{DType::f64, base::name_of(DType::f64)}};
};

template <>
struct NameTable<FaultKind> {
  static constexpr std::array kRows = {Named<FaultKind>{FaultKind::none, ""},
                                       Named<FaultKind>{FaultKind::crash, "crash"},
                                       Named<FaultKind>{FaultKind::kill, "kill"},
                                       Named<FaultKind>{FaultKind::hang, "hang"},
                                       Named<FaultKind>{FaultKind::nan, "nan"},
                                       Named<FaultKind>{FaultKind::nan_gradient, "nan_gradient"},
                                       Named<FaultKind>{FaultKind::error, "error"}};
};

template <>
struct NameTable<BackendKind> {
  static constexpr std::array kRows = {Named<BackendKind>{BackendKind::cpu, "cpu"},
                                       Named<BackendKind>{BackendKind::cuda, "cuda"}};
};

}  // namespace moetune::spec
