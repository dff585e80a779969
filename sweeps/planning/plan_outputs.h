// The keys of what plan and estimate print as JSON, for docs/formats.md.
#pragma once

#include "sweeps/outputs.h"

namespace moetune::sweeps {

inline constexpr OutputKey kEstimateKeys[] = {
    {"rows[].id", "text", "", "Of the row; of --run \"run\", of a SPEC \"trial\"."},
    {"rows[].supported", "true or false", "", "It could be priced."},
    {"rows[].reason", "text or null", "", "Why not."},
    {"rows[].peak_allocated_bytes", "integer", "bytes",
     "What PyTorch has allocated at most, on the row's memory_rank, else on the worst one."},
    {"rows[].peak_reserved_bytes", "integer", "bytes", "What its allocator then holds."},
    {"rows[].graph_pool_bytes", "integer", "bytes",
     "Of captured graphs, which PyTorch counts as reserved and not as allocated."},
    {"rows[].start_bytes", "integer", "bytes", "Before the first step."},
    {"rows[].first_step_bytes", "integer", "bytes", "Peak of the first step."},
    {"rows[].memory_stage", "integer", "", "The pipeline stage that this is of, from 0."},
    {"rows[].worst_rank", "integer", "", "Of a SPEC: the rank that this is of."},
    {"rows[].memory_moment", "text", "", "When the peak is."},
    {"rows[].memory_parts_bytes.*", "integer", "bytes", "What it is made of."},
    {"rows[].verdict", "text", "", "fits, tight or oom."},
    {"rows[].load_that_fits", "number", "ratio",
     "Rows of the busiest rank's experts over their share up to which it fits; 0: not at all."},
    {"rows[].step_time_ns", "integer", "ns", "Time of a step."},
    {"rows[].step_parts_ns.*", "integer", "ns", "Where it goes, on the fullest stage."},
    {"rows[].tflops_per_gpu", "number", "TFLOP/s", "As the row's source counts FLOPs."},
    {"rows[].tokens_per_s_per_gpu", "number", "tokens/s", "Of one device."},
    {"rows[].wall", "text", "", "memory, communication, host or compute."},
    {"rows[].grade", "text", "", "analytic or calibrated."},
    {"rows[].*_low", "number", "", "Lower end of a figure's interval of about 80 %."},
    {"rows[].*_high", "number", "", "Upper end."},
    {"rows[].published_*", "number or null", "", "The same figure as the row states it."},
    {"rows[].assumed[]", "list of texts", "", "What the row leaves open, and how it was priced."},
    {"rows[].knobs.*", "any", "", "--run: the configuration as it was understood."},
    {"rows[].notes[]", "list of texts", "", "--run: what was understood only in part."},
    {"summary.*", "any", "",
     "Counts; memory_error_ratio (predicted / published - 1) and throughput_log_error, each with "
     "count, mean, median, p90, worst, and by family of rows; order: pairs of like rows and "
     "Kendall's tau."},
};

inline constexpr OutputKey kPlanKeys[] = {
    {"plans[].rank", "integer", "", "From 1, the fastest."},
    {"plans[].knobs.*", "any", "", "The configuration."},
    {"plans[].why_slower", "text", "", "Where its step loses most against the first."},
    {"plans[].*", "any", "", "The keys of a row of `moetune estimate`."},
    {"num_points", "integer", "", "Of the space."},
    {"num_legal", "integer", "", "That break no rule."},
    {"num_fit", "integer", "", "Of those, that fit."},
    {"num_timed", "integer", "", "Whose step was priced; the others cannot be among the best."},
    {"search_seconds", "number", "s", "That the search took."},
    {"nearest_misses[].knobs.*", "any", "",
     "Where nothing fits: a configuration that misses least."},
    {"nearest_misses[].peak_allocated_bytes", "integer", "bytes", "What it needs."},
    {"nearest_misses[].missing_bytes", "integer", "bytes", "What the device lacks."},
    {"ways_out[].what", "text", "", "Where nothing fits: one change."},
    {"ways_out[].missing_bytes", "integer", "bytes",
     "What then is missing at least; not above 0: it fits."},
    {"assumptions[]", "list of texts", "", "What was taken for granted."},
    {"played.step_time_ns", "integer", "ns", "--play: the step of the first, played."},
    {"played.parts_ns.*", "integer", "ns", "Where it goes, mean over stages."},
    {"played.seconds", "number", "s", "That playing took."},
    {"played.wall", "text", "", "memory, communication, host or compute, by the played parts."},
    {"played.num_records", "integer", "", "Operations, transfers and waits of one rank a stage."},
    {"rules_of_thumb[].name", "text", "", "A rule of people who tune."},
    {"rules_of_thumb[].says", "text", "", "The rule."},
    {"rules_of_thumb[].agrees", "true or false", "", "The first plan keeps to it."},
    {"rules_of_thumb[].cost_ratio", "number or null", "ratio",
     "How much slower the fastest known plan that keeps to it is; null: none is known."},
    {"helps[].*", "any", "",
     "What one change of what was asked would buy; the keys of `against.changes`."},
    {"against.changes[].knob", "text", "", "--against: what differs from the first plan."},
    {"against.changes[].from", "text", "", "Its value in the run of today."},
    {"against.changes[].to", "text", "", "In the first plan."},
    {"against.changes[].gain_ratio", "number or null", "ratio",
     "How much faster this change alone makes it; null: it is illegal alone."},
    {"against.changes[].more_bytes", "integer or null", "bytes", "What it needs more."},
    {"against.changes[].broken_rule", "text or null", "", "Of a change that is illegal alone."},
    {"against.*", "any", "", "The run of today: the keys of a row of `moetune estimate`."},
};

}  // namespace moetune::sweeps
