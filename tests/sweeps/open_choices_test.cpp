// What rows leave open: sizes that follow from others, and that everything that is taken is told.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <ostream>

#include "sweeps/planning/published_rows.h"
#include "tests/sweeps/shipped_rows.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(open_choices)

namespace {

/// Megatron-Bridge, experts, tp 1, cp 1, pp 2, vpp 8, dp 128 on 256 devices, without a layout.
json staged_row() { return tests::shipped_row("bridge-019"); }
/// Megatron-LM, dense, tp 2, cp 4, pp 1, dp 1.
json long_row() { return tests::shipped_row("simumax-037"); }
/// Megatron-LM, experts, tp 2, pp 2, etp 1, vpp 4, dp 2.
json split_row() { return tests::shipped_row("golden-041"); }

PublishedRow read(const json& row) { return published_rows_of(json::array({row}), "test").front(); }

bool tells(const PublishedRow& row, const std::string& part) {
  return std::ranges::any_of(
      row.assumed, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace

struct Derived {
  const char* name;
  json (*row)();
  std::vector<const char*> without;
  const char* told;
};
std::ostream& operator<<(std::ostream& out, const Derived& row) { return out << row.name; }

const Derived kDerived[] = {
    {"ranks", staged_row, {"world_size"}, "world_size 256: tp x cp x pp x dp"},
    {"stages", staged_row, {"pp"}, "pp 2: what the other sizes leave of world_size"},
    {"ranks of a sequence", long_row, {"cp"}, "cp 4: what the other sizes leave of world_size"},
    {"one rank a sequence", staged_row, {"cp"}, "cp 1: what the other sizes leave of world_size"},
    {"no replicas to go by", staged_row, {"cp", "dp"}, "cp 1: the row does not say"},
    {"no ranks, either", staged_row, {"cp", "world_size"}, "world_size 256: tp x cp x pp x dp"},
};

BOOST_DATA_TEST_CASE(a_size_that_follows_is_no_reason, data::make(kDerived), derived) {
  const json whole = derived.row();
  json row = whole;
  for (const char* key : derived.without) row.erase(key);
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(tells(result, derived.told), json(result.assumed).dump());
  BOOST_TEST((result.run.knobs == read(whole).run.knobs));
  BOOST_TEST(result.hardware->num_devices() == whole["world_size"].get<int64_t>());
}

struct Missing {
  const char* name;
  void (*change)(json& row);
  const char* reason;
};
std::ostream& operator<<(std::ostream& out, const Missing& row) { return out << row.name; }

const Missing kMissing[] = {
    {"neither ranks nor replicas",
     [](json& row) {
       row.erase("world_size");
       row.erase("dp");
     },
     "does not state world_size, nor dp"},
    {"stages of nobody knows how many ranks",
     [](json& row) {
       row.erase("pp");
       row.erase("dp");
     },
     "does not state pp, and has stages"},
    {"no ranks of a matrix", [](json& row) { row.erase("tp"); }, "does not state tp"},
    {"sizes that leave a part of a rank",
     [](json& row) {
       row.erase("cp");
       row["dp"] = 96;
     },
     "tp 1 x cp 1 x pp 2 x dp 96 are not world_size 256"},
    {"sizes without end",
     [](json& row) {
       row.erase("world_size");
       for (const char* key : {"tp", "cp", "pp", "dp"}) row[key] = 1 << 20;
     },
     "are more than 268435456 ranks"},
};

BOOST_DATA_TEST_CASE(a_size_that_does_not_follow_is_one, data::make(kMissing), missing) {
  json row = staged_row();
  missing.change(row);
  const std::string reason = read(row).reason;
  BOOST_TEST(reason.find(missing.reason) != std::string::npos, reason);
}

struct Silent {
  const char* name;
  json (*row)();
  const char* key;
  const char* told;
  bool is_of_speed;
};
std::ostream& operator<<(std::ostream& out, const Silent& row) { return out << row.name; }

const Silent kSilent[] = {
    {"precision", staged_row, "precision", "precision bf16: the row does not say", true},
    {"task", staged_row, "task", "task pretrain: the row does not say", false},
    {"virtual stages", split_row, "vpp", "vpp 1: the row does not say", true},
    {"ranks of an expert", split_row, "etp", "etp 1: the row does not say", true},
    {"shares of a sequence", split_row, "sequence_parallel",
     "sequence_parallel true: the row does not say", false},
    {"the optimizer", long_row, "optimizer",
     "optimizer adam, distributed, moments in fp32, gradients in fp32: the row does not say",
     false},
    {"the date, and who trained", long_row, "software",
     "software.date 2026-06: the row does not say", true},
};

BOOST_DATA_TEST_CASE(what_a_row_leaves_open_is_told, data::make(kSilent), silent) {
  const json whole = silent.row();
  const PublishedRow stated = read(whole);
  BOOST_TEST(!tells(stated, silent.told), json(stated.assumed).dump());
  json row = whole;
  row.erase(silent.key);
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(tells(result, silent.told), json(result.assumed).dump());
  BOOST_TEST(result.num_unknown == stated.num_unknown + (silent.is_of_speed ? 1 : 0));
}

// Where there is one rank or one stage, and where there are no experts.
BOOST_AUTO_TEST_CASE(what_says_nothing_is_not_open) {
  const auto open_lines = [](json row, std::initializer_list<const char*> without) {
    for (const char* key : without) row.erase(key);
    const PublishedRow result = read(row);
    BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
    std::string lines;
    for (const char* key : without) {
      if (tells(result, std::string(key) + " ")) lines += key;
    }
    return lines;
  };
  BOOST_TEST(open_lines(long_row(), {"vpp", "etp"}) == "");
  BOOST_TEST(open_lines(staged_row(), {"etp", "sequence_parallel"}) == "");
  BOOST_TEST(open_lines(tests::shipped_row("bridge-001"), {"vpp"}) == "");  // its layout has them
  json part = long_row();
  part["optimizer"] = {{"type", "adam"}, {"precision_aware", false}, {"distributed", true}};
  const PublishedRow result = read(part);
  BOOST_TEST(tells(result, "optimizer gradients in fp32: the row does not say"),
             json(result.assumed).dump());
}

BOOST_AUTO_TEST_CASE(words_of_routing) {
  const auto with = [](const char* word) {
    json row = staged_row();
    row["routing"] = word;
    return read(row);
  };
  const PublishedRow odd = with("zipf");
  BOOST_TEST(tells(odd, "routing balanced: 'zipf' is not known"), json(odd.assumed).dump());
  BOOST_TEST(!tells(odd, "routing balanced: the row"));
  BOOST_TEST(odd.routing == "unknown");
  BOOST_TEST(odd.group != with("unknown").group);
  BOOST_TEST(tells(with("unknown"), "routing balanced: the row does not say"));
  for (const char* word : {"Forced balance", "force-load-balancing", "forced_balance"}) {
    const PublishedRow forced = with(word);
    BOOST_TEST(forced.routing == "forced_balance", word);
    BOOST_TEST(!tells(forced, "routing balanced"), word);
  }
  BOOST_TEST(with("Natural").run.load > 1);
}

// Whether the row says itself how many FLOPs it counts, or not.
BOOST_AUTO_TEST_CASE(words_of_accounting) {
  json row = staged_row();
  for (const char* word : {"Megatron", "megatron-lm"}) {
    row["flops_accounting"] = word;
    BOOST_TEST(!tells(read(row), "FLOPs are counted"), word);
  }
  row["flops_accounting"] = "6ND";
  BOOST_TEST(tells(read(row), "FLOPs are counted by the row's own figure: how '6ND' does it"));
  row["derived"].erase("gflop_per_token_published");
  BOOST_TEST(tells(read(row), "FLOPs are counted as the row's TFLOP/s and tokens/s say"));
  row.erase("tokens_per_s_per_gpu");
  BOOST_TEST(tells(read(row), "FLOPs are counted as Megatron counts them"));
}

// Nobody means a word for what is not known as a choice.
BOOST_AUTO_TEST_CASE(a_word_for_nothing_known_is_as_no_key) {
  for (const char* key : {"precision", "recompute", "fsdp", "dispatcher", "cuda_graphs",
                          "activation_offload", "sequence_parallel", "memory_rank"}) {
    json row = staged_row();
    row.erase(key);
    const PublishedRow absent = read(row);
    for (const char* word : {"unknown", "Not stated", "n/a", ""}) {
      row[key] = word;
      const PublishedRow result = read(row);
      BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
      BOOST_TEST((result.run.knobs == absent.run.knobs), key << ' ' << word);
      BOOST_TEST(json(result.assumed) == json(absent.assumed), key << ' ' << word);
    }
  }
  json row = staged_row();
  row["recompute"] = {{"granularity", nullptr}, {"modules", json::array()}};
  BOOST_TEST(read(row).leaner.size() > 1U);
  row["recompute"] = {{"granularity", "none"}, {"modules", json::array()}};
  const size_t num_stated = read(row).leaner.size();
  row["recompute"] = "3 of 24 layers";
  BOOST_TEST(read(row).leaner.size() > num_stated);
}

// What is not understood is no more sure than what is not said.
BOOST_AUTO_TEST_CASE(a_word_that_is_not_known_leaves_its_choice_open) {
  for (const char* key : {"recompute", "cuda_graphs", "activation_offload"}) {
    json row = long_row();
    row[key] = "none";
    const PublishedRow stated = read(row);
    row[key] = "somehow";
    const PublishedRow odd = read(row);
    BOOST_TEST_REQUIRE(odd.reason.empty(), odd.reason);
    BOOST_TEST(odd.not_understood.contains(key), key);
    BOOST_TEST(odd.num_unknown == stated.num_unknown + 1, key);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
