// Vector clocks over streams and the host, moved by what the recording device is told.
#include "tests/fakes/recording/ordering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "kernels/backend.h"
#include "tests/fakes/recording/call_work.h"

namespace moetune::recording {
namespace {

constexpr size_t kNumStreams = kernels::Backend::kMaxStreams;

/// How many calls of each stream are known to have ended.
using Clock = std::array<int64_t, kNumStreams>;

void join(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < kNumStreams; ++i) clock[i] = std::max(clock[i], other[i]);
}

/// Who touched a piece of memory last: numbers of calls on their streams, and where they are.
struct Touched {
  size_t writer = 0;
  int64_t write_number = 0;  ///< 0: nobody has written
  size_t write_at = 0;
  Clock reads{};
  std::array<size_t, kNumStreams> read_at{};
};

class Orders {
 public:
  Orders(const Tape& tape, size_t limit) : calls_(played(tape, 0, tape.size())), limit_(limit) {}

  std::vector<std::string> run() {
    for (now_ = 0; now_ < calls_.size() && found_.size() < limit_; ++now_) step();
    return std::move(found_);
  }

 private:
  void step() {
    const Entry& call = *calls_[now_].entry;
    if (call.name == "synchronize") {
      for (const Clock& clock : ended_) join(host_, clock);
      return;
    }
    const auto stream = static_cast<size_t>(call.stream);
    Clock& before = ended_[stream];
    join(before, host_);
    if (call.name == "record_event") {
      events_[call.number("event").value()] = before;
      return;
    }
    if (call.name == "wait_event") {
      join(before, events_.at(call.number("event").value()));
      return;
    }
    const int64_t number = before[stream] + 1;
    for (const auto& [operand, access] : accesses_of(call)) {
      touch(*operand, access, stream, number, before);
    }
    before[stream] = number;
    if (call.name == "copy_to_host") join(host_, before);
  }

  void touch(const Operand& operand, Access access, size_t stream, int64_t number,
             const Clock& before) {
    const int64_t elements = (operand.rows - 1) * operand.ld + operand.cols;
    if (operand.rows == 0 || elements <= 0) return;
    const auto begin = reinterpret_cast<int64_t>(operand.data);
    const int64_t end = begin + elements * operand.element_bytes();
    split(begin);
    split(end);
    for (auto piece = pieces_.lower_bound(begin); piece != pieces_.end() && piece->first < end;
         ++piece) {
      Touched& touched = piece->second;
      if (touched.write_number > before[touched.writer] && touched.writer != stream) {
        report(touched.write_at, operand);
      }
      if (access != Access::read) {
        for (size_t other = 0; other < kNumStreams; ++other) {
          if (other == stream || touched.reads[other] <= before[other]) continue;
          report(touched.read_at[other], operand);
        }
        touched.writer = stream;
        touched.write_number = number;
        touched.write_at = now_;
      }
      if (access != Access::write) {
        touched.reads[stream] = number;
        touched.read_at[stream] = now_;
      }
    }
  }

  /// Makes `at` a border between two pieces.
  void split(int64_t at) {
    const auto next = pieces_.upper_bound(at);
    const Touched touched = next == pieces_.begin() ? Touched{} : std::prev(next)->second;
    pieces_.try_emplace(at, touched);
  }

  void report(size_t earlier, const Operand& operand) {
    if (found_.size() >= limit_ || last_ == std::pair(earlier, now_)) return;
    last_ = {earlier, now_};
    found_.push_back(fmt::format("nothing orders ({}) before ({}), of which {}",
                                 text_of(*calls_[earlier].entry), text_of(*calls_[now_].entry),
                                 text_of(operand)));
  }

  std::vector<Played> calls_;
  size_t limit_;
  size_t now_ = 0;
  std::array<Clock, kNumStreams> ended_{};
  Clock host_{};
  std::map<int64_t, Clock> events_;
  std::map<int64_t, Touched> pieces_;  ///< each from its key to the next
  std::vector<std::string> found_;
  std::pair<size_t, size_t> last_;
};

}  // namespace

std::vector<std::string> unordered_pairs(const Tape& tape, size_t limit) {
  return Orders(tape, limit).run();
}

}  // namespace moetune::recording
