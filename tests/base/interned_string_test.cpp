// Interned texts: equal ones are one, on whatever thread they are made.
#include "kernels/base/interned_string.h"

#include <boost/test/unit_test.hpp>
#include <map>
#include <thread>
#include <vector>

namespace moetune::base {
BOOST_AUTO_TEST_SUITE(interned_strings)

BOOST_AUTO_TEST_CASE(equal_texts_share_storage) {
  std::string text = "core_attn.backward";
  const InternedString a = text;
  const InternedString b = "core_attn.backward";
  BOOST_TEST((a == b));
  BOOST_TEST(&a.text() == &b.text());
  // What lay there then is another text now.
  text[0] = 'C';
  const InternedString c = text;
  BOOST_TEST((a != c));
  BOOST_TEST(a == "core_attn.backward");
  BOOST_TEST(c == text);
  BOOST_TEST(InternedString().empty());
  BOOST_TEST((InternedString("") == InternedString()));
  BOOST_TEST(InternedString().text() == "");
  const std::map<std::string, int> numbers = {{"core_attn.backward", 1}};
  BOOST_TEST(numbers.at(b) == 1);
}

BOOST_AUTO_TEST_CASE(threads_share_texts) {
  constexpr size_t kNumThreads = 4;
  constexpr int kNumTexts = 2000;
  std::vector<std::vector<InternedString>> made(kNumThreads);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kNumThreads; ++i) {
      threads.emplace_back([&made, i] {
        for (int k = 0; k < kNumTexts; ++k) made[i].emplace_back("text " + std::to_string(k));
      });
    }
  }
  for (size_t i = 1; i < kNumThreads; ++i) BOOST_TEST((made[i] == made[0]));
  for (int k = 0; k < kNumTexts; ++k) {
    BOOST_TEST(made[0][static_cast<size_t>(k)] == "text " + std::to_string(k));
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::base
