#include "engine/work_recorder.h"

#include <utility>

namespace moetune::engine {

bool WorkRecorder::is_for(const spec::TrialSpec& trial) {
  return trial.clock == spec::ClockMode::virtual_measured &&
         spec::ranks_of(trial) == spec::RanksAre::threads;
}

WorkRecorder::WorkRecorder(const std::vector<int>& ranks) {
  for (const int rank : ranks) ranks_[rank];
}

std::vector<int64_t>* WorkRecorder::begin(int rank) {
  OfRank& own = ranks_.at(rank);
  own.work = {};
  own.work.probe_ns.push_back(own.probe.run());
  return &own.work.durations_ns;
}

void WorkRecorder::on_route(int rank, int64_t /*layer*/, int64_t /*micro_batch*/,
                            const plan::Route& route) {
  std::vector<int64_t>& rows = ranks_.at(rank).work.routed_rows;
  for (const auto* direction : {&route.forward, &route.backward}) {
    for (const plan::ChunkRoute& chunk : *direction) {
      rows.insert(rows.end(), chunk.send_rows.begin(), chunk.send_rows.end());
      rows.insert(rows.end(), chunk.recv_rows.begin(), chunk.recv_rows.end());
    }
  }
}

store::ShardWork WorkRecorder::end(int rank, int64_t step) {
  OfRank& own = ranks_.at(rank);
  own.work.probe_ns.push_back(own.probe.run());
  own.work.rank = rank;
  own.work.step = step;
  return std::exchange(own.work, {});
}

}  // namespace moetune::engine
