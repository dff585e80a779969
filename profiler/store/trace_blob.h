// Records of traces as the database holds them: a column of numbers for each member, packed
// (column_codec.h). A row of a table would take 75 to 90 bytes a record; this takes about a tenth.
//
// Most of a record follows from those before it: a program is the same layer after layer. What is
// stored is the difference to what was expected: of times the measured noise is left, of bytes and
// FLOPs nearly nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/record.h"

namespace moetune::store {

/// Largest number of records of a trial that is stored or read; they take a gigabyte. A damaged
/// blob may claim any number of records in a few bytes.
inline constexpr int64_t kMaxTraceRecords = int64_t{1} << 22;
/// Largest number of further waits for each record of a blob, in the mean. A damaged one may claim
/// any number of them, too.
inline constexpr int64_t kMaxWaitsPerRecord = 4;
/// Largest size of all names of a trial's records when they are read.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

/// Texts as numbers (ids of StringIds, which begin at 1) and back.
using IdOfText = std::function<int64_t(const std::string& text)>;
using TextOfId = std::function<std::string(int64_t id)>;

/// Records with their step and rank, in the order given, and what they waited for; of the windows
/// nothing.
std::string pack_traces(const std::vector<profiler::StepTrace>& traces, const IdOfText& id_of);

/// What was packed, now or by an older version, without windows. Throws base::Error naming `where`
/// for a blob that is damaged.
std::vector<profiler::StepTrace> unpack_traces(std::string_view blob, const std::string& where,
                                               const TextOfId& text_of);

}  // namespace moetune::store
