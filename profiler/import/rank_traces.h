// From the records of a file that holds several processes and devices to one ImportedTrace for each
// rank. A rank is one device of one process. Calls and ranges belong to a process: where it drives
// several devices, each gets the calls that launched its work, and all get the others, since they
// hold up the process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Names that a file gives as numbers and explains elsewhere, be it before or behind.
class NameRefs {
 public:
  /// The place of an id, a new one where it has none.
  uint32_t place_of(int64_t id);
  [[nodiscard]] bool contains(int64_t id) const { return places_.contains(id); }
  void explain(int64_t id, uint32_t name) { names_[place_of(id)] = name; }
  /// kNoRow where it was not explained.
  [[nodiscard]] uint32_t name_at(uint32_t place) const { return names_[place]; }
  [[nodiscard]] int64_t id_at(uint32_t place) const { return ids_[place]; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(ids_.size()); }

 private:
  struct Recent {
    int64_t id = -1;
    uint32_t place = kNoRow;
  };
  std::vector<Recent> recent_ = std::vector<Recent>(512);  // by the low bits of the id
  std::unordered_map<int64_t, uint32_t> places_;
  std::vector<int64_t> ids_;
  std::vector<uint32_t> names_;
};

class RankTraces {
 public:
  static constexpr size_t kMaxRanks = 1024;
  /// Each takes a copy of what the process did.
  static constexpr size_t kMaxDevicesEach = 16;

  /// What one process did on its host: threads, calls, ranges and steps are in `host`.
  struct Process {
    ImportedTrace host;
    std::vector<size_t> ranks;  ///< rows of ranks, by device
    /// Ranges that were passed over, such as the operators of a framework.
    int64_t num_passed_over = 0;
  };
  struct Rank {
    int64_t process = 0;
    int64_t device = 0;
    ImportedTrace trace;
  };

  explicit RankTraces(std::string path) : path_(std::move(path)) {}

  /// Of a process and a device, a new one where there is none. References last. Throws
  /// base::UsageError past the limits above.
  Rank& rank(int64_t process, int64_t device);
  Process& process(int64_t id);
  /// Null where there is none yet.
  Process* find_process(int64_t id);
  std::map<int64_t, Process>& processes() { return processes_; }
  [[nodiscard]] Rank& rank_row(size_t row) { return *ranks_[row]; }
  [[nodiscard]] size_t num_ranks() const { return ranks_.size(); }

  /// Names of all records: what intern() or by_ref() returned stands in them.
  NameTable names;
  NameRefs refs;
  /// The same of calls, which may have another name here than in the file.
  NameRefs call_refs;
  /// What stands in a record for a name that is explained elsewhere.
  uint32_t by_ref(int64_t id) { return kIsRef | refs.place_of(id); }
  uint32_t call_by_ref(int64_t id) { return kIsRef | call_refs.place_of(id); }
  /// Puts names in the place of references in all records, kinds into calls and steps into
  /// processes (range_steps.h). Who is not explained is called "(unnamed <id>)".
  void resolve_names();

  /// Traces in the order of process and device, joined and sorted, with `facts` in each. Behind
  /// resolve_names(). Leaves nothing.
  std::vector<ImportedTrace> finish(const TraceFacts& facts);

 private:
  static constexpr uint32_t kIsRef = uint32_t{1} << 31U;

  std::vector<uint32_t> names_of(const NameRefs& asked);
  void hand_out(Process& process);
  void take_own_names(ImportedTrace& trace);

  std::string path_;
  std::map<int64_t, Process> processes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::pair<int64_t, int64_t>, size_t> rows_;
  size_t last_ = 0;
  Process* last_process_ = nullptr;
  int64_t last_process_id_ = 0;
};

/// Numbers ranks that the file does not know, marked as guessed: of one trace by the name of its
/// file, otherwise by their order.
void count_ranks(std::vector<ImportedTrace>& traces);

}  // namespace moetune::profiler
