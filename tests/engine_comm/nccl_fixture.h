// A world of NCCL ranks as threads over the fake library.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/nccl_comm.h"
#include "tests/engine_comm/processes.h"
#include "tests/fakes/nccl/fake_cudart.h"
#include "tests/fakes/nccl/fake_nccl.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine::testing {

/// Device memory with values in it.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values)
      : size_(values.size()), memory_(fakes::device_memory(values.size() * sizeof(T))) {
    std::copy(values.begin(), values.end(), data());
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  [[nodiscard]] std::vector<T> values() const { return {data(), data() + size_}; }

 private:
  size_t size_;
  std::shared_ptr<char> memory_;
};

/// What one rank of a test has.
struct NcclRank {
  int rank;
  const plan::Layout& layout;
  Rendezvous& rendezvous;
  NcclWorld& world;
  CUstream_st* stream;
  NcclOptions options;
};

/// Ranks as threads; nobody knows them but the fake. Its rules must have been kept.
class NcclTest {
 public:
  NcclTest() { reset(); }
  ~NcclTest() {
    for (const std::string& misuse : fakes::nccl_misuse()) BOOST_ERROR(misuse);
    BOOST_TEST(fakes::num_live_communicators() == 0);
    BOOST_TEST(fakes::num_live_allocations() == 0);
    reset();
  }
  NcclTest(const NcclTest&) = delete;
  NcclTest& operator=(const NcclTest&) = delete;

  NcclOptions options;
  std::function<void(int rank, Rendezvous& rendezvous)> before;  ///< the world is made

  std::vector<Outcome> run(const plan::Layout& layout, const std::function<void(NcclRank&)>& body) {
    const int size = layout.world_size();
    const tests::TempFolder folder;
    std::vector<Outcome> outcomes(static_cast<size_t>(size));
    run_threads(size, [&](int rank) {
      outcomes[static_cast<size_t>(rank)] = outcome_of([&] {
        const auto rendezvous = join_by_file(folder.file("meet"), rank, size, {"nccl"});
        try {
          run_rank(layout, *rendezvous, body);
        } catch (const std::exception& error) {
          rendezvous->fail(error.what());
          throw;
        }
      });
    });
    return outcomes;
  }

  /// All ranks are fine.
  void expect_fine(const plan::Layout& layout, const std::function<void(NcclRank&)>& body) {
    for (const Outcome& outcome : run(layout, body)) BOOST_TEST(outcome.text == "");
    BOOST_TEST(fakes::num_aborted() == 0);
  }

 private:
  static void reset() {
    fakes::reset_cuda();
    fakes::reset_nccl();
  }

  void run_rank(const plan::Layout& layout, Rendezvous& rendezvous,
                const std::function<void(NcclRank&)>& body) {
    const std::shared_ptr<CUstream_st> stream = fakes::make_stream();
    NcclOptions own = options;
    own.stream = [stream = stream.get()] { return stream; };
    if (before) before(rendezvous.rank(), rendezvous);
    const std::unique_ptr<NcclWorld> world = make_nccl_world(layout, rendezvous, own);
    NcclRank rank{rendezvous.rank(), layout, rendezvous, *world, stream.get(), own};
    body(rank);
  }
};

}  // namespace moetune::engine::testing
