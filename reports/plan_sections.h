// The sections of a plan's page, each from the same data to HTML; empty: it has nothing to show.
#pragma once

#include <string>
#include <string_view>

#include "reports/plan_page.h"

namespace moetune::reports {

std::string plan_verdict(const PlanPage& page);
std::string plan_table(const PlanPage& page);
std::string plan_misses(const PlanPage& page);
std::string plan_front(const PlanPage& page);
std::string plan_space(const PlanPage& page);
std::string plan_memory(const PlanPage& page);
std::string plan_budget(const PlanPage& page);
std::string plan_timeline(const PlanPage& page);
std::string plan_batches(const PlanPage& page);
std::string plan_against(const PlanPage& page);
std::string plan_published(const PlanPage& page);
std::string plan_advice(const PlanPage& page);
std::string plan_basis(const PlanPage& page);

/// Texts and tables that several sections have.
std::string figure_cell(const PlanFigure& figure, std::string (*text)(double));
/// Of changes, each alone. `has_fit`: without them the run fits.
std::string change_table(const std::vector<PlanChange>& changes, std::string_view what,
                         bool has_fit);
/// Of steps, each with all before it.
std::string step_table(const std::vector<PlanPathStep>& path);

/// Bytes that are no whole number yet, rounded; with a sign where they are a difference.
std::string rounded_bytes(double bytes);
std::string signed_bytes(double bytes);

}  // namespace moetune::reports
