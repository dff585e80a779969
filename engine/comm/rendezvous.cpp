// What does not depend on how messages travel: gathering, agreeing and telling whose fault an end
// is.
#include "engine/comm/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/comm/wire.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

const char* name_of_call(char call) {
  switch (call) {
    case 'B':
      return "a broadcast";
    case 'G':
      return "a gathering";
    case 'M':
      return "a maximum";
    case 'S':
      return "a barrier";
  }
  return "something unknown";
}

class Alone final : public Rendezvous {
 public:
  Alone() : Rendezvous(0, 1, std::chrono::milliseconds(0)) {}

 protected:
  std::string meet(const std::string& blob, const Answer& answer) override {
    return answer({blob});
  }
  void look() override {}
  void tell_failure(const std::string& /*reason*/) override {}
};

}  // namespace

Rendezvous::Rendezvous(int rank, int size, std::chrono::milliseconds farewell_timeout)
    : rank_(rank), size_(size), farewell_timeout_(farewell_timeout) {
  MOETUNE_CHECK(rank >= 0 && rank < size, "rank {} is not in a world of {}", rank, size);
}

std::string Rendezvous::meet_for(char call, const std::string& blob, const Answer& answer) {
  MOETUNE_CHECK(blob.size() <= kMaxBlobBytes, "a message of {} bytes; {} are the most", blob.size(),
                kMaxBlobBytes);
  const auto answer_if_alike = [&](const std::vector<std::string>& blobs) {
    std::vector<std::string> bare;
    bare.reserve(blobs.size());
    for (size_t rank = 0; rank < blobs.size(); ++rank) {
      const char other = blobs[rank].empty() ? '?' : blobs[rank].front();
      if (other != call) {
        throw base::Error(fmt::format("rank {} has come to {} where rank 0 is at {}", rank,
                                      name_of_call(other), name_of_call(call)));
      }
      bare.push_back(blobs[rank].substr(1));
    }
    return answer(bare);
  };
  const std::scoped_lock lock(mutex_);
  std::string result;
  guarded([&] { result = meet(call + blob, answer_if_alike); });
  return result;
}

void Rendezvous::guarded(const std::function<void()>& body) {
  if (failure_) std::rethrow_exception(failure_);
  try {
    body();
  } catch (const std::exception& error) {
    // A rank alone has nobody to tell and may try again.
    if (size_ == 1) throw;
    failure_ = std::current_exception();
    tell_failure(error.what());
    throw;
  }
}

void Rendezvous::fail(const std::string& reason) noexcept {
  if (size_ == 1) return;
  try {
    const wire::Deadline deadline(farewell_timeout_);
    std::unique_lock lock(mutex_, std::try_to_lock);
    while (!lock.owns_lock()) {
      if (deadline.is_past()) return;  // a meeting is on, and ends by its own timeout
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)lock.try_lock();
    }
    if (failure_) return;
    failure_ = std::make_exception_ptr(base::PeerFailed("this rank has failed: " + reason));
    tell_failure(fmt::format("rank {} failed: {}", rank_, reason));
  } catch (...) {
    // The others find out by their timeouts, or when a connection closes.
  }
}

void Rendezvous::check() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // a meeting is on, which notices by itself
  guarded([&] { look(); });
}

std::string Rendezvous::broadcast(const std::string& blob) {
  const std::string own = rank_ == 0 ? blob : std::string();
  return meet_for('B', own, [](const std::vector<std::string>& blobs) { return blobs.front(); });
}

std::vector<std::string> Rendezvous::gather(const std::string& blob) {
  const std::string all = meet_for('G', blob, [](const std::vector<std::string>& blobs) {
    std::string joined;
    for (const std::string& one : blobs) {
      wire::put_u32(joined, static_cast<uint32_t>(one.size()));
      joined += one;
    }
    return joined;
  });
  wire::Parser parser(all);
  std::vector<std::string> blobs;
  for (int rank = 0; rank < size_; ++rank) blobs.push_back(parser.bytes(parser.u32()));
  parser.finish();
  return blobs;
}

int64_t Rendezvous::max(int64_t value) {
  std::string own;
  wire::put_u64(own, static_cast<uint64_t>(value));
  const std::string largest = meet_for('M', own, [&](const std::vector<std::string>& blobs) {
    int64_t most = value;
    for (const std::string& blob : blobs) {
      wire::Parser parser(blob);
      most = std::max(most, static_cast<int64_t>(parser.u64()));
      parser.finish();
    }
    std::string result;
    wire::put_u64(result, static_cast<uint64_t>(most));
    return result;
  });
  wire::Parser parser(largest);
  const auto most = static_cast<int64_t>(parser.u64());
  parser.finish();
  return most;
}

void Rendezvous::barrier() {
  meet_for('S', "", [](const std::vector<std::string>& /*blobs*/) { return std::string(); });
}

std::unique_ptr<Rendezvous> join_alone() { return std::make_unique<Alone>(); }

std::unique_ptr<Rendezvous> join_launch(const LaunchEnv& launch, int world_size,
                                        const std::string& folder, RendezvousOptions options) {
  if (launch.world_size != 0 && launch.world_size != world_size) {
    throw base::UsageError(fmt::format(
        "{} processes were started (by {}) where the layout needs {}; it would be right: one "
        "process for each rank",
        launch.world_size, name_of(launch.launcher), world_size));
  }
  if (launch.rank >= world_size) {
    throw base::UsageError(fmt::format("this process is rank {} (by {}) where the layout has {}",
                                       launch.rank, name_of(launch.launcher), world_size));
  }
  if (world_size == 1) return join_alone();
  if (options.run_id.empty()) options.run_id = launch.run_id;
  if (!launch.master_addr.empty()) {
    return join_by_tcp(launch.master_addr, launch.master_port, launch.rank, world_size, options);
  }
  return join_by_file(folder, launch.rank, world_size, options);
}

}  // namespace moetune::engine
