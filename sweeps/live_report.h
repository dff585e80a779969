// The report of a sweep that is still running: written anew after a trial, now and then, so that
// whoever has it open sees how far the sweep is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace moetune::sweeps {

class LiveReport {
 public:
  /// Least time between two pages. A page that took long to make waits kCostFactor times as long,
  /// so that a large database costs the sweep no more than a few percent.
  static constexpr std::chrono::milliseconds kLeastPause{3000};
  static constexpr int kCostFactor = 20;

  /// `path` empty: no report was asked for, and nothing is ever written. Throws base::UsageError
  /// where `path` is no place for a page, or is `sweep_file`.
  LiveReport(std::string database, std::string path, const std::string& sweep_file);

  /// Where a page cannot be written, `note` gets one sentence, once, and the sweep goes on.
  void set_note(std::function<void(const std::string&)> note) { note_ = std::move(note); }
  void set_sweep(int64_t sweep_id) { sweep_id_ = sweep_id; }

  /// After a trial: writes the page, if the last one is old enough.
  void refresh();
  /// At the end, however it comes: the page as it stays.
  void finish();

 private:
  void write();

  std::string database_;
  std::string path_;
  int64_t sweep_id_ = 0;
  std::function<void(const std::string&)> note_;
  std::string told_;  ///< the last trouble, so that it is told once
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace moetune::sweeps
