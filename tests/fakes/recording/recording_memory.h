// The blocks that a rank's memory gives out and takes back, on the tape of its device.
#pragma once

#include "engine/memory/device_memory.h"
#include "tests/fakes/recording/tape.h"

namespace moetune::recording {

class RecordingMemory final : public engine::MemoryObserver {
 public:
  explicit RecordingMemory(Tape& tape) : tape_(tape) {}

  void on_allocate(engine::MemoryGroup group, engine::Sizing sizing, const void* at,
                   int64_t bytes) override {
    tape_.push_back({"allocate",
                     -1,
                     {bytes_at("block", at, bytes)},
                     {{"group", static_cast<int64_t>(group)},
                      {"is_routed", sizing == engine::Sizing::routed ? 1 : 0}}});
  }
  void on_release(engine::MemoryGroup group, const void* at, int64_t bytes) override {
    tape_.push_back(
        {"release", -1, {bytes_at("block", at, bytes)}, {{"group", static_cast<int64_t>(group)}}});
  }

 private:
  Tape& tape_;
};

}  // namespace moetune::recording
