#include "sweeps/runs/waiting_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"
#include "sweeps/runs/waiting_ranks.h"

namespace moetune::sweeps::waiting {
namespace {

using log_text::behind;
using log_text::integer_behind;
using log_text::leading_integer;

/// "PG GUID 14(EXPERT_MODEL_PARALLEL_GROUP) Rank 5": the name, or the number where it has none.
void read_group(std::string_view text, CollectiveTimeout& timeout) {
  const auto group = behind(text, "PG GUID ");
  if (!group) return;
  const std::string_view number = log_text::up_to(*group, "( ");
  const bool has_name = group->substr(number.size()).starts_with('(');
  timeout.group_id = log_text::printable(number, 80);
  timeout.group = log_text::printable(
      has_name ? log_text::up_to(group->substr(number.size() + 1), ")") : number, 80);
}

}  // namespace

bool read_collective_timeout(const FailureForm& form, std::string_view text, size_t at,
                             LogCollector& log) {
  const std::string_view rest = text.substr(at);
  // The rank in brackets is that of the group; the launcher's is that of the run.
  const int rank = log.rank() >= 0 ? log.rank() : log_text::named_rank(text.substr(0, at));
  CollectiveTimeout timeout;
  timeout.time_s = log.time();
  timeout.sequence = integer_behind(rest, "SeqNum=").value_or(-1);
  timeout.num_elements = integer_behind(rest, "NumelIn=").value_or(-1);
  timeout.waited_ms = integer_behind(rest, ") ran for ").value_or(-1);
  if (const auto operation = behind(rest, "OpType=")) {
    timeout.operation = log_text::printable(log_text::up_to(*operation, ",)[ "), 40);
  }
  read_group(text.substr(0, at), timeout);
  // Of several that one rank waits for the first is the nearest to the root.
  CollectiveTimeout& known = log.timeout_of(rank);
  if (known.operation.empty()) {
    const bool is_of_other =
        !timeout.group_id.empty() && !known.group_id.empty() && timeout.group_id != known.group_id;
    if (!is_of_other) {
      timeout.last_enqueued = known.last_enqueued;
      timeout.last_completed = known.last_completed;
    }
    timeout.enqueued_in = std::move(known.enqueued_in);
    if (timeout.group_id.empty()) {
      timeout.group_id = known.group_id;
      timeout.group = known.group;
    }
    known = timeout;
  }
  Failure* failure = log.add_failure(form, rank, "");
  if (failure != nullptr) failure->timeout = timeout;
  return true;
}

bool read_gloo_timeout(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  const std::string_view rest = text.substr(at);
  const auto waited = leading_integer(rest.substr(form.anchor.size()));
  const auto operation = behind(rest, "ms for ");
  if (!waited || !operation || operation->find(" operation to complete") == std::string_view::npos)
    return false;
  CollectiveTimeout& timeout = log.timeout_of(log.rank());
  timeout.waited_ms = *waited;
  timeout.operation =
      fmt::format("a {} over gloo", log_text::printable(log_text::up_to(*operation, " "), 40));
  Failure* failure = log.add_failure(form, "");
  if (failure != nullptr) failure->timeout = timeout;
  return true;
}

bool read_monitored_barrier(const FailureForm& form, std::string_view text, size_t at,
                            LogCollector& log) {
  constexpr size_t kMostMissing = 65'536;
  const size_t word = text.rfind("Rank", at);
  if (word == std::string_view::npos) return false;
  const size_t first = text.find_first_of("0123456789", word);
  if (first >= at) return false;
  const std::string_view list = text.substr(first, at - first);
  std::vector<int> missing;
  for (std::string_view rest = list; !rest.empty() && missing.size() < kMostMissing;) {
    const int rank = log_text::rank_of(leading_integer(rest));
    if (rank < 0) return false;
    missing.push_back(rank);
    rest.remove_prefix(std::min(rest.find_first_of(","), rest.size() - 1) + 1);
  }
  const auto waited_ms = leading_integer(text.substr(at + form.anchor.size()));
  std::string detail = fmt::format("{} {} did not come", missing.size() == 1 ? "rank" : "ranks",
                                   log_text::printable(list));
  if (waited_ms && *waited_ms > 0) {
    detail += " in " + words_of_seconds(static_cast<double>(*waited_ms) / 1e3);
  }
  Failure* failure = log.add_failure(form, detail);
  if (failure != nullptr) failure->missing_ranks = std::move(missing);
  return true;
}

bool read_store_barrier(const FailureForm& form, std::string_view text, size_t at,
                        LogCollector& log) {
  const int named = log_text::rank_of(leading_integer(text.substr(at + form.anchor.size())));
  log.add_failure(form, log.rank() >= 0 ? log.rank() : named, text);
  return true;
}

bool read_store_timeout(const FailureForm& form, std::string_view text, size_t at,
                        LogCollector& log) {
  const std::string_view front = text.substr(0, at);  // up to the letter in front of "rror"
  const bool is_class = front.size() >= 2 && front.ends_with('E') &&
                        std::isalpha(static_cast<unsigned char>(front[front.size() - 2])) != 0;
  if (!is_class && !front.ends_with(" got e")) return false;
  log.add_failure(form, text);
  return true;
}

bool read_work_queue(const FailureForm&, std::string_view text, size_t at, LogCollector& log) {
  if (log_text::torch_level(text) == 'I') return false;
  const std::string_view rest = text.substr(at);
  const auto enqueued = integer_behind(rest, "work: ");
  if (!enqueued) return false;
  const int rank = log.rank() >= 0 ? log.rank() : log_text::named_rank(text);
  CollectiveTimeout& timeout = log.timeout_of(rank);
  const auto done = behind(rest, "last completed ");
  const int64_t completed = done ? integer_behind(*done, "work: ").value_or(-1) : -1;
  if (done && *enqueued > completed) timeout.has_open_work = true;
  CollectiveTimeout said;
  read_group(text.substr(0, at), said);
  constexpr size_t kMostGroups = 64;
  const bool has_room =
      timeout.enqueued_in.size() < kMostGroups || timeout.enqueued_in.contains(said.group_id);
  if (!said.group_id.empty() && has_room) timeout.enqueued_in[said.group_id] = *enqueued;
  const bool is_of_other =
      !said.group_id.empty() && !timeout.group_id.empty() && said.group_id != timeout.group_id;
  if (is_of_other) return true;
  timeout.last_enqueued = *enqueued;
  if (timeout.group_id.empty()) {
    timeout.group_id = said.group_id;
    timeout.group = said.group;
  }
  if (done) timeout.last_completed = completed;
  if (*enqueued == -1) log.add_failure(failure_form("nccl-idle"), rank, "");
  return true;
}

bool read_deepep(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  constexpr size_t kFarthest = 64;  // "DeepEP zcopy dispatch NVL receiver timeout, channel: ..."
  const std::string_view said = text.substr(at);
  if (said.substr(0, kFarthest).find(" timeout") == std::string_view::npos) return false;
  log.add_failure(form, said);
  return true;
}

}  // namespace moetune::sweeps::waiting
