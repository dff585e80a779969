// Which process of how many this is, as launchers say it in the environment, so that a rank needs
// no options of its own under torchrun, mpirun or srun.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace moetune::engine {

/// The value of an environment variable; nullopt when it is not set.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The lookup of this process's own environment.
std::optional<std::string> process_env(const std::string& name);

enum class Launcher : uint8_t { none, torchrun, open_mpi, slurm, pmix };
const char* name_of(Launcher launcher);

struct LaunchEnv {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int world_size = 1;             ///< 0 when the launcher does not say (PMIx): the layout decides
  std::optional<int> local_rank;  ///< among the processes of this host
  std::optional<int> local_size;
  std::string master_addr;  ///< where rank 0 listens; empty when unknown
  int master_port = 0;      ///< 0 when unknown
  std::string run_id;       ///< the same on all ranks, as far as launchers go another one each time
};

/// Reads the variables of the first launcher that has set any: torchrun, Open MPI, Slurm (inside a
/// job step; a batch script's own process is no task of one), PMIx. None: a single process. Throws
/// base::UsageError naming variable and value when they are malformed or contradict each other.
LaunchEnv read_launch_env(const EnvLookup& env);

/// The hosts of a Slurm node list such as "node[01-03,7],gpu5", in its order. `variable` names it
/// in messages. Throws base::UsageError when it is malformed or longer than any cluster.
std::vector<std::string> expand_node_list(const std::string& text, const std::string& variable);

}  // namespace moetune::engine
