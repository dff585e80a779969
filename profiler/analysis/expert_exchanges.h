// All-to-alls by which ranks send each other the rows of their experts, known by the sizes of their
// messages: only a router makes them uneven.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "profiler/analysis/matched_collectives.h"

namespace moetune::profiler {

struct ExpertExchange {
  bool opens = false;             ///< ranks receive uneven parts: work on experts' rows begins
  bool closes = false;            ///< ranks send uneven parts: it has ended
  std::vector<int64_t> received;  ///< elements, by part of the collective
};

/// Nothing where all parts are even, where the files do not say how large they are (PyTorch's
/// profiler does, of NCCL), and where the group's words say another purpose than experts: sequences
/// and heads are exchanged, too.
std::optional<ExpertExchange> expert_exchange_of(std::span<const ImportedTrace> traces,
                                                 const MatchedCollective& collective);

}  // namespace moetune::profiler
