// Which variables torchrun, Open MPI and Slurm set, and what is said when they are incomplete or
// contradict each other.
#include "engine/comm/launch_env.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"

namespace moetune::engine {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr size_t kMaxHosts = 1U << 16U;

/// Reads variables of one launcher and words its complaints.
class Reader {
 public:
  explicit Reader(const EnvLookup& env) : env_(env) {}

  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    std::optional<std::string> value = env_(name);
    if (value && value->empty()) refuse(name, "unset it, or give it a value");
    return value;
  }

  [[nodiscard]] std::optional<int> integer(const char* name, int least, int most) const {
    const std::optional<std::string> value = env_(name);
    if (!value) return std::nullopt;
    int number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end || number < least || number > most) {
      refuse(name, fmt::format("it must be a whole number from {} to {}", least, most));
    }
    return number;
  }

  // Two variables that only make sense together.
  [[nodiscard]] bool has_both(const char* first, const char* second) const {
    const bool has_first = env_(first).has_value();
    const bool has_second = env_(second).has_value();
    if (has_first == has_second) return has_first;
    const char* set = has_first ? first : second;
    refuse(set, fmt::format("{} is missing beside it; set both, or neither",
                            has_first ? second : first));
  }

  void require_below(const char* name, const std::optional<int>& value, const char* limit_name,
                     const std::optional<int>& limit) const {
    if (!value || !limit || *value < *limit) return;
    refuse(name, fmt::format("with {} {} it must be from 0 to {}", limit_name, *limit, *limit - 1));
  }

  [[noreturn]] void refuse(const char* name, const std::string& right) const {
    throw base::UsageError(
        fmt::format("environment variable {} is '{}'; {}", name, env_(name).value_or(""), right));
  }

 private:
  const EnvLookup& env_;
};

/// The names by which one launcher gives the same four numbers.
struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

void read_place(const Reader& reader, const Names& names, LaunchEnv& launch) {
  const std::optional<int> rank = reader.integer(names.rank, 0, kMaxRanks - 1);
  const std::optional<int> size = reader.integer(names.size, 1, kMaxRanks);
  reader.require_below(names.rank, rank, names.size, size);
  launch.rank = rank.value_or(0);
  launch.world_size = size.value_or(0);
  launch.local_rank = reader.integer(names.local_rank, 0, kMaxRanks - 1);
  if (names.local_size != nullptr) {
    launch.local_size = reader.integer(names.local_size, 1, kMaxRanks);
    if (size && launch.local_size && *launch.local_size > *size) {
      reader.refuse(names.local_size,
                    fmt::format("with {} {} it must be from 1 to {}", names.size, *size, *size));
    }
  }
  reader.require_below(names.local_rank, launch.local_rank, names.local_size, launch.local_size);
  reader.require_below(names.local_rank, launch.local_rank, names.size, size);
}

// Where a launcher gives no port, all ranks take the one that follows from the run's name. Below
// the ports that systems hand out on their own.
int port_of(const std::string& run_id) {
  return 20000 + static_cast<int>(base::fnv_of(run_id) % 10000U);
}

// `host` is where rank 0 is, if the launcher says so; the variables of torchrun go first, for they
// are what people set by hand.
void read_master(const Reader& reader, const std::string& host, LaunchEnv& launch) {
  launch.master_addr = reader.text("MASTER_ADDR").value_or(host);
  launch.master_port = reader.integer("MASTER_PORT", 1, 65535).value_or(0);
  if (launch.master_port == 0 && !launch.master_addr.empty()) {
    launch.master_port = port_of(launch.run_id);
  }
}

LaunchEnv read_torchrun(const Reader& reader) {
  LaunchEnv launch;
  launch.launcher = Launcher::torchrun;
  read_place(reader, kTorchrun, launch);
  launch.run_id = fmt::format("{}.{}", reader.text("TORCHELASTIC_RUN_ID").value_or("torchrun"),
                              reader.text("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  read_master(reader, "", launch);
  // Then torchrun's own agent listens on MASTER_PORT, and the next port is ours.
  if (reader.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" &&
      launch.master_port != 0) {
    launch.master_port += launch.master_port < 65535 ? 1 : -1;
  }
  return launch;
}

LaunchEnv read_open_mpi(const Reader& reader) {
  LaunchEnv launch;
  launch.launcher = Launcher::open_mpi;
  read_place(reader, kOpenMpi, launch);
  launch.run_id = "mpirun." + reader.text("PMIX_NAMESPACE").value_or("0");
  const bool is_one_host = launch.local_size == launch.world_size;
  read_master(reader, is_one_host ? "127.0.0.1" : "", launch);
  return launch;
}

LaunchEnv read_slurm(const Reader& reader) {
  LaunchEnv launch;
  launch.launcher = Launcher::slurm;
  // A step may have fewer tasks than its job.
  const bool has_step_size = reader.text("SLURM_STEP_NUM_TASKS").has_value();
  const char* size = has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!reader.has_both("SLURM_PROCID", size)) return launch;
  read_place(reader, {"SLURM_PROCID", size, "SLURM_LOCALID", nullptr}, launch);
  launch.run_id = fmt::format("{}.{}.{}", reader.text("SLURM_JOB_ID").value_or("slurm"),
                              reader.text("SLURM_STEP_ID").value_or("0"),
                              reader.text("SLURM_RESTART_COUNT").value_or("0"));
  constexpr const char* kNodes = "SLURM_STEP_NODELIST";
  const std::vector<std::string> hosts = expand_node_list(*reader.text(kNodes), kNodes);
  if (hosts.size() > static_cast<size_t>(launch.world_size)) {
    reader.refuse(kNodes, fmt::format("its {} nodes are more than {} {}; every node of a step has "
                                      "a task",
                                      hosts.size(), size, launch.world_size));
  }
  read_master(reader, hosts.front(), launch);
  return launch;
}

LaunchEnv read_pmix(const Reader& reader) {
  LaunchEnv launch;
  launch.launcher = Launcher::pmix;
  launch.rank = reader.integer("PMIX_RANK", 0, kMaxRanks - 1).value_or(0);
  launch.world_size = 0;
  launch.run_id = "pmix." + reader.text("PMIX_NAMESPACE").value_or("0");
  read_master(reader, "", launch);
  return launch;
}

[[noreturn]] void refuse_nodes(const std::string& text, const std::string& variable,
                               const std::string& what) {
  throw base::UsageError(
      fmt::format("environment variable {} is '{}'; {}; it must look like node[01-03,7],gpu5",
                  variable, text, what));
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "01-03,7" as 01 02 03 7; numbers are as wide as the first of their range.
std::vector<std::string> expand_ranges(std::string_view ranges, const std::string& text,
                                       const std::string& variable) {
  std::vector<std::string> numbers;
  while (true) {
    const size_t comma = ranges.find(',');
    const std::string_view range = ranges.substr(0, comma);
    const size_t dash = range.find('-');
    const std::string first(range.substr(0, dash));
    const std::string last(dash == std::string_view::npos ? first : range.substr(dash + 1));
    if (!is_number(first) || !is_number(last) || std::stol(first) > std::stol(last)) {
      refuse_nodes(text, variable, fmt::format("'{}' is no range of numbers", range));
    }
    if (std::stol(last) - std::stol(first) >= static_cast<long>(kMaxHosts - numbers.size())) {
      refuse_nodes(text, variable, fmt::format("it names more than {} hosts", kMaxHosts));
    }
    for (long i = std::stol(first); i <= std::stol(last); ++i) {
      numbers.push_back(fmt::format("{:0{}}", i, first.size()));
    }
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

// All names of one item, which may have several brackets.
std::vector<std::string> expand_item(std::string_view item, const std::string& text,
                                     const std::string& variable) {
  std::vector<std::string> names = {""};
  while (!item.empty()) {
    const size_t open = item.find('[');
    const std::string_view literal = item.substr(0, open);
    if (literal.find(']') != std::string_view::npos) {
      refuse_nodes(text, variable, "a ']' has no '['");
    }
    for (std::string& name : names) name += literal;
    if (open == std::string_view::npos) break;
    const size_t close = item.find(']', open);
    if (close == std::string_view::npos) refuse_nodes(text, variable, "a '[' has no ']'");
    const std::vector<std::string> numbers =
        expand_ranges(item.substr(open + 1, close - open - 1), text, variable);
    if (names.size() * numbers.size() > kMaxHosts) {
      refuse_nodes(text, variable, fmt::format("it names more than {} hosts", kMaxHosts));
    }
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    item.remove_prefix(close + 1);
  }
  if (names.front().empty()) refuse_nodes(text, variable, "a name is empty");
  return names;
}

}  // namespace

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "none";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "Open MPI";
    case Launcher::slurm:
      return "Slurm";
    case Launcher::pmix:
      return "PMIx";
  }
  return "?";
}

LaunchEnv read_launch_env(const EnvLookup& env) {
  const Reader reader(env);
  if (reader.has_both(kTorchrun.rank, kTorchrun.size)) return read_torchrun(reader);
  if (reader.has_both(kOpenMpi.rank, kOpenMpi.size)) return read_open_mpi(reader);
  // A batch script's shell has the number of a task, too, but no step.
  if (env("SLURM_PROCID") && env("SLURM_STEP_NODELIST")) return read_slurm(reader);
  if (reader.has_both("PMIX_RANK", "PMIX_NAMESPACE")) return read_pmix(reader);
  LaunchEnv single;
  single.local_rank = 0;
  single.local_size = 1;
  single.run_id = "single";
  return single;
}

std::vector<std::string> expand_node_list(const std::string& text, const std::string& variable) {
  std::vector<std::string> hosts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth > 1) refuse_nodes(text, variable, "a '[' stands inside of another");
    if (c != ',' || (depth != 0 && i < text.size())) continue;
    const std::string_view item = std::string_view(text).substr(begin, i - begin);
    for (std::string& name : expand_item(item, text, variable)) hosts.push_back(std::move(name));
    if (hosts.size() > kMaxHosts) {
      refuse_nodes(text, variable, fmt::format("it names more than {} hosts", kMaxHosts));
    }
    begin = i + 1;
  }
  return hosts;
}

}  // namespace moetune::engine
