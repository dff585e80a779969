// Job scripts with a number of nodes by default: who says otherwise is right.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(script_ranks, tests::Cli)

namespace {

using nlohmann::json;
using tests::Answer;

/// `nodes`: "${SLURM_NNODES:-1}", or a number.
std::string script_with(const std::string& nodes) {
  return "#!/bin/bash\nNNODES=" + nodes +
         "\nMODEL_ARGS=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336\n"
         "  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu\n"
         "  --num-experts 8 --moe-router-topk 2 --vocab-size 32000 --normalization RMSNorm\n"
         "  --disable-bias-linear --untie-embeddings-and-output-weights --bf16\n"
         "  --position-embedding-type rope --moe-grouped-gemm --seq-length 4096)\n"
         "torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py ${MODEL_ARGS[@]} \\\n"
         "  --micro-batch-size 1 --global-batch-size 256 --use-distributed-optimizer \\\n"
         "  --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 \\\n"
         "  --moe-token-dispatcher-type alltoall ${EXTRA_ARGS[@]}\n";
}

/// Three steps of 64 ranks, then no memory left.
std::string log_of_64_ranks() {
  std::string log =
      "using world size: 64, data-parallel size: 16, context-parallel size: 1, hierarchical "
      "context-parallel sizes: None, tensor-model-parallel size: 1, pipeline-model-parallel size: "
      "4\n";
  for (const char* step : {"1", "2", "3"}) {
    log += std::string(" [2026-03-04 05:06:0") + step + ".000000] iteration        " + step +
           "/     100 | consumed samples:          256 | elapsed time per iteration (ms): 800.0 | "
           "learning rate: 2.000000E-05 | global batch size:   256 | lm loss: 8.875000E+00 | loss "
           "scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 | number of nan "
           "iterations:   0 |\n";
  }
  return log +
         "[rank3]: Traceback (most recent call last):\n"
         "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. "
         "GPU 3 has a total capacity of 79.11 GiB of which 1.25 GiB is free.\n";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_default_gives_way_to_gpus) {
  const auto estimated = [&](const std::string& nodes, const std::string& gpus) {
    tests::write_text(folder.file("job.sh"), script_with(nodes));
    return run({"estimate", "--run", folder.file("job.sh"), "--hardware", "h100-80g", "--gpus",
                gpus, "--format", "json"});
  };
  const Answer open = estimated("${SLURM_NNODES:-\"4\"}", "64");
  BOOST_TEST_REQUIRE(open.code == 0, open.err);
  // The same as where nobody says anything else.
  const Answer fixed = estimated("8", "64");
  BOOST_TEST_REQUIRE(fixed.code == 0, fixed.err);
  BOOST_TEST(json::parse(open.out)["rows"][0]["peak_allocated_bytes"] ==
             json::parse(fixed.out)["rows"][0]["peak_allocated_bytes"]);
  BOOST_TEST(estimated("4", "64").code == 2);
  BOOST_TEST(estimated("${SLURM_NNODES:-1}", "64").code == 0);
}

BOOST_AUTO_TEST_CASE(a_default_gives_way_to_the_log) {
  for (const std::string nodes : {"${SLURM_NNODES:-1}", "${SLURM_NNODES:-4}"}) {
    const std::string place = folder.file("run");
    std::filesystem::create_directories(place);
    tests::write_text(place + "/job.sh", script_with(nodes));
    tests::write_text(place + "/train.log", log_of_64_ranks());
    const Answer answer = run({"diagnose", place, "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const json found = json::parse(answer.out);
    BOOST_TEST(found["run"]["world_size"] == 64);
    BOOST_TEST(found["run"]["parallel"]["dp"] == 16);
    BOOST_TEST(found["run"]["parallel"]["ep"] == 8);
    for (const json& note : found["notes"]) {
      const std::string text = note;
      BOOST_TEST(!tests::contains(text, "no command or configuration"), text);
      BOOST_TEST(!tests::contains(text, "is not understood"), text);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
