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
    {"NVIDIA B200", "b200"},
    {"NVIDIA B300 SXM6 AC", "b300"},
    {"AMD Instinct MI300X", "mi300x"},
    {"AMD Instinct MI300X VF", "mi300x"},
    // Other words in other orders.
    {"A100-SXM4-80GB", "a100-80g"},
    {"H100-SXM5", "h100-80g"},
    {"H100 SXM5 80GB HBM3", "h100-80g"},
    {"NVIDIA H100 Tensor Core GPU", "h100-80g"},
    {"DGX-H100", "h100-80g"},
    {"HGX H200 141GB", "h200"},
    {"DGX-B200", "b200"},
    {"NVIDIA DGX GB300", "gb300-nvl72"},
    {"GB200 (186 GB)", "gb200-nvl72"},
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
  for (const char* name : {"",
                           "-",
                           "A100",
                           "A100-40G",
                           "H100-NVL",
                           "H800",
                           "TPU v5",
                           "GB",
                           "NVIDIA H100 PCIe",
                           "NVIDIA A100-SXM4-40GB",
                           "NVIDIA A100 80GB PCIe",
                           "DGX A100",
                           "H100 192GB",
                           "H100 NVL72",
                           "GB200 NVL4",
                           "GH200",
                           "NVIDIA GH100",
                           "H100/H200",
                           "H100 80GB 141GB",
                           "NVIDIA",
                           "H1000"}) {
    BOOST_TEST(!hardware_file_of(name).has_value(), name);
  }
}

BOOST_AUTO_TEST_CASE(only_the_memory_may_be_guessed) {
  for (const char* name : {"A100", "DGX A100", "NVIDIA A100-SXM4", "A100-SXM4-80GB"}) {
    BOOST_TEST(likely_hardware_file_of(name).value_or("") == "a100-80g", name);
  }
  BOOST_TEST(likely_hardware_file_of("H100").value_or("") == "h100-80g");
  for (const char* name : {"", "A100-40G", "NVIDIA A100 80GB PCIe", "H100-NVL", "H800"}) {
    BOOST_TEST(!likely_hardware_file_of(name).has_value(), name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
