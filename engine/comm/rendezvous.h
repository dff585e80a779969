// How the processes of a run find each other before they can talk over the fast network: small
// messages over TCP or through a shared folder. Also what they agree on beside the training's own
// communication, such as when a step has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm/launch_env.h"

namespace moetune::engine {

/// For the last rank to reach an operation or a meeting that the first has reached.
constexpr std::chrono::milliseconds kUsualPatience{600'000};

struct RendezvousOptions {
  /// Tells this run from another that uses the same port or folder; the same on all ranks.
  std::string run_id;
  /// For all ranks to come.
  std::chrono::milliseconds join_timeout{120'000};
  std::chrono::milliseconds meet_timeout = kUsualPatience;
};

/// One rank's part in the world of processes. All ranks make the same calls in the same order, from
/// one thread each; `fail` and `check` may come from another. Every call ends: with base::Error
/// when somebody does not come in time or does something else, with base::PeerFailed when another
/// rank has failed or gone. After that all calls throw the same again.
class Rendezvous {
 public:
  static constexpr size_t kMaxBlobBytes = size_t{64} << 10U;

  virtual ~Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// What rank 0 passes in, at most kMaxBlobBytes.
  std::string broadcast(const std::string& blob);
  /// What every rank passes in, by rank; each at most kMaxBlobBytes.
  std::vector<std::string> gather(const std::string& blob);
  /// The largest value that a rank passes in.
  int64_t max(int64_t value);
  void barrier();

  /// Tells the others that this rank cannot go on, so that they need not wait for it.
  void fail(const std::string& reason) noexcept;
  /// Throws when another rank is known to have failed. Waits for nobody.
  void check();

 protected:
  /// What rank 0 makes of the blobs of all ranks.
  using Answer = std::function<std::string(const std::vector<std::string>& blobs)>;

  /// `farewell_timeout`: how long fail() may take.
  Rendezvous(int rank, int size, std::chrono::milliseconds farewell_timeout);

  // What a kind of rendezvous does itself, all with the mutex held.

  /// Brings `blob` to rank 0 and rank 0's answer to everybody.
  virtual std::string meet(const std::string& blob, const Answer& answer) = 0;
  /// Throws when another rank is known to have failed. Waits for nobody.
  virtual void look() = 0;
  /// Tells the others why this rank ends, unless they know of an earlier cause.
  virtual void tell_failure(const std::string& reason) = 0;

  /// Runs `body` unless this rank has failed; what that throws is its failure for good, and the
  /// others are told.
  void guarded(const std::function<void()>& body);
  /// For destructors, when no other thread is left.
  [[nodiscard]] bool has_failed() const { return failure_ != nullptr; }

 private:
  // `call` is compared over the ranks, so that a program that has gone apart stops here.
  std::string meet_for(char call, const std::string& blob, const Answer& answer);

  int rank_;
  int size_;
  std::chrono::milliseconds farewell_timeout_;
  std::mutex mutex_;  ///< guards the failure and everything that the kinds have
  std::exception_ptr failure_;
};

/// A world of one rank.
std::unique_ptr<Rendezvous> join_alone();

/// Through files in `folder`, which all ranks share; it is created when missing. Slower than TCP,
/// most of all on network file systems that look at folders seldom.
std::unique_ptr<Rendezvous> join_by_file(const std::string& folder, int rank, int size,
                                         const RendezvousOptions& options);

/// Over TCP: rank 0 listens on host:port, on this machine only when `host` says localhost. Throws
/// base::UsageError when the name does not resolve or the port is taken.
std::unique_ptr<Rendezvous> join_by_tcp(const std::string& host, int port, int rank, int size,
                                        const RendezvousOptions& options);

/// By what the launcher says: alone, over TCP where it tells rank 0's address, otherwise through
/// `folder`. `world_size` is what the layout needs; throws base::UsageError when another number of
/// processes was started. An empty run_id in the options is the launcher's.
std::unique_ptr<Rendezvous> join_launch(const LaunchEnv& launch, int world_size,
                                        const std::string& folder, RendezvousOptions options = {});

}  // namespace moetune::engine
