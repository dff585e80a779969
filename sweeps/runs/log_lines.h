// A log as a stream of clean lines with bounded memory: what terminals and broken files add is
// taken out here, so that nothing above has to know of it.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

namespace moetune::sweeps {

/// One line, or what a carriage return ended: without colours, NULs and line ends.
struct LogLine {
  std::string_view text;  ///< until the next line is read
  int64_t number = 0;     ///< from 1, as an editor counts
};

class LogLines {
 public:
  /// A longer line is handed out in pieces.
  static constexpr size_t kMostLineBytes = size_t{64} << 10;

  /// The stream has to outlive this.
  explicit LogLines(std::istream& in);

  /// Reads the next line; false at the end. Leaves out figures that the end of the file has cut
  /// off: the last line may be half written.
  bool next(LogLine& line);

  [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }
  /// The last bytes that were read, unchanged: at most kMostLineBytes.
  [[nodiscard]] std::string_view tail() const { return tail_; }
  /// Number of lines that were longer than kMostLineBytes.
  [[nodiscard]] int64_t num_cut_lines() const { return num_cut_lines_; }

 private:
  /// Reads more after the bytes that are left.
  void fill();
  std::string_view clean(size_t first, size_t end, bool is_cut);

  std::istream& in_;
  std::string buffer_;
  std::string tail_;
  size_t at_ = 0;
  size_t end_ = 0;
  int64_t number_ = 1;
  int64_t num_bytes_ = 0;
  int64_t num_cut_lines_ = 0;
  bool is_in_cut_line_ = false;
  bool is_at_end_ = false;
};

}  // namespace moetune::sweeps
