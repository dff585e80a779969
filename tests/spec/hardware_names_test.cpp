// What published runs call machines leads to files that are shipped.
#include "engine/spec/hardware_names.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

BOOST_AUTO_TEST_SUITE(hardware_names)

namespace {

struct Name {
  const char* published;
  const char* file;
};
std::ostream& operator<<(std::ostream& out, const Name& row) { return out << row.published; }

const Name kNames[] = {
    // All that published_runs.json has.
    {"H100", "h100-80g"},
    {"H100-80G", "h100-80g"},
    {"GB200", "gb200-nvl72"},
    {"GB300", "gb300-nvl72"},
    {"B200", "b200"},
    {"B200-SXM", "b200"},
    {"A100-80G", "a100-80g"},
    {"B300", "b300"},
    // As others write them.
    {"h100", "h100-80g"},
    {"H100 80GB", "h100-80g"},
    {"h100_80g", "h100-80g"},
    {"GB200-NVL72", "gb200-nvl72"},
    {"gb300 nvl72", "gb300-nvl72"},
    {"b200sxm", "b200"},
    {"A100-SXM-80GB", "a100-80g"},
    {"H200", "h200"},
    {"MI300X", "mi300x"},
    // As drivers call them.
    {"NVIDIA H100 80GB HBM3", "h100-80g"},
    {"NVIDIA A100-SXM4-80GB", "a100-80g"},
    {"NVIDIA H200", "h200"},
    {"NVIDIA GB200", "gb200-nvl72"},
    {"AMD Instinct MI300X", "mi300x"},
};

}  // namespace

BOOST_DATA_TEST_CASE(published_names_lead_to_shipped_files, boost::unit_test::data::make(kNames)) {
  BOOST_TEST(hardware_file_of(sample.published).value_or("none") == sample.file);
  BOOST_TEST(samples::read_file("sweeps/hardware/" + std::string(sample.file) + ".json") != "");
}

BOOST_AUTO_TEST_CASE(the_name_of_a_file_leads_to_it) {
  for (const Name& row : kNames) BOOST_TEST(hardware_file_of(row.file).value_or("") == row.file);
}

BOOST_AUTO_TEST_CASE(other_machines_have_no_file) {
  for (const char* name : {"", "-", "A100", "A100-40G", "H100-NVL", "H800", "TPU v5", "GB",
                           "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"}) {
    BOOST_TEST(!hardware_file_of(name).has_value(), name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
