// gzip, unpacked by ISA-L, which is several times as fast as zlib. A file may be several members
// behind one another, as parallel packers write them.
#include <fmt/format.h>
#include <igzip_lib.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/import/byte_source.h"

namespace moetune::profiler {
namespace {

constexpr size_t kPackedPieceBytes = size_t{256} << 10;
/// A trace packs to a tenth or a thirtieth. Past the first gigabyte nothing real reaches this.
constexpr uint64_t kBombRatio = 300;
constexpr uint64_t kBombBytes = uint64_t{1} << 30;

class GzipBytes : public ByteSource {
 public:
  GzipBytes(std::unique_ptr<ByteSource> packed, std::string path)
      : packed_(std::move(packed)), path_(std::move(path)), piece_(kPackedPieceBytes) {
    start_member();
  }

  size_t read(char* out, size_t size) override {
    state_.next_out = reinterpret_cast<uint8_t*>(out);
    state_.avail_out = static_cast<uint32_t>(std::min<size_t>(size, UINT32_MAX));
    const uint32_t room = state_.avail_out;
    while (state_.avail_out == room && !is_done_) advance();
    const uint32_t got = room - state_.avail_out;
    num_unpacked_ += got;
    if (num_unpacked_ > kBombBytes && num_unpacked_ / kBombRatio > num_packed_) {
      throw base::UsageError(fmt::format(
          "{}: unpacks to more than {} times its size, which no trace does", path_, kBombRatio));
    }
    return got;
  }

 private:
  void start_member() {
    isal_inflate_init(&state_);
    state_.crc_flag = ISAL_GZIP;
  }

  /// Unpacks some, or goes on to the next member, or finds the end.
  void advance() {
    if (state_.avail_in == 0) refill();
    if (state_.block_state == ISAL_BLOCK_FINISH) return next_member();
    const uint32_t room = state_.avail_out;
    const bool is_at_end = state_.avail_in == 0;  // but it may hold something back
    const int code = isal_inflate(&state_);
    if (code != ISAL_DECOMP_OK && code != ISAL_END_INPUT) {
      throw base::UsageError(
          fmt::format("{}: the gzip file is damaged near its byte {} (ISA-L says {}){}", path_,
                      num_packed_ - state_.avail_in, code,
                      code == ISAL_INCORRECT_CHECKSUM ? ": its checksum is wrong" : ""));
    }
    if (is_at_end && state_.avail_out == room && state_.block_state != ISAL_BLOCK_FINISH) {
      throw base::UsageError(
          fmt::format("{}: the gzip file is cut: it ends after {} bytes, in the middle of its data",
                      path_, num_packed_));
    }
  }

  void refill() {
    const size_t got = packed_->read(piece_.data(), piece_.size());
    num_packed_ += got;
    state_.next_in = reinterpret_cast<uint8_t*>(piece_.data());
    state_.avail_in = static_cast<uint32_t>(got);
  }

  /// What follows a member is another one, zeros that fill a block of a tape, or the end.
  void next_member() {
    while (state_.avail_in > 0 && *state_.next_in == 0) {
      ++state_.next_in;
      if (--state_.avail_in == 0) refill();
    }
    if (state_.avail_in == 0) {
      is_done_ = true;
      return;
    }
    uint8_t* const next_in = state_.next_in;
    const uint32_t avail_in = state_.avail_in;
    uint8_t* const next_out = state_.next_out;
    const uint32_t avail_out = state_.avail_out;
    if (*next_in != 0x1f) {
      throw base::UsageError(
          fmt::format("{}: has something behind its gzip data that is none", path_));
    }
    start_member();
    state_.next_in = next_in;
    state_.avail_in = avail_in;
    state_.next_out = next_out;
    state_.avail_out = avail_out;
  }

  std::unique_ptr<ByteSource> packed_;
  std::string path_;
  std::vector<char> piece_;
  inflate_state state_ = {};
  uint64_t num_packed_ = 0;
  uint64_t num_unpacked_ = 0;
  bool is_done_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> unpack_gzip(std::unique_ptr<ByteSource> packed, std::string path) {
  return std::make_unique<GzipBytes>(std::move(packed), std::move(path));
}

}  // namespace moetune::profiler
