#include "profiler/analysis/aligned_ends.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <tuple>

#include "kernels/base/median.h"

namespace moetune::profiler {
namespace {

constexpr int64_t kLeastToleranceNs = 5'000;
constexpr int64_t kMostToleranceNs = 200'000;
/// Times of a longer series, and distances of clocks beyond it, are not compared.
constexpr int64_t kLongestNs = int64_t{1} << 59;
/// Share of what both traces recorded that must end together.
constexpr double kTogetherRatio = 0.8;
/// Of fewer pairs a distance of clocks that is looked for may fit by chance.
constexpr size_t kFewestFitted = 16;
/// Of a series so many instances around the place of an anchor are tried as its partner.
constexpr size_t kMostTried = 4096;
constexpr size_t kSample = 32;
constexpr size_t kShortSample = 12;
constexpr size_t kMostFits = 24;
/// Ends are not recorded more exactly.
constexpr int64_t kExactNs = 200;

/// By end, from the first one's on.
using Ends = std::vector<SeriesEnd>;

Ends from_first(std::span<const SeriesEnd> ends) {
  Ends own(ends.begin(), ends.end());
  for (SeriesEnd& one : own) one.end_ns -= ends.front().end_ns;
  return own;
}

bool may_be_same(const SeriesEnd& a, const SeriesEnd& b) {
  return a.step == b.step || a.step == kNoStep || b.step == kNoStep;
}

/// What ends together if the second clock is so far ahead.
struct Fit {
  int64_t shift_ns = 0;
  int64_t residual_ns = 0;  ///< median distance of ends from that
  std::vector<std::pair<uint32_t, uint32_t>> pairs = {};
  bool is_good = false;  ///< most of what both recorded ends together
};

class Aligner {
 public:
  Aligner(std::span<const SeriesEnd> first, std::span<const SeriesEnd> second)
      : a_(from_first(first)),
        b_(from_first(second)),
        tolerance_ns_(std::min(end_tolerance_ns(a_), end_tolerance_ns(b_))) {}

  [[nodiscard]] int64_t tolerance_ns() const { return tolerance_ns_; }

  /// Walks both series; then once more with the distance that their pairs have in their middle.
  [[nodiscard]] Fit fit(int64_t shift_ns) const {
    Fit found = walk(shift_ns);
    if (found.pairs.empty()) return found;
    return walk(shift_ns + middle_of(found.pairs, shift_ns));
  }

  /// From the steps that launch equally many on both.
  [[nodiscard]] std::optional<Fit> fit_steps() const {
    std::map<int64_t, std::pair<std::vector<uint32_t>, std::vector<uint32_t>>> steps;
    for (uint32_t i = 0; i < a_.size(); ++i) steps[a_[i].step].first.push_back(i);
    for (uint32_t i = 0; i < b_.size(); ++i) steps[b_[i].step].second.push_back(i);
    std::vector<int64_t> shifts;
    for (const auto& [step, places] : steps) {
      const auto& [of_a, of_b] = places;
      if (step == kNoStep || of_a.size() != of_b.size()) continue;
      for (size_t i = 0; i < of_a.size(); ++i) {
        shifts.push_back(b_[of_b[i]].end_ns - a_[of_a[i]].end_ns);
      }
    }
    if (shifts.size() < kFewestOfSteps) return std::nullopt;
    Fit found = fit(base::upper_median(std::move(shifts)));
    if (!found.is_good || found.pairs.size() < kFewestOfSteps) return std::nullopt;
    return found;
  }

  /// Of all distances at which some instance of one ends with one of the other, that at which ends
  /// agree clearly best. `shared_ns`: taken of several that are alike.
  [[nodiscard]] std::optional<Fit> fit_best(std::optional<int64_t> shared_ns) const {
    std::vector<Fit> fits;
    size_t most = 0;
    std::vector<Sampled> tried = sampled_shifts();
    if (shared_ns) tried.push_back({.shift_ns = *shared_ns});
    for (const Sampled& one : tried) {
      Fit found = fit(one.shift_ns);
      const bool has_enough = found.pairs.size() >= kFewestFitted &&
                              2 * found.pairs.size() >= std::min(a_.size(), b_.size());
      const auto is_same = [&](const Fit& other) {
        return std::abs(other.shift_ns - found.shift_ns) <= tolerance_ns_;
      };
      if (!found.is_good || !has_enough || std::ranges::any_of(fits, is_same)) continue;
      most = std::max(most, found.pairs.size());
      fits.push_back(std::move(found));
    }
    std::erase_if(fits, [&](const Fit& one) { return 2 * one.pairs.size() < most; });
    if (fits.empty()) return std::nullopt;
    std::ranges::stable_sort(fits, {}, &Fit::residual_ns);
    const int64_t alike_ns = 2 * std::max(fits[0].residual_ns, kExactNs);
    if (fits.size() == 1 || fits[1].residual_ns >= alike_ns) return std::move(fits[0]);
    if (!shared_ns) return std::nullopt;
    const auto is_shared = [&](const Fit& one) {
      return one.residual_ns < alike_ns && std::abs(one.shift_ns - *shared_ns) <= tolerance_ns_;
    };
    const auto found = std::ranges::find_if(fits, is_shared);
    if (found == fits.end()) return std::nullopt;
    return std::move(*found);
  }

 private:
  /// A distance of clocks, tried with some instances.
  struct Sampled {
    int64_t shift_ns = 0;
    int64_t residual_ns = 0;
    size_t num_together = 0;  ///< of those that were tried
  };

  [[nodiscard]] int64_t distance(size_t a, size_t b, int64_t shift_ns) const {
    return b_[b].end_ns - a_[a].end_ns - shift_ns;
  }

  [[nodiscard]] int64_t middle_of(const std::vector<std::pair<uint32_t, uint32_t>>& pairs,
                                  int64_t shift_ns) const {
    std::vector<int64_t> distances;
    distances.reserve(pairs.size());
    for (const auto& [a, b] : pairs) distances.push_back(distance(a, b, shift_ns));
    return base::upper_median(std::move(distances));
  }

  [[nodiscard]] Fit walk(int64_t shift_ns) const {
    Fit found = {.shift_ns = shift_ns};
    size_t a = 0;
    size_t b = 0;
    const auto is_nearer = [&](size_t next_a, size_t next_b) {
      return next_a < a_.size() && next_b < b_.size() &&
             std::abs(distance(next_a, next_b, shift_ns)) < std::abs(distance(a, b, shift_ns));
    };
    std::vector<int64_t> distances;
    while (a < a_.size() && b < b_.size()) {
      const int64_t ahead_ns = distance(a, b, shift_ns);
      if (ahead_ns > tolerance_ns_ || (ahead_ns > 0 && is_nearer(a + 1, b))) {
        ++a;
      } else if (ahead_ns < -tolerance_ns_ || (ahead_ns < 0 && is_nearer(a, b + 1))) {
        ++b;
      } else {
        if (may_be_same(a_[a], b_[b])) {
          found.pairs.emplace_back(static_cast<uint32_t>(a), static_cast<uint32_t>(b));
          distances.push_back(std::abs(ahead_ns));
        }
        ++a;
        ++b;
      }
    }
    if (found.pairs.empty()) return found;
    found.residual_ns = base::upper_median(std::move(distances));
    const size_t num_both = std::min(num_within(a_, b_, shift_ns), num_within(b_, a_, -shift_ns));
    found.is_good =
        static_cast<double>(found.pairs.size()) >= kTogetherRatio * static_cast<double>(num_both) &&
        2 * found.residual_ns <= tolerance_ns_;
    return found;
  }

  /// How many of the ends are within the time of the other series.
  [[nodiscard]] size_t num_within(const Ends& ends, const Ends& other, int64_t shift_ns) const {
    const int64_t from_ns = other.front().end_ns - shift_ns - tolerance_ns_;
    const int64_t to_ns = other.back().end_ns - shift_ns + tolerance_ns_;
    const auto begin = std::ranges::lower_bound(ends, from_ns, {}, &SeriesEnd::end_ns);
    const auto end = std::ranges::upper_bound(ends, to_ns, {}, &SeriesEnd::end_ns);
    return begin < end ? static_cast<size_t>(end - begin) : 0;
  }

  /// The shorter series is tried against the longer one; distances are told of a and b.
  [[nodiscard]] std::vector<Sampled> sampled_shifts() const {
    const bool is_a_shorter = a_.size() <= b_.size();
    const Ends& few = is_a_shorter ? a_ : b_;
    const Ends& many = is_a_shorter ? b_ : a_;
    std::vector<Sampled> sampled;
    for (const size_t third : {1U, 2U}) {
      const size_t anchor = third * few.size() / 3;
      const size_t first = anchor > kMostTried ? anchor - kMostTried : 0;
      const size_t behind = std::min(many.size(), many.size() - few.size() + anchor + kMostTried);
      for (size_t i = first; i < behind; ++i) {
        if (!may_be_same(few[anchor], many[i])) continue;
        Sampled one = sample(few, many, many[i].end_ns - few[anchor].end_ns);
        if (one.num_together == 0) continue;
        if (!is_a_shorter) one.shift_ns = -one.shift_ns;
        sampled.push_back(one);
      }
    }
    return best_of(std::move(sampled));
  }

  /// Those that most of what was tried fits, each once.
  [[nodiscard]] std::vector<Sampled> best_of(std::vector<Sampled> sampled) const {
    size_t most = 0;
    for (const Sampled& one : sampled) most = std::max(most, one.num_together);
    std::erase_if(sampled, [&](const Sampled& one) { return 2 * one.num_together < most; });
    std::ranges::sort(sampled, {},
                      [](const Sampled& one) { return std::tuple(one.residual_ns, one.shift_ns); });
    std::vector<Sampled> best;
    for (const Sampled& one : sampled) {
      const auto is_same = [&](const Sampled& other) {
        return std::abs(other.shift_ns - one.shift_ns) <= tolerance_ns_;
      };
      if (best.size() == kMostFits) break;
      if (std::ranges::none_of(best, is_same)) best.push_back(one);
    }
    return best;
  }

  /// With no instances that end together where too few of them do.
  [[nodiscard]] Sampled sample(const Ends& few, const Ends& many, int64_t shift_ns) const {
    std::vector<int64_t> distances;
    size_t num_tried = 0;
    const size_t count = std::min(kSample, few.size());
    // Of many, in an order in which the first ones are from everywhere.
    const size_t stride = count == kSample ? 37 : 1;
    for (size_t i = 0; i < count; ++i) {
      const size_t place = (i * stride % count) * few.size() / count;
      const int64_t wanted_ns = few[place].end_ns + shift_ns;
      if (wanted_ns < many.front().end_ns - tolerance_ns_ ||
          wanted_ns > many.back().end_ns + tolerance_ns_) {
        continue;
      }
      ++num_tried;
      auto at = std::ranges::lower_bound(many, wanted_ns, {}, &SeriesEnd::end_ns);
      const bool has_before = at != many.begin();
      if (at == many.end() ||
          (has_before && wanted_ns - (at - 1)->end_ns < at->end_ns - wanted_ns)) {
        --at;
      }
      const int64_t distance_ns = at->end_ns - wanted_ns;
      const bool is_together =
          std::abs(distance_ns) <= tolerance_ns_ && may_be_same(few[place], *at);
      if (is_together) distances.push_back(distance_ns);
      if (num_tried == kShortSample && 2 * distances.size() < num_tried) return {};
    }
    if (distances.empty() || 10 * distances.size() < 7 * num_tried) return {};
    Sampled found = {.shift_ns = shift_ns, .num_together = distances.size()};
    const int64_t middle_ns = base::upper_median(distances);
    for (int64_t& one : distances) one = std::abs(one - middle_ns);
    found.residual_ns = base::upper_median(std::move(distances));
    found.shift_ns += middle_ns;
    return found;
  }

  Ends a_;
  Ends b_;
  int64_t tolerance_ns_ = 0;
};

/// How far the second series begins later than the first by a clock's distance; none: too far.
std::optional<int64_t> shift_from_first(std::optional<int64_t> ahead_ns, int64_t between_ns) {
  int64_t shift_ns = 0;
  if (!ahead_ns || __builtin_sub_overflow(*ahead_ns, between_ns, &shift_ns)) return std::nullopt;
  if (shift_ns > kLongestNs || shift_ns < -kLongestNs) return std::nullopt;
  return shift_ns;
}

}  // namespace

int64_t end_tolerance_ns(std::span<const SeriesEnd> ends) {
  std::vector<int64_t> between;
  for (size_t i = 1; i < ends.size(); ++i) {
    between.push_back(ends[i].end_ns - ends[i - 1].end_ns);
  }
  if (between.empty()) return kMostToleranceNs;
  return std::clamp(base::upper_median(std::move(between)) / 8, kLeastToleranceNs,
                    kMostToleranceNs);
}

std::optional<AlignedEnds> align_by_ends(std::span<const SeriesEnd> first,
                                         std::span<const SeriesEnd> second,
                                         const ClockHints& hints) {
  const auto is_long = [](std::span<const SeriesEnd> ends) {
    return ends.back().end_ns - ends.front().end_ns > kLongestNs;
  };
  if (first.empty() || second.empty() || is_long(first) || is_long(second)) return std::nullopt;
  const int64_t between_ns = second.front().end_ns - first.front().end_ns;
  const Aligner aligner(first, second);
  std::optional<Fit> fit;
  if (hints.known_ns) {
    const auto shift_ns = shift_from_first(hints.known_ns, between_ns);
    if (!shift_ns) return std::nullopt;
    fit = aligner.fit(*shift_ns);
    if (!fit->is_good) return std::nullopt;
  } else {
    fit = aligner.fit_steps();
    if (!fit) fit = aligner.fit_best(shift_from_first(hints.shared_ns, between_ns));
  }
  if (!fit) return std::nullopt;
  return AlignedEnds{std::move(fit->pairs), fit->shift_ns + between_ns};
}

}  // namespace moetune::profiler
