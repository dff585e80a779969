#include "sweeps/processes/trial_commands.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <random>

#include "engine/plan/layout.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

// The shell passes SIGTERM on, so that the launcher can end its ranks, on other hosts, too, and
// waits for it: the signal comes when the trial is to end, or when this program has died.
// What torchrun has told this program is nothing to a launcher's ranks.
constexpr const char* kLauncherScript = R"(trap 'trap : TERM; asked=1; kill -TERM 0' TERM
unset asked RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK ROLE_RANK TORCHELASTIC_RUN_ID \
  TORCHELASTIC_RESTART_COUNT TORCHELASTIC_USE_AGENT_STORE
[ -z "$asked" ] || exit 143
{} &
launcher=$!
while :; do wait $launcher; code=$?; kill -0 $launcher 2>/dev/null || exit $code; done)";

using Values = std::map<std::string, int64_t>;

Values values_of(const spec::TrialSpec& trial) {
  const int64_t ranks = plan::layout_of(trial.knobs).world_size();
  const int64_t nodes = std::min<int64_t>(std::max<int64_t>(trial.hardware.num_nodes, 1), ranks);
  return {{"ranks", ranks}, {"nodes", nodes}, {"ranks_per_node", (ranks + nodes - 1) / nodes}};
}

/// The launcher's command with its placeholders replaced. ${...} is the shell's.
std::string filled(const std::string& launcher, const Values& values) {
  std::string text;
  size_t at = 0;
  while (true) {
    const size_t open = launcher.find('{', at);
    text += launcher.substr(at, open - at);
    if (open == std::string::npos) return text;
    const size_t close = launcher.find('}', open);
    const bool is_shell = open > 0 && launcher[open - 1] == '$';
    const std::string name =
        close == std::string::npos ? "" : launcher.substr(open + 1, close - open - 1);
    const auto found = values.find(name);
    if (is_shell && close != std::string::npos) {
      text += launcher.substr(open, close - open + 1);
    } else if (found == values.end()) {
      throw base::UsageError(
          fmt::format("--launch '{}': '{{{}' is none of {{ranks}}, {{nodes}}, {{ranks_per_node}}",
                      launcher, launcher.substr(open + 1, 20)));
    } else {
      text += std::to_string(found->second);
    }
    at = close + 1;
  }
}

bool can_listen(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool is_bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return is_bound;
}

// Below the ports that systems hand out on their own: between this look and rank 0's call, only
// another program that listens there can take it.
int free_port() {
  constexpr int kFirst = 20000;
  constexpr int kLast = 29999;
  constexpr int kMostTries = 200;
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirst, kLast);
  for (int i = 0; i < kMostTries; ++i) {
    const int port = any(random);
    if (can_listen(port)) return port;
  }
  throw base::Error(
      fmt::format("no port from {} to {} is free for the ranks to meet", kFirst, kLast));
}

/// The ranks of one host, as torchrun would start them.
std::vector<Command> rank_commands(const Command& rank_command, size_t num_ranks,
                                   const TrialFolder& folder) {
  const int port = free_port();
  std::vector<Command> commands;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    Command command = rank_command;
    command.environment = {
        fmt::format("RANK={}", rank),
        fmt::format("LOCAL_RANK={}", rank),
        fmt::format("WORLD_SIZE={}", num_ranks),
        fmt::format("LOCAL_WORLD_SIZE={}", num_ranks),
        "MASTER_ADDR=127.0.0.1",
        fmt::format("MASTER_PORT={}", port),
        fmt::format("TORCHELASTIC_RUN_ID=moetune-{}-{}", getpid(), port),
        "TORCHELASTIC_RESTART_COUNT=0",
        "TORCHELASTIC_USE_AGENT_STORE=False",
    };
    command.stdout_path = folder.stdout_file(rank);
    command.stderr_path = folder.stderr_file(rank);
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace

std::string TrialCommands::text() const {
  if (is_launcher) return launcher_line;
  const std::string first = shell_line(commands.front());
  if (commands.size() == 1) return first;
  return fmt::format("{}\n(and so on, up to RANK={})", first, commands.size() - 1);
}

void check_launcher(const std::string& launcher) {
  if (launcher.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw base::UsageError("--launch is empty; expected a command such as 'srun --ntasks={ranks}'");
  }
  static_cast<void>(filled(launcher, {{"ranks", 1}, {"nodes", 1}, {"ranks_per_node", 1}}));
}

void check_has_launcher(const spec::TrialSpec& trial, const std::string& launcher) {
  const int64_t num_ranks = plan::layout_of(trial.knobs).world_size();
  if (spec::ranks_of(trial) != spec::RanksAre::processes || !launcher.empty() ||
      num_ranks <= trial.hardware.devices_per_node) {
    return;
  }
  throw base::UsageError(fmt::format(
      "{} ranks with {} GPUs on a node need several nodes, and this program starts processes on "
      "this machine only: name a launcher, such as --launch 'srun --nodes={{nodes}} "
      "--ntasks={{ranks}}'",
      num_ranks, trial.hardware.devices_per_node));
}

TrialCommands trial_commands(const spec::TrialSpec& trial, const std::string& rank_program,
                             const std::string& launcher, const TrialFolder& folder,
                             std::chrono::milliseconds step_limit) {
  // Whoever started the ranks ends them first, where it can.
  constexpr std::chrono::seconds kLonger{10};
  Command rank_command = local_command(rank_program, folder);
  if (spec::ranks_of(trial) != spec::RanksAre::processes) return {{rank_command}, false, ""};
  check_has_launcher(trial, launcher);
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(step_limit) + kLonger;
  for (const std::string& word : {std::string("--step-timeout"), std::to_string(limit.count())}) {
    rank_command.arguments.push_back(word);
  }
  if (launcher.empty()) {
    const auto num_ranks = static_cast<size_t>(plan::layout_of(trial.knobs).world_size());
    return {rank_commands(rank_command, num_ranks, folder), false, ""};
  }
  const std::string line =
      fmt::format("{} {}", filled(launcher, values_of(trial)), shell_line(rank_command));
  Command command = rank_command;
  command.arguments = {"/bin/sh", "-c", fmt::format(kLauncherScript, line)};
  command.death_signal = SIGTERM;
  return {{command}, true, line};
}

}  // namespace moetune::sweeps
