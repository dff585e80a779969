// How much arithmetic a kernel does, from the shapes of the operator that launched it: PyTorch's
// profiler records them with record_shapes=True. Known here are products of matrices, and operators
// that do little with each element, so that moving the elements is their work.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// FLOPs of an operator and bytes of its operands and its result, each moved once.
struct OperatorWork {
  int64_t flops = 0;
  int64_t bytes = 0;
  bool is_eight_bit = false;
};

/// Whether work_of_operator() knows operators of that name.
bool may_have_work(std::string_view name);

/// Work of an operator ("aten::mm"), from "Input Dims" and "Input type" of its unchanged event.
/// Shapes: mm, _scaled_mm [m, k] [k, n]; bmm [b, m, k] [b, k, n]; addmm and baddbmm with a bias
/// before; linear
/// [..., k] [n, k]; _grouped_mm and _scaled_grouped_mm with two or three dimensions each, groups in
/// `offs` (the third input). For add, copy_, _softmax and the like, FLOPs are 0 and bytes are those
/// of inputs and result. Empty for other operators, for shapes that do not match, and for products
/// of types other than 16 and 8 bits: the file does not say whether 32-bit products run as TF32.
std::optional<OperatorWork> work_of_operator(std::string_view name, std::string_view event);

/// Collects operators and hands their work to the kernels that they launched.
class OperatorShapes {
 public:
  struct Operator {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    OperatorWork work;
    uint32_t external_id = 0;  ///< 0: none
    uint16_t thread = 0;       ///< row of `threads`
  };
  void add(const Operator& one) { operators_.push_back(one); }
  /// What a kernel's event calls its operator. Files of before 2024 repeat the correlation there,
  /// which says nothing.
  void see_kernel(uint32_t correlation, uint32_t external_id) {
    if (correlation == 0 || external_id == 0 || external_id == correlation) return;
    externals_.emplace_back(correlation, external_id);
  }
  /// Fills trace.works, behind trace.finish(). A kernel is the operator's that its id names, else
  /// the innermost one that its launch lies in. The longest kernel of an operator gets all of its
  /// work: the others add up parts or set memory. Leaves nothing here.
  void give_to(ImportedTrace& trace);

 private:
  [[nodiscard]] uint32_t operator_of(const ImportedTrace& trace, const ImportedOp& op) const;

  std::vector<Operator> operators_;
  std::vector<std::pair<uint32_t, uint32_t>> externals_;  ///< correlation and external id
  std::unordered_map<uint32_t, uint32_t> by_id_;
  std::vector<std::vector<uint32_t>> by_thread_;  ///< operators, by start
};

}  // namespace moetune::profiler
