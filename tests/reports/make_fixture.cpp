// make_fixture DB HTML [hostile|sweep|hunts|threads|nccl|fake|plan]: a made-up sweep with hunts and
// its report, to look at and for the browser test; with a communicator, one on a GPU; with `hunts`
// or `sweep`, one of them without the other; or the page of a plan (plan, hostile-plan) or of
// a diagnosis (diagnosis, hostile-diagnosis) or of two runs (comparison, hostile-comparison),
// without DB.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "reports/comparison_page.h"
#include "reports/diagnosis_page.h"
#include "reports/page.h"
#include "reports/plan_page.h"
#include "reports/report.h"
#include "tests/reports/comparison_sample.h"
#include "tests/reports/diagnosis_sample.h"
#include "tests/reports/fixture_helper.h"
#include "tests/reports/hunt_fixture_helper.h"
#include "tests/reports/plan_sample.h"

// As long as the flags that `moetune report` puts on a quick start's page.
const char* const kFlags =
    "--num-layers 4 --hidden-size 128 --num-attention-heads 4 --group-query-attention \\\n"
    "--num-query-groups 2 --kv-channels 32 --num-experts 8 --moe-router-topk 2 \\\n"
    "--moe-ffn-hidden-size 128 --moe-token-dispatcher-type alltoall --moe-grouped-gemm \\\n"
    "--seq-length 256 --global-batch-size 16 --micro-batch-size 1 \\\n"
    "--tensor-model-parallel-size 1 --context-parallel-size 1 --expert-model-parallel-size 4 \\\n"
    "--expert-tensor-parallel-size 1 --pipeline-model-parallel-size 2 \\\n"
    "--use-distributed-optimizer\n"
    "# no flag in Megatron: data_parallel_size=4 (derived: 8 ranks / (tensor 1 x context 1 x "
    "pipeline 2))";

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("make_fixture DB HTML [hostile|sweep|hunts|threads|nccl|fake|plan|hostile-plan]\n",
               stderr);
    return 2;
  }
  try {
    moetune::tests::FixtureOptions options;
    const std::string kind = argc > 3 ? argv[3] : "";
    if (kind == "diagnosis" || kind == "hostile-diagnosis") {
      moetune::reports::put_page(
          moetune::reports::render_diagnosis(moetune::tests::sample_diagnosis(
              kind == "diagnosis" ? "" : moetune::tests::kHostileText)),
          argv[2]);
      return 0;
    }
    if (kind == "comparison" || kind == "hostile-comparison") {
      moetune::reports::put_page(
          moetune::reports::render_comparison(moetune::tests::sample_comparison(
              kind == "comparison" ? "" : moetune::tests::kHostileText)),
          argv[2]);
      return 0;
    }
    if (kind == "plan" || kind == "hostile-plan") {
      moetune::reports::put_page(moetune::reports::render_plan(moetune::tests::sample_plan(
                                     kind == "plan" ? "" : moetune::tests::kHostileText)),
                                 argv[2]);
      return 0;
    }
    options.has_hunts = kind != "sweep";
    options.is_quickstart_size = kind == "sweep";
    const bool is_hostile = kind == "hostile";
    options.hostile = is_hostile ? moetune::tests::kHostileText : "";
    options.communicator = is_hostile ? "threads" : kind == "sweep" ? "" : kind;
    std::filesystem::remove(argv[1]);
    if (kind == "hunts") {
      moetune::store::Store store = moetune::store::Store::open(argv[1]);
      moetune::tests::add_hunts(store);
    } else {
      moetune::tests::make_fixture(argv[1], options);
    }
    moetune::reports::ReportOptions report;
    if (options.is_quickstart_size) {
      report.flags = [](const moetune::store::TrialRow&) { return std::string(kFlags); };
    }
    const int64_t size = moetune::reports::write_report(argv[1], argv[2], report);
    std::printf("%s: %lld bytes\n", argv[2], static_cast<long long>(size));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_fixture: %s\n", error.what());
    return 1;
  }
}
