#include "tests/fakecuda/cubin.h"

#include <elf.h>

#include <cstring>

namespace fakecuda {
namespace {

constexpr unsigned kMachineCuda = 190;

template <typename T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// EIATTR_KPARAM_INFO for each parameter, the last one first, as ptxas writes them.
std::string param_info(const CUfunc_st& function) {
  std::string info;
  for (unsigned i = function.kernel->param_count; i-- > 0;) {
    append(info, uint32_t{0x000c1704});
    append(info, uint32_t{0});
    append(info, static_cast<uint16_t>(i));
    append(info, static_cast<uint16_t>(function.offsets[i]));
    append(info, uint32_t{function.kernel->param_bytes[i] << 18 | 0x1f000});
  }
  return info;
}

}  // namespace

std::string make_cubin(const std::vector<const CUfunc_st*>& functions) {
  std::string names(1, '\0'), content;
  std::vector<Elf64_Shdr> sections(2);
  for (const CUfunc_st* function : functions) {
    const std::string info = param_info(*function);
    Elf64_Shdr section{};
    section.sh_name = static_cast<Elf64_Word>(names.size());
    section.sh_type = SHT_LOPROC;
    section.sh_offset = sizeof(Elf64_Ehdr) + content.size();
    section.sh_size = info.size();
    names += std::string(".nv.info.") + function->kernel->name + '\0';
    content += info;
    sections.push_back(section);
  }
  sections[1].sh_type = SHT_STRTAB;
  sections[1].sh_offset = sizeof(Elf64_Ehdr) + content.size();
  sections[1].sh_size = names.size();
  content += names;

  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = kMachineCuda;
  header.e_shoff = sizeof header + content.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = 1;
  std::string cubin;
  append(cubin, header);
  cubin += content;
  for (const Elf64_Shdr& section : sections) append(cubin, section);
  return cubin;
}

}  // namespace fakecuda
