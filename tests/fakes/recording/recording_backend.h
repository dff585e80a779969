// A device that computes nothing and writes down what it is asked for. Its addresses are numbers:
// nothing may be read there.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <vector>

#include "kernels/backend.h"
#include "tests/fakes/recording/tape.h"

namespace moetune::recording {

/// Writes what the `num_before`-th copy to the host (from 0) finds, `bytes` of it.
using Answer = std::function<void(int64_t num_before, void* host, int64_t bytes)>;

class RecordingBackend final : public kernels::Backend {
 public:
  /// Has graphs. `answer` empty: copies to the host find zeros.
  RecordingBackend(Tape& tape, Answer answer) : tape_(tape), answer_(std::move(answer)) {}

  [[nodiscard]] std::string_view name() const override { return "recording"; }
  [[nodiscard]] bool prefers_small_products() const override { return false; }
  [[nodiscard]] int stream() const { return stream_; }
  [[nodiscard]] Tape& tape() const { return tape_; }

  void* allocate(int64_t bytes) override;
  void free(void* /*pointer*/) noexcept override {}
  std::unique_ptr<kernels::DeviceRange> make_range(int64_t most_bytes) override;
  void fill_zero(void* pointer, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_on_device(void* to, const void* from, int64_t bytes) override;

  void use_stream(int stream) override { stream_ = stream; }
  kernels::DeviceEvent record_event() override;
  void wait_event(const kernels::DeviceEvent& event) override;
  void synchronize() override;
  [[nodiscard]] void* native_stream() override { return nullptr; }
  [[nodiscard]] bool has_graphs() const override { return true; }
  void begin_capture() override;
  int end_capture() override;
  void launch_graph(int graph) override;
  [[nodiscard]] std::string kernels_note() const override { return {}; }
  void set_workspace_booking(std::function<void(int64_t bytes)> /*book*/) override {}
  [[nodiscard]] kernels::DeviceMemoryAccount memory_account() override { return {}; }

  void gemm(const kernels::GemmArgs& args) override;
  void grouped_gemm(const kernels::GroupedGemmArgs& args) override;
  void rms_norm(const kernels::RmsNormArgs& args) override;
  void rms_norm_backward(const kernels::RmsNormBackwardArgs& args) override;
  void rope(const kernels::RopeArgs& args) override;
  void attention(const kernels::AttentionArgs& args) override;
  void attention_backward(const kernels::AttentionBackwardArgs& args) override;
  void attention_merge(const kernels::AttentionMergeArgs& args) override;
  void gated_act(const kernels::GatedActArgs& args) override;
  void gated_act_backward(const kernels::GatedActBackwardArgs& args) override;
  void router(const kernels::RouterArgs& args) override;
  void router_backward(const kernels::RouterBackwardArgs& args) override;
  void aux_loss(const kernels::AuxLossArgs& args) override;
  void route_plan(const kernels::RoutePlanArgs& args) override;
  void expand_experts(const kernels::ExpandExpertsArgs& args) override;
  void gather_rows(const kernels::GatherRowsArgs& args) override;
  void scatter_rows(const kernels::ScatterRowsArgs& args) override;
  void combine_rows(const kernels::CombineRowsArgs& args) override;
  void embedding(const kernels::EmbeddingArgs& args) override;
  void embedding_backward(const kernels::EmbeddingBackwardArgs& args) override;
  void cross_entropy_stats(const kernels::CrossEntropyStatsArgs& args) override;
  void cross_entropy(const kernels::CrossEntropyArgs& args) override;
  void copy(const kernels::CopyArgs& args) override;
  void bias_backward(const kernels::BiasBackwardArgs& args) override;
  void adamw(const kernels::AdamWArgs& args) override;
  void squared_norm(const kernels::SquaredNormArgs& args) override;
  void sum(const kernels::SumArgs& args) override;

 private:
  Entry& write(std::string_view function, std::initializer_list<Operand> operands,
               std::initializer_list<Number> numbers = {});
  /// An operand whose content counts, not only its shape.
  [[nodiscard]] Operand positions_at(std::string_view role, const kernels::Tensor& tensor) const;

  Tape& tape_;
  Answer answer_;
  int stream_ = 0;
  int64_t num_events_ = 0;
  int64_t num_graphs_ = 0;
  int64_t num_fetches_ = 0;
  int64_t num_ranges_ = 0;
  std::map<int64_t, std::vector<char>> uploaded_;  ///< by address
};

}  // namespace moetune::recording
