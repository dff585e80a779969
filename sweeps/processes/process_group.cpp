#include "sweeps/processes/process_group.h"

#include <algorithm>
#include <future>
#include <utility>

#include "kernels/base/error.h"
#include "sweeps/processes/last_words.h"
#include "sweeps/processes/poll.h"

namespace moetune::sweeps {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookAtGroup{10};

bool has_failed(const ProcessEnd& end) { return end.is_signal || end.code != 0; }

/// How little an end says about the cause; the least is the group's end.
int distance_from_cause(const ProcessEnd& end) {
  if (!has_failed(end)) return 3;
  if (end.was_ended_by_us) return 2;
  return end.is_signal || is_own_failure(end.code) ? 0 : 1;
}

}  // namespace

ProcessGroup::ProcessGroup(std::vector<std::unique_ptr<Process>> members, milliseconds patience)
    : members_(std::move(members)), patience_(patience), ends_(members_.size()) {
  MOETUNE_CHECK(!members_.empty(), "a group without processes");
}

bool ProcessGroup::look() {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (ends_[i]) continue;
    ends_[i] = members_[i]->wait(milliseconds(0));
    if (!ends_[i]) continue;
    order_.push_back(i);
    if (has_failed(*ends_[i]) && !first_failure_) first_failure_ = steady_clock::now();
  }
  return order_.size() == members_.size();
}

std::optional<ProcessEnd> ProcessGroup::wait(milliseconds limit) {
  if (end_) return end_;
  const auto is_patience_over = [this] {
    return first_failure_ && steady_clock::now() - *first_failure_ >= patience_;
  };
  if (!poll_until(steady_clock::now() + limit, kLookAtGroup,
                  [&] { return look() || is_patience_over(); })) {
    return std::nullopt;
  }
  if (order_.size() < members_.size()) return end(milliseconds(0));
  conclude();
  return end_;
}

ProcessEnd ProcessGroup::end(milliseconds grace) {
  if (end_) return *end_;
  if (!look()) {
    std::vector<std::future<ProcessEnd>> endings;
    for (const std::unique_ptr<Process>& member : members_) {
      endings.push_back(
          std::async(std::launch::async, [&member, grace] { return member->end(grace); }));
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      const ProcessEnd ended = endings[i].get();
      if (ends_[i]) continue;
      ends_[i] = ended;
      order_.push_back(i);
    }
  }
  conclude();
  return *end_;
}

void ProcessGroup::conclude() {
  cause_ = *std::ranges::min_element(order_, {},
                                     [this](size_t i) { return distance_from_cause(*ends_[i]); });
  ProcessEnd whole = *ends_[cause_];
  for (const auto& end : ends_) {
    whole.max_rss_bytes = std::max(whole.max_rss_bytes, end->max_rss_bytes);
  }
  end_ = whole;
}

}  // namespace moetune::sweeps
