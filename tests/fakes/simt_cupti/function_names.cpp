// Names of kernels from the program's own symbol table, which also has those of unnamed namespaces.
#include <elf.h>
#include <link.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fakes/simt_cupti/simt_cupti.h"

namespace moetune::simt_cupti {
namespace {

using Names = std::map<uintptr_t, std::string>;

uintptr_t load_address() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        *static_cast<uintptr_t*>(found) = info->dlpi_addr;
        return 1;  // the program is the first
      },
      &address);
  return address;
}

Names read_names() {
  Names names;
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::vector<char> file(std::istreambuf_iterator<char>(in), {});
  if (file.size() < sizeof(Elf64_Ehdr)) return names;
  const uintptr_t base = load_address();
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file.data() + header->e_shoff);
  for (size_t s = 0; s < header->e_shnum; ++s) {
    const Elf64_Shdr& section = sections[s];
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* texts = file.data() + sections[section.sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file.data() + section.sh_offset);
    for (size_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
      if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || symbols[i].st_value == 0) continue;
      names.emplace(base + symbols[i].st_value, texts + symbols[i].st_name);
    }
  }
  return names;
}

}  // namespace

const char* name_of_function(const void* function) {
  static const auto* names = new Names(read_names());
  const auto found = names->find(reinterpret_cast<uintptr_t>(function));
  return found == names->end() ? "kernel" : found->second.c_str();
}

}  // namespace moetune::simt_cupti
