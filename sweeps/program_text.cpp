// Columns and JSON of a listed program; alike items are folded into one with a count.
#include "sweeps/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "kernels/base/units.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

using plan::ListedInstr;
using plan::Verb;

bool has_group(Verb verb) { return verb == Verb::comm || verb == Verb::send || verb == Verb::recv; }

nlohmann::ordered_json to_json(const ListedInstr& listed) {
  using Value = nlohmann::ordered_json;
  const plan::Instr& instr = *listed.instr;
  const bool has_op = instr.op != plan::Op::count;
  return {{"verb", plan::name_of(instr.verb)},
          {"op", has_op ? Value(plan::op_row(instr.op).name) : Value()},
          {"pass", plan::name_of(instr.pass)},
          {"layer", listed.item->layer},
          {"micro_batch", listed.item->micro_batch},
          {"chunk", instr.chunk},
          {"stream", plan::name_of(instr.stream)},
          {"group", has_group(instr.verb) ? Value(plan::name_of(instr.group)) : Value()},
          {"flops", listed.cost.flops},
          {"bytes", listed.cost.bytes},
          {"waits", listed.waits_for}};
}

/// "0 to 3, 7": what lies together, in ascending order; from five pieces on only how many.
std::string ranges_text(const std::set<int32_t>& numbers) {
  std::vector<std::pair<int32_t, int32_t>> ranges;
  for (const int32_t number : numbers) {
    if (!ranges.empty() && ranges.back().second + 1 == number) {
      ranges.back().second = number;
    } else {
      ranges.emplace_back(number, number);
    }
  }
  constexpr size_t kMaxRanges = 4;
  if (ranges.size() > kMaxRanges) {
    return fmt::format("{} of {} to {}", numbers.size(), *numbers.begin(), *numbers.rbegin());
  }
  std::string text;
  for (const auto& [first, last] : ranges) {
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
  }
  return text;
}

/// ", layers 0 to 3"; nothing where there are none.
std::string of_numbers(const char* one, const char* several, const std::set<int32_t>& numbers) {
  if (numbers.empty()) return {};
  return fmt::format(", {} {}", numbers.size() == 1 ? one : several, ranges_text(numbers));
}

/// The columns of an instruction's line.
class Columns {
 public:
  using Align = TextTable::Align;
  static constexpr size_t kNumColumns = 10;
  static constexpr size_t kWhat = 2;
  static constexpr size_t kFlops = 7;
  static constexpr size_t kBytes = 8;
  static constexpr size_t kRemarks = 9;
  using Cells = std::array<std::string, kNumColumns>;

  Columns() {
    Cells cells;
    std::ranges::copy(kTitles, cells.begin());
    widen(cells);
    cells = {};
    cells[kFlops] = "99.9G";  // of other rows than those that are measured
    cells[kBytes] = "1023 KiB";
    widen(cells);
  }

  /// So that all items are aligned alike, before the first line.
  void widen(const Cells& cells) {
    for (size_t c = 0; c < kNumColumns; ++c) {
      widths_[c] = std::max(widths_[c], display_width(cells[c]));
    }
  }

  [[nodiscard]] std::string titles() const {
    Cells cells;
    std::ranges::copy(kTitles, cells.begin());
    return line(cells);
  }

  [[nodiscard]] std::string line(const Cells& cells) const {
    std::string text = "  ";
    for (size_t c = 0; c < kNumColumns; ++c) {
      const size_t used = display_width(cells[c]);
      const std::string padding(widths_[c] > used ? widths_[c] - used : 0, ' ');
      text += kAligns[c] == Align::right ? padding + cells[c] : cells[c] + padding;
      text += "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  static constexpr std::array<const char*, kNumColumns> kTitles = {
      "number", "verb", "what", "pass", "chunk", "stream", "group", "FLOPs", "bytes", "remarks"};
  static constexpr std::array<Align, kNumColumns> kAligns = {
      Align::right, Align::left, Align::left,  Align::left,  Align::right,
      Align::left,  Align::left, Align::right, Align::right, Align::left};
  std::array<size_t, kNumColumns> widths_{};
};

class TextWriter {
 public:
  TextWriter(std::ostream& out, const PrintedProgram& printed, const ProgramTextOptions& options)
      : out_(out),
        printed_(printed),
        program_(printed.program),
        options_(options),
        list_(plan::list_instructions(printed.program, printed.bindings)) {
    find_items();
    find_kinds();
    measure();
  }

  void run() {
    head();
    const auto is_listed = [&](size_t i) { return first_of_kind_.contains(items_[i].kind); };
    for (size_t i = 0; i < items_.size() && out_;) {
      if (options_.is_whole || !is_listed(i)) {
        first_of_kind_.try_emplace(items_[i].kind, i);
        list_item(i++);
        continue;
      }
      size_t end = i;
      while (end < items_.size() && is_listed(end)) ++end;
      fold(i, end);
      i = end;
    }
  }

 private:
  /// An item with its lines, [begin, end) of the list.
  struct ListedItem {
    const plan::Item* item = nullptr;
    bool is_setup = false;
    size_t number = 0;
    size_t begin = 0;
    size_t end = 0;
    size_t kind = 0;  ///< the first segment that holds the same instructions
  };

  void put(const std::string& line) {
    out_ << (options_.width ? cut_to_width(line, *options_.width) : line) << "\n";
  }

  void find_items() {
    size_t at = 0;
    for (const auto* items : {&program_.setup, &program_.items}) {
      for (size_t i = 0; i < items->size(); ++i) {
        ListedItem& made = items_.emplace_back();
        made.item = &(*items)[i];
        made.is_setup = items == &program_.setup;
        made.number = i;
        made.begin = at;
        while (at < list_.size() && list_[at].item == made.item) ++at;
        made.end = at;
      }
    }
  }

  void find_kinds() {
    std::vector<size_t> kinds;
    for (size_t s = 0; s < program_.segments.size(); ++s) {
      size_t first = 0;
      while (first < s && (kinds[first] != first ||
                           !plan::are_alike(*program_.segments[first], *program_.segments[s]))) {
        ++first;
      }
      kinds.push_back(first);
    }
    for (ListedItem& item : items_) {
      item.kind = kinds[static_cast<size_t>(item.item->segment)];
    }
  }

  void measure() {
    std::set<size_t> measured;
    for (const ListedItem& item : items_) {
      if (!measured.insert(item.kind).second) continue;
      for (size_t i = item.begin; i < item.end; ++i) columns_.widen(cells_of(i));
    }
    columns_.widen({std::to_string(list_.size())});
  }

  void head() {
    const plan::Layout& layout = program_.layout;
    std::string groups;
    for (const plan::Group group : plan::all_groups()) {
      const std::vector<int> ranks = layout.group_ranks(group, program_.rank);
      const auto own = std::ranges::find(ranks, program_.rank);
      if (group == plan::Group::world || ranks.size() == 1 || own == ranks.end()) continue;
      groups += fmt::format("{}{} {} of {}", groups.empty() ? ": " : ", ", plan::name_of(group),
                            own - ranks.begin(), ranks.size());
    }
    put(fmt::format("rank {} of {}{}", program_.rank, layout.world_size(), groups));
    std::string parts;
    for (size_t group = 0; group < printed_.memory.group_bytes.size(); ++group) {
      const int64_t bytes = printed_.memory.group_bytes[group];
      if (bytes == 0) continue;
      parts += fmt::format("{}{} {}", parts.empty() ? ": " : ", ",
                           profiler::name_of(static_cast<tuner::MemoryGroup>(group)),
                           base::format_bytes(bytes));
    }
    put(fmt::format("peak memory {}{}", base::format_bytes(printed_.memory.peak_bytes), parts));
    plan::OpCost work;
    int64_t sent = 0;
    for (const ListedInstr& listed : list_) {
      if (listed.instr->verb == Verb::op) work.flops += listed.cost.flops;
      if (has_group(listed.instr->verb)) sent += listed.cost.bytes;
    }
    put(fmt::format("{} instructions in {} items of a step: {} FLOPs, {} sent to other ranks",
                    list_.size(), program_.items.size(),
                    base::format_count(static_cast<double>(work.flops)), base::format_bytes(sent)));
    put("rows of experts: " + printed_.routing);
    if (!options_.is_whole) {
      put("Items that repeat listed ones are only counted; --all lists each, as --format json "
          "does.");
    }
    put("");
    put(columns_.titles());
  }

  [[nodiscard]] std::string title(const ListedItem& item) const {
    return item.is_setup ? "before the first step" : plan::item_title(program_, *item.item);
  }

  void list_item(size_t index) {
    const ListedItem& item = items_[index];
    put("");
    put(item.is_setup ? title(item) : fmt::format("{} (item {})", title(item), item.number));
    for (size_t i = item.begin; i < item.end && out_;) {
      const size_t end = options_.is_whole ? i + 1 : end_of_buckets(i, item.end);
      if (end > i + 1) {
        buckets(i, end);
      } else {
        put(columns_.line(cells_of(i)));
      }
      i = end;
    }
  }

  /// Where allocations of buckets for the same purpose end, one after the other from `begin`.
  [[nodiscard]] size_t end_of_buckets(size_t begin, size_t end) const {
    const auto is_bucket = [&](const plan::Instr& instr) {
      return instr.verb == Verb::alloc && instr.refs.front().space == plan::Space::bucket;
    };
    const plan::Instr& first = *list_[begin].instr;
    size_t i = begin + 1;
    if (!is_bucket(first)) return i;
    while (i < end && is_bucket(*list_[i].instr) && list_[i].instr->what == first.what) ++i;
    return i;
  }

  void buckets(size_t begin, size_t end) {
    Columns::Cells cells = cells_of(begin);
    int64_t bytes = 0;
    for (size_t i = begin; i < end; ++i) bytes += list_[i].cost.bytes;
    cells[Columns::kWhat] = fmt::format("{} buckets", end - begin);
    cells[Columns::kBytes] = base::format_bytes(bytes);
    cells[Columns::kRemarks] += fmt::format("; {} to {}", begin, end - 1);
    put(columns_.line(cells));
  }

  [[nodiscard]] Columns::Cells cells_of(size_t number) const {
    const ListedInstr& listed = list_[number];
    const plan::Instr& instr = *listed.instr;
    const bool is_launch = instr.verb == Verb::op || has_group(instr.verb);
    const bool has_pass = is_launch || instr.verb == Verb::fetch || instr.verb == Verb::copy;
    const bool has_stream = has_pass || instr.verb == Verb::record || instr.verb == Verb::wait ||
                            instr.verb == Verb::upload;
    const bool is_parameters = instr.verb == Verb::acquire || instr.verb == Verb::release;
    const std::string subject = plan::subject_of(program_, *listed.item, instr);
    return {std::to_string(number),
            plan::name_of(instr.verb),
            is_parameters ? "parameters" : subject,
            has_pass ? plan::name_of(instr.pass) : "",
            instr.chunk >= 0 ? std::to_string(instr.chunk) : "",
            has_stream ? plan::name_of(instr.stream) : "",
            has_group(instr.verb) ? plan::name_of(instr.group) : "",
            listed.cost.flops > 0 ? base::format_count(static_cast<double>(listed.cost.flops)) : "",
            listed.cost.bytes > 0 ? base::format_bytes(listed.cost.bytes) : "",
            is_parameters ? subject : remark(listed)};
  }

  [[nodiscard]] std::string remark(const ListedInstr& listed) const {
    const plan::Instr& instr = *listed.instr;
    switch (instr.verb) {
      case Verb::alloc:
      case Verb::free:
        return profiler::name_of(static_cast<tuner::MemoryGroup>(instr.what));
      case Verb::comm: {
        const plan::Ref& operand = instr.refs.front();
        const std::string text = fmt::format("{} of {}", spec::name_of(instr.kind),
                                             program_.layout.group_size(instr.group));
        return operand.space == plan::Space::bucket
                   ? fmt::format("{}, {}", text, plan::name_of(program_, *listed.item, operand))
                   : text;
      }
      case Verb::send:
      case Verb::recv: {
        const std::vector<int> ranks = program_.layout.group_ranks(instr.group, program_.rank);
        return fmt::format("{} rank {}", instr.verb == Verb::send ? "to" : "from",
                           ranks[static_cast<size_t>(instr.peer)]);
      }
      case Verb::wait:
        return waited_for(listed);
      case Verb::fetch:
        return fmt::format("{}; {}", plan::name_of(program_, *listed.item, instr.refs.front()),
                           waited_for(listed));
      default:
        return {};
    }
  }

  [[nodiscard]] std::string waited_for(const ListedInstr& listed) const {
    if (listed.waits_for.empty()) return "nothing has been launched there";
    std::string text = "waits for ";
    for (const int64_t number : listed.waits_for) {
      const ListedInstr& other = list_[static_cast<size_t>(number)];
      if (number != listed.waits_for.front()) text += ", ";
      text += fmt::format("{} {}", number, plan::subject_of(program_, *other.item, *other.instr));
    }
    return text;
  }

  /// What the items [begin, end), all of listed kinds, run.
  void fold(size_t begin, size_t end) {
    struct Same {
      size_t count = 0;
      std::set<int32_t> layers;
      std::set<int32_t> micro_batches;
    };
    std::vector<size_t> order;
    std::map<size_t, Same> by_kind;
    for (size_t i = begin; i < end; ++i) {
      const auto [same, is_new] = by_kind.try_emplace(items_[i].kind);
      if (is_new) order.push_back(items_[i].kind);
      ++same->second.count;
      const plan::Item& item = *items_[i].item;
      if (item.layer >= 0) same->second.layers.insert(item.layer);
      if (item.micro_batch >= 0) same->second.micro_batches.insert(item.micro_batch);
    }
    const size_t count_width = std::to_string(end - begin).size();
    put("");
    const size_t first = items_[begin].number;
    put(end == begin + 1
            ? fmt::format("item {} repeats what is above:", first)
            : fmt::format("items {} to {} repeat what is above:", first, items_[end - 1].number));
    for (const size_t kind : order) {
      const Same& same = by_kind.at(kind);
      const ListedItem& as = items_[first_of_kind_.at(kind)];
      const std::string name = title(as);
      put(fmt::format("  {:>{}} x {}, as item {}{}{}", same.count, count_width,
                      name.substr(name.find(": ") + 2), as.number,
                      of_numbers("layer", "layers", same.layers),
                      of_numbers("micro-batch", "micro-batches", same.micro_batches)));
    }
  }

  std::ostream& out_;
  const PrintedProgram& printed_;
  const plan::StepProgram& program_;
  const ProgramTextOptions& options_;
  std::vector<ListedInstr> list_;
  Columns columns_;
  std::vector<ListedItem> items_;
  std::map<size_t, size_t> first_of_kind_;  ///< those that are listed
};

}  // namespace

void write_program_json(std::ostream& out, const PrintedProgram& printed) {
  const plan::StepProgram& program = printed.program;
  out << fmt::format("{{\n  \"rank\": {},\n  \"world_size\": {},\n  \"instructions\": [",
                     program.rank, program.layout.world_size());
  const char* separator = "\n    ";
  for (const ListedInstr& listed : plan::list_instructions(program, printed.bindings)) {
    if (!out) return;
    out << separator << to_json(listed).dump();
    separator = ",\n    ";
  }
  out << fmt::format("\n  ],\n  \"peak_bytes\": {}\n}}\n", printed.memory.peak_bytes);
}

void write_program_text(std::ostream& out, const PrintedProgram& printed,
                        const ProgramTextOptions& options) {
  TextWriter(out, printed, options).run();
}

}  // namespace moetune::sweeps
