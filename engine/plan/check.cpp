// What every program has to hold, whatever blocks, schedule and passes have made it: one walk over
// the step that follows events, routes, parameters and buffers. See compile.h.
#include <array>
#include <bitset>
#include <compare>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/compile.h"
#include "engine/plan/listing.h"
#include "kernels/base/error.h"

namespace moetune::plan {
namespace {

bool has_routed_rows(const Ref& ref) {
  return ref.rows == RowsOf::received || ref.rows == RowsOf::sent;
}

/// A piece of memory that instructions make, use and end.
struct Memory {
  Space space = Space::none;
  int32_t frame = -1;
  int32_t micro_batch = -1;
  uint8_t id = 0;
  int64_t bucket = -1;

  auto operator<=>(const Memory&) const = default;
};

class Checker {
 public:
  explicit Checker(const StepProgram& program) : program_(program) {
    const ParamPlan& params = program.params;
    for (const ParamDesc& param : params.params) {
      if (!params.buckets[static_cast<size_t>(param.bucket)].is_sharded) continue;
      sharded_[{static_cast<uint8_t>(param.kind), param.layer}] = param.bucket;
    }
  }

  void run() {
    for (size_t i = 0; i < program_.setup.size(); ++i) run_item(program_.setup[i], i, true);
    for (size_t i = 0; i < program_.items.size(); ++i) run_item(program_.items[i], i, false);
    for (const auto& [memory, maker] : live_) {
      if (!maker.is_setup) throw base::Error(text_of(maker) + ": the buffer is never freed");
    }
  }

 private:
  /// How far an event of the item has come.
  enum class Recorded : uint8_t { no, on_devices, always };

  /// Of the segment that is under way.
  struct Lane {
    std::vector<Recorded> events;
    std::bitset<std::numeric_limits<uint8_t>::max() + 1> acquired;  ///< by ParamKind
    bool is_counted = false;                                        ///< the counts are fetched
    int num_pieces = 0;                                             ///< that have begun
  };

  /// An instruction of the program.
  struct Where {
    bool is_setup = false;
    size_t item = 0;
    size_t instr = 0;
  };

  void run_item(const Item& item, size_t number, bool is_setup) {
    item_ = &item;
    segment_ = program_.segments[static_cast<size_t>(item.segment)].get();
    lane_ = &lanes_[lane_of(*segment_)];
    if (segment_->begins()) {
      *lane_ = {};
      lane_->events.assign(static_cast<size_t>(segment_->num_events), Recorded::no);
    } else if (lane_->num_pieces != segment_->piece) {
      at_ = {is_setup, number, 0};
      fail("the piece of the segment before this one has not run");
    }
    ++lane_->num_pieces;
    for (const Instr& instr : segment_->code) {
      // An item that routes anew must not use the rows of an earlier routing.
      if (is_fetch_of_counts(instr) || is_host_work(instr, Op::finish_route)) {
        routed_.erase(place());
      }
    }
    for (size_t i = 0; i < segment_->code.size(); ++i) {
      at_ = {is_setup, number, i};
      run_instr(segment_->code[i]);
    }
    if (segment_->ends() && lane_->acquired.any())
      fail("the segment ends while parameters are acquired");
  }

  [[nodiscard]] std::pair<int32_t, int32_t> place() const {
    return {item_->layer, item_->micro_batch};
  }

  static bool is_host_work(const Instr& instr, Op work) {
    return instr.verb == Verb::host && instr.op == work;
  }

  static bool is_fetch_of_counts(const Instr& instr) {
    return instr.verb == Verb::fetch && static_cast<Fetch>(instr.what) == Fetch::counts;
  }

  [[nodiscard]] std::string text_of(const Where& at) const {
    const Item& item = (at.is_setup ? program_.setup : program_.items)[at.item];
    const Instr& instr = program_.segments[static_cast<size_t>(item.segment)]->code[at.instr];
    const std::string subject = subject_of(program_, item, instr);
    return fmt::format("rank {}, {} {} ({}), instruction {} ({}{}{})", program_.rank,
                       at.is_setup ? "setup item" : "item", at.item, item_title(program_, item),
                       at.instr, name_of(instr.verb), subject.empty() ? "" : " ", subject);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw base::Error(fmt::format("{}: {}", text_of(at_), what));
  }

  void run_instr(const Instr& instr) {
    check_routed(instr);
    switch (instr.verb) {
      case Verb::alloc:
        if (!live_.try_emplace(memory_of(instr.refs.front()), at_).second) {
          fail("the buffer is there already");
        }
        return;
      case Verb::free:
        if (live_.erase(memory_of(instr.refs.front())) == 0) fail("the buffer is not there");
        return;
      case Verb::record:
        event(instr) = instr.device_only ? Recorded::on_devices : Recorded::always;
        return;
      case Verb::wait: {
        const Recorded recorded = event(instr);
        if (recorded == Recorded::no) fail("the event is not recorded before");
        if (recorded == Recorded::on_devices && !instr.device_only) {
          fail("the event is recorded on real devices only");
        }
        return;
      }
      case Verb::acquire:
      case Verb::release:
        return hold(instr);
      case Verb::host:
        return work_on_host(instr);
      case Verb::fetch:
        use(instr);
        if (is_fetch_of_counts(instr)) lane_->is_counted = true;
        return;
      default:
        return use(instr);
    }
  }

  Recorded& event(const Instr& instr) {
    if (instr.event < 0 || static_cast<size_t>(instr.event) >= lane_->events.size()) {
      fail("the segment has no such event");
    }
    return lane_->events[static_cast<size_t>(instr.event)];
  }

  void hold(const Instr& instr) {
    const bool is_acquire = instr.verb == Verb::acquire;
    for (const Ref& ref : instr.refs) {
      if (lane_->acquired[ref.id] == is_acquire) {
        fail(is_acquire ? "a parameter is acquired twice" : "a parameter is not acquired");
      }
      lane_->acquired[ref.id] = is_acquire;
      if (is_acquire) check_whole(ref, BucketPart::gathered, "a parameter is used as a shard");
    }
  }

  /// Of a parameter in a sharded bucket: whether that part of the bucket is there.
  void check_whole(const Ref& ref, BucketPart part, const char* what) const {
    for (const int64_t layer : {int64_t{item_->layer}, int64_t{-1}}) {
      const auto found = sharded_.find({ref.id, layer});
      if (found == sharded_.end()) continue;
      if (!live_.contains({Space::bucket, -1, -1, static_cast<uint8_t>(part), found->second})) {
        fail(what);
      }
      return;
    }
  }

  void work_on_host(const Instr& instr) {
    if (is_host_work(instr, Op::finish_route)) {
      if (!lane_->is_counted) fail("the counts are not fetched yet");
      routed_.insert(place());
    } else if (!routed_.contains(place())) {
      fail("the rows of this layer and micro-batch are not known before");
    }
  }

  /// Without expert parallelism the number of rows is the layer's, and nothing is routed.
  void check_routed(const Instr& instr) const {
    bool is_routed = instr.is_routed;
    for (const Ref& ref : instr.refs) is_routed |= has_routed_rows(ref);
    if (is_routed && segment_->dims.expert_ranks > 1 && !routed_.contains(place())) {
      fail("the rows of this layer and micro-batch are not known before");
    }
  }

  void use(const Instr& instr) {
    for (const Ref& ref : instr.refs) {
      if (ref.space == Space::none) continue;
      if (ref.space == Space::weight || ref.space == Space::grad) {
        if (!lane_->acquired[ref.id]) fail("a parameter is used that is not acquired");
        // Another micro-batch may have run since it was acquired.
        if (ref.space == Space::weight) {
          check_whole(ref, BucketPart::gathered, "a parameter is used as a shard");
        }
        if (ref.space == Space::grad) {
          check_whole(ref, BucketPart::whole_grad, "a gradient is added to a shard");
        }
      } else if (!live_.contains(memory_of(ref)) && !is_empty(ref)) {
        fail(fmt::format("the operand {} is not there", name_of(program_, *item_, ref)));
      }
    }
  }

  /// Buffers of a size of zero are never made.
  [[nodiscard]] bool is_empty(const Ref& ref) const {
    const Space space = memory_of(ref).space;
    if (space != Space::frame && space != Space::scratch && space != Space::narrow) return false;
    LayerDims dims = segment_->dims;
    dims.received_rows = 1;
    return buffer_bytes(buffer_row(static_cast<Buf>(ref.id)), dims, program_.precision) == 0;
  }

  [[nodiscard]] Memory memory_of(const Ref& ref) const {
    Memory memory{ref.space, -1, -1, ref.id, -1};
    const auto in_frame = [&](int32_t frame) {
      if (frame < 0) fail("an operand of a layer outside of layers");
      memory.space = Space::frame;
      memory.frame = frame;
      memory.micro_batch = item_->micro_batch;
      return memory;
    };
    switch (ref.space) {
      case Space::frame:
        return in_frame(item_->frame);
      case Space::next:
        return in_frame(item_->next);
      case Space::edge:
        return in_frame(item_->edge);
      case Space::bucket:
      case Space::slots:
        memory.bucket = ref.row;
        return memory;
      case Space::scalar:
        memory.id = 0;  // all of them are one allocation
        return memory;
      case Space::narrow:
        memory.frame = item_->frame;
        memory.micro_batch = item_->micro_batch;
        return memory;
      case Space::table:
      case Space::scratch:
        return memory;
      default:
        fail("the operand is not memory that is allocated or freed");
    }
  }

  const StepProgram& program_;
  Where at_;
  const Item* item_ = nullptr;
  const Segment* segment_ = nullptr;
  Lane* lane_ = nullptr;  ///< of the item
  // Of the step:
  std::array<Lane, kNumLanes> lanes_;
  std::set<std::pair<int32_t, int32_t>> routed_;  ///< layer and micro-batch
  std::map<Memory, Where> live_;                  ///< by whom it was made
  /// Kind and layer of parameters that are shards, with their bucket.
  std::map<std::pair<uint8_t, int64_t>, int64_t> sharded_;
};

}  // namespace

void check(const StepProgram& program) { Checker(program).run(); }

}  // namespace moetune::plan
