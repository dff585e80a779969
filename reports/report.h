// From a runs database to one self-contained HTML file: no network, no other files, the same bytes
// for the same database.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "profiler/store/store.h"
#include "reports/page.h"

namespace moetune::reports {

struct ReportOptions {
  std::string title;     ///< empty: the sweep's name
  int64_t sweep_id = 0;  ///< 0: the last sweep of the database, or its hunts where it has none
  std::string
      trial;  ///< id or hash prefix of the trial to show in the winner's place; empty: the winner
  /// The flags of another program for a trial's configuration, to be copied from the page: a text
  /// as of `moetune show`. Unset or an empty text: no such box.
  std::function<std::string(const store::TrialRow&)> flags;
};

/// The page: the sweep, and all hunts of the database. Throws base::UsageError when it holds no
/// such sweep or trial, or nothing at all.
std::string render_report(const store::Store& store, const ReportOptions& options = {});

/// Opens the database for reading only, renders, and puts the page at `output_path` by renaming a
/// finished temporary file: a failure leaves no half-written page. Returns the size of the page in
/// bytes.
int64_t write_report(const std::string& database_path, const std::string& output_path,
                     const ReportOptions& options = {});

}  // namespace moetune::reports
