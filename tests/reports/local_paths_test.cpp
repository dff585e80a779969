// What counts as an absolute path in free text, and what is left of it.
#include "reports/local_paths.h"

#include <array>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <string>

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(local_paths)

namespace {

struct Sample {
  std::string text;
  std::string expected;
};
std::ostream& operator<<(std::ostream& out, const Sample& sample) { return out << sample.text; }

const std::array kSamples = {
    Sample{"/srv/texts/a.txt", "a.txt"},
    Sample{"open \"/a/b c\" and '/d/e'", "open \"b c\" and 'e'"},
    Sample{"--db=/tmp/q.db -I/usr/include /opt/x/ (/etc)", "--db=q.db -Iinclude x (etc)"},
    Sample{"PATH=/bin:/usr/bin", "PATH=bin:bin"},
    Sample{"file:///home/me/x", "file:x"},
    Sample{"line\n/var/log/y\n", "line\ny\n"},
    Sample{"/home/j\xc3\xb6rg/ \xc3\xbc", "j\xc3\xb6rg \xc3\xbc"},
    // None of these is one.
    Sample{"https://a.org/b/c", "https://a.org/b/c"},
    Sample{"sweeps/configs/q.json, ../w, ~/m, 1/36, and/or",
           "sweeps/configs/q.json, ../w, ~/m, 1/36, and/or"},
    Sample{"tokens /s, a / b, </b>, //, /dtype", "tokens /s, a / b, </b>, //, /dtype"},
    Sample{"/knobs/ep: 4 -> 8", "/knobs/ep: 4 -> 8"},
    Sample{"/model/me/config.json", "config.json"},
};

BOOST_DATA_TEST_CASE(paths_lose_their_folders, boost::unit_test::data::make(kSamples), sample) {
  BOOST_TEST(without_folders(sample.text) == sample.expected);
}

BOOST_AUTO_TEST_CASE(paths_below_a_folder_are_seen_from_it) {
  BOOST_TEST(seen_from("/home/me", "/home/me/x/a.json /home/meg/b /home/me/ \"/home/me\"") ==
             "x/a.json /home/meg/b . \".\"");
  BOOST_TEST(seen_from("", "/home/me/x") == "/home/me/x");
}

BOOST_AUTO_TEST_CASE(a_command_is_told_as_it_was_typed) {
  const TypedCommand typed =
      typed_command("cd '/home/me/my work' && /home/me/bin/moetune sweep x.json --db /tmp/q.db");
  BOOST_TEST(typed.folder == "/home/me/my work");
  BOOST_TEST(typed.command == "moetune sweep x.json --db /tmp/q.db");
  BOOST_TEST(typed_command("cd /w && /w/b/moetune sweep /w/x.json").command ==
             "moetune sweep x.json");
  BOOST_TEST(typed_command("moetune ls").command == "moetune ls");
  BOOST_TEST(typed_command("moetune ls").folder == "");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports
