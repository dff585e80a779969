// The rendezvous over TCP, a star: rank 0 listens, the others connect and say who they are, and
// every meeting is one message to rank 0 and one back. See rendezvous.h.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <list>
#include <thread>

#include "engine/comm/rendezvous.h"
#include "engine/comm/socket.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using std::chrono::milliseconds;
using wire::Deadline;
using wire::seconds;
using wire::with_grace;

// Kinds of messages.
constexpr char kHello = 'H';    ///< to rank 0: rank, world size, run id
constexpr char kWelcome = 'W';  ///< everybody is there
constexpr char kRefused = 'R';  ///< not part of this run; the reason
constexpr char kBlob = 'M';     ///< a rank's share of a meeting
constexpr char kAnswer = 'A';   ///< rank 0's
constexpr char kFailed = 'F';   ///< cannot go on; the reason
constexpr char kBye = 'B';      ///< has ended as planned

constexpr const char* kNobodyListens = "nobody listens there";
constexpr size_t kMaxRunIdBytes = 256;
constexpr size_t kMaxHelloBytes = 8 + kMaxRunIdBytes;
constexpr size_t kMaxReasonBytes = 4096;
constexpr size_t kMaxPending = 256;
constexpr milliseconds kHelloTimeout{5'000};
constexpr milliseconds kTcpFarewell{1'000};

std::string cut_reason(const std::string& reason) { return reason.substr(0, kMaxReasonBytes); }

/// What both sides share.
class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(int rank, int size, const RendezvousOptions& options, std::string place)
      : Rendezvous(rank, size, kTcpFarewell), options_(options), place_(std::move(place)) {
    if (options_.run_id.size() > kMaxRunIdBytes) options_.run_id.resize(kMaxRunIdBytes);
  }

 protected:
  RendezvousOptions options_;
  std::string place_;  ///< host:port, for messages
  uint32_t sequence_ = 0;
};

class Root final : public TcpRendezvous {
 public:
  Root(const std::string& host, int port, int size, const RendezvousOptions& options)
      : TcpRendezvous(0, size, options, fmt::format("{}:{}", host, port)),
        peers_(static_cast<size_t>(size)) {
    const Socket listener = listen_on(host, port);
    guarded([&] { wait_for_everybody(listener); });
  }

  ~Root() override {
    if (!has_failed()) tell({kBye, 0, ""});
  }

 private:
  struct Peer {
    std::optional<FrameStream> stream;
    std::optional<std::string> blob;  ///< of the meeting to come
    bool has_left = false;
  };
  struct Pending {
    FrameStream stream;
    Deadline deadline;
  };

  void wait_for_everybody(const Socket& listener) {
    const Deadline deadline(options_.join_timeout);
    while (!missing().empty()) {
      if (deadline.is_past()) throw base::Error(describe_missing());
      wait(deadline, &listener);
      for (size_t rank = 1; rank < peers_.size(); ++rank) watch_joined(static_cast<int>(rank));
      admit(listener);
      greet();
    }
    pending_.clear();
    broadcast_frame({kWelcome, 0, ""}, Deadline(options_.join_timeout));
  }

  std::string meet(const std::string& blob, const Answer& answer) override {
    const Deadline deadline(options_.meet_timeout);
    peers_[0].blob = blob;
    while (true) {
      look();
      std::vector<int> late;
      for (size_t rank = 1; rank < peers_.size(); ++rank) {
        if (peers_[rank].blob) continue;
        if (peers_[rank].has_left) throw base::PeerFailed(fmt::format("rank {} has ended", rank));
        late.push_back(static_cast<int>(rank));
      }
      if (late.empty()) break;
      if (deadline.is_past()) {
        throw base::Error(fmt::format("rank {} of {} did not come to a meeting within {} s",
                                      wire::list_of(late), size(), seconds(options_.meet_timeout)));
      }
      wait(deadline, nullptr);
    }
    std::vector<std::string> blobs;
    for (Peer& peer : peers_) {
      blobs.push_back(std::move(*peer.blob));
      peer.blob.reset();
    }
    const std::string result = answer(blobs);
    broadcast_frame({kAnswer, sequence_++, result}, deadline);
    return result;
  }

  // Takes in what the joined ranks have sent.
  void look() override {
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      if (peer.has_left) continue;
      const bool is_alive = peer.stream->pump();
      while (!peer.has_left) {
        const std::optional<Frame> frame = peer.stream->next();
        if (!frame) break;
        take(static_cast<int>(rank), *frame);
      }
      if (!is_alive && !peer.has_left) {
        throw base::PeerFailed(fmt::format("rank {} is gone: its connection has closed", rank));
      }
    }
  }

  void take(int rank, const Frame& frame) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (frame.kind == kFailed) throw base::PeerFailed(cut_reason(frame.payload));
    if (frame.kind == kBye) {
      peer.has_left = true;
    } else if (frame.kind == kBlob && frame.sequence == sequence_ && !peer.blob) {
      peer.blob = frame.payload;
    } else {
      throw base::Error(fmt::format("rank {} sends a message out of turn", rank));
    }
  }

  void tell_failure(const std::string& reason) override { tell({kFailed, 0, cut_reason(reason)}); }

  // To all who are still there, without complaint about the others.
  void tell(const Frame& frame) {
    const Deadline deadline(kTcpFarewell);
    for (Peer& peer : peers_) {
      if (peer.stream) peer.stream->send(frame, deadline);
    }
  }

  void broadcast_frame(const Frame& frame, const Deadline& deadline) {
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank].stream->send(frame, deadline)) {
        throw base::PeerFailed(fmt::format("rank {} is gone: it takes no message", rank));
      }
    }
  }

  // Until something arrives anywhere.
  void wait(const Deadline& deadline, const Socket* listener) {
    std::vector<pollfd> entries;
    if (listener != nullptr) entries.push_back({listener->fd(), POLLIN, 0});
    for (const Pending& pending : pending_) {
      entries.push_back({pending.stream.socket().fd(), POLLIN, 0});
    }
    for (const Peer& peer : peers_) {
      if (peer.stream && !peer.has_left && !peer.blob) {
        entries.push_back({peer.stream->socket().fd(), POLLIN, 0});
      }
    }
    // The pause bounds how late a silent newcomer is thrown out.
    (void)::poll(entries.data(), entries.size(), deadline.left_ms(500));
  }

  void admit(const Socket& listener) {
    while (std::optional<Socket> socket = accept_from(listener)) {
      if (pending_.size() >= kMaxPending) pending_.pop_front();
      pending_.push_back(
          {FrameStream(std::move(*socket), kMaxHelloBytes), Deadline(kHelloTimeout)});
    }
  }

  // Newcomers say who they are, or are thrown out. Nothing that they send may end the run.
  void greet() {
    for (auto at = pending_.begin(); at != pending_.end();) {
      bool is_done = false;
      try {
        const bool is_alive = at->stream.pump();
        if (const std::optional<Frame> frame = at->stream.next()) {
          is_done = true;
          receive_hello(*frame, at->stream);
        } else if (!is_alive || at->deadline.is_past()) {
          is_done = true;
          last_refusal_ =
              fmt::format("{} connected and did not say who it is", peer_name(at->stream.socket()));
        }
      } catch (const base::Error& error) {
        is_done = true;
        last_refusal_ =
            fmt::format("{} was refused: {}", peer_name(at->stream.socket()), error.what());
      }
      at = is_done ? pending_.erase(at) : std::next(at);
    }
  }

  void receive_hello(const Frame& frame, FrameStream& stream) {
    if (frame.kind != kHello) throw base::Error("its first message is no greeting");
    wire::Parser parser(frame.payload);
    const uint32_t rank = parser.u32();
    const uint32_t world_size = parser.u32();
    const std::string run_id = parser.rest();
    std::string reason;
    if (run_id != options_.run_id) {
      reason = fmt::format("it belongs to another run ('{}')", run_id);
    } else if (world_size != static_cast<uint32_t>(size())) {
      reason = fmt::format("it expects {} ranks where there are {}", world_size, size());
    } else if (rank == 0 || rank >= world_size) {
      reason = fmt::format("there is no rank {} to be had", rank);
    } else if (peers_[rank].stream) {
      reason = fmt::format("rank {} has already come, from {}", rank,
                           peer_name(peers_[rank].stream->socket()));
    }
    if (!reason.empty()) {
      stream.send({kRefused, 0, reason}, Deadline(kTcpFarewell));
      throw base::Error(reason);
    }
    stream.set_max_payload_bytes(std::max(kMaxBlobBytes, kMaxReasonBytes) + 1);
    peers_[rank].stream.emplace(std::move(stream));
  }

  // A rank that goes away before the others have come may come again.
  void watch_joined(int rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!peer.stream) return;
    const bool is_alive = peer.stream->pump();
    if (const std::optional<Frame> frame = peer.stream->next()) {
      throw base::PeerFailed(frame->kind == kFailed
                                 ? cut_reason(frame->payload)
                                 : fmt::format("rank {} sends a message out of turn", rank));
    }
    if (!is_alive) peer.stream.reset();
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank].stream) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  [[nodiscard]] std::string describe_missing() const {
    std::string text =
        fmt::format("rank {} of {} did not come to {} within {} s", wire::list_of(missing()),
                    size(), place_, seconds(options_.join_timeout));
    if (!last_refusal_.empty()) text += "; " + last_refusal_;
    return text;
  }

  std::vector<Peer> peers_;  ///< by rank; that of rank 0 has no stream
  std::list<Pending> pending_;
  std::string last_refusal_;
};

class Leaf final : public TcpRendezvous {
 public:
  Leaf(const std::string& host, int port, int rank, int size, const RendezvousOptions& options)
      : TcpRendezvous(rank, size, options, fmt::format("{}:{}", host, port)),
        stream_(Socket(), max_answer_bytes(size)) {
    const Deadline deadline(options_.join_timeout);
    milliseconds pause{20};
    std::string last_trouble = kNobodyListens;
    while (!join_once(host, port, deadline, last_trouble)) {
      if (deadline.is_past()) {
        throw base::Error(fmt::format("rank {} did not find rank 0 at {} within {} s: {}", rank,
                                      place_, seconds(options_.join_timeout), last_trouble));
      }
      std::this_thread::sleep_for(std::min(pause, milliseconds(deadline.left_ms())));
      pause = std::min(2 * pause, milliseconds(500));
    }
  }

  ~Leaf() override {
    if (!has_failed()) stream_.send({kBye, 0, ""}, Deadline(kTcpFarewell));
  }

 private:
  static size_t max_answer_bytes(int size) {
    return std::max(kMaxReasonBytes, static_cast<size_t>(size) * (kMaxBlobBytes + 4));
  }

  // False when it is worth trying again.
  bool join_once(const std::string& host, int port, const Deadline& deadline,
                 std::string& trouble) {
    std::optional<Socket> socket = connect_to(host, port, deadline);
    if (!socket) return false;
    stream_ = FrameStream(std::move(*socket), max_answer_bytes(size()));
    std::string hello;
    wire::put_u32(hello, static_cast<uint32_t>(rank()));
    wire::put_u32(hello, static_cast<uint32_t>(size()));
    hello += options_.run_id;
    if (!stream_.send({kHello, 0, hello}, deadline)) return false;
    const Deadline welcome_deadline(with_grace(milliseconds(deadline.left_ms())));
    std::optional<Frame> frame;
    try {
      frame = wait_for_frame(welcome_deadline);
    } catch (const base::Error& error) {
      // Another program may have the port for the moment; rank 0 will say so when it finds it.
      trouble = error.what();
      return false;
    }
    if (!frame) {
      // The last try may have had no time left; then an earlier one knows more.
      if (!welcome_deadline.is_past()) {
        trouble = "it closed the connection";
      } else if (trouble == kNobodyListens) {
        trouble = "it answers nothing";
      }
      return false;
    }
    if (frame->kind == kWelcome) return true;
    if (frame->kind == kFailed) throw base::PeerFailed(cut_reason(frame->payload));
    if (frame->kind == kRefused) {
      throw base::Error(fmt::format("rank {} of run '{}' was refused by {}: {}", rank(),
                                    options_.run_id, place_, cut_reason(frame->payload)));
    }
    trouble = "it answers out of turn";
    return false;
  }

  // Empty when the connection closes or the time is over.
  std::optional<Frame> wait_for_frame(const Deadline& deadline) {
    while (true) {
      const bool is_alive = stream_.pump();
      if (std::optional<Frame> frame = stream_.next()) return frame;
      if (!is_alive || !wait_readable(stream_.socket().fd(), deadline)) return std::nullopt;
    }
  }

  std::string meet(const std::string& blob, const Answer& /*answer*/) override {
    const Deadline deadline(with_grace(options_.meet_timeout));
    if (has_root_left_) throw base::PeerFailed("rank 0 has ended");
    // Also when the message does not get away: what rank 0 has said last tells why.
    stream_.send({kBlob, sequence_, blob}, deadline);
    const std::optional<Frame> frame = wait_for_frame(deadline);
    if (!frame && deadline.is_past()) {
      throw base::Error(fmt::format("rank 0 at {} did not answer within {} s", place_,
                                    seconds(with_grace(options_.meet_timeout))));
    }
    if (!frame) throw base::PeerFailed("rank 0 is gone: its connection has closed");
    if (frame->kind == kFailed) throw base::PeerFailed(cut_reason(frame->payload));
    if (frame->kind == kBye) throw base::PeerFailed("rank 0 has ended");
    if (frame->kind != kAnswer || frame->sequence != sequence_) {
      throw base::Error("rank 0 sends a message out of turn");
    }
    ++sequence_;
    return frame->payload;
  }

  void look() override {
    if (has_root_left_) return;
    const bool is_alive = stream_.pump();
    if (const std::optional<Frame> frame = stream_.next()) {
      if (frame->kind == kFailed) throw base::PeerFailed(cut_reason(frame->payload));
      if (frame->kind != kBye) throw base::Error("rank 0 sends a message out of turn");
      has_root_left_ = true;
    } else if (!is_alive) {
      throw base::PeerFailed("rank 0 is gone: its connection has closed");
    }
  }

  void tell_failure(const std::string& reason) override {
    stream_.send({kFailed, 0, cut_reason(reason)}, Deadline(kTcpFarewell));
  }

  FrameStream stream_;
  bool has_root_left_ = false;
};

}  // namespace

std::unique_ptr<Rendezvous> join_by_tcp(const std::string& host, int port, int rank, int size,
                                        const RendezvousOptions& options) {
  if (size == 1) return join_alone();
  if (rank == 0) return std::make_unique<Root>(host, port, size, options);
  return std::make_unique<Leaf>(host, port, rank, size, options);
}

}  // namespace moetune::engine
