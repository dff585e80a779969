// Messages about one file, gathered.
#include "engine/spec/problems.h"

#include <algorithm>
#include <utility>

namespace moetune::spec {

namespace {

std::string all_of(const std::vector<std::string>& messages) {
  constexpr size_t kMostShown = 20;
  std::string text = fmt::format("{} mistakes:", messages.size());
  for (size_t i = 0; i < std::min(messages.size(), kMostShown); ++i) text += "\n  " + messages[i];
  if (messages.size() > kMostShown) {
    text += fmt::format("\n  and {} more", messages.size() - kMostShown);
  }
  return text;
}

}  // namespace

UsageErrors::UsageErrors(std::vector<std::string> messages)
    : UsageError(all_of(messages)), messages_(std::move(messages)) {}

void Problems::add(std::string message) {
  if (std::find(messages_.begin(), messages_.end(), message) == messages_.end()) {
    messages_.push_back(std::move(message));
  }
}

void Problems::throw_if_any() const {
  if (messages_.empty()) return;
  if (messages_.size() == 1) throw base::UsageError(messages_.front());
  throw UsageErrors(messages_);
}

}  // namespace moetune::spec
