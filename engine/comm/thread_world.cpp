// Collectives between threads: every member publishes its pointers and the point on its stream from
// which they are good, all meet, each enqueues copies of what it needs, all meet again, and every
// stream waits for those that still read its buffers.
#include "engine/comm/thread_world.h"

#include <algorithm>
#include <exception>

#include "kernels/base/error.h"

namespace moetune::engine {

void ComputeSlots::acquire() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return num_free_ > 0; });
  --num_free_;
}

void ComputeSlots::release() {
  {
    const std::scoped_lock lock(mutex_);
    ++num_free_;
  }
  freed_.notify_one();
}

/// What the members of one group share.
class ThreadGroup {
 public:
  ThreadGroup(ThreadWorld& world, std::vector<int> ranks)
      : world_(world), ranks_(std::move(ranks)), members_(ranks_.size()) {}

  struct Member {
    const char* send = nullptr;
    char* recv = nullptr;
    const char* send2 = nullptr;
    std::vector<int64_t> send_rows;
    int64_t ready_ns = 0;
    spec::LinkShare links;
    kernels::DeviceEvent ready;    ///< its buffers hold what they should
    kernels::DeviceEvent reduced;  ///< all_reduce: its part of the sum is in its buffer
    kernels::DeviceEvent done;     ///< it has read what it needs
  };

  /// Waits for all members. Gives up this thread's compute slot meanwhile. With `opens_reading` all
  /// members count as reading each other's buffers until each has called end_reading.
  void meet(bool opens_reading = false) {
    std::unique_lock lock(mutex_);
    // Without this check the meeting could count a member that has left by exception.
    if (is_aborted_) leave_failed(lock);
    const int64_t generation = generation_;
    if (++num_waiting_ == ranks_.size()) {
      num_waiting_ = 0;
      if (opens_reading) num_reading_ = ranks_.size();
      ++generation_;
      lock.unlock();
      met_.notify_all();
    } else {
      world_.slots().release();
      met_.wait(lock, [&] { return generation_ != generation || is_aborted_; });
      const bool is_released = generation_ != generation;
      lock.unlock();
      world_.slots().acquire();
      if (is_released) return;
      lock.lock();
      leave_failed(lock);
    }
  }

  /// This member has read what it needs.
  void end_reading() {
    const std::scoped_lock lock(mutex_);
    if (--num_reading_ == 0) met_.notify_all();
  }

  /// A member's buffers end with its call; one that fails stays until nobody reads them.
  void wait_for_readers() {
    std::unique_lock lock(mutex_);
    wait_for_readers(lock);
  }

  void abort() {
    {
      const std::scoped_lock lock(mutex_);
      is_aborted_ = true;
    }
    met_.notify_all();
  }

  [[nodiscard]] int64_t latest_ready_ns() const {
    int64_t latest = 0;
    for (const Member& member : members_) latest = std::max(latest, member.ready_ns);
    return latest;
  }

  /// Of the member that shares them with most.
  [[nodiscard]] spec::LinkShare links() const {
    spec::LinkShare widest;
    for (const Member& member : members_) widest = spec::wider(widest, member.links);
    return widest;
  }

  ThreadWorld& world_;
  std::vector<int> ranks_;
  std::vector<Member> members_;

 private:
  void wait_for_readers(std::unique_lock<std::mutex>& lock) {
    world_.slots().release();
    met_.wait(lock, [this] { return num_reading_ == 0; });
    lock.unlock();
    world_.slots().acquire();
  }

  [[noreturn]] void leave_failed(std::unique_lock<std::mutex>& lock) {
    wait_for_readers(lock);
    throw base::PeerFailed("another rank failed");
  }

  std::mutex mutex_;
  std::condition_variable met_;
  size_t num_waiting_ = 0;
  size_t num_reading_ = 0;
  int64_t generation_ = 0;
  bool is_aborted_ = false;
};

namespace {

/// The part of a collective in which members read each other's buffers; opens with a meeting.
class Reading {
 public:
  explicit Reading(ThreadGroup& group)
      : group_(group), num_exceptions_(std::uncaught_exceptions()) {
    group_.meet(true);
  }
  ~Reading() {
    group_.end_reading();
    if (std::uncaught_exceptions() > num_exceptions_) group_.wait_for_readers();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  ThreadGroup& group_;
  int num_exceptions_;
};

}  // namespace

/// One rank's view of a ThreadGroup.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int index, kernels::Backend& backend)
      : group_(std::move(group)), index_(static_cast<size_t>(index)), backend_(backend) {}
  /// The slots end with this rank: what nobody has read yet nobody will, and who reads is waited
  /// for.
  ~ThreadCommunicator() override {
    if (!has_sent_) return;
    ThreadWorld& world = group_->world_;
    const int own = global(static_cast<int>(index_));
    std::unique_lock lock(world.mutex_);
    for (auto& [place, messages] : world.mailboxes_) {
      if (std::get<0>(place) == own) messages.clear();
    }
    world.changed_.wait(lock, [&] {
      return std::none_of(world.channels_.begin(), world.channels_.end(), [&](const auto& entry) {
        return entry.second.from == own && entry.second.is_being_read;
      });
    });
    std::erase_if(world.channels_, [&](const auto& entry) { return entry.second.from == own; });
  }
  ThreadCommunicator(const ThreadCommunicator&) = delete;
  ThreadCommunicator& operator=(const ThreadCommunicator&) = delete;

  [[nodiscard]] int size() const override { return static_cast<int>(group_->ranks_.size()); }
  [[nodiscard]] int rank() const override { return static_cast<int>(index_); }

  CommTiming all_gather(const void* send, void* recv, int64_t bytes_per_rank,
                        const CommStart& start) override {
    publish(send, recv, start);
    {
      const Reading reading(*group_);
      wait_for_members(&ThreadGroup::Member::ready);
      for (size_t i = 0; i < group_->ranks_.size(); ++i) {
        backend_.copy_on_device(static_cast<char*>(recv) + static_cast<int64_t>(i) * bytes_per_rank,
                                group_->members_[i].send, bytes_per_rank);
      }
    }
    return finish(spec::CollectiveKind::all_gather, bytes_per_rank * size(),
                  bytes_per_rank * (size() - 1));
  }

  CommTiming reduce_scatter(const void* send, void* recv, int64_t numel_per_rank, base::DType dtype,
                            const CommStart& start) override {
    publish(send, recv, start);
    const int64_t bytes = numel_per_rank * base::size_of(dtype);
    meet_and_sum(bytes * static_cast<int64_t>(index_), recv, numel_per_rank, dtype);
    return finish(spec::CollectiveKind::reduce_scatter, bytes * size(), bytes * (size() - 1));
  }

  CommTiming all_reduce(void* data, int64_t numel, base::DType dtype,
                        const CommStart& start) override {
    publish(data, data, start);
    const int64_t part = (numel + size() - 1) / size();
    const auto bounds = [&](int64_t i) { return std::min(numel, part * i); };
    const auto own = static_cast<int64_t>(index_);
    const int64_t own_offset = bounds(own) * base::size_of(dtype);
    // Nobody else reads or writes a member's own part before the second meeting.
    meet_and_sum(own_offset, static_cast<char*>(data) + own_offset, bounds(own + 1) - bounds(own),
                 dtype);
    self().reduced = backend_.record_event();
    {
      const Reading reading(*group_);
      wait_for_members(&ThreadGroup::Member::reduced);
      for (int64_t i = 0; i < size(); ++i) {
        const int64_t offset = bounds(i) * base::size_of(dtype);
        backend_.copy_on_device(static_cast<char*>(data) + offset,
                                group_->members_[static_cast<size_t>(i)].send + offset,
                                (bounds(i + 1) - bounds(i)) * base::size_of(dtype));
      }
    }
    const int64_t bytes = numel * base::size_of(dtype);
    return finish(spec::CollectiveKind::all_reduce, bytes, 2 * bytes * (size() - 1) / size());
  }

  CommTiming all_to_all(std::span<const AllToAllLane> lanes, std::span<const int64_t> send_rows,
                        std::span<const int64_t> recv_rows, const CommStart& start) override {
    MOETUNE_CHECK(!lanes.empty() && lanes.size() <= 2, "an all-to-all moves one or two tensors");
    ThreadGroup::Member& me = self();
    me.send2 = lanes.size() > 1 ? static_cast<const char*>(lanes[1].send) : nullptr;
    me.send_rows.assign(send_rows.begin(), send_rows.end());
    publish(lanes[0].send, lanes[0].recv, start);
    const auto n = static_cast<size_t>(size());
    int64_t row_bytes = 0;
    {
      const Reading reading(*group_);
      wait_for_members(&ThreadGroup::Member::ready);
      for (size_t lane = 0; lane < lanes.size(); ++lane) {
        row_bytes += lanes[lane].row_bytes;
        char* to = static_cast<char*>(lanes[lane].recv);
        for (size_t i = 0; i < n; ++i) {
          const ThreadGroup::Member& peer = group_->members_[i];
          MOETUNE_CHECK(peer.send_rows[index_] == recv_rows[i],
                        "rank {} sends {} rows where {} are expected", i, peer.send_rows[index_],
                        recv_rows[i]);
          int64_t first = 0;
          for (size_t j = 0; j < index_; ++j) first += peer.send_rows[j];
          const char* from = lane == 0 ? peer.send : peer.send2;
          backend_.copy_on_device(to, from + first * lanes[lane].row_bytes,
                                  recv_rows[i] * lanes[lane].row_bytes);
          to += recv_rows[i] * lanes[lane].row_bytes;
        }
      }
    }
    int64_t sent = 0;
    for (size_t j = 0; j < n; ++j) sent += j == index_ ? 0 : send_rows[j] * row_bytes;
    return finish_after(
        [&] {
          std::vector<int64_t> matrix(n * n);
          for (size_t i = 0; i < n; ++i) {
            for (size_t j = 0; j < n; ++j) {
              matrix[i * n + j] = group_->members_[i].send_rows[j] * row_bytes;
            }
          }
          return spec::all_to_all_ns(group_->world_.hardware(), group_->ranks_, matrix,
                                     group_->links());
        },
        sent);
  }

  CommTiming send(int peer, int64_t tag, const void* data, int64_t bytes, const MessageSlots& slots,
                  const CommStart& start) override {
    ThreadWorld& world = group_->world_;
    const auto key = std::pair(global(static_cast<int>(index_)), global(peer));
    has_sent_ = true;
    const auto [channel, number] = take_slot(key.first, slots);
    // Nobody else touches the slot until the message is in its mailbox.
    const auto slot = static_cast<size_t>(number % slots.count);
    char* to = static_cast<char*>(slots.memory) + static_cast<int64_t>(slot) * bytes;
    const ThreadWorld::Channel::Read& read = channel->reads[slot];
    backend_.wait_event(read.end);
    backend_.copy_on_device(to, data, bytes);
    ThreadWorld::Message message;
    message.channel = channel;
    message.data = to;
    message.number = number;
    message.bytes = bytes;
    message.sent = backend_.record_event();
    message.start_ns = std::max(start.ready_ns, read.end_ns);
    message.transfer_ns = spec::p2p_ns(world.hardware(), key.first, key.second, bytes, start.links);
    CommTiming timing;
    {
      const std::scoped_lock lock(world.mutex_);
      message.sequence = world.message_counts_[key]++;
      timing.sequence = message.sequence;
      world.mailboxes_[{key.first, key.second, tag}].push_back(message);
    }
    world.changed_.notify_all();
    timing.transfer_ns = message.transfer_ns;
    timing.end_ns = message.start_ns + message.transfer_ns;
    timing.sent_bytes = bytes;
    if (world.mode() == profiler::ClockMode::wall) timing.end_ns = profiler::wall_ns();
    return timing;
  }

  CommTiming recv(int peer, int64_t tag, void* data, int64_t bytes,
                  const CommStart& start) override {
    ThreadWorld& world = group_->world_;
    const auto key = std::pair(global(peer), global(static_cast<int>(index_)));
    const std::tuple place(key.first, key.second, tag);
    ThreadWorld::Message message;
    {
      world.slots().release();
      std::unique_lock lock(world.mutex_);
      world.changed_.wait(lock,
                          [&] { return world.is_aborted_ || !world.mailboxes_[place].empty(); });
      const bool has_message = !world.mailboxes_[place].empty();
      if (has_message) {
        message = world.mailboxes_[place].front();
        world.mailboxes_[place].pop_front();
        message.channel->is_being_read = true;
      }
      lock.unlock();
      world.slots().acquire();
      if (!has_message) throw base::PeerFailed("another rank failed");
    }
    const MessageReading reading(world, *message.channel);
    MOETUNE_CHECK(message.bytes == bytes, "a message of {} bytes arrived where {} are expected",
                  message.bytes, bytes);
    MOETUNE_CHECK(message.number == message.channel->num_read,
                  "message {} of a channel is read where {} is the next", message.number,
                  message.channel->num_read);
    backend_.wait_event(message.sent);
    backend_.copy_on_device(data, message.data, bytes);
    CommTiming timing;
    timing.sequence = message.sequence;
    // The transfer began when the sender was ready; what had not arrived by then is waited for.
    timing.end_ns = std::max(start.ready_ns, message.start_ns + message.transfer_ns);
    timing.transfer_ns = std::min(message.transfer_ns, timing.end_ns - start.ready_ns);
    {
      const std::scoped_lock lock(world.mutex_);
      ThreadWorld::Channel& channel = *message.channel;
      const auto slot = static_cast<size_t>(channel.num_read++) % channel.reads.size();
      channel.reads[slot] = {timing.end_ns, backend_.record_event()};
    }
    if (world.mode() == profiler::ClockMode::wall) timing.end_ns = profiler::wall_ns();
    return timing;
  }

 private:
  /// From when a message is taken until its slot has been read or the reader has failed.
  class MessageReading {
   public:
    MessageReading(ThreadWorld& world, ThreadWorld::Channel& channel)
        : world_(world), channel_(channel) {}
    ~MessageReading() {
      {
        const std::scoped_lock lock(world_.mutex_);
        channel_.is_being_read = false;
      }
      world_.changed_.notify_all();
    }
    MessageReading(const MessageReading&) = delete;
    MessageReading& operator=(const MessageReading&) = delete;

   private:
    ThreadWorld& world_;
    ThreadWorld::Channel& channel_;
  };

  /// Waits until the receiver has read what lay in the channel's next slot. Gives up this thread's
  /// compute slot meanwhile.
  std::pair<ThreadWorld::Channel*, int64_t> take_slot(int from, const MessageSlots& slots) {
    ThreadWorld& world = group_->world_;
    MOETUNE_CHECK(slots.memory != nullptr && slots.count > 0, "a message without a slot");
    world.slots().release();
    std::unique_lock lock(world.mutex_);
    ThreadWorld::Channel& channel = world.channels_[slots.memory];
    channel.from = from;
    channel.reads.resize(static_cast<size_t>(slots.count));
    world.changed_.wait(lock, [&] {
      return world.is_aborted_ || channel.num_sent - channel.num_read < slots.count;
    });
    const bool is_free = channel.num_sent - channel.num_read < slots.count;
    const int64_t number = channel.num_sent;
    if (is_free) ++channel.num_sent;
    lock.unlock();
    world.slots().acquire();
    if (!is_free) throw base::PeerFailed("another rank failed");
    return {&channel, number};
  }

  ThreadGroup::Member& self() { return group_->members_[index_]; }
  [[nodiscard]] int global(int index) const { return group_->ranks_[static_cast<size_t>(index)]; }

  void publish(const void* send, void* recv, const CommStart& start) {
    ThreadGroup::Member& me = self();
    me.send = static_cast<const char*>(send);
    me.recv = static_cast<char*>(recv);
    me.ready_ns = start.ready_ns;
    me.links = start.links;
    me.ready = backend_.record_event();
  }

  // What comes later on this rank's stream waits for a point on every other member's.
  void wait_for_members(kernels::DeviceEvent ThreadGroup::Member::*point) {
    for (size_t i = 0; i < group_->members_.size(); ++i) {
      if (i != index_) backend_.wait_event(group_->members_[i].*point);
    }
  }

  // target = sum over members of [offset_bytes, numel elements) of their send, in rank order.
  void meet_and_sum(int64_t offset_bytes, void* target, int64_t numel, base::DType dtype) {
    const Reading reading(*group_);
    wait_for_members(&ThreadGroup::Member::ready);
    kernels::SumArgs args;
    for (const ThreadGroup::Member& member : group_->members_) {
      args.sources.push_back(member.send + offset_bytes);
    }
    args.target = target;
    args.numel = numel;
    args.dtype = dtype;
    backend_.sum(args);
  }

  CommTiming finish(spec::CollectiveKind kind, int64_t payload_bytes, int64_t sent_bytes) {
    return finish_after(
        [&] {
          return spec::collective_ns(group_->world_.hardware(), kind, group_->ranks_, payload_bytes,
                                     group_->links());
        },
        sent_bytes);
  }

  // All timings are read before the second meeting: after it members may publish the next call.
  // `transfer`: how long it takes on the emulated cluster; asked for in virtual time only, since
  // the host pays for the answer.
  template <typename Transfer>
  CommTiming finish_after(Transfer&& transfer, int64_t sent_bytes) {
    const bool is_wall = group_->world_.mode() == profiler::ClockMode::wall;
    CommTiming timing;
    timing.sequence = num_calls_++;
    timing.sent_bytes = sent_bytes;
    if (!is_wall) {
      timing.transfer_ns = transfer();
      timing.end_ns = group_->latest_ready_ns() + timing.transfer_ns;
    }
    self().done = backend_.record_event();
    group_->meet();
    // Nobody records the next `done` before all have passed the next meeting.
    wait_for_members(&ThreadGroup::Member::done);
    if (is_wall) timing.end_ns = profiler::wall_ns();
    return timing;
  }

  std::shared_ptr<ThreadGroup> group_;
  size_t index_;
  kernels::Backend& backend_;
  int64_t num_calls_ = 0;
  bool has_sent_ = false;
};

ThreadWorld::ThreadWorld(const spec::HardwareSpec& hardware, const plan::Layout& layout,
                         profiler::ClockMode mode, int num_slots)
    : hardware_(hardware), layout_(layout), mode_(mode), slots_(num_slots) {
  std::vector<int> all(static_cast<size_t>(layout.world_size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  // A group of its own for join_max, so that it never mixes with traced collectives.
  groups_[{plan::Group::world, -1}] = std::make_shared<ThreadGroup>(*this, all);
}

std::unique_ptr<Communicator> ThreadWorld::communicator(plan::Group group, int rank,
                                                        kernels::Backend& backend) {
  const std::vector<int> ranks = layout_.group_ranks(group, rank);
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  if (place == ranks.end()) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (is_aborted_) throw base::PeerFailed("another rank failed");
  std::shared_ptr<ThreadGroup>& shared = groups_[{group, ranks.front()}];
  if (!shared) shared = std::make_shared<ThreadGroup>(*this, ranks);
  return std::make_unique<ThreadCommunicator>(shared, static_cast<int>(place - ranks.begin()),
                                              backend);
}

int64_t ThreadWorld::join_max(int64_t value) {
  std::shared_ptr<ThreadGroup> all;
  {
    const std::scoped_lock lock(mutex_);
    all = groups_[{plan::Group::world, -1}];
    if (is_aborted_) throw base::PeerFailed("another rank failed");
    join_values_.push_back(value);
  }
  all->meet();
  int64_t largest = value;
  {
    const std::scoped_lock lock(mutex_);
    for (const int64_t other : join_values_) largest = std::max(largest, other);
  }
  all->meet();
  {
    const std::scoped_lock lock(mutex_);
    join_values_.clear();
  }
  all->meet();
  return largest;
}

void ThreadWorld::abort(const std::string& /*reason*/) noexcept {
  std::unique_lock lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
  // One after the other, not all copied first: memory may be what has run out. No group is taken
  // out, so the place in the map stays.
  for (auto at = groups_.begin(); at != groups_.end(); ++at) {
    const std::shared_ptr<ThreadGroup> group = at->second;
    lock.unlock();
    group->abort();
    lock.lock();
  }
}

}  // namespace moetune::engine
