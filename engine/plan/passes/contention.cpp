// The pass that works out what instructions share with communication in flight. One rule, which
// reads the grid and the program and never a clock, so that neither threads nor the order in which
// ranks are played change it:
//   * A transfer is in flight from its launch until its stream is waited for. Two transfers of a
//     rank on different streams share a link where neither's launch has waited for the other, and
//     both put bytes on that kind of link (spec::link_bytes).
//   * A link gives both the same share (max-min fairness, Bertsekas & Gallager 1992, section
//     6.5.2). So each takes longer by the bytes of the other that pass beside it: at most those of
//     the smaller one. Bytes that passed beside one transfer of a stream do not pass beside the
//     next. The transfer that is longest in flight is counted first.
//   * An operation gives up multiprocessors to every stream with a collective in flight
//     (plan::slowed_ns). Messages are copied by the link's own engines.
// A message is a transfer of its sender; routed rows count as balanced.
#include <algorithm>
#include <array>
#include <map>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

constexpr size_t kNumLinks = 2;  // intra, inter
/// For each stream: how many of its launches are known to have ended.
using Known = std::array<int64_t, kNumStreams>;

void raise(Known& known, const Known& other) {
  for (size_t s = 0; s < kNumStreams; ++s) known[s] = std::max(known[s], other[s]);
}

struct Transfer {
  size_t item = 0;
  size_t instr = 0;
  int64_t number = 0;  ///< of its stream's launches, from 1
  std::array<double, kNumLinks> bytes{};
  std::array<double, kNumLinks> beside{};  ///< bytes of others that pass beside this transfer
  /// Bytes that have not yet passed beside a transfer of the other stream.
  std::array<std::array<double, kNumStreams>, kNumLinks> left{};
};

class Walk {
 public:
  Walk(const StepProgram& program, const spec::HardwareSpec& hardware)
      : program_(program), hardware_(hardware), sharings_(program.items.size()) {}

  /// By item and instruction; empty where nothing is shared.
  std::vector<std::vector<Sharing>> run() {
    for (item_ = 0; item_ < program_.items.size(); ++item_) {
      const Segment& segment = segment_of(item_);
      if (segment.begins()) {
        events_[lane_of(segment)].assign(static_cast<size_t>(segment.num_events), {});
      }
      for (instr_ = 0; instr_ < segment.code.size(); ++instr_) step(segment, segment.code[instr_]);
    }
    for (const std::vector<Transfer>& transfers : transfers_) {
      for (const Transfer& transfer : transfers) {
        const auto times = [&](size_t link) {
          return transfer.beside[link] > 0 ? 1 + transfer.beside[link] / transfer.bytes[link] : 1;
        };
        if (transfer.beside[0] + transfer.beside[1] <= 0) continue;
        at(transfer.item, transfer.instr).links = {times(0), times(1)};
      }
    }
    return std::move(sharings_);
  }

 private:
  [[nodiscard]] const Segment& segment_of(size_t item) const {
    return *program_.segments[static_cast<size_t>(program_.items[item].segment)];
  }

  Sharing& at(size_t item, size_t instr) {
    sharings_[item].resize(segment_of(item).code.size());
    return sharings_[item][instr];
  }

  /// What has ended when the stream comes to what is launched next on it.
  Known& known_on(size_t stream) {
    Known& known = known_[stream];
    raise(known, host_);
    known[stream] = launched_[stream];
    return known;
  }

  void step(const Segment& segment, const Instr& instr) {
    const auto stream = static_cast<size_t>(instr.stream);
    switch (instr.verb) {
      case Verb::op:
        count_collectives(known_on(stream), stream);
        ++launched_[stream];
        return;
      case Verb::comm:
      case Verb::send:
      case Verb::recv:
        transfer(segment, instr, known_on(stream), stream);
        return;
      case Verb::record:
        // A message that has its slot is still in flight.
        if (instr.device_only || instr.is_for_slot) return;
        event(segment, instr) = known_on(stream);
        return;
      case Verb::wait:
        if (!instr.device_only) {
          raise(known_[stream], event(segment, instr));
        }
        return;
      case Verb::fetch:
        raise(host_, known_on(stream));
        return;
      default:
        return;
    }
  }

  Known& event(const Segment& segment, const Instr& instr) {
    return events_[lane_of(segment)][static_cast<size_t>(instr.event)];
  }

  void count_collectives(const Known& known, size_t stream) {
    int count = 0;
    for (size_t other = 0; other < kNumStreams; ++other) {
      count += other != stream && last_collective_[other] > known[other] ? 1 : 0;
    }
    if (count > 0) at(item_, instr_).num_collectives = count;
  }

  void transfer(const Segment& segment, const Instr& instr, const Known& known, size_t stream) {
    Transfer made;
    made.item = item_;
    made.instr = instr_;
    made.number = ++launched_[stream];
    if (instr.verb == Verb::comm) last_collective_[stream] = made.number;
    if (instr.verb == Verb::recv) return;
    const spec::LinkBytes bytes = bytes_of(segment, instr);
    made.bytes = {bytes.intra, bytes.inter};
    for (size_t link = 0; link < kNumLinks; ++link) {
      made.left[link].fill(made.bytes[link]);
      for (size_t other = 0; other < kNumStreams; ++other) {
        if (other != stream) pass_beside(made, link, stream, other, known[other]);
      }
    }
    transfers_[stream].push_back(made);
  }

  /// Bytes of `made` on `stream` pass beside those of `other` that are still in flight.
  void pass_beside(Transfer& made, size_t link, size_t stream, size_t other, int64_t known) {
    std::vector<Transfer>& transfers = transfers_[other];
    size_t& first = first_[link][stream][other];
    for (size_t i = first; i < transfers.size() && made.left[link][other] > 0; ++i) {
      Transfer& earlier = transfers[i];
      double& left = earlier.left[link][stream];
      if (earlier.number > known && left > 0) {
        const double both = std::min(left, made.left[link][other]);
        left -= both;
        made.left[link][other] -= both;
        earlier.beside[link] += both;
        made.beside[link] += both;
      }
      // Neither what is known nor what has passed comes back.
      if (i == first && (earlier.number <= known || left <= 0)) ++first;
    }
  }

  [[nodiscard]] spec::LinkBytes bytes_of(const Segment& segment, const Instr& instr) {
    const Layout& layout = program_.layout;
    std::vector<int>& ranks = ranks_[instr.group];
    if (ranks.empty()) ranks = layout.group_ranks(instr.group, program_.rank);
    if (instr.verb == Verb::send) {
      const int peer = ranks[static_cast<size_t>(instr.peer)];
      const auto bytes = static_cast<double>(instr.cost.bytes);
      return hardware_.node_of(peer) != hardware_.node_of(program_.rank)
                 ? spec::LinkBytes{0, bytes}
                 : spec::LinkBytes{bytes, 0};
    }
    int64_t bytes = instr.cost.bytes;
    if (instr.is_by_node) {
      return {static_cast<double>(bytes), static_cast<double>(instr.across_bytes)};
    }
    if (instr.is_routed) {
      const int64_t num_chunks = instr.chunk >= 0 ? segment.num_chunks : 1;
      bytes += instr.cost_per_row.bytes * segment.dims.received_rows / num_chunks;
    }
    return spec::link_bytes(hardware_, instr.kind, ranks, bytes);
  }

  const StepProgram& program_;
  const spec::HardwareSpec& hardware_;
  std::vector<std::vector<Sharing>> sharings_;
  size_t item_ = 0;
  size_t instr_ = 0;
  std::array<std::vector<Known>, kNumLanes> events_;
  std::array<Known, kNumStreams> known_{};
  Known host_{};
  Known launched_{};
  Known last_collective_{};
  std::array<std::vector<Transfer>, kNumStreams> transfers_;
  /// Where those begin that a transfer of one stream has to look at, by link, stream and other.
  std::array<std::array<std::array<size_t, kNumStreams>, kNumStreams>, kNumLinks> first_{};
  std::map<Group, std::vector<int>> ranks_;
};

}  // namespace

void contention(StepProgram& program, const spec::HardwareSpec& hardware) {
  const std::vector<std::vector<Sharing>> by_item = Walk(program, hardware).run();
  std::map<std::vector<Sharing>, int32_t> numbers;
  for (size_t i = 0; i < by_item.size(); ++i) {
    if (by_item[i].empty()) continue;
    const auto [place, is_new] =
        numbers.try_emplace(by_item[i], static_cast<int32_t>(program.sharings.size()));
    if (is_new) program.sharings.push_back(by_item[i]);
    program.items[i].sharing = place->second;
  }
}

}  // namespace moetune::plan
