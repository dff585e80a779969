// System calls on sockets behind poll, so that each of them has a deadline.
#include "engine/comm/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

constexpr std::string_view kMagic = "MTR1";
constexpr size_t kHeaderBytes = 16;
constexpr int kBacklog = 1024;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Null when the name server has no answer at the moment.
Addresses resolve(const char* host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
  if (error == EAI_AGAIN) return nullptr;
  if (error != 0) {
    throw base::UsageError(fmt::format(
        "the address of rank 0, '{}' (MASTER_ADDR), cannot be resolved: {}; it must be the name or "
        "the IP address of the machine of rank 0",
        host == nullptr ? "*" : host, gai_strerror(error)));
  }
  return Addresses(list);
}

Socket open_socket(const addrinfo& address) {
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         address.ai_protocol));
  return socket;
}

void set_option(const Socket& socket, int level, int option, int value) {
  // What cannot be set makes things slower, not wrong.
  (void)::setsockopt(socket.fd(), level, option, &value, sizeof(value));
}

void set_stream_options(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // A machine that is switched off says no goodbye: found out within a minute or so.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool is_loopback_name(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// False when the time is over.
bool wait_for(int fd, short events, const wire::Deadline& deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, deadline.left_ms());
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return true;  // the call that follows says what it is
    if (deadline.is_past()) return false;
  }
}

// Connecting to a free port of this machine can end up connected to oneself.
bool is_own_echo(const Socket& socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_bytes = sizeof(own);
  socklen_t peer_bytes = sizeof(peer);
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
         own_bytes == peer_bytes && std::memcmp(&own, &peer, own_bytes) == 0;
}

}  // namespace

void Socket::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Socket listen_on(const std::string& host, int port) {
  // A machine's own name may stand for its loopback address in its own list of hosts while the
  // others reach it by another, so anything but a plain "this machine" means all addresses.
  const bool is_local = is_loopback_name(host);
  const Addresses list = resolve(is_local ? host.c_str() : nullptr, port, AI_PASSIVE);
  int error = EADDRNOTAVAIL;
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      if (at->ai_family != family) continue;
      Socket socket = open_socket(*at);
      if (!socket.is_open()) continue;
      set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
      if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, is_local ? 1 : 0);
      if (::bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 &&
          ::listen(socket.fd(), kBacklog) == 0) {
        return socket;
      }
      // A taken port must not pass because the other family's is free.
      if (errno == EADDRINUSE || errno == EACCES) {
        const char* what = errno == EACCES ? "is not allowed to this user" : "is in use";
        throw base::UsageError(fmt::format(
            "rank 0 cannot listen on port {}: it {}; set MASTER_PORT to a free port", port, what));
      }
      error = errno;
    }
  }
  throw base::Error(
      fmt::format("rank 0 cannot listen on {}:{}: {}", host, port, std::strerror(error)));
}

std::optional<Socket> accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.is_open()) return std::nullopt;
  set_stream_options(socket);
  return socket;
}

std::optional<Socket> connect_to(const std::string& host, int port,
                                 const wire::Deadline& deadline) {
  const Addresses list = resolve(host.c_str(), port, 0);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Socket socket = open_socket(*at);
    if (!socket.is_open()) continue;
    if (::connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0) {
      if (errno != EINPROGRESS && errno != EINTR) continue;
      if (!wait_for(socket.fd(), POLLOUT, deadline.or_earlier(std::chrono::seconds(5)))) continue;
      int error = 0;
      socklen_t bytes = sizeof(error);
      if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        continue;
      }
    }
    if (is_own_echo(socket)) continue;
    set_stream_options(socket);
    return socket;
  }
  return std::nullopt;
}

std::string peer_name(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  std::array<char, NI_MAXHOST> name{};
  if (::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, name.data(), name.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  return name.data();
}

bool wait_readable(int fd, const wire::Deadline& deadline) {
  return wait_for(fd, POLLIN, deadline);
}

bool FrameStream::pump() {
  std::array<char, 1U << 16U> chunk;
  while (true) {
    const ssize_t count = ::recv(socket_.fd(), chunk.data(), chunk.size(), 0);
    if (count > 0) {
      received_.append(chunk.data(), static_cast<size_t>(count));
      // Whoever sends more than a message's worth at once gets it read in turns.
      if (received_.size() > max_payload_bytes_ + kHeaderBytes) return true;
    } else if (count == 0) {
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
}

std::optional<Frame> FrameStream::next() {
  const std::string_view bytes = received_;
  const size_t compared = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, compared) != kMagic.substr(0, compared)) {
    throw base::Error("what arrives is no message of this protocol");
  }
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  wire::Parser header(bytes.substr(kMagic.size(), kHeaderBytes - kMagic.size()));
  Frame frame;
  frame.kind = static_cast<char>(header.u32());
  frame.sequence = header.u32();
  const size_t payload_bytes = header.u32();
  if (payload_bytes > max_payload_bytes_) {
    throw base::Error(fmt::format("a message claims {} bytes where {} are the most", payload_bytes,
                                  max_payload_bytes_));
  }
  if (bytes.size() < kHeaderBytes + payload_bytes) return std::nullopt;
  frame.payload = bytes.substr(kHeaderBytes, payload_bytes);
  received_.erase(0, kHeaderBytes + payload_bytes);
  return frame;
}

bool FrameStream::send(const Frame& frame, const wire::Deadline& deadline) {
  std::string bytes(kMagic);
  wire::put_u32(bytes, static_cast<unsigned char>(frame.kind));
  wire::put_u32(bytes, frame.sequence);
  wire::put_u32(bytes, static_cast<uint32_t>(frame.payload.size()));
  bytes += frame.payload;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t count = ::send(socket_.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      rest.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket_.fd(), POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace moetune::engine
