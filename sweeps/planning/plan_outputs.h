// The keys of what plan, estimate, probe, import and calibrate print as JSON, for docs/formats.md.
#pragma once

#include "sweeps/outputs.h"

namespace moetune::sweeps {

inline constexpr OutputKey kEstimateOfRun[] = {
    {"peak_allocated_bytes", "integer or null", "bytes",
     "What PyTorch has allocated at most: on a row's memory_rank, else on the worst one. The pool "
     "of graphs and buffers of the dispatcher lie beside it, and have to fit, too."},
    {"peak_allocated_bytes_low", "integer or null", "bytes",
     "Lower end of its interval of about 90 %."},
    {"peak_allocated_bytes_high", "integer or null", "bytes", "Upper end."},
    {"peak_reserved_bytes", "integer or null", "bytes",
     "What its allocator then holds: with what it keeps to use again, as far as there is room."},
    {"peak_reserved_bytes_low", "integer or null", "bytes",
     "Lower end of its interval of about 90 %."},
    {"peak_reserved_bytes_high", "integer or null", "bytes", "Upper end."},
    {"graph_pool_bytes", "integer or null", "bytes",
     "Of captured graphs, which PyTorch counts as reserved and not as allocated."},
    {"start_bytes", "integer or null", "bytes", "Allocated before the first step."},
    {"first_step_bytes", "integer or null", "bytes", "The same in the first step."},
    {"memory_stage", "integer or null", "", "The pipeline stage that this is of, from 0."},
    {"memory_rank", "integer or null", "",
     "The first rank of that stage. Its others hold as much where their experts receive as many "
     "rows. Ranks are numbered tensor, context, data, pipeline."},
    {"memory_moment", "text or null", "", "When the peak is."},
    {"memory_stages[].peak_allocated_bytes", "integer", "bytes",
     "The same of each pipeline stage, the first one first; the list is null as below."},
    {"memory_stages[].memory_moment", "text", "", "When that is."},
    {"memory_stages[].memory_parts_bytes.*", "integer", "bytes", "What it is made of."},
    {"memory_parts_bytes.*", "integer", "bytes",
     "What it is made of; the object is null where there is no estimate."},
    {"memory_lines[].line", "text", "",
     "A line of the breakdown: a part of the peak (memory_parts_bytes), graph_pool, which lies in "
     "these, and what a device needs beside: fragments, beside_pytorch, cached. The list is null "
     "as above."},
    {"memory_lines[].bytes", "integer", "bytes", "Of the line."},
    {"memory_lines[].terms[]", "list of texts", "",
     "What it consists of in this run: term of memory_terms."},
    {"verdict", "text or null", "",
     "fits; tight: above the device's memory (of other engines than Megatron-Core the upper end "
     "is), "
     "but the low end is below, or is with the leanest of what a row does not state; oom: not even "
     "that."},
    {"margin_bytes", "integer or null", "bytes",
     "What fits keeps of a device beside the worst rank's peak: for fragments, CUDA's context and "
     "communicators."},
    {"left_bytes", "integer or null", "bytes",
     "Of the device behind peak and margin; negative: it lacks as many."},
    {"load_that_fits", "number or null", "ratio",
     "Rows of the busiest rank's experts over their share up to which it fits; 0: not at all; 16: "
     "no more are looked at."},
    {"step_time_ns", "integer or null", "ns", "Time of a step."},
    {"step_time_ns_low", "integer or null", "ns", "Lower end of its interval of about 90 %."},
    {"step_time_ns_high", "integer or null", "ns", "Upper end."},
    {"step_parts_ns.*", "integer", "ns", "Where it goes, on the fullest stage; null as above."},
    {"tflops_per_gpu", "number or null", "TFLOP/s", "As a row's source counts FLOPs."},
    {"tflops_per_gpu_low", "number or null", "TFLOP/s", "Lower end of its interval of about 90 %."},
    {"tflops_per_gpu_high", "number or null", "TFLOP/s", "Upper end."},
    {"tokens_per_s_per_gpu", "number or null", "tokens/s", "Of one device."},
    {"tokens_per_s_per_gpu_low", "number or null", "tokens/s",
     "Lower end of its interval of about 90 %."},
    {"tokens_per_s_per_gpu_high", "number or null", "tokens/s", "Upper end."},
    {"wall", "text or null", "", "memory, communication, host or compute."},
    {"grade", "text or null", "",
     "measured: the calibration has this very run, measured by --db or --log. calibrated: runs on "
     "such devices in such a precision are behind the rates, and it is one of Megatron-Core. Else "
     "analytic."},
    {"num_runs_behind", "integer or null", "",
     "So many such runs; null where the calibration does not tell what was fitted."},
};
inline constexpr SharedKeys kEstimate = {
    "An estimate",
    "Of one run; all is null of a row that could not be priced. That of a SPEC, which is priced by "
    "its program, has fewer: its peak, which is exact for the load and at its upper end that of "
    "twice the load, the parts of memory and step, the step's time, TFLOP/s, the tokens, the "
    "verdict, the load that fits and the grade.",
    kEstimateOfRun};

inline constexpr OutputKey kMemoryTermKeys[] = {
    {"term", "text", "", "Its name, as in memory_lines[].terms."},
    {"line", "text", "", "The line of a breakdown that it is part of."},
    {"how", "text", "", "How much it is; of a tensor that layers save what drops or offloads it."},
    {"evidence", "text", "",
     "source: read in the engine's source; measured: published runs show it; assumed."},
    {"basis", "text or null", "", "Which source, which runs; null of a tensor that layers save."},
};
inline constexpr SharedKeys kMemoryTerm = {
    "A term of memory", "How a term of an estimate's memory is known, the same for all runs.",
    kMemoryTermKeys};

inline constexpr OutputKey kErrorSetKeys[] = {
    {"count", "integer", "", "Rows that state the figure; with 0 this is the only key."},
    {"mean_signed", "number", "", "Mean of the errors."},
    {"median_signed", "number", "", "Median of the errors."},
    {"mean", "number", "", "Mean of their absolute values."},
    {"median", "number", "", "Median of these."},
    {"p90", "number", "", "Nine of ten are not above it."},
    {"worst", "number", "", "The largest."},
};
inline constexpr SharedKeys kErrorSet = {
    "A set of errors",
    "Predicted against published, over rows. Of memory: predicted / published - 1; of throughput: "
    "the logarithm of predicted / published.",
    kErrorSetKeys};

inline constexpr OutputKey kOrderKeys[] = {
    {"num_groups", "integer", "", "Groups of like rows with a pair to compare."},
    {"num_right", "integer", "", "Pairs of a group whose order is predicted."},
    {"num_wrong", "integer", "", "Pairs whose order is predicted the other way round."},
    {"num_tied", "integer", "", "Pairs that are predicted to be alike."},
    {"num_of_same_configuration", "integer", "",
     "Of those, pairs that state the same configuration."},
    {"tau", "number or null", "",
     "Kendall's tau-a: right less wrong over all pairs; null: there are none."},
    {"tau_mean_of_groups", "number or null", "",
     "Mean of the groups' tau: one of a single pair counts as much as the largest."},
    {"tau_b", "number or null", "",
     "Kendall's tau-b: over the root of all pairs times those that are not tied."},
    {"tau_of_different", "number or null", "", "The same without pairs of the same configuration."},
    {"groups[].rows[]", "list of texts", "", "Ids of a group of like rows."},
    {"groups[].num_pairs", "integer", "", "Its pairs."},
    {"groups[].tau", "number", "", "Kendall's tau of them."},
};
inline constexpr SharedKeys kOrder = {
    "An order of like rows",
    "Throughput of rows that are equal in model, machine, software, routing and precision: is the "
    "faster of two predicted to be the faster? `order_of_all_pairs` counts every pair. `order` "
    "counts those of one sequence length whose published figures are more than 2 % apart.",
    kOrderKeys};

inline constexpr OutputKey kKnobGainKeys[] = {
    {"knob", "text", "", "What is changed."},
    {"from", "text", "", "Its value before."},
    {"to", "text", "", "Its value after."},
    {"gain_ratio", "number or null", "ratio",
     "Tokens a second after this change alone over those before, less 1; null: it is illegal alone "
     "or has no price."},
    {"tokens_per_s_per_gpu", "number or null", "tokens/s",
     "Of one device with this change alone, predicted; null where gain_ratio is."},
    {"tokens_per_s_per_gpu_low", "number or null", "tokens/s",
     "Lower end of its interval of about 90 %."},
    {"tokens_per_s_per_gpu_high", "number or null", "tokens/s", "Upper end."},
    {"grade", "text or null", "", "calibrated or analytic, as of an estimate; null as above."},
    {"is_priced", "true or false", "",
     "false: neither a formula nor a published figure tells what it does to the step."},
    {"more_bytes", "integer or null", "bytes", "What it needs more."},
    {"broken_rule", "text or null", "", "Of a change that is illegal alone."},
    {"broken_rule_text", "text or null", "", "What this rule says of it, as a sentence."},
    {"flags[]", "list of texts", "",
     "Of --against: what is said differently then, in the words of its framework; empty where it "
     "has none for it."},
    {"verdict", "text or null", "",
     "fits, tight or oom, with this change alone; null: it is illegal alone."},
};
inline constexpr SharedKeys kKnobGain = {"A change", "One knob, and what it buys.", kKnobGainKeys};

inline constexpr OutputKey kPathStepKeys[] = {
    {"changes[].knob", "text", "", "What is changed."},
    {"changes[].from", "text", "", "Its value before."},
    {"changes[].to", "text", "", "Its value after."},
    {"flags[]", "list of texts", "",
     "What is said differently with this step, in the words of the user's run."},
    {"speed_ratio", "number", "ratio",
     "Tokens a second and GPU with the step over those before it."},
    {"cumulative_speed_ratio", "number", "ratio", "The same over those of the user's run."},
    {"tokens_per_s_per_gpu", "number", "tokens/s", "With the step, predicted."},
    {"tokens_per_s_per_gpu_low", "number", "tokens/s", "Lower end of its interval of about 90 %."},
    {"tokens_per_s_per_gpu_high", "number", "tokens/s", "Upper end."},
    {"grade", "text", "", "calibrated or analytic, as of an estimate."},
    {"is_priced", "true or false", "",
     "false: of none of its changes a formula or a published figure tells what it does to the "
     "step."},
    {"peak_allocated_bytes", "integer", "bytes",
     "What PyTorch has allocated at most on the worst rank, with the step."},
    {"missing_bytes", "integer", "bytes",
     "What a device then lacks for that, the pool of graphs, buffers of the dispatcher and the "
     "margin; not above 0: it fits."},
    {"verdict", "text", "", "fits, tight or oom, with the step."},
};
inline constexpr SharedKeys kPathStep = {
    "A step", "Changes of the user's run that are made together, on top of the steps before it.",
    kPathStepKeys};

inline constexpr OutputKey kLikeRunKeys[] = {
    {"id", "text", "",
     "Of its row in the file of --published; of this and the next three the first 120 bytes."},
    {"source", "text", "", "As the row has it."},
    {"software", "text", "", "The same."},
    {"date", "text", "", "The same, of the software's release."},
    {"hardware", "text", "", "The hardware file of its devices."},
    {"num_gpus", "integer", "", "Devices that it ran on."},
    {"seq_length", "integer", "tokens", "Of a sequence."},
    {"global_batch_size", "integer", "", "Sequences of a step."},
    {"precision", "text", "", "As the knob of plans."},
    {"knobs.*", "any", "", "Its configuration as it was understood."},
    {"assumed[]", "list of texts", "", "What it leaves open and how it was priced."},
    {"notes[]", "list of texts", "", "What the comparison leaves open."},
    {"published_tflops_per_gpu", "number or null", "TFLOP/s", "As the row states it."},
    {"published_tokens_per_s_per_gpu", "number", "tokens/s",
     "The same, or what follows from its step time or its TFLOP/s."},
    {"share_ratio", "number or null", "ratio",
     "Tokens a second and GPU that are predicted for the user's run over those; null: there is "
     "none, as no plan fits."},
    {"conditions[].what", "text", "",
     "What differs between it and the user's run and is no flag, each on top of those before. "
     "Settings are those of the published run."},
    {"conditions[].from", "text", "", "Of the published run."},
    {"conditions[].to", "text", "", "Of the user's."},
    {"conditions[].speed_ratio", "number or null", "ratio",
     "Tokens a second and GPU with it over those before; null: the run cannot be so on the way, "
     "and what it costs is part of the next ratio."},
    {"conditions[].why", "text or null", "", "It cannot; of a ratio: what that holds beside this."},
    {"moved_tokens_per_s_per_gpu", "number or null", "tokens/s",
     "Predicted for its layout and choices on the user's devices, with the user's sequences; null: "
     "illegal there, or not compared."},
    {"broken_rule", "text or null", "", "The rule that it breaks there."},
    {"broken_rule_text", "text or null", "", "What this rule says of it, as a sentence."},
    {"path[]", "list of objects", "",
     "Of a command: from it to this layout and these choices, step by step. Empty: there is no "
     "way, or nothing differs."},
    {"changes[]", "list of objects", "", "Of a command without a way: each difference alone."},
};
inline constexpr SharedKeys kLikeRun = {
    "A published run like the user's",
    "With what is priced for it as it is stated, and what lies between it and the user's run.",
    kLikeRunKeys};
/// Of every answer that has them.
inline constexpr OutputKey kPublishedNote = {
    "published_note", "text", "",
    "--published: which of its runs are told and in which order, or that none is like the user's."};
inline constexpr OutputKey kLeftOutId = {"published_left_out[].id", "text", "",
                                         "--published: a row that is not looked at, by its id."};
inline constexpr OutputKey kLeftOutReason = {
    "published_left_out[].reason", "text", "",
    "Why: it is suspect, cannot be priced, did not run, states no speed, or states what another "
    "row states."};
inline constexpr OutputKey kPublished = {
    "published[]", "list of objects", "",
    "--published: measured runs like the user's, the nearest first, at most three."};

inline constexpr OutputKey kEstimateKeys[] = {
    {"rows[].id", "text", "", "Of the row; of --run \"run\", of a SPEC \"trial\"."},
    {"rows[].supported", "true or false", "", "It could be priced."},
    {"rows[].reason", "text or null", "", "Why not."},
    {"rows[].worst_rank", "integer", "", "Of a SPEC: the rank whose memory this is."},
    {"rows[].published_tflops_per_gpu", "number or null", "TFLOP/s",
     "--rows: as the row states it."},
    {"rows[].published_tokens_per_s_per_gpu", "number or null", "tokens/s",
     "The same, or what follows from its step time or its TFLOP/s."},
    {"rows[].published_step_time_ns", "number or null", "ns", "As the row states it."},
    {"rows[].published_peak_allocated_bytes", "number or null", "bytes", "The same."},
    {"rows[].published_peak_reserved_bytes", "number or null", "bytes", "The same."},
    {"rows[].assumed[]", "list of texts or null", "",
     "--rows, --run: what the row or the command leaves open and how it was priced; of --rows also "
     "rules of Megatron-Core that it breaks. null: it could not be priced."},
    {"rows[].needed_choices[]", "list of texts or null", "",
     "--rows: of a tight run whose low end is above the device's memory choices that it does not "
     "state, with which it may fit, as \"recompute full\"; else empty. null: it could not be "
     "priced."},
    {"rows[].knobs.*", "any", "", "--run, SPEC: the configuration as it was understood."},
    {"rows[].notes[]", "list of texts", "", "--run: what was understood only in part."},
    {"rows[].not_priced_settings[]", "list of texts", "",
     "--run: choices that are known and from which no figure follows, the first 20."},
    {"rows[].num_not_priced_settings", "integer", "", "How many they are."},
    {"rows[].unknown_settings[]", "list of texts", "",
     "--run: settings that are not known, the first 20."},
    {"rows[].num_unknown_settings", "integer", "", "How many they are."},
    kPublished,
    kPublishedNote,
    kLeftOutId,
    kLeftOutReason,
    {"summary.num_rows", "integer", "", "Rows; what follows num_supported is of --rows alone."},
    {"summary.num_supported", "integer", "", "Of those, that could be priced."},
    {"summary.num_priceable", "integer", "", "That state what pricing their figures takes."},
    {"summary.num_priceable_supported", "integer", "", "Of those, that could be priced."},
    {"summary.num_tight", "integer", "", "With the verdict tight."},
    {"summary.num_running_called_oom", "integer", "", "That ran, and have the verdict oom."},
};
inline constexpr OutputPart kEstimateParts[] = {
    {"rows[].", &kEstimate},
    {"memory_terms[].", &kMemoryTerm},
    {"published[].", &kEstimate},
    {"published[].", &kLikeRun},
    {"published[].path[].", &kPathStep},
    {"published[].changes[].", &kKnobGain},
    {"summary.order.", &kOrder},
    {"summary.order_of_all_pairs.", &kOrder},
    {"summary.memory_error_ratio.", &kErrorSet},
    {"summary.throughput_log_error.", &kErrorSet},
    {"summary.memory_error_ratio_by_family.*.", &kErrorSet},
    {"summary.throughput_log_error_by_family.*.", &kErrorSet},
};

inline constexpr OutputKey kProbeKeys[] = {
    {"hardware.*", "any", "", "The hardware file, as --out writes it."},
    {"rates[].work", "text", "", "product, grouped, attention, light, heavy, none."},
    {"rates[].unit", "text", "", "FLOP/s or bytes/s, by what bounds such work."},
    {"rates[].per_s", "number", "unit", "Half-way, as a ratio, between the next two."},
    {"rates[].per_s_low", "number", "unit", "Of the slowest operation that is worth a look."},
    {"rates[].per_s_high", "number", "unit", "Of the fastest."},
    {"rates[].half_rows", "number", "rows", "For each matrix, at which half of it is reached."},
    {"rates[].num_ops", "integer", "", "Operations that were measured."},
    {"links[].link", "text", "", "intra_node or inter_node; of devices only."},
    {"links[].latency_ns", "integer", "ns", "Of a step of a collective."},
    {"links[].bytes_per_s", "number", "bytes/s", "Per device and direction."},
    {"links[].median_error_ratio", "number", "ratio", "Of a transfer, from this line."},
    {"links[].num_records", "integer", "", "Transfers that were measured."},
    {"kept[]", "list of texts", "", "Keys of the file that nothing was measured for."},
    {"trials[].title", "text", "", "A size that was run."},
    {"trials[].status", "text", "", "ok, or why it is left out."},
    {"trials[].reason", "text", "", "Of a status that is not ok."},
};

inline constexpr OutputKey kImportKeys[] = {
    {"dialect", "text", "", "Whose words were read."},
    {"release", "text", "", "Of that framework, whose spelling is read."},
    {"knobs.*", "any", "", "By knob of plans: its value, or the dialect's default."},
    {"model.*", "any", "", "Sizes that the run says, as in a model file; empty: none."},
    {"model_flags.*", "any", "",
     "What the run itself says of its model, by Megatron's names; `model` has not words for all."},
    {"model_name", "text", "", "A recipe, a flavour or a file that has the sizes; empty: none."},
    {"global_batch_size", "integer", "",
     "Sequences of a step; where it is not said, micro-batch times replicas."},
    {"seq_length", "integer", "tokens", "Of a sequence; 0: not said."},
    {"world_size", "integer", "", "Ranks, by the text or by --gpus."},
    {"pipeline_layout", "text", "", "Stages written by hand, as in Megatron-LM; empty: none."},
    {"environment.*", "text", "", "Variables that change speed or memory."},
    {"not_priced[].key", "text", "", "A setting that is known and moves no figure."},
    {"not_priced[].value", "text", "", "Its value."},
    {"unknown[].key", "text", "", "A setting that stands in no table."},
    {"unknown[].value", "text", "", "Its value."},
    {"notes[]", "list of texts", "", "What was understood only in part."},
};

inline constexpr OutputKey kRatesKeys[] = {
    {"date", "text", "", "Month of the releases that the rates describe, as 2026-06."},
    {"basis", "text", "", "What was fitted."},
    {"median_error_ratio", "number", "ratio",
     "Of throughput: median of the absolute ln(predicted / measured) over what was fitted; 0: not "
     "known."},
    {"p90_error_ratio", "number", "ratio", "Nine of ten are not above it; 0: not known."},
    {"cases[].hardware", "text", "",
     "What was fitted, by kind; there are no cases behind a probe alone."},
    {"cases[].precision", "text", "", "As the knob of plans."},
    {"cases[].routing", "text", "", "forced_balance, natural, unknown, or dense: without experts."},
    {"cases[].date", "text", "",
     "Half-year of the software, as 2026-H1; of one's own runs that which plans ask for."},
    {"cases[].num_runs", "integer", "", "Of this kind."},
    {"cases[].median_error_ratio", "number", "ratio",
     "The same of these alone, with their factor."},
    {"cases[].time_factor", "number", "ratio",
     "Step time of such runs over what the rates say; 1 where few were measured."},
    {"cases[].low", "number", "ratio", "Of its interval of about 80 %."},
    {"cases[].high", "number", "ratio", "The same."},
    {"measured[].run", "text", "",
     "Of a run of one's own (--db, --log): a hash of model, devices, batch, choices and stages. "
     "Plans and estimates of the same run have its figure, grade measured."},
    {"measured[].num_runs", "integer", "", "That are the same."},
    {"measured[].tokens_per_s_per_gpu", "number", "tokens/s", "Their mean."},
    {"measured[].low", "number", "tokens/s", "5 % below the slowest."},
    {"measured[].high", "number", "tokens/s", "5 % above the fastest."},
    {"measured[].vocab_size", "integer", "",
     "Of the model that ran, padded where its log says so; the largest."},
    {"measured[].memory_bytes", "integer", "bytes",
     "Of a device; the least of the runs. With no larger vocabulary and no less memory it fits, as "
     "it ran. 0 or missing: the prediction stands."},
    {"rates[].name", "text", "", "Of the rate; one that a file lacks has the value of its source."},
    {"rates[].value", "number", "of the rate", "Its value."},
    {"rates[].low", "number", "of the rate",
     "Of its interval of about 80 %; missing where it was not fitted."},
    {"rates[].high", "number", "of the rate", "The same."},
    {"rates[].help", "text", "", "What it is; not read."},
};

inline constexpr OutputKey kFoldErrorKeys[] = {
    {"num_folds", "integer", "", "Parts that were asked for."},
    {"num_rows", "integer", "", "Runs that were predicted."},
    {"median_error", "number", "",
     "Of throughput: median of the absolute ln(predicted / measured)."},
    {"p90_error", "number", "", "Nine of ten are not above it."},
    {"bias", "number", "", "Median of the same with its sign."},
};
inline constexpr SharedKeys kFoldErrors = {
    "Errors of folds", "Of runs, each predicted by a fit to the parts that it is not in.",
    kFoldErrorKeys};
inline constexpr OutputPart kFoldParts[] = {
    {"by_model_and_machine.", &kFoldErrors},
    {"by_model_and_machine.order_of_all_pairs.", &kOrder},
    {"by_source.", &kFoldErrors},
    {"by_source.order_of_all_pairs.", &kOrder},
};

inline constexpr OutputKey kPlanKeys[] = {
    {"plans[].rank", "integer", "", "From 1, the fastest."},
    {"plans[].knobs.*", "any", "", "The configuration."},
    {"plans[].pipeline_layout", "text or null", "",
     "The stages, as in Megatron-LM; null: there is one, or the layers divide."},
    {"plans[].engine_gaps[].rule", "text", "",
     "Of what moetune's own engine does not run yet: the rule by which it refuses a trial with it, "
     "engine_runs_model or engine_runs_knob."},
    {"plans[].engine_gaps[].what", "text", "", "What that is, as FSDP."},
    {"plans[].why_slower", "text", "", "Where its step loses most against the first."},
    {"plans[].played_step_time_ns", "integer", "ns",
     "--play: of the first three, the step, played."},
    {"plans[].played_wall", "text", "", "--play: the wall, by the played parts."},
    {"num_points", "integer", "", "Of the space."},
    {"num_legal", "integer", "", "That break no rule."},
    {"num_fit", "integer", "", "Of those, that fit."},
    {"num_timed", "integer", "", "Step predictions that were made, lower bounds included."},
    {"search_seconds", "number", "s", "That the search took."},
    {"nearest_misses[].knobs.*", "any", "",
     "Where nothing fits: a configuration that misses least."},
    {"nearest_misses[].pipeline_layout", "text or null", "", "Its stages."},
    {"nearest_misses[].peak_allocated_bytes", "integer", "bytes",
     "What PyTorch has allocated at most on its worst rank."},
    {"nearest_misses[].missing_bytes", "integer", "bytes",
     "What the device lacks for that, the pool of graphs, buffers of the dispatcher and the "
     "margin."},
    {"ways_out[].what", "text", "", "Where nothing fits: one change."},
    {"ways_out[].missing_bytes", "integer", "bytes",
     "What then is missing at least; not above 0: nothing, as predicted."},
    {"ways_out[].verdict", "text or null", "",
     "fits, or tight: it is not sure to; null: something is missing."},
    {"assumptions[]", "list of texts", "", "What was taken for granted."},
    {"exported", "text", "", "--export: the first plan as that framework's command or file."},
    {"played.step_time_ns", "integer", "ns", "--play: the step of the first, played."},
    {"played.parts_ns.*", "integer", "ns", "Where it goes, mean over stages."},
    {"played.seconds", "number", "s", "That playing took."},
    {"played.wall", "text", "", "memory, communication, host or compute, by the played parts."},
    {"played.num_records", "integer", "", "Operations, transfers and waits of one rank a stage."},
    {"played.priced_ratio", "number", "ratio", "The played step over the priced one."},
    {"played.left_out[]", "list of texts", "", "What of the plan the played step leaves out."},
    {"rules_of_thumb[].name", "text", "", "A rule of people who tune."},
    {"rules_of_thumb[].says", "text", "", "The rule."},
    {"rules_of_thumb[].agrees", "true or false", "", "The first plan keeps to it."},
    {"rules_of_thumb[].cost_ratio", "number or null", "ratio",
     "How much slower the fastest known plan that keeps to it is; null: none is known."},
    {"batches[].global_batch_size", "integer", "",
     "Where no global batch is given: sequences with which the layout of the first was priced, "
     "too."},
    {"batches[].tokens", "integer", "tokens", "Of a step: of about 1, 2, 4, 8 and 16 million."},
    {"batches[].step_time_ns", "integer", "ns", "Time of such a step."},
    {"batches[].step_time_ns_low", "integer", "ns", "Lower end of its interval of about 90 %."},
    {"batches[].step_time_ns_high", "integer", "ns", "Upper end."},
    {"batches[].tokens_per_s_per_gpu", "number", "tokens/s", "Of one device."},
    {"batches[].tokens_per_s_per_gpu_low", "number", "tokens/s",
     "Lower end of its interval of about 90 %."},
    {"batches[].tokens_per_s_per_gpu_high", "number", "tokens/s", "Upper end."},
    {"batches[].grade", "text", "", "calibrated or analytic, as of an estimate."},
    {"batches[].is_planned", "true or false", "", "All the rest of the answer is for this one."},
    {"smallest_good_batch", "integer", "",
     "The smallest of them that is at most 2 % slower than the fastest."},
    {"helps[]", "list of objects", "", "What one change of what was asked would buy."},
    {"against.knobs.*", "any", "", "--against: the run of today."},
    {"against.missing_bytes", "integer", "bytes",
     "What a device lacks for it; not above 0: it fits."},
    {"against.speed_ratio", "number or null", "ratio",
     "Tokens a second and GPU of the first plan over its own; null: nothing fits."},
    {"against.changes[]", "list of objects", "",
     "What differs from it in the first plan: the best in front, those that do not fit alone "
     "behind, "
     "then the illegal. Where it does not fit itself and no change alone helps, by memory."},
    {"against.path[]", "list of objects", "",
     "The same changes step by step, each step on top of those before: of the changes that are "
     "left the one that is legal, fits and buys most, or as few together as are needed for that. "
     "The product of their ratios is speed_ratio."},
    {"against.notes[]", "list of texts", "", "What of it was understood only in part."},
    {"against.not_priced_settings[]", "list of texts", "",
     "Choices that are known and from which no figure follows, the first 20."},
    {"against.num_not_priced_settings", "integer", "", "How many they are."},
    {"against.unknown_settings[]", "list of texts", "",
     "Settings that are not known, the first 20."},
    {"against.num_unknown_settings", "integer", "", "How many they are."},
    kPublished,
    kPublishedNote,
    kLeftOutId,
    kLeftOutReason,
};
inline constexpr OutputPart kPlanParts[] = {
    {"plans[].", &kEstimate},
    {"memory_terms[].", &kMemoryTerm},
    {"against.", &kEstimate},
    {"helps[].", &kKnobGain},
    {"against.changes[].", &kKnobGain},
    {"against.path[].", &kPathStep},
    {"published[].", &kEstimate},
    {"published[].", &kLikeRun},
    {"published[].path[].", &kPathStep},
    {"published[].changes[].", &kKnobGain},
};

}  // namespace moetune::sweeps
