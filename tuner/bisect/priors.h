// What a commit's files say, before any run, of whether it moved a metric. Capped, so that it never
// decides alone: it changes where the search looks first, and what a tie means.
#pragma once

#include <string>
#include <vector>

namespace moetune::tuner {

/// The most that one commit's prior may exceed another's.
constexpr double kLargestPriorRatio = 4.0;

/// Weight of a commit that changes `files` (paths) as the one that moved `moved` (names of metrics,
/// ops or memory groups, such as op_dispatch.forward_ns): between 1 / sqrt(kLargestPriorRatio) for
/// texts and tests alone and sqrt(kLargestPriorRatio) where a file's name speaks of what has moved.
double prior_weight(const std::vector<std::string>& files, const std::vector<std::string>& moved);

}  // namespace moetune::tuner
