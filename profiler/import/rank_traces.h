// Splits the records of a file with several processes and devices into one ImportedTrace per rank.
// A rank is one device of one process. Calls and ranges belong to a process. If it drives several
// devices, each rank gets the calls that launched its work, and all ranks get the other calls,
// which hold up the process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/import/recomputed_work.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Names that a file's records give as ids. The file explains the ids before or after their use.
class NameRefs {
 public:
  /// The place of an id; a new id gets a new place.
  uint32_t place_of(int64_t id);
  [[nodiscard]] bool contains(int64_t id) const { return places_.contains(id); }
  void explain(int64_t id, uint32_t name) { names_[place_of(id)] = name; }
  /// The name at a place; kNoRow if its id was not explained.
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
  /// Devices of a process, each of which gets a copy of the process's calls.
  static constexpr size_t kMaxDevicesEach = 16;

  /// One process on its host.
  struct Process {
    ImportedTrace host;         ///< only its threads, calls, ranges and steps
    std::vector<size_t> ranks;  ///< rows for rank_row(), by device
    /// Ranges that were skipped, such as the operators of a framework.
    int64_t num_passed_over = 0;
    RecomputedWork passes;  ///< what those that were skipped tell
  };
  struct Rank {
    int64_t process = 0;
    int64_t device = 0;
    ImportedTrace trace;
  };

  explicit RankTraces(std::string path) : path_(std::move(path)) {}

  /// The rank of a process and a device, or the process; added if it is new. References stay valid.
  /// Throws base::UsageError beyond the limits above.
  Rank& rank(int64_t process, int64_t device);
  Process& process(int64_t id);
  /// Null if there is none yet.
  Process* find_process(int64_t id);
  std::map<int64_t, Process>& processes() { return processes_; }
  [[nodiscard]] Rank& rank_row(size_t row) { return *ranks_[row]; }
  [[nodiscard]] size_t num_ranks() const { return ranks_.size(); }

  /// Names of all records. A record holds what intern() or by_ref() returned.
  NameTable names;
  NameRefs refs;
  /// As `refs`, for calls, whose names may differ here from those in the file.
  NameRefs call_refs;
  /// The value that a record holds in place of a name until resolve_names().
  uint32_t by_ref(int64_t id) { return kIsRef | refs.place_of(id); }
  uint32_t call_by_ref(int64_t id) { return kIsRef | call_refs.place_of(id); }
  /// Replaces the references of all records by names, and sets the kinds of calls and the steps of
  /// processes (range_steps.h). An id without an explanation becomes "(unnamed <id>)".
  void resolve_names();

  /// Moves out the finished traces (ImportedTrace::finish), ordered by process and device, with
  /// `facts` in each. Call after resolve_names().
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

/// Gives a rank, marked as guessed, to traces whose file does not state one: a single trace by the
/// name of its file, several by their order.
void count_ranks(std::vector<ImportedTrace>& traces);

}  // namespace moetune::profiler
