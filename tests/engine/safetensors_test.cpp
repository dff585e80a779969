// The safetensors reader against well-formed files of every dtype and against every way a file can
// lie.
#include "engine/checkpoint/safetensors.h"

#include <sys/stat.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "kernels/base/error.h"
#include "tests/engine/written_safetensors.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
namespace {

using base::UsageError;
using tests::says;
using tests::TempFolder;
using tests::write_text;

std::string length_bytes(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

std::string file_text(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, '\0');
}

/// A header, how many bytes follow it, and what the message must say.
struct Hostile {
  const char* name;
  std::string header;
  size_t data_bytes;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const Hostile& row) { return out << row.name; }

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

const std::string kGood = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

const Hostile kHostile[] = {
    {"empty_header", "", 0, "does not start with"},
    {"not_an_object", "[]", 0, "does not start with"},
    {"space_before", " {}", 0, "does not start with"},
    {"byte_order_mark", "\xEF\xBB\xBF{}", 0, "does not start with"},
    {"not_json", "{a", 0, "not valid JSON"},
    {"cut_off_json", R"({"a":)", 0, "not valid JSON"},
    {"two_documents", "{}{}", 0, "not valid JSON"},
    {"nul_padding", std::string("{}\0", 3), 0, "not valid JSON"},
    {"invalid_utf8", "{\"\xff\xfe\":{}}", 0, "not valid JSON"},
    {"overlong_utf8", "{\"\xc0\xaf\":{}}", 0, "not valid JSON"},
    {"number_beyond_double", tensor("F32", "[1e999]", "[0,4]"), 4, "not valid JSON"},
    {"tensor_is_number", R"({"t":1})", 0, "\"t\" to be an object"},
    {"tensor_is_array", R"({"t":[]})", 0, "\"t\" to be an object"},
    {"deep_objects", R"({"t":{"dtype":{"x":{}}}})", 0, "dtype of tensor \"t\" to be a string"},
    {"deep_arrays", R"({"t":{"shape":[[[[1]]]]}})", 0, "shape of tensor \"t\" to hold integers"},
    {"very_deep", "{\"t\":{\"shape\":" + std::string(100000, '['), 0, "to hold integers"},
    {"unknown_key", R"({"t":{"dtyp":"F32"}})", 0, "unknown key \"dtyp\""},
    {"duplicate_tensor", "{" + kGood + "," + kGood + "}", 4, "\"a\" is there twice"},
    {"duplicate_key", R"({"t":{"dtype":"F32","dtype":"F32"}})", 0, "\"dtype\" is there twice"},
    {"duplicate_offsets", R"({"t":{"data_offsets":[0,4],"data_offsets":[0,4]}})", 0, "twice"},
    {"duplicate_metadata", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "\"a\" is there twice"},
    {"no_dtype", R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4, "has no dtype"},
    {"no_shape", R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4, "has no shape"},
    {"no_offsets", R"({"t":{"dtype":"F32","shape":[1]}})", 4, "has no data_offsets"},
    {"unknown_dtype", tensor("F4", "[1]", "[0,4]"), 4, "dtype \"F4\", expected one of BOOL"},
    {"negative_dim", tensor("F32", "[-1]", "[0,4]"), 4, "has -1, expected shape"},
    {"fractional_dim", tensor("F32", "[1.5]", "[0,4]"), 4, "has 1.5, expected shape"},
    {"text_dim", tensor("F32", "[\"1\"]", "[0,4]"), 4, "has a string, expected shape"},
    {"dim_beyond_int64", tensor("F32", "[9223372036854775808]", "[0,4]"), 4, "to hold integers"},
    {"product_overflows", tensor("F32", "[4294967296,4294967296]", "[0,0]"), 0, "2^63-1 bytes"},
    {"bytes_overflow", tensor("F64", "[2305843009213693952]", "[0,0]"), 0, "2^63-1 bytes"},
    {"many_dims", tensor("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "dimensions"},
    {"one_offset", tensor("F32", "[1]", "[0]"), 4, "1 data_offsets"},
    {"three_offsets", tensor("F32", "[1]", "[0,4,8]"), 4, "3 data_offsets"},
    {"negative_offset", tensor("F32", "[1]", "[-4,0]"), 4, "data_offsets of tensor"},
    {"begin_after_end", tensor("F32", "[1]", "[4,0]"), 4, "begin <= end"},
    {"offsets_too_short", tensor("F32", "[2]", "[0,4]"), 4, "expected 8 bytes for F32 [2]"},
    {"offsets_too_long", tensor("F16", "[2]", "[0,8]"), 8, "expected 4 bytes for F16 [2]"},
    {"hole_at_start", tensor("F32", "[1]", "[4,8]"), 8, "there is a hole"},
    {"hole_between", "{" + kGood + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12,
     "hole"},
    {"overlap", "{" + kGood + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6,
     "overlap"},
    {"same_place", "{" + kGood + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
     "overlap"},
    {"cut_off_data", tensor("F32", "[4]", "[0,16]"), 15, "cut off"},
    {"trailing_data", tensor("F32", "[4]", "[0,16]"), 17, "longer than it says"},
    {"offsets_near_2_64", tensor("F32", "[1]", "[18446744073709551612,18446744073709551615]"), 4,
     "expected 4 bytes"},
    {"metadata_number", R"({"__metadata__":{"a":1}})", 0, "in __metadata__ to be a string"},
    {"metadata_object", R"({"__metadata__":{"a":{}}})", 0, "in __metadata__ to be a string"},
    {"metadata_is_string", R"({"__metadata__":"a"})", 0, "to be an object"},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_DATA_TEST_CASE(refuses_hostile_headers, kHostile, row) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  write_text(path, file_text(row.header, row.data_bytes));
  BOOST_CHECK_EXCEPTION(SafetensorsFile{path}, UsageError, says(path, row.message));
}

BOOST_AUTO_TEST_CASE(refuses_impossible_lengths) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  const auto refuses = [&](const std::string& text, const char* message) {
    write_text(path, text);
    BOOST_CHECK_EXCEPTION(SafetensorsFile{path}, UsageError, says(path, message));
  };
  refuses("", "has 0 bytes");
  refuses("1234567", "has 7 bytes");
  refuses(length_bytes(3) + "{}", "header length is 3");
  refuses(length_bytes(100'000'001) + "{}", "at most 100000000");
  refuses(length_bytes(~uint64_t{0}) + "{}", "18446744073709551615");
  refuses(length_bytes(~uint64_t{0} - 7) + "{}", "header length");
}

BOOST_AUTO_TEST_CASE(refuses_what_is_no_file) {
  const TempFolder folder;
  BOOST_CHECK_EXCEPTION(SafetensorsFile{folder.file("none")}, UsageError, says("cannot be read"));
  BOOST_CHECK_EXCEPTION(SafetensorsFile{folder.file("")}, UsageError, says("regular file"));
  const std::string pipe = folder.file("pipe");
  BOOST_REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  BOOST_CHECK_EXCEPTION(SafetensorsFile{pipe}, UsageError, says("regular file"));
}

BOOST_AUTO_TEST_CASE(refuses_a_file_that_shrinks_while_open) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  write_safetensors(path, {make_tensor("t", {4}, std::vector<float>{1, 2, 3, 4})});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<float>("t", {4})), UsageError,
                        says(path, "ends at byte"));
}

BOOST_AUTO_TEST_CASE(accepts_padding_scalars_and_empty_tensors) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  write_text(path, file_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                             "\"b\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]}}   ",
                             4));
  const SafetensorsFile file(path);
  BOOST_TEST(file.find("a").numel == 1);
  BOOST_TEST(file.read_all<double>("b", {0, 7}).empty());
  write_text(path, file_text("{}", 0));
  BOOST_TEST(SafetensorsFile(path).tensors().empty());
}

BOOST_AUTO_TEST_CASE(gives_back_what_was_written) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  std::vector<float> many(200'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 0.1f * static_cast<float>(i);
  write_safetensors(path,
                    {make_tensor("z", {2, 100'000}, many),
                     make_tensor("a", {2}, std::vector<double>{1.0 / 3.0, -1e300}),
                     make_tensor("i", {3}, std::vector<int32_t>{-1, 0, 2147483647})},
                    {{"format", "pt"}});
  const SafetensorsFile file(path);
  BOOST_TEST(file.metadata().at("format") == "pt");
  BOOST_TEST(file.read_all<float>("z", {2, 100'000}) == many, boost::test_tools::per_element());
  BOOST_TEST(file.read_all<double>("a", {2})[0] == 1.0 / 3.0);
  BOOST_TEST(file.read_all<double>("a", {2})[1] == -1e300);
  BOOST_TEST(file.read_all<int32_t>("i", {3})[2] == 2147483647);
  std::vector<double> part(2);
  file.read(file.find("z"), 150'000, std::span(part));
  BOOST_TEST(part[1] == static_cast<double>(many[150'001]));
  BOOST_TEST(!std::filesystem::exists(path + ".part"));
}

BOOST_AUTO_TEST_CASE(converts_half_precision) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  const auto bytes = [](const std::vector<uint16_t>& bits) {
    return std::string(reinterpret_cast<const char*>(bits.data()), bits.size() * 2);
  };
  // One, -2, the largest, the smallest normal, the smallest subnormal, -0, infinity, NaN.
  write_safetensors(
      path,
      {{"h", "F16", {8}, bytes({0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x8000, 0x7c00, 0x7e00})},
       {"b", "BF16", {4}, bytes({0x3f80, 0xc040, 0x0080, 0x7f80})}});
  const SafetensorsFile file(path);
  const std::vector<double> h = file.read_all<double>("h", {8});
  const double expected[] = {1, -2, 65504, std::ldexp(1.0, -14), std::ldexp(1.0, -24)};
  for (size_t i = 0; i < 5; ++i) BOOST_TEST(h[i] == expected[i]);
  BOOST_TEST((h[5] == 0 && std::signbit(h[5])));
  BOOST_TEST((std::isinf(h[6]) && std::isnan(h[7])));
  const std::vector<float> b = file.read_all<float>("b", {4});
  BOOST_TEST((b[0] == 1.0f && b[1] == -3.0f && b[2] == std::ldexp(1.0f, -126) && std::isinf(b[3])));
}

BOOST_AUTO_TEST_CASE(reads_64_bit_integers_that_fit) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  const int64_t values[] = {-5, int64_t{1} << 31};
  write_safetensors(path,
                    {{"t", "I64", {2}, std::string(reinterpret_cast<const char*>(values), 16)}});
  const SafetensorsFile file(path);
  std::vector<int32_t> one(1);
  file.read(file.find("t"), 0, std::span(one));
  BOOST_TEST(one[0] == -5);
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<int32_t>("t", {2})), UsageError,
                        says("\"t\"", "2147483648", "32-bit"));
}

BOOST_AUTO_TEST_CASE(refuses_other_types_names_and_shapes) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  write_safetensors(path, {make_tensor("f", {2}, std::vector<float>{1, 2}),
                           {"u", "U8", {2}, "ab"},
                           make_tensor("i", {1}, std::vector<int32_t>{1})});
  const SafetensorsFile file(path);
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<float>("none", {2})), UsageError,
                        says("none", "missing"));
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<float>("f", {2, 1})), UsageError,
                        says("[2]", "[2, 1]"));
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<int32_t>("f", {2})), UsageError,
                        says("F32", "I32, I64"));
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<float>("u", {2})), UsageError,
                        says("U8", "F32, F64"));
  BOOST_CHECK_EXCEPTION(static_cast<void>(file.read_all<double>("i", {1})), UsageError,
                        says("I32", "F32, F64"));
}

BOOST_AUTO_TEST_CASE(random_damage_never_crashes) {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  write_safetensors(path, {make_tensor("first", {2, 3}, std::vector<float>(6, 1.0f)),
                           make_tensor("second", {1}, std::vector<double>{2})});
  const std::string good = read_text(path, 1 << 20);
  uint32_t random = 1;
  const auto next = [&random] { return random = random * 1664525u + 1013904223u, random >> 8; };
  int num_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    bad[next() % bad.size()] = static_cast<char>(next());
    if (next() % 4 == 0) bad.resize(next() % bad.size());
    write_text(path, bad);
    try {
      const SafetensorsFile file(path);
      for (const auto& [name, info] : file.tensors()) file.check_shape(info, info.shape);
    } catch (const UsageError&) {
      ++num_refused;
    }
  }
  BOOST_TEST(num_refused > 500);
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_nothing) {
  const TempFolder folder;
  const std::string path = folder.file("none/x.safetensors");
  BOOST_CHECK_THROW(write_safetensors(path, {}), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

/// Two shards with a tensor each, and the index text given.
struct Sharded {
  explicit Sharded(const std::string& index) {
    write_safetensors(folder.file("1.safetensors"),
                      {make_tensor("a", {2}, std::vector<float>{1, 2})});
    write_safetensors(folder.file("2.safetensors"), {make_tensor("b", {1}, std::vector<float>{3})});
    write_text(folder.file("model.safetensors.index.json"), index);
  }
  Checkpoint open() const { return Checkpoint::open_folder(folder.file("")); }
  TempFolder folder;
};

struct HostileIndex {
  std::string index;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const HostileIndex& row) { return out << row.index; }

const HostileIndex kHostileIndexes[] = {
    {"", "is empty"},
    {std::string("{}\0", 3), "not valid JSON"},
    {"[]", "expected a JSON object"},
    {"{}", "weight_map"},
    {R"({"weight_map":[]})", "weight_map"},
    {R"({"weight_map":{"a":1}})", "expected a file name"},
    {R"({"weight_map":{"a":"../1.safetensors"}})", "plain file name"},
    {R"({"weight_map":{"a":"/1.safetensors"}})", "plain file name"},
    {R"({"weight_map":{"a":"x\\1.safetensors"}})", "plain file name"},
    {R"({"weight_map":{"a":"1.safetensors\u0000.safetensors"}})", "NUL character"},
    {R"({"weight_map":{"a":".."}})", "plain file name"},
    {R"({"weight_map":{"a":""}})", "plain file name"},
    {R"({"weight_map":{"a":"1.bin"}})", "plain file name"},
    {R"({"weight_map":{"a":"3.safetensors"}})", "cannot be read"},
    {R"({"weight_map":{"a":"1.safetensors","c":"1.safetensors"}})", "does not have it"},
    {R"({"weight_map":{"a":"1.safetensors","a":"1.safetensors"}})", "twice"},
    {R"({"weight_map":{"b":"1.safetensors"}})", "does not have it"},
    {R"({"metadata":{"total_size":11},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})",
     "12 bytes"},
    {R"({"metadata":{"total_size":"12"},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})",
     "total_size"},
    {"{\"x\":" + std::string(100, '[') + "1", "nested deeper"},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sharded_checkpoint)

// In a time that grows with the square of the length this would take minutes.
BOOST_AUTO_TEST_CASE(many_small_objects_are_read_in_time, *boost::unit_test::timeout(60)) {
  std::string index = R"({"x":[{})";
  for (int i = 0; i < 500'000; ++i) index += ",{}";
  const Sharded sharded(index + "]}");
  BOOST_CHECK_EXCEPTION(sharded.open(), UsageError, says("weight_map"));
}

BOOST_AUTO_TEST_CASE(finds_tensors_in_their_shards) {
  const Sharded sharded(
      R"({"metadata":{"total_size":12},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const Checkpoint checkpoint = sharded.open();
  BOOST_TEST(checkpoint.names().size() == 2u);
  BOOST_TEST(checkpoint.find("c") == nullptr);
  std::vector<double> value(1);
  checkpoint.read("b", 0, value);
  BOOST_TEST(value[0] == 3.0);
  checkpoint.read("a", 1, value);
  BOOST_TEST(value[0] == 2.0);
}

BOOST_DATA_TEST_CASE(refuses_hostile_indexes, kHostileIndexes, row) {
  const Sharded sharded(row.index);
  BOOST_CHECK_EXCEPTION(sharded.open(), UsageError, says(row.message));
}

BOOST_AUTO_TEST_CASE(refuses_a_tensor_in_two_shards) {
  const Sharded sharded(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  write_safetensors(sharded.folder.file("2.safetensors"),
                    {make_tensor("a", {2}, std::vector<float>{1, 2}),
                     make_tensor("b", {1}, std::vector<float>{3})});
  BOOST_CHECK_EXCEPTION(sharded.open(), UsageError, says("\"a\"", "another shard"));
}

BOOST_AUTO_TEST_CASE(refuses_a_folder_without_weights) {
  const TempFolder folder;
  BOOST_CHECK_EXCEPTION(Checkpoint::open_folder(folder.file("")), UsageError, says("no weights"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
