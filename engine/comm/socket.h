// TCP sockets that never block longer than they are told to: listening, connecting, whole messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/comm/wire.h"

namespace moetune::engine {

/// A file descriptor with an owner; non-blocking, closed on exec.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// Listens on `port`: on all addresses of this machine, or only on the loopback one when that is
/// what `host` says. Throws base::UsageError when the port is taken or not allowed.
Socket listen_on(const std::string& host, int port);

/// The next connection that waits, if there is one.
std::optional<Socket> accept_from(const Socket& listener);

/// Tries all addresses of `host` once. Empty when nobody listens there yet or `deadline` has
/// passed. Throws base::UsageError when `host` is no name of a machine.
std::optional<Socket> connect_to(const std::string& host, int port, const wire::Deadline& deadline);

/// "10.0.0.7" or "?".
std::string peer_name(const Socket& socket);

/// Waits until `fd` can be read; false when the time is over. A signal does not end the wait.
bool wait_readable(int fd, const wire::Deadline& deadline);

/// A message: what it is, which one, and its bytes.
struct Frame {
  char kind = 0;
  uint32_t sequence = 0;
  std::string payload;
};

/// Messages over a socket. Each begins with a magic word and its length, so that something else on
/// the line is noticed with the first bytes and never believed.
class FrameStream {
 public:
  FrameStream(Socket socket, size_t max_payload_bytes)
      : socket_(std::move(socket)), max_payload_bytes_(max_payload_bytes) {}

  [[nodiscard]] const Socket& socket() const { return socket_; }
  void set_max_payload_bytes(size_t bytes) { max_payload_bytes_ = bytes; }

  /// Takes in what has arrived. False when the other side has closed or is gone; what came before
  /// can still be had from `next`.
  bool pump();
  /// The next whole message. Throws base::Error when the bytes are none.
  std::optional<Frame> next();
  /// False when the other side is gone or does not take it in time.
  bool send(const Frame& frame, const wire::Deadline& deadline);

 private:
  Socket socket_;
  size_t max_payload_bytes_;
  std::string received_;
};

}  // namespace moetune::engine
