// The page of two runs side by side: what it shows, as plain data, and the file made from it. All
// texts come from logs, traces and configurations, which anybody may have written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/diagnosis_page.h"

namespace moetune::reports {

/// What the traces of both runs are compared by: their steps, or, where one of them marks none, all
/// that was launched in each, or each as a whole.
enum class ComparedWindow : uint8_t { step, launched, whole };

/// A median over steps, and where it lies.
struct ComparedValue {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// One figure of both runs, or the time that one kernel takes in a window.
struct ComparedRow {
  std::string name;  ///< "exposed_comm_us", or a kernel's name
  std::string unit;  ///< s, us, bytes, tokens/s, TFLOP/s or empty
  ComparedValue before;
  ComparedValue after;
  std::optional<double> change_ratio;   ///< none: the first run has 0
  std::optional<bool> is_beyond_noise;  ///< none: not known
};

/// A setting as a line of each run's command or configuration; empty where a run does not say it.
struct DiffLine {
  std::string before;
  std::string after;
  bool is_variable = false;  ///< "NAME=value" of the environment
};

/// One of the two runs.
struct ComparedRun {
  std::string name;
  std::string wall;                    ///< a label
  std::string sub_cause;               ///< empty: not told apart
  std::string summary;                 ///< a sentence
  std::optional<double> share_ratio;   ///< the wall's ceiling
  std::vector<DiagnosedShare> shares;  ///< of the judged time; empty without traces
  std::vector<DiagnosedBar> bars;      ///< one a rank, of the windows that both runs have
  std::vector<NamedLine> facts;        ///< what its logs say
};

struct ComparisonPage {
  std::string title;
  std::string date;  ///< "2026-11-24 10:00 UTC"
  ComparedRun before;
  ComparedRun after;
  ComparedWindow window = ComparedWindow::step;  ///< of the traces
  /// What makes the two hard to compare: "device differs: ... and ...".
  std::vector<std::string> differences;
  std::vector<ComparedRow> figures;
  std::vector<ComparedRow> kernels;  ///< what moved most first
  std::vector<DiffLine> settings;    ///< only those that differ
  bool are_settings_known = false;   ///< of both runs
  std::vector<std::string> notes;
};

std::string render_comparison(const ComparisonPage& page);

}  // namespace moetune::reports
