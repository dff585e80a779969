// What launchers say in the environment, in tables: right, malformed and contradictory.
#include "engine/comm/launch_env.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <map>
#include <ostream>

#include "kernels/base/error.h"
#include "tests/engine_comm/processes.h"

namespace moetune::engine {

using Variables = std::map<std::string, std::string>;

struct Right {
  const char* name;
  Variables variables;
  Launcher launcher;
  int rank;
  int size;
  int local_rank;  ///< -1: unknown
  std::string master_addr;
  int master_port;  ///< -1: any
  std::string run_id;
};
std::ostream& operator<<(std::ostream& out, const Right& row) { return out << row.name; }

struct Wrong {
  const char* name;
  Variables variables;
  std::string variable;  ///< that the message names
  std::string part;      ///< of the message
};
std::ostream& operator<<(std::ostream& out, const Wrong& row) { return out << row.name; }

BOOST_AUTO_TEST_SUITE(launch_env)

namespace {

EnvLookup lookup(const Variables& variables) {
  return [&variables](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return at->second;
  };
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kTorchrun = {{"RANK", "5"},        {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"PMIX_RANK", "2"},
                            {"PMIX_NAMESPACE", "123"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "3"}, {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                          {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"}};
const Variables kPmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-1"}};

const std::vector<Right> kRight = {
    {"nothing", {}, Launcher::none, 0, 1, 0, "", 0, "single"},
    {"torchrun", kTorchrun, Launcher::torchrun, 5, 8, 1, "a", 29500, "torchrun.0"},
    {"torchrun_names_its_run",
     with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
     Launcher::torchrun, 5, 8, 1, "a", 29500, "x.2"},
    {"torchrun_uses_the_port", with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
     Launcher::torchrun, 5, 8, 1, "a", 29501, "torchrun.0"},
    {"torchrun_uses_the_last_port",
     with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}}),
     Launcher::torchrun, 5, 8, 1, "a", 65534, "torchrun.0"},
    {"by_hand",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}},
     Launcher::torchrun,
     0,
     2,
     -1,
     "",
     0,
     "torchrun.0"},
    {"torchrun_goes_before_slurm", with(kSlurm, kTorchrun), Launcher::torchrun, 5, 8, 1, "a", 29500,
     "torchrun.0"},
    {"open_mpi", kOpenMpi, Launcher::open_mpi, 2, 4, 0, "", 0, "mpirun.123"},
    {"open_mpi_on_one_host", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
     Launcher::open_mpi, 2, 4, 0, "127.0.0.1", -1, "mpirun.123"},
    {"open_mpi_goes_before_slurm", with(kSlurm, kOpenMpi), Launcher::open_mpi, 2, 4, 0, "", 0,
     "mpirun.123"},
    {"slurm", kSlurm, Launcher::slurm, 3, 8, 3, "gpu07", -1, "77.2.0"},
    {"slurm_with_an_address", with(kSlurm, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "1"}}),
     Launcher::slurm, 3, 8, 3, "b", 1, "77.2.0"},
    {"slurm_step_of_fewer_tasks", with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "4"}}), Launcher::slurm, 3,
     4, 3, "gpu07", -1, "77.2.0"},
    {"slurm_goes_before_pmix", with(kSlurm, kPmix), Launcher::slurm, 3, 8, 3, "gpu07", -1,
     "77.2.0"},
    {"batch_script", without(kSlurm, "SLURM_STEP_NODELIST"), Launcher::none, 0, 1, 0, "", 0,
     "single"},
    {"pmix", kPmix, Launcher::pmix, 1, 0, -1, "", 0, "pmix.prterun-1"},
};

const std::vector<Wrong> kWrong = {
    {"half", {{"RANK", "1"}}, "RANK", "WORLD_SIZE is missing"},
    {"other_half", {{"WORLD_SIZE", "1"}}, "WORLD_SIZE", "RANK is missing"},
    {"text", with(kTorchrun, {{"RANK", "one"}}), "RANK", "whole number"},
    {"empty", with(kTorchrun, {{"WORLD_SIZE", ""}}), "WORLD_SIZE", "whole number"},
    {"trailing", with(kTorchrun, {{"RANK", "1 "}}), "RANK", "whole number"},
    {"negative", with(kTorchrun, {{"RANK", "-1"}}), "RANK", "from 0"},
    {"huge", with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE", "from 1"},
    {"no_ranks", with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE", "from 1"},
    {"outside", with(kTorchrun, {{"RANK", "8"}}), "RANK", "WORLD_SIZE 8"},
    {"local_outside", with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK", "LOCAL_WORLD_SIZE 4"},
    {"local_too_many", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE",
     "WORLD_SIZE 8"},
    {"port_zero", with(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT", "65535"},
    {"port_large", with(kTorchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT", "65535"},
    {"no_address", with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR", "unset it"},
    {"mpi_half", {{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_SIZE", "is missing"},
    {"mpi_outside", with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}), "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE 4"},
    {"mpi_local", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}}),
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE 4"},
    {"slurm_no_size", without(kSlurm, "SLURM_NTASKS"), "SLURM_PROCID", "SLURM_NTASKS is missing"},
    {"slurm_outside", with(kSlurm, {{"SLURM_PROCID", "8"}}), "SLURM_PROCID", "SLURM_NTASKS 8"},
    {"slurm_nodes", with(kSlurm, {{"SLURM_STEP_NODELIST", "a[1-9]"}}), "SLURM_STEP_NODELIST",
     "9 nodes"},
    {"slurm_list", with(kSlurm, {{"SLURM_STEP_NODELIST", "a[1-"}}), "SLURM_STEP_NODELIST", "'['"},
    {"slurm_no_list", with(kSlurm, {{"SLURM_STEP_NODELIST", ""}}), "SLURM_STEP_NODELIST", "unset"},
    {"pmix_half", {{"PMIX_RANK", "0"}}, "PMIX_RANK", "PMIX_NAMESPACE is missing"},
    {"pmix_text", with(kPmix, {{"PMIX_RANK", "x"}}), "PMIX_RANK", "whole number"},
};

BOOST_DATA_TEST_CASE(reads, boost::unit_test::data::make(kRight), row) {
  const LaunchEnv launch = read_launch_env(lookup(row.variables));
  BOOST_TEST(name_of(launch.launcher) == name_of(row.launcher));
  BOOST_TEST(launch.rank == row.rank);
  BOOST_TEST(launch.world_size == row.size);
  BOOST_TEST(launch.local_rank.value_or(-1) == row.local_rank);
  BOOST_TEST(launch.master_addr == row.master_addr);
  BOOST_TEST(launch.run_id == row.run_id);
  if (row.master_port >= 0) {
    BOOST_TEST(launch.master_port == row.master_port);
  } else {
    BOOST_TEST(launch.master_port >= 20000);
    BOOST_TEST(launch.master_port < 30000);
  }
}

BOOST_DATA_TEST_CASE(refuses, boost::unit_test::data::make(kWrong), row) {
  const auto says_why = [&row](const base::UsageError& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    return testing::contains(text, "environment variable " + row.variable + " is '") &&
           testing::contains(text, row.part);
  };
  BOOST_CHECK_EXCEPTION(read_launch_env(lookup(row.variables)), base::UsageError, says_why);
}

BOOST_AUTO_TEST_CASE(ranks_of_a_run_agree_on_the_port) {
  const Variables other = with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  const Variables later = with(kSlurm, {{"SLURM_STEP_ID", "3"}});
  const int port = read_launch_env(lookup(kSlurm)).master_port;
  BOOST_TEST(port == read_launch_env(lookup(other)).master_port);
  BOOST_TEST(port != read_launch_env(lookup(later)).master_port);
}

BOOST_AUTO_TEST_CASE(node_lists) {
  using List = std::vector<std::string>;
  const std::vector<std::pair<std::string, List>> rows = {
      {"a", {"a"}},
      {"a,b-1.example", {"a", "b-1.example"}},
      {"node[01-03,7],gpu5", {"node01", "node02", "node03", "node7", "gpu5"}},
      {"n[9-11]", {"n9", "n10", "n11"}},
      {"n[099-101]", {"n099", "n100", "n101"}},
      {"r[1-2]n[3,5]-ib", {"r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"}},
      {"[1-2]", {"1", "2"}},
  };
  for (const auto& [text, hosts] : rows) {
    BOOST_TEST(expand_node_list(text, "X") == hosts, boost::test_tools::per_element());
  }
  for (const char* bad : {"",
                          ",",
                          "a,",
                          ",a",
                          "a[",
                          "a]",
                          "a[]",
                          "a[1",
                          "a[1-]",
                          "a[-1]",
                          "a[2-1]",
                          "a[1-2-3]",
                          "a[x]",
                          "a[1,]",
                          "a[[1]]",
                          "a[1]]",
                          "a[1-99999999]",
                          "a[1-999][1-999]",
                          "a[9999999999]",
                          "]a[1-2"}) {
    BOOST_TEST_CONTEXT(bad) { BOOST_CHECK_THROW(expand_node_list(bad, "X"), base::UsageError); }
  }
}

BOOST_AUTO_TEST_CASE(own_environment) {
  BOOST_TEST(process_env("PATH").has_value());
  BOOST_TEST(!process_env("MOETUNE_NO_SUCH_VARIABLE").has_value());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
