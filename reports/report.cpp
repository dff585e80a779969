// Runs the section table over a database, and puts the answers into the template.
#include "reports/report.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "profiler/store/db.h"
#include "reports/context.h"
#include "reports/heading.h"
#include "reports/rows.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

int64_t id_or_none(const store::TrialRow* trial) { return trial == nullptr ? -1 : trial->id; }

// As SQLite's json_each reads it.
std::string ids_text(const std::vector<size_t>& positions, const Context& context) {
  std::string text;
  for (const size_t position : positions) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", context.trials[position].id);
  }
  return fmt::format("[{}]", text);
}

}  // namespace

std::string render_report(const store::Store& store, const ReportOptions& options) {
  store::Database& database = store.database();
  // One view of the database for the whole page, also while a sweep goes on writing.
  store::Transaction view(database, store::Transaction::Kind::read);
  Context context = read_context(store, options.sweep_id, options.trial);
  if (const store::TrialRow* shown = context.at(context.shown); shown != nullptr && options.flags) {
    context.flags = options.flags(*shown);
  }
  store.unpack_trace(id_or_none(context.at(context.traced)));  // for the timeline's query
  const std::map<std::string, Value> parameters = {
      {":sweep_id", context.sweep.id},
      {":deep_ids", ids_text(context.most_telling(kMostDeep), context)},
      {":shown_id", id_or_none(context.at(context.shown))},
      {":traced_id", id_or_none(context.at(context.traced))},
      {":final_id", id_or_none(context.at(context.final_run))},
  };
  Page page;
  for (const SectionRow& section : section_table()) {
    if (section.needs_sweep && !context.has_sweep) {
      continue;
    }
    const Rows rows = section.sql == nullptr ? Rows() : Rows(database, *section.sql, parameters);
    std::string body = section.render({context, rows});
    if (body.empty()) {
      continue;
    }
    page.sections.push_back(
        {section.id, section.title, section.short_title, section.lead, std::move(body)});
  }
  view.commit();
  page.title = options.title.empty() ? title_of(context) : options.title;
  page.subtitle = subtitle_of(context);
  page.origin = origin_of(context);
  return render_page(page);
}

int64_t write_report(const std::string& database_path, const std::string& output_path,
                     const ReportOptions& options) {
  check_target(database_path, output_path, "--out");
  const store::Store store = store::Store::open_read_only(database_path);
  return put_page(render_report(store, options), output_path);
}

}  // namespace moetune::reports
