#include "tests/fakes/recording/tape.h"

#include <fmt/format.h>

#include <map>

#include "kernels/base/error.h"

namespace moetune::recording {
namespace {

/// The entries that each graph was captured from.
struct Captured {
  size_t begin = 0;
  size_t end = 0;
};

bool is_of_no_stream(const Entry& entry) {
  return entry.is_memory() || entry.name == "begin_capture" || entry.name == "end_capture" ||
         entry.name == "launch_graph";
}

}  // namespace

bool Operand::is_at(const Operand& other) const {
  return data == other.data && dtype == other.dtype && rows == other.rows && cols == other.cols &&
         (rows <= 1 || ld == other.ld);
}

Operand operand(std::string_view role, const kernels::Tensor& tensor) {
  return {role, tensor.data, tensor.dtype, tensor.rows, tensor.cols, tensor.ld};
}

Operand bytes_at(std::string_view role, const void* data, int64_t bytes) {
  return {role, data, std::nullopt, 1, bytes, bytes};
}

Operand flat(std::string_view role, const void* data, base::DType dtype, int64_t numel) {
  return {role, data, dtype, 1, numel, numel};
}

const Operand* Entry::find(std::string_view role) const {
  for (const Operand& each : operands) {
    if (each.role == role) return &each;
  }
  return nullptr;
}

std::optional<int64_t> Entry::number(std::string_view name_of_number) const {
  for (const Number& each : numbers) {
    if (each.name == name_of_number) return each.value;
  }
  return std::nullopt;
}

std::string text_of(const Operand& operand) {
  return fmt::format("{} {}[{}, {}] stride {} at {}", operand.role,
                     operand.dtype ? base::name_of(*operand.dtype) : "bytes", operand.rows,
                     operand.cols, operand.ld, operand.data);
}

std::string text_of(const Entry& entry) {
  std::string text = fmt::format("{} on stream {}", entry.name, entry.stream);
  for (const Number& number : entry.numbers) {
    text += fmt::format(", {} {}", number.name, number.value);
  }
  for (const Operand& operand : entry.operands) text += fmt::format(", {}", text_of(operand));
  return text;
}

std::vector<std::string> differences(const Entry& expected, const Entry& found) {
  std::vector<std::string> list;
  if (expected.name != found.name) {
    return {fmt::format("{} is expected, found {}", text_of(expected), text_of(found))};
  }
  if (expected.stream != found.stream) {
    list.push_back(fmt::format("stream {} is expected, found {}", expected.stream, found.stream));
  }
  for (const Number& number : expected.numbers) {
    const std::optional<int64_t> value = found.number(number.name);
    if (value == number.value) continue;
    list.push_back(fmt::format("{} {} is expected, found {}", number.name, number.value,
                               value ? std::to_string(*value) : "none"));
  }
  if (expected.numbers.size() < found.numbers.size()) {
    list.push_back(fmt::format("more numbers than expected: {}", text_of(found)));
  }
  // The n-th operand of a role is compared with the n-th.
  std::map<std::string_view, std::vector<const Operand*>> by_role;
  for (const Operand& operand : found.operands) by_role[operand.role].push_back(&operand);
  std::map<std::string_view, size_t> num_seen;
  for (const Operand& operand : expected.operands) {
    const std::vector<const Operand*>& own = by_role[operand.role];
    const size_t index = num_seen[operand.role]++;
    if (index < own.size() && operand.is_at(*own[index])) continue;
    list.push_back(fmt::format("{} is expected, found {}", text_of(operand),
                               index < own.size() ? text_of(*own[index]) : "none"));
  }
  if (expected.operands.size() < found.operands.size()) {
    list.push_back(fmt::format("more operands than expected: {}", text_of(found)));
  }
  return list;
}

std::vector<Played> played(const Tape& tape, size_t begin, size_t end) {
  std::map<int64_t, Captured> graphs;
  size_t capture = 0;
  std::vector<Played> calls;
  size_t num_before = 0;  // of `calls`, when the capture began
  for (size_t i = 0; i < end; ++i) {
    const Entry& entry = tape[i];
    const bool is_inside = i >= begin;
    if (entry.name == "begin_capture") {
      capture = i;
      num_before = calls.size();
    } else if (entry.name == "end_capture") {
      const int64_t graph = entry.number("graph").value();
      graphs[graph] = {capture + 1, i};
      MOETUNE_CHECK(
          i + 1 < end && tape[i + 1].name == "launch_graph" && tape[i + 1].number("graph") == graph,
          "graph {} is captured and not launched at once", graph);
      for (size_t call = num_before; call < calls.size(); ++call) {
        calls[call].launch = static_cast<int64_t>(i) + 1;
      }
      ++i;
    } else if (entry.name == "launch_graph" && is_inside) {
      const Captured& captured = graphs.at(entry.number("graph").value());
      for (size_t call = captured.begin; call < captured.end; ++call) {
        if (is_of_no_stream(tape[call])) continue;
        calls.push_back({&tape[call], i, static_cast<int64_t>(i), true});
      }
    } else if (is_inside && !is_of_no_stream(entry)) {
      calls.push_back({&entry, i, -1, false});
    }
  }
  return calls;
}

}  // namespace moetune::recording
