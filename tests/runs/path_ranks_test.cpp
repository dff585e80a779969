// Ranks by the places of logs: torchrun's folders, and files of tasks.
#include "sweeps/runs/path_ranks.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/profiler/temp_folder.h"
#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(ranks_of_paths)

namespace {

namespace fs = std::filesystem;

const std::string kStart = "using world size: 4, data-parallel size: 4\n";
const std::string kOom = golden_logs::traceback(
    "",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.00 GiB is free.");

/// A folder of logs; those without a text are there and are not read.
class Folder {
 public:
  void write(const std::string& name, const std::string& text) {
    const std::string path = folder_.file(name);
    fs::create_directories(fs::path(path).parent_path());
    tests::write_text(path, text);
    if (!text.empty()) paths_.push_back(path);
  }
  [[nodiscard]] RunFacts facts() const { return read_run(paths_); }
  [[nodiscard]] int rank_at_fault() const {
    const RunFacts read = facts();
    BOOST_REQUIRE(read.root.has_value());
    BOOST_TEST(read.root->kind == "cuda-oom");
    return read.root->rank;
  }

 private:
  tests::TempFolder folder_;
  std::vector<std::string> paths_;
};

std::string torchrun(const std::string& node, int rank, const char* stream) {
  return node + "/attempt_0/" + std::to_string(rank) + "/" + stream + ".log";
}

/// The logs of torchrun on one node with four ranks, of which the third has no memory.
void write_torchrun(Folder& folder, const std::string& node, const std::string& start) {
  folder.write(torchrun(node, 0, "stdout"), start);
  folder.write(torchrun(node, 1, "stdout"), "");
  folder.write(torchrun(node, 2, "stderr"), kOom);
  folder.write(torchrun(node, 3, "stdout"), golden_logs::megatron_steps(1, 5));
}

/// A file a task, named with its number.
void write_tasks(Folder& folder, const std::string& name, const std::string& start) {
  folder.write(name + "0.out", start);
  folder.write(name + "1.out", "");
  folder.write(name + "2.out", kOom);
  folder.write(name + "3.out", golden_logs::megatron_steps(1, 5));
}

}  // namespace

BOOST_AUTO_TEST_CASE(folders_of_torchrun_are_ranks) {
  Folder whole;
  write_torchrun(whole, "none_a", kStart);
  BOOST_TEST(whole.rank_at_fault() == 2);
  BOOST_TEST(whole.facts().reason.starts_with("rank 2: out of GPU memory after step 5"));
  Folder alone;
  alone.write(torchrun("none_a", 2, "stderr"), kOom);
  BOOST_TEST(alone.rank_at_fault() == 2);
  Folder memory;
  memory.write(torchrun("none_a", 2, "stdout"),
               "after 5 iterations memory (MB) | allocated: 1.0 | max allocated: 2.0\n" + kOom);
  BOOST_REQUIRE(!memory.facts().memory.empty());
  BOOST_TEST(memory.facts().memory.front().rank == 2);
}

// Of several nodes each has a folder 2.
BOOST_AUTO_TEST_CASE(folders_of_several_nodes_are_no_ranks) {
  Folder two;
  write_torchrun(two, "node0/none_a", "using world size: 8, data-parallel size: 8\n");
  two.write(torchrun("node1/none_b", 1, "stderr"), kOom);
  BOOST_TEST(two.rank_at_fault() == -1);
  Folder one_of_two;
  write_torchrun(one_of_two, "none_a", "using world size: 8, data-parallel size: 8\n");
  BOOST_TEST(one_of_two.rank_at_fault() == -1);
  Folder others;  // no folders of torchrun
  others.write("tries/2/stderr.log", kOom);
  BOOST_TEST(others.rank_at_fault() == -1);
}

BOOST_AUTO_TEST_CASE(numbers_of_all_tasks_are_ranks) {
  Folder tasks;
  write_tasks(tasks, "job-4242-", kStart);
  BOOST_TEST(tasks.rank_at_fault() == 2);
  Folder prefixed;  // a line says otherwise
  write_tasks(prefixed, "job-4242-", kStart + "[rank3]: RuntimeError: broken\n");
  BOOST_TEST(prefixed.rank_at_fault() == -1);
}

// The number may be of a node, of a restart or of a run.
BOOST_AUTO_TEST_CASE(other_numbers_are_no_ranks) {
  Folder nodes;
  write_tasks(nodes, "node", "using world size: 32, data-parallel size: 32\n");
  BOOST_TEST(nodes.rank_at_fault() == -1);
  Folder unknown;
  write_tasks(unknown, "job-4242-", "");
  BOOST_TEST(unknown.rank_at_fault() == -1);
  Folder more;
  write_tasks(more, "job-4242-", kStart);
  more.write("job-4242-4.out", "");
  BOOST_TEST(more.rank_at_fault() == -1);
  Folder restarts;
  restarts.write("run_0.out", "using world size: 2, data-parallel size: 2\n" +
                                  golden_logs::megatron_steps(1, 3));
  restarts.write("run_1.out", golden_logs::megatron_steps(4, 6) + kOom);
  BOOST_TEST(restarts.rank_at_fault() == -1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
