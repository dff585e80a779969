#include "sweeps/runs/line_origin.h"

#include <algorithm>
#include <array>
#include <optional>

#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

constexpr int kMostRank = 1'000'000;

std::optional<int> rank_in(std::string_view text, size_t& at) {
  const size_t first = at;
  int value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9' && value < kMostRank) {
    value = value * 10 + (text[at] - '0');
    ++at;
  }
  return at > first && value < kMostRank ? std::optional(value) : std::nullopt;
}

/// "[rank3]:" of PyTorch and of torchrun with that role, "[default0]:" of torchrun.
size_t role_prefix(std::string_view text, LineOrigin& origin) {
  if (!text.starts_with('[')) return 0;
  size_t at = 1;
  while (at < text.size() && ((text[at] >= 'a' && text[at] <= 'z') || text[at] == '_')) ++at;
  const std::string_view role = text.substr(1, at - 1);
  const auto rank = role.empty() ? std::nullopt : rank_in(text, at);
  if (!rank || !text.substr(at).starts_with("]:")) return 0;
  (role == "rank" ? origin.rank : origin.local_rank) = *rank;
  return at + 2;
}

/// "3: " of srun --label, "[1,3]<stdout>:" of mpirun --tag-output.
size_t task_prefix(std::string_view text, LineOrigin& origin) {
  size_t at = 0;
  if (text.starts_with("[1,")) {
    at = 3;
    const auto task = rank_in(text, at);
    const std::string_view rest = text.substr(at);
    if (!task || !(rest.starts_with("]<stdout>:") || rest.starts_with("]<stderr>:"))) return 0;
    origin.task = *task;
    return at + 10;
  }
  while (at < text.size() && at < 6 && text[at] == ' ') ++at;
  const auto task = rank_in(text, at);
  if (!task || !text.substr(at).starts_with(": ")) return 0;
  origin.task = *task;
  return at + 2;
}

/// "[a][b] (c) ": what stands in front of Primus's rank.
bool has_only_brackets(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == ' ') continue;
    if (text[at] != '[' && text[at] != '(') return false;
    at = text.find(text[at] == '[' ? ']' : ')', at);
    if (at == std::string_view::npos) return false;
  }
  return true;
}

/// "[20260304 05:06:07][rank-7/8][INFO]     [----------training.py:1234] : " of Primus; in files
/// the user, the module and the address stand between.
size_t primus_prefix(std::string_view text, LineOrigin& origin) {
  constexpr size_t kFurthest = 160;
  const std::string_view front = text.substr(0, kFurthest);
  const size_t mark = std::min(front.find("[rank-"), front.find("[node-"));
  if (mark == std::string_view::npos) return 0;
  if (!(text.starts_with('[') || text.starts_with("(Primus"))) return 0;
  if (!has_only_brackets(text.substr(0, mark))) return 0;
  size_t at = mark + 6;
  const bool is_rank = text[mark + 1] == 'r';
  const auto rank = rank_in(text, at);
  if (!rank || at >= text.size() || text[at] != '/') return 0;
  ++at;
  const auto size = rank_in(text, at);
  if (!size || !text.substr(at).starts_with("]")) return 0;
  origin.is_primus = true;
  if (is_rank) {
    origin.rank = *rank;
    origin.world_size = *size;
  }
  ++at;
  const auto behind_bracket = [&] {
    const size_t end = text.find(']', at);
    if (at < text.size() && text[at] == '[' && end != std::string_view::npos && end - at < 120) {
      at = end + 1;
      while (at < text.size() && text[at] == ' ') ++at;
    }
  };
  behind_bracket();  // the level
  const std::string_view place = text.substr(at, 120);
  if (place.starts_with('[') && place.find(".py:") != std::string_view::npos) behind_bracket();
  if (text.substr(at).starts_with(": ")) at += 2;
  return at;
}

/// "05:06:07.123 ", as some who start ranks put in front; 0: it has none.
size_t clock_prefix(std::string_view text) {
  constexpr std::string_view kForm = "00:00:00";
  if (text.size() <= kForm.size()) return 0;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == ':' ? text[i] != ':' : !is_digit(text[i])) return 0;
  }
  size_t at = kForm.size();
  if (text[at] == '.' || text[at] == ',') ++at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return at < text.size() && text[at] == ' ' ? at + 1 : 0;
}

/// The same behind a date. Loggers of the ranks write that, too: it is a launcher's where a rank
/// follows.
size_t date_prefix(std::string_view text) {
  constexpr size_t kDate = 11;  // "2026-03-04 "
  const bool is_date = text.size() > kDate && text.starts_with("20") && text[4] == '-' &&
                       text[7] == '-' && text[kDate - 1] == ' ';
  const size_t clock = is_date ? clock_prefix(text.substr(kDate)) : 0;
  LineOrigin next;
  const bool is_launcher = clock > 0 && role_prefix(text.substr(kDate + clock), next) > 0;
  return is_launcher ? kDate + clock : 0;
}

/// All of these, and "2026-03-04T05:06:07.123Z " that container runtimes and schedulers put in
/// front, with "stdout F" behind it where Kubernetes does.
size_t time_prefix(std::string_view text, LineOrigin&) {
  if (const size_t clock = std::max(clock_prefix(text), date_prefix(text)); clock > 0) return clock;
  constexpr size_t kShortest = 20;  // "2026-03-04T05:06:07Z"
  const bool is_date = text.size() > kShortest && text.starts_with("20") && text[4] == '-' &&
                       text[7] == '-' && text[10] == 'T' && text[13] == ':';
  if (!is_date) return 0;
  size_t at = text.find(' ');
  if (at == std::string_view::npos || at > 40) return 0;
  ++at;
  for (const std::string_view stream : {"stdout F ", "stderr F ", "stdout P ", "stderr P "}) {
    if (text.substr(at).starts_with(stream)) at += stream.size();
  }
  return at;
}

/// "(TrainWorker pid=4242, ip=10.0.0.1) " of Ray: a process, of which nobody knows the rank.
size_t ray_prefix(std::string_view text, LineOrigin& origin) {
  constexpr size_t kFurthest = 160;
  if (!text.starts_with('(')) return 0;
  const std::string_view front = text.substr(0, kFurthest);
  const size_t end = front.find(") ");
  const auto pid = log_text::integer_behind(front.substr(0, std::min(end, front.size())), " pid=");
  if (end == std::string_view::npos || !pid || *pid < 1) return 0;
  origin.process = *pid;
  return end + 2;
}

/// How long the prefix is; 0: it has none of this form.
using PrefixForm = size_t (*)(std::string_view, LineOrigin&);
constexpr std::array kPrefixForms = {PrefixForm{role_prefix}, PrefixForm{task_prefix},
                                     PrefixForm{primus_prefix}, PrefixForm{ray_prefix},
                                     PrefixForm{time_prefix}};

bool may_have_prefix(char c) { return c == '[' || c == '(' || c == ' ' || (c >= '0' && c <= '9'); }

}  // namespace

std::string_view without_prefixes(std::string_view text, LineOrigin& origin) {
  constexpr int kMostPrefixes = 6;
  for (int i = 0; i < kMostPrefixes && !text.empty() && may_have_prefix(text.front()); ++i) {
    size_t length = 0;
    for (const PrefixForm form : kPrefixForms) {
      length = form(text, origin);
      if (length > 0) break;
    }
    if (length == 0) break;
    text.remove_prefix(length);
  }
  return text;
}

GluedPrefix next_glued_prefix(std::string_view text, size_t from) {
  constexpr size_t kLongest = 256;
  for (size_t at = text.find('[', from); at != std::string_view::npos;
       at = text.find('[', at + 1)) {
    const std::string_view front = text.substr(at, kLongest);
    if (!front.starts_with("[rank") && !front.starts_with("[default")) continue;
    GluedPrefix prefix;
    const size_t length = front.size() - without_prefixes(front, prefix.origin).size();
    if (prefix.origin.rank < 0 && prefix.origin.local_rank < 0) continue;
    prefix.at = at;
    prefix.end = at + length;
    return prefix;
  }
  return {};
}

}  // namespace moetune::sweeps
