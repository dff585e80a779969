#include "profiler/import/operator_shapes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

namespace moetune::profiler {
namespace {

enum class ProductForm : uint8_t { plain, batched, linear, grouped };

struct ProductRow {
  std::string_view name;
  ProductForm form;
  size_t first = 0;  ///< which input is the first factor
};
constexpr ProductRow kProducts[] = {
    {"aten::mm", ProductForm::plain},
    {"aten::addmm", ProductForm::plain, 1},
    {"aten::_addmm_activation", ProductForm::plain, 1},
    {"aten::bmm", ProductForm::batched},
    {"aten::baddbmm", ProductForm::batched, 1},
    {"aten::linear", ProductForm::linear},
    {"aten::_scaled_mm", ProductForm::plain},
    {"aten::_grouped_mm", ProductForm::grouped},
    {"aten::_scaled_grouped_mm", ProductForm::grouped},
};

const ProductRow* product_row_of(std::string_view name) {
  const auto found = std::ranges::find(kProducts, name, &ProductRow::name);
  return found == std::end(kProducts) ? nullptr : &*found;
}

/// What an operator moves that does something with each element, or few things.
enum class MovedForm : uint8_t {
  result,   ///< its inputs, and a result of their common (broadcast) shape
  inplace,  ///< its inputs, and the first one back
  inputs,   ///< its inputs, of which one is the result; or the result is small
};

struct MovedRow {
  std::string_view name;
  MovedForm form;
};
constexpr MovedRow kMoved[] = {
    {"aten::copy_", MovedForm::inputs},
    {"aten::add", MovedForm::result},
    {"aten::add_", MovedForm::inplace},
    {"aten::mul", MovedForm::result},
    {"aten::mul_", MovedForm::inplace},
    {"aten::sub", MovedForm::result},
    {"aten::sub_", MovedForm::inplace},
    {"aten::div", MovedForm::result},
    {"aten::div_", MovedForm::inplace},
    {"aten::neg", MovedForm::result},
    {"aten::pow", MovedForm::result},
    {"aten::rsqrt", MovedForm::result},
    {"aten::sqrt", MovedForm::result},
    {"aten::exp", MovedForm::result},
    {"aten::cos", MovedForm::result},
    {"aten::sin", MovedForm::result},
    {"aten::tanh", MovedForm::result},
    {"aten::sigmoid", MovedForm::result},
    {"aten::silu", MovedForm::result},
    {"aten::silu_backward", MovedForm::result},
    {"aten::gelu", MovedForm::result},
    {"aten::gelu_backward", MovedForm::result},
    {"aten::relu", MovedForm::result},
    {"aten::threshold_backward", MovedForm::result},
    {"aten::where", MovedForm::result},
    {"aten::masked_fill_", MovedForm::inplace},
    {"aten::fill_", MovedForm::inputs},
    {"aten::_softmax", MovedForm::result},
    {"aten::_log_softmax", MovedForm::result},
    {"aten::_softmax_backward_data", MovedForm::result},
    {"aten::native_layer_norm", MovedForm::result},
    {"aten::sum", MovedForm::inputs},
    {"aten::mean", MovedForm::inputs},
};

const MovedRow* moved_row_of(std::string_view name) {
  const auto found = std::ranges::find(kMoved, name, &MovedRow::name);
  return found == std::end(kMoved) ? nullptr : &*found;
}

struct ElementRow {
  std::string_view name;
  int bytes;
};
constexpr ElementRow kElements[] = {
    {"c10::BFloat16", 2},
    {"c10::Half", 2},
    {"c10::Float8_e4m3fn", 1},
    {"c10::Float8_e5m2", 1},
    {"c10::Float8_e4m3fnuz", 1},
    {"c10::Float8_e5m2fnuz", 1},
    {"float", 4},
    {"double", 8},
    {"long int", 8},
    {"long", 8},
    {"int", 4},
    {"bool", 1},
    {"unsigned char", 1},
    {"signed char", 1},
};
/// 0: of another type.
int bytes_of_element(std::string_view name) {
  for (const ElementRow& row : kElements) {
    if (row.name == name) return row.bytes;
  }
  return 0;
}

using Dims = std::vector<double>;

/// Types whose products run at the peak of 16 or 8 bits.
bool is_short_float(std::string_view name) {
  return name == "c10::BFloat16" || name == "c10::Half" || name.starts_with("c10::Float8_");
}

/// What stands behind a key of the event, from its '[' on; empty: it has no such list.
std::string_view list_behind(std::string_view event, std::string_view key) {
  const size_t at = event.find(key);
  if (at == std::string_view::npos) return {};
  event.remove_prefix(at + key.size());
  const size_t start = event.find_first_not_of(" \n\r\t:");
  if (start == std::string_view::npos || event[start] != '[') return {};
  return event.substr(start);
}

/// The first inputs of "[[8192, 4096], [4096, 1024], []]". Inputs that are no tensor, such as lists
/// of tensors, end it.
std::vector<Dims> dims_in(std::string_view event) {
  constexpr size_t kMostInputs = 16;
  constexpr size_t kMostDims = 16;
  std::vector<Dims> inputs;
  int depth = 0;
  double number = -1;  // that is being read
  for (const char c : list_behind(event, "\"Input Dims\"")) {
    if (c >= '0' && c <= '9') {
      number = 10 * std::max(number, 0.0) + (c - '0');
      continue;
    }
    if (number >= 0 && depth == 2 && inputs.back().size() < kMostDims) {
      inputs.back().push_back(number);
    }
    number = -1;
    if (c == '[') {
      if (++depth > 2 || inputs.size() == kMostInputs) return inputs;
      if (depth == 2) inputs.emplace_back();
    } else if (c == ']') {
      if (--depth == 0) return inputs;
    } else if (c != ',' && c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      return {};
    }
  }
  return {};  // cut
}

/// Of `["c10::BFloat16", "Scalar"]` the one at `place`; empty: there is none.
std::string_view type_in(std::string_view event, size_t place) {
  std::string_view list = list_behind(event, "\"Input type\"");
  list = list.substr(0, list.find(']'));
  for (size_t i = 0;; ++i) {
    const size_t start = list.find('"');
    if (start == std::string_view::npos) return {};
    list.remove_prefix(start + 1);
    const size_t end = list.find('"');
    if (end == std::string_view::npos) return {};
    if (i == place) return list.substr(0, end);
    list.remove_prefix(end + 1);
  }
}

double elements_of(const Dims& dims) {
  double product = 1;
  for (const double dim : dims) product *= dim;
  return product;
}

struct ProductSize {
  double multiplications = 0;
  double results = 0;  ///< elements
};

/// Of a [m, k] and b [k, n]; batched with the same dimension before.
std::optional<ProductSize> plain_size(const Dims& a, const Dims& b, size_t rank) {
  if (a.size() != rank || b.size() != rank || a[rank - 1] != b[rank - 2]) return std::nullopt;
  if (rank == 3 && a[0] != b[0]) return std::nullopt;
  const double n = b[rank - 1];
  return ProductSize{elements_of(a) * n, elements_of(a) / std::max(a[rank - 1], 1.0) * n};
}

/// Rows of a, columns of b or what both share are spread over the groups.
std::optional<ProductSize> grouped_size(const Dims& a, const Dims& b, double groups) {
  if (a.size() < 2 || a.size() > 3 || b.size() < 2 || b.size() > 3) return std::nullopt;
  const double k = a.back();
  if (k != b[b.size() - 2] || k <= 0) return std::nullopt;
  if (a.size() == 3 && b.size() == 3) return plain_size(a, b, 3);
  const double m = a[a.size() - 2];
  const double n = b.back();
  const bool shares_k = a.size() == 2 && b.size() == 2;
  return ProductSize{m * k * n, shares_k ? groups * m * n : m * n};
}

constexpr double kMostWork = 1e18;

/// Bytes of an operator that moves its elements; scalars have no dimensions and count for nothing.
std::optional<OperatorWork> work_of_moving(MovedForm form, std::string_view event) {
  const std::vector<Dims> inputs = dims_in(event);
  double bytes = 0;
  Dims common;  // shape, the last dimension first
  int result_bytes = 0;
  double first_bytes = 0;
  double largest = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty()) continue;
    const int element_bytes = bytes_of_element(type_in(event, i));
    if (element_bytes == 0) return std::nullopt;
    const double elements = elements_of(inputs[i]);
    bytes += elements * element_bytes;
    if (i == 0) first_bytes = elements * element_bytes;
    if (elements > largest) {
      largest = elements;
      result_bytes = element_bytes;
    }
    common.resize(std::max(common.size(), inputs[i].size()), 1);
    for (size_t axis = 0; axis < inputs[i].size(); ++axis) {
      common[axis] = std::max(common[axis], inputs[i][inputs[i].size() - 1 - axis]);
    }
  }
  if (form == MovedForm::result) bytes += elements_of(common) * result_bytes;
  if (form == MovedForm::inplace) bytes += first_bytes;
  if (largest <= 0 || !(bytes < kMostWork)) return std::nullopt;
  return OperatorWork{0, static_cast<int64_t>(bytes), false};
}

}  // namespace

bool may_have_work(std::string_view name) {
  return product_row_of(name) != nullptr || moved_row_of(name) != nullptr;
}

std::optional<OperatorWork> work_of_operator(std::string_view name, std::string_view event) {
  if (const MovedRow* moved = moved_row_of(name)) return work_of_moving(moved->form, event);
  const ProductRow* row = product_row_of(name);
  if (row == nullptr) return std::nullopt;
  const std::vector<Dims> inputs = dims_in(event);
  if (inputs.size() < row->first + 2) return std::nullopt;
  const Dims& a = inputs[row->first];
  const Dims& b = inputs[row->first + 1];
  const std::string_view type = type_in(event, row->first);
  const int element_bytes = bytes_of_element(type);
  if (!is_short_float(type) || a.empty() || b.empty()) return std::nullopt;
  std::optional<ProductSize> size;
  switch (row->form) {
    case ProductForm::plain:
      size = plain_size(a, b, 2);
      break;
    case ProductForm::batched:
      size = plain_size(a, b, 3);
      break;
    case ProductForm::linear:
      if (b.size() == 2 && a.back() == b[1]) {
        size = ProductSize{elements_of(a) * b[0], elements_of(a) / std::max(b[1], 1.0) * b[0]};
      }
      break;
    case ProductForm::grouped: {
      const size_t offs = row->first + 2;
      const bool has_offs = inputs.size() > offs && inputs[offs].size() == 1;
      size = grouped_size(a, b, has_offs ? inputs[offs][0] : 1);
      break;
    }
  }
  constexpr double kResultBytes = 2;  // of 8-bit factors, too
  if (!size) return std::nullopt;
  const double flops = 2 * size->multiplications;
  const double bytes =
      (elements_of(a) + elements_of(b)) * element_bytes + size->results * kResultBytes;
  if (!(flops > 0 && flops < kMostWork && bytes < kMostWork)) return std::nullopt;
  return OperatorWork{static_cast<int64_t>(flops), static_cast<int64_t>(bytes), element_bytes == 1};
}

uint32_t OperatorShapes::operator_of(const ImportedTrace& trace, const ImportedOp& op) const {
  const auto external = std::ranges::lower_bound(externals_, op.correlation, {},
                                                 &std::pair<uint32_t, uint32_t>::first);
  if (external != externals_.end() && external->first == op.correlation) {
    const auto found = by_id_.find(external->second);
    return found == by_id_.end() ? kNoRow : found->second;
  }
  const HostCall* call = trace.launch_of(op);
  if (call == nullptr || call->thread >= by_thread_.size()) return kNoRow;
  const std::vector<uint32_t>& of_thread = by_thread_[call->thread];
  auto at = std::ranges::upper_bound(of_thread, call->start_ns, {},
                                     [&](uint32_t place) { return operators_[place].start_ns; });
  constexpr int kMostNested = 3;
  for (int i = 0; i < kMostNested && at != of_thread.begin(); ++i) {
    --at;
    if (operators_[*at].end_ns >= call->end_ns) return *at;
  }
  return kNoRow;
}

void OperatorShapes::give_to(ImportedTrace& trace) {
  if (!operators_.empty()) {
    std::ranges::sort(externals_);
    by_thread_.resize(trace.threads.size());
    for (uint32_t place = 0; place < operators_.size(); ++place) {
      const Operator& one = operators_[place];
      if (one.external_id != 0) by_id_.emplace(one.external_id, place);
      by_thread_[one.thread].push_back(place);
    }
    for (std::vector<uint32_t>& of_thread : by_thread_) {
      std::ranges::stable_sort(of_thread, {},
                               [&](uint32_t place) { return operators_[place].start_ns; });
    }
    std::vector<uint32_t> longest(operators_.size(), kNoRow);
    for (uint32_t row = 0; row < trace.ops.size(); ++row) {
      const ImportedOp& op = trace.ops[row];
      if (op.kind != ActivityKind::kernel || op.correlation == 0) continue;
      const uint32_t place = operator_of(trace, op);
      if (place == kNoRow) continue;
      uint32_t& best = longest[place];
      if (best == kNoRow || trace.ops[best].duration_ns() < op.duration_ns()) best = row;
    }
    for (size_t place = 0; place < longest.size(); ++place) {
      if (longest[place] == kNoRow) continue;
      const OperatorWork& work = operators_[place].work;
      trace.works.push_back({work.flops, work.bytes, longest[place], work.is_eight_bit});
    }
    std::ranges::sort(trace.works, {}, &KernelWork::op);
  }
  *this = OperatorShapes();
}

}  // namespace moetune::profiler
