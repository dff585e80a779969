// Job scripts as people have them: what they start where nobody tells them more.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(scripts_of_dialects)

namespace {

using samples::contains;
using samples::has_note;
using samples::refusal;

constexpr Dialect kLm = Dialect::megatron_lm;

/// As it is written; "missing" where the run does not state it.
std::string stated(const RunConfig& run, std::string_view key) {
  const auto found = std::ranges::find(run.stated, key, &StatedSetting::key);
  return found == run.stated.end() ? "missing" : found->value;
}

struct Behind {
  const char* text;  ///< behind a switch
  const char* note;  ///< empty: nothing is left open
};
std::ostream& operator<<(std::ostream& out, const Behind& row) { return out << row.text; }

}  // namespace

const std::vector<Behind> kBehind = {
    {"\"$@\"", ""},
    {"$@", ""},
    {"\"${@}\"", ""},
    {"${@:1}", ""},
    {"$*", ""},
    {"${EXTRA:-}", ""},
    {"${FP8:+--fp8-format hybrid}", ""},
    {"`# a comment` --use-distributed-optimizer", ""},
    {"$EXTRA", "nothing sets '$EXTRA'"},
    {"${EXTRA_ARGS[@]}", "nothing sets '${EXTRA_ARGS[@]}'"},
    {"\"${EXTRA_ARGS[@]}\" --lr 1e-4 $MORE", "nothing sets '${EXTRA_ARGS[@]}'"},
};
/// {flags} of a sweep gets to the command by such words only.
BOOST_DATA_TEST_CASE(what_others_may_add, boost::unit_test::data::make(kBehind), row) {
  const std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH -N 1\ntorchrun --nproc_per_node=8 pretrain_gpt.py "
      "--tensor-model-parallel-size 2 --train-iters 100 --bf16 {}\n",
      row.text);
  const RunConfig run = import_run(text, kLm);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(run.world_size == 8);
  BOOST_TEST(stated(run, "--bf16").empty());
  const std::string note = row.note;
  BOOST_TEST(has_note(run, "nothing sets") == !note.empty());
  BOOST_TEST((note.empty() || has_note(run, note)));
  BOOST_TEST(run.is_partial == !note.empty());
}

BOOST_AUTO_TEST_CASE(a_flag_keeps_its_value) {
  const RunConfig run = import_run(
      "pretrain_gpt.py --tensor-model-parallel-size 2 $MORE --data-path $A $B --load $CKPT", kLm);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(stated(run, "--data-path") == "\"$A\" \"$B\"");
  BOOST_TEST(stated(run, "--load") == "\"$CKPT\"");
}

BOOST_AUTO_TEST_CASE(a_value_that_nobody_sets_is_named) {
  BOOST_TEST(contains(refusal("pretrain_gpt.py --tensor-model-parallel-size ${TP}", kLm),
                      "'--tensor-model-parallel-size' is '${TP}', and nothing sets TP"));
  BOOST_TEST(contains(refusal("B=$4; pretrain_gpt.py --global-batch-size $B", kLm),
                      "'--global-batch-size' is '$4', and nothing sets argument 4"));
  const RunConfig run =
      import_run("B=$2; pretrain_gpt.py --global-batch-size $B", kLm, {.arguments = {"no", "64"}});
  BOOST_TEST(run.global_batch_size == 64);
}

struct Run {
  const char* text;  ///< in front of the command
  int tp;
};
std::ostream& operator<<(std::ostream& out, const Run& row) { return out << row.text; }

const std::vector<Run> kRuns = {
    // What ends a function, a loop, a shell of its own; and what only seems to.
    {"f() { if [ $1 = s ]; then TP=1; return; fi; TP=8; }; f s", 1},
    {"f() { if [ $1 = s ]; then TP=1; return; fi; TP=8; }; f l", 8},
    {"f() { if [ -f x ]; then return; fi; TP=8; }; f", 8},
    {"f() { g; TP=$((TP * 2)); }; g() { TP=2; return 1; TP=16; }; f", 4},
    {"TP=2; return; TP=4", 4},
    {"for i in 1 2 4; do TP=$i; if [ $i = 2 ]; then break; fi; done", 2},
    {"for i in 1 2; do for j in 1 4 8; do TP=$j; if [ $j = 4 ]; then break 2; fi; done; done", 4},
    {"for i in 1 2; do for j in 1 4 8; do TP=$j; if [ $j = 4 ]; then break; fi; done; TP=8; done",
     8},
    {"TP=1; for i in 1 2 3; do if [ $i = 2 ]; then continue; fi; TP=$((TP * 2)); done", 4},
    {"TP=2; while true; do TP=4; break; TP=8; done", 4},
    {"TP=2; break; continue; TP=4", 4},
    {"TP=2; (TP=4; exit 1)", 2},
    {"TP=2; (exit 0); TP=4", 4},
    {"TP=2; echo x | while read y; do TP=4; done", 2},
    {"TP=2; f() { TP=4; exit 1; }; f | tee log", 2},
    {"TP=2; { TP=4; exit 1; } & wait", 2},
    {"TP=2; true && TP=4 & TP=$((TP * 4))", 8},
    {"TP=2; { TP=4; }", 4},
    {"TP=4; exec > log", 4},
    // Arithmetic that sets variables.
    {"TP=1; ((TP = 8))", 8},
    {"TP=1; ((TP++)); ((TP *= 2))", 4},
    {"TP=9; ((--TP))", 8},
    {"let TP=2 PP=1; let \"TP = TP * 2\"", 4},
    {"TP=1; ((A = 2, TP = A * 2))", 4},
    {"TP=2; (( TP == 4 )); (( TP <= 4 )); (( TP != 1 ))", 2},
    {"TP=1; if ((TP > 0)); then TP=4; fi", 4},
    // Variables of a function's own.
    {"TP=2; f() { local TP=8; }; f", 2},
    {"TP=2; f() { local TP; TP=8; }; f", 2},
    {"TP=2; f() { declare TP=8; g; }; g() { A=$TP; }; f; TP=$A", 8},
    {"TP=2; f() { declare -g TP=8; }; f", 8},
    {"TP=2; f() { TP=4; local TP=8; }; f", 4},
    {"f() { local TP=8; }; TP=2; if [ -f x ]; then f; fi", 2},
    // Texts of regular expressions.
    {"M=qwen-70b; if [[ $M =~ 70b ]]; then TP=8; else TP=1; fi", 8},
    {"M=qwen-70b; if [[ $M =~ ^70b ]]; then TP=8; else TP=1; fi", 1},
};
BOOST_DATA_TEST_CASE(a_script_is_read_as_it_runs, boost::unit_test::data::make(kRuns), row) {
  const RunConfig run = import_run(
      fmt::format("{}\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n", row.text),
      kLm);
  BOOST_TEST(run.knobs.tp == row.tp);
  BOOST_TEST(!has_note(run, "only a run can tell"));
}

// What is worked out by nobody is no value.
BOOST_AUTO_TEST_CASE(sums_that_are_not_read_are_named) {
  const std::string command = "\npretrain_gpt.py --tensor-model-parallel-size $TP";
  for (const char* text : {"TP=1; ((TP = 1 << 3))", "TP=1; let TP=2**3", "TP=1; ((TP += $(x)))"}) {
    BOOST_TEST(contains(refusal(text + command, kLm), "is '$(("), text);
  }
}

BOOST_AUTO_TEST_CASE(short_options_may_be_one_word_with_their_value) {
  const char* command = "pretrain_gpt.py --tensor-model-parallel-size 2";
  BOOST_TEST(
      import_run(fmt::format("#SBATCH -N4\n#SBATCH --ntasks-per-node 8\nsrun python {}\n", command),
                 kLm)
          .world_size == 32);
  BOOST_TEST(import_run(fmt::format("srun -N2 -n16 python {}", command), kLm).world_size == 16);
  BOOST_TEST(import_run(fmt::format("mpirun -np 8 python {}", command), kLm).world_size == 8);
}

// Behind 'exec' nothing of the script is run.
BOOST_AUTO_TEST_CASE(a_command_in_place_of_the_shell) {
  const RunConfig run = import_run(
      "exec torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n"
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 2\n",
      kLm);
  BOOST_TEST(run.knobs.tp == 2);
}

/// As Megatron-LM's examples are made.
BOOST_AUTO_TEST_CASE(branches_of_a_script) {
  const std::string text = R"(#!/bin/bash
TOKENIZER=${1:-"MOCK"}  # or a path
DTYPE="fp8"
PROFILE=${PROFILE:-0}
TRAINING=(--micro-batch-size 1 --global-batch-size ${GBS:-128} --bf16)
PRECISION=()
if [[ "$DTYPE" == "fp8" ]]; then
    PRECISION+=(
        "--fp8-format hybrid"  # one word of two
        "--fp8-param-gather"
    )
fi
TRAINING=("${TRAINING[@]}" --manual-gc)
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA=("--tokenizer-type NullTokenizer" "--vocab-size 128256")
else
    DATA=("--tokenizer-type HuggingFaceTokenizer" "--vocab-size 1")
fi
if [ "${PROFILE}" = 1 ]; then
    NSYS=(nsys profile -o out)
    TRAINING+=(--profile)
else
    NSYS=()
fi
if [ ! -f pretrain_gpt.py ]; then
    echo "Error: pretrain_gpt.py is not there"
    exit 1
fi
"${NSYS[@]}" torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ${TRAINING[@]} \
    ${PRECISION[@]} ${DATA[@]} --tensor-model-parallel-size 2
)";
  const RunConfig run = import_run(text, kLm);
  BOOST_TEST(run.stated_world_size == 16);
  BOOST_TEST(run.global_batch_size == 128);
  BOOST_TEST(stated(run, "--tokenizer-type") == "NullTokenizer");
  BOOST_TEST(stated(run, "--vocab-size") == "128256");
  BOOST_TEST(stated(run, "--fp8-format") == "hybrid");
  BOOST_TEST(stated(run, "--fp8-param-gather").empty());
  BOOST_TEST(stated(run, "--manual-gc").empty());
  BOOST_TEST(stated(run, "--profile") == "missing");
  BOOST_TEST(!has_note(run, "only a run can tell"));
  const RunConfig real = import_run(text, kLm, {.arguments = {"path"}});
  BOOST_TEST(stated(real, "--tokenizer-type") == "HuggingFaceTokenizer");
}

BOOST_AUTO_TEST_CASE(branches_that_only_a_run_can_take) {
  const std::string text =
      "if nvidia-smi | grep -q H100; then\n  TP=2; TOKENIZER=a\nelse\n  TP=4; TOKENIZER=b\nfi\n"
      "if [ -d cache ]; then echo cached; fi\n"
      "pretrain_gpt.py --tensor-model-parallel-size $TP --bf16 --tokenizer-type $TOKENIZER\n";
  const RunConfig run = import_run(text, kLm);
  BOOST_TEST(run.knobs.tp == 4);
  BOOST_TEST(has_note(run, "only a run can tell 'nvidia-smi | grep -q H100'"));
  BOOST_TEST(has_note(run, "--tensor-model-parallel-size, --tokenizer-type as in the last branch"));
  // What does not change a setting is not told.
  const RunConfig same = import_run(
      "if [ -d cache ]; then P=python3; fi\n$P pretrain_gpt.py --tensor-model-parallel-size 2",
      kLm);
  BOOST_TEST(!has_note(same, "only a run can tell"));
}

BOOST_AUTO_TEST_CASE(a_script_that_trains_again_and_again) {
  const RunConfig run = import_run(
      "for C in 2,4 4,2; do\n IFS=',' read -r TP PP <<< \"$C\"\n"
      " pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size "
      "$PP\ndone\n",
      kLm);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(run.knobs.pp == 4);
  BOOST_TEST(has_note(run, "it starts 2 runs that differ: the first is read"));
}

// What counts is counted. Ranks of several nodes are one run, whoever starts them.
BOOST_AUTO_TEST_CASE(loops_that_count) {
  const RunConfig runs = import_run(
      "for ((i = 1; i <= 4; i *= 2)); do\n"
      " pretrain_gpt.py --tensor-model-parallel-size $((8 / i)) --pipeline-model-parallel-size "
      "$i\ndone\n",
      kLm);
  BOOST_TEST(runs.knobs.tp == 8);
  BOOST_TEST(has_note(runs, "it starts 3 runs that differ: the first is read"));
  BOOST_TEST(!has_note(runs, "goes round"));

  const RunConfig nodes = import_run(
      "N=4\nfor ((i=0; i<N; i++)); do\n ssh node$i torchrun --nproc_per_node 8 --nnodes $N "
      "--node_rank $i pretrain_gpt.py --tensor-model-parallel-size 2 &\ndone\n",
      kLm);
  BOOST_TEST(nodes.world_size == 32);
  BOOST_TEST(!has_note(nodes, "runs that differ"));

  const RunConfig none = import_run(
      "TP=2\nfor ((i=0; i<0; i++)); do TP=4; done\n"
      "pretrain_gpt.py --tensor-model-parallel-size $TP\n",
      kLm);
  BOOST_TEST(none.knobs.tp == 2);
  const RunConfig built = import_run(
      "for ((i=0; i<3; i++)); do LIST+=\"$i\"; done\n"
      "pretrain_gpt.py --tensor-model-parallel-size 2 --data-path $LIST\n",
      kLm);
  BOOST_TEST(stated(built, "--data-path") == "012");
}

/// The same loop in other words. Behind it stands what it has made of LIST.
const char* const kCountingLoops[] = {
    "for ((i=0; i<3; i++)) { LIST+=$i; }\n",
    "for ((i=0; i<3; i++))\n{\n  LIST+=$i\n}\n",
    "for i in 0 1 2; { LIST+=$i; }\n",
    "i=0\nwhile [ $i -lt 3 ]; do LIST+=$i; i=$((i+1)); done\n",
    "i=0\nwhile [[ \"$i\" -lt 3 ]]\ndo\n  LIST+=$i\n  ((i++))\ndone\n",
    "i=0; while (( i < 3 )); do LIST+=$i; let i++; done\n",
    "i=0; while test $i -ne 3; do LIST+=$i; let i+=1; done\n",
    "i=0; until [ $i -ge 3 ]; do LIST+=$i; ((i += 1)); done\n",
    "i=0; while [ $i -lt 9 ]; do LIST+=$i; i=$((i+1)); if [ $i -eq 3 ]; then break; fi; done\n",
    "i=0; while [ $i -lt 3 ]; do j=0; while [ $j -lt 2 ]; do ((j++)); done; LIST+=$i; ((i++)); "
    "done\n",
    "more() { i=$((i+1)); }\ni=0; while [ $i -lt 3 ]; do LIST+=$i; more; done\n",
};
BOOST_DATA_TEST_CASE(loops_that_count_in_other_words, boost::unit_test::data::make(kCountingLoops),
                     loop) {
  const RunConfig run = import_run(
      loop + std::string("pretrain_gpt.py --tensor-model-parallel-size 2 --data-path $LIST\n"),
      kLm);
  BOOST_TEST(stated(run, "--data-path") == "012");
  BOOST_TEST(!has_note(run, "goes round"));
}

/// Loops whose condition is known, and still only a run can tell how often they go round.
const char* const kOpenLoops[] = {
    "D=0; while [ $D -eq 0 ]; do LIST+=x; if ready; then D=1; fi; done\n",
    "D=0; while [ $D -eq 0 ]; do LIST+=x; ready && D=1; done\n",
    "i=0; while [ $i -lt 3 ]; do LIST+=x; i=$(next $i); done\n",
    "i=0; while [ $i -lt 3 ]; do LIST+=x; done\n",
    "i=0; while true; do LIST+=x; i=$((i+1)); done\n",
    "i=0; while [ $i -lt 3 ] && ready; do LIST+=x; i=$((i+1)); done\n",
    "i=0; while [ $i -lt 3 ]; do LIST+=x; while ! ready; do i=$((i+1)); done; done\n",
    "i=0; while [ $i -lt 3 ]; do LIST+=x; i=$((i+1)); [ $i -lt 2 ] || i=$(next $i); done\n",
};
BOOST_DATA_TEST_CASE(loops_with_a_condition_that_are_open, boost::unit_test::data::make(kOpenLoops),
                     loop) {
  const RunConfig run = import_run(
      loop + std::string("pretrain_gpt.py --tensor-model-parallel-size 2 --data-path $LIST\n"),
      kLm);
  BOOST_TEST(has_note(run, "only a run can tell how often this loop goes round"));
}

BOOST_AUTO_TEST_CASE(loops_that_only_a_run_can_count) {
  const std::string flags = "pretrain_gpt.py --tensor-model-parallel-size $TP --micro-batch-size 1";
  const auto note_of = [&](const std::string& text) {
    return has_note(import_run(text, kLm), "goes round");
  };
  const std::string doubles =
      "TP=1\nwhile [ $TP -le 8 ]; do\n" + flags + "\nTP=$((TP * 2))\ndone\n";
  BOOST_TEST(import_run(doubles, kLm).knobs.tp == 1);
  BOOST_TEST(has_note(import_run(doubles, kLm), "it starts 4 runs that differ: the first is read"));
  BOOST_TEST(!note_of(doubles));
  const std::string tuned = "TP=1\nwhile [ $TP -le 8 ]; do\n" + flags + "\nTP=$(next $TP)\ndone\n";
  BOOST_TEST(
      has_note(import_run(tuned, kLm),
               "line 2: only a run can tell how often this loop goes round: it is read once"));
  BOOST_TEST(note_of("TP=1\nfor ((i=0; i<$(nproc); i++)); do\n" + flags + " --seed $i\ndone\n"));
  // What the loop makes is used behind it.
  BOOST_TEST(note_of("TP=1\nwhile ! ready; do TP=$((TP * 2)); done\n" + flags + "\n"));
  // The same run once more, or nothing of the run at all.
  BOOST_TEST(!note_of("TP=2\nwhile true; do\n" + flags + "\nsleep 60\ndone\n"));
  BOOST_TEST(!note_of("TP=2\nuntil " + flags + "; do sleep 60; done\n"));
  BOOST_TEST(!note_of("TP=2\nwhile ! nc -z host 22; do n=$((n + 1)); done\n" + flags + "\n"));
  BOOST_TEST(!note_of("TP=2\nfor ((;;)); do\n" + flags + "\nbreak\ndone\n"));
}

BOOST_AUTO_TEST_CASE(ranks_and_variables_of_a_loop_count_too) {
  const auto note_of = [&](const std::string& text) {
    return has_note(import_run(text, kLm), "only a run can tell how often");
  };
  const std::string flags = " pretrain_gpt.py --tensor-model-parallel-size 2\n";
  const std::string loop = "while read l; do N=$((N * 2)); done < hosts\n";
  BOOST_TEST(note_of("N=4\n" + loop + "srun -n $N python" + flags));
  BOOST_TEST(note_of("N=4\n" + loop + "export CUDA_DEVICE_MAX_CONNECTIONS=$N\npython" + flags));
  BOOST_TEST(!note_of("N=4\n" + loop + "python" + flags));
}

BOOST_AUTO_TEST_CASE(loops_that_go_round_too_often_are_cut_and_say_so) {
  const auto run_of = [&](int rounds) {
    return import_run(fmt::format("N=0\nfor ((i=0; i<{}; i++)); do N=$((N+1)); done\n"
                                  "pretrain_gpt.py --num-layers $N\n",
                                  rounds),
                      kLm);
  };
  BOOST_TEST(stated(run_of(64), "--num-layers") == "64");
  BOOST_TEST(!has_note(run_of(64), "goes round"));
  BOOST_TEST(stated(run_of(65), "--num-layers") == "64");
  BOOST_TEST(has_note(run_of(65), "line 2: this loop goes round oftener than it is read"));
  const auto while_of = [&](int rounds) {
    return import_run(fmt::format("N=0\nwhile [ $N -lt {} ]; do N=$((N+1)); done\n"
                                  "pretrain_gpt.py --num-layers $N\n",
                                  rounds),
                      kLm);
  };
  BOOST_TEST(stated(while_of(64), "--num-layers") == "64");
  BOOST_TEST(!has_note(while_of(64), "goes round"));
  BOOST_TEST(stated(while_of(65), "--num-layers") == "64");
  BOOST_TEST(has_note(while_of(65), "line 2: this loop goes round oftener than it is read"));
  std::string words;
  for (int i = 0; i < 65; ++i) words += fmt::format(" {}", i);
  const std::string listed =
      "for N in" + words + "; do true; done\npretrain_gpt.py --num-layers $N\n";
  BOOST_TEST(has_note(import_run(listed, kLm), "oftener than it is read"));
  // More than can be read the second time: the first reading stands.
  std::string nested = "N=2\n";
  for (int i = 0; i < 20; ++i) nested += "while true; do\n";
  nested += "pretrain_gpt.py --tensor-model-parallel-size $N --seed $RANDOM\n";
  for (int i = 0; i < 20; ++i) nested += "done\n";
  BOOST_TEST(import_run(nested, kLm).knobs.tp == 2);
}

/// A job that a script writes: an array in a text in a shell in a job.
BOOST_AUTO_TEST_CASE(a_script_that_submits_another) {
  const std::string text = R"(
TP=${TP:-2}
ARGS=(
    --tensor-model-parallel-size ${TP}
    --moe-layer-freq [0]*3+[1]*58
    --bf16
)
if [ "${USE_FSDP:-1}" = 1 ]; then
    ARGS=(
        "${ARGS[@]}"
        --use-megatron-fsdp
        --data-parallel-sharding-strategy ${STRATEGY:-"optim_grads_params"}
    )
fi
COMMAND="
cd ${MEGATRON_PATH};
export PYTHONPATH=${MEGATRON_PATH}:${PYTHONPATH};
python ${MEGATRON_PATH}/pretrain_gpt.py ${ARGS[@]}"
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes=your_own_num_nodes
srun --mpi=pmix -l --container-image=${IMAGE} bash -x -c "${COMMAND}" 2>&1 | tee \${SLURM_JOB_ID}.log
EOF
)";
  const RunConfig run = import_run(text, kLm);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(stated(run, "--use-megatron-fsdp").empty());
  BOOST_TEST(stated(run, "--data-parallel-sharding-strategy") == "optim_grads_params");
  BOOST_TEST(run.world_size == 0);
}

namespace {

struct RankCase {
  const char* text;
  int64_t world_size;  ///< where nobody says otherwise
  int64_t stated;      ///< what no one may say otherwise
};
std::ostream& operator<<(std::ostream& out, const RankCase& row) { return out << row.text; }

}  // namespace

const std::vector<RankCase> kRanks = {
    {"N=4; torchrun --nproc_per_node 8 --nnodes $N", 32, 32},
    {"N=${SLURM_NNODES:-\"4\"}; torchrun --nproc_per_node 8 --nnodes $N", 32, 0},
    {"[ -z \"$N\" ] && N=4; torchrun --nproc_per_node 8 --nnodes $N", 32, 0},
    {"if [ -z ${N} ]; then N=4; fi; torchrun --nproc_per_node 8 --nnodes $N", 32, 0},
    {"G=${G:-8}; torchrun --nproc_per_node $G --nnodes 4", 32, 0},
    {": ${N:=4}; torchrun --nproc_per_node 8 --nnodes $N", 32, 0},
    {"P=${PORT:-29500}; torchrun --master_port $P --nproc_per_node 8 --nnodes 4", 32, 32},
    {"torchrun --nproc_per_node 8", 8, 0},
    {"srun -n 32", 32, 32},
    {"#SBATCH --nodes=4 --ntasks-per-node=8 # of all\n#SBATCH -p x\nsrun", 32, 0},
    {"#SBATCH -N 4\ntorchrun --nproc_per_node 8 --nnodes $SLURM_NNODES", 32, 0},
    {"#SBATCH -N 4\ntorchrun --nproc_per_node 8 --nnodes ${SLURM_JOB_NUM_NODES:-1}", 32, 0},
    {"#SBATCH -N 4\ntorchrun --nproc_per_node 8 --nnodes 1", 8, 8},
    {"#SBATCH -N some --ntasks=32 'x\nsrun", 32, 0},
    {"#SBATCH --ntasks=32\n#SBATCH -n\nsrun", 32, 0},
};
BOOST_DATA_TEST_CASE(ranks_by_default, boost::unit_test::data::make(kRanks), row) {
  const std::string text = row.text + std::string(" pretrain_gpt.py ") +
                           "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2";
  const RunConfig run = import_run(text, kLm);
  BOOST_TEST(run.world_size == row.world_size);
  BOOST_TEST(run.stated_world_size == row.stated);
  const RunConfig told = import_run(text, kLm, {.world_size = 64});
  BOOST_TEST(told.world_size == 64);
  BOOST_TEST(told.knobs.dp == 8);
}

BOOST_AUTO_TEST_CASE(too_few_ranks_by_default) {
  const std::string args =
      " pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4";
  const RunConfig run = import_run("torchrun --nproc_per_node 8 --nnodes ${NNODES:-1}" + args, kLm);
  BOOST_TEST(run.world_size == 0);
  BOOST_TEST(has_note(run, "it starts 8 ranks where nobody says more, too few for its layout"));
  // Who fixes a number gets it.
  BOOST_TEST(contains(refusal("torchrun --nproc_per_node 8 --nnodes 1" + args, kLm),
                      "does not divide the 8 ranks"));
  // More nodes would not help.
  BOOST_TEST(contains(refusal("torchrun --nproc_per_node 8 --nnodes ${N:-1} pretrain_gpt.py "
                              "--tensor-model-parallel-size 3",
                              kLm),
                      "does not divide the 8 ranks"));
}

BOOST_AUTO_TEST_CASE(settings_that_stand_twice) {
  const RunConfig run = import_run(
      "pretrain_gpt.py --tensor-model-parallel-size 2 --save a --bf16 --save b --bf16", kLm);
  BOOST_TEST(stated(run, "--save") == "b");
  BOOST_TEST(has_note(run, "'--save' stands twice, as 'a' and as 'b': the last one counts"));
  // As the command that a sweep prints: the user's own value, and behind it the trial's.
  const RunConfig other = import_run(
      "pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
      "--tensor-model-parallel-size 4",
      kLm);
  BOOST_TEST(other.knobs.tp == 4);
  BOOST_TEST(has_note(other,
                      "'--tensor-model-parallel-size' stands twice, as '2' and as '4': the last "
                      "one counts"));
}

/// torchtitan's own launcher, and a command that names only a file.
BOOST_AUTO_TEST_CASE(a_launcher_of_torchtitan) {
  const std::string text = R"(#!/usr/bin/bash
set -ex
NGPU=${NGPU:-"8"}
CONFIG_FILE=${CONFIG_FILE:-"./train_configs/x.toml"}
if [ -n "$COMM_MODE" ]; then
    NGPU="${NGPU}" python3 -m torchtitan.train --job.config_file ${CONFIG_FILE} "$@" --training.steps=1
else
    torchrun --nproc_per_node=${NGPU} -m torchtitan.train --job.config_file ${CONFIG_FILE} "$@"
fi
)";
  ImportOptions how;
  how.files["x.toml"] = "[parallelism]\ntensor_parallel_degree = 2\n[training]\nsteps = 100\n";
  const RunConfig run = import_run(text, Dialect::torchtitan, how);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(run.world_size == 8);
  BOOST_TEST(run.stated_world_size == 0);
  BOOST_TEST(!run.is_partial);
  BOOST_TEST(stated(run, "training.steps") == "100");
  how.arguments = {"--training.steps", "20"};
  const RunConfig shorter = import_run(text, Dialect::torchtitan, how);
  BOOST_TEST(stated(shorter, "training.steps") == "20");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
