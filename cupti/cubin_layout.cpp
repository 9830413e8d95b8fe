#include "cupti/cubin_layout.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace convtrace::cupti {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint16_t kMachineCuda = 190;
constexpr std::string_view kInfoPrefix = ".nv.info.";
constexpr size_t kMaxParams = 4096;           // 32 KiB, 8 bytes each
constexpr size_t kMaxParamBytes = 32 * 1024;  // more, no GPU takes

template <typename T>
std::optional<T> read(Bytes bytes, uint64_t offset) {
  T value;
  if (offset > bytes.size() || bytes.size() - offset < sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// @return [offset, offset + size) of `bytes`, empty if it is not all there.
Bytes part(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

std::string_view text_at(Bytes strings, uint64_t offset) {
  if (offset >= strings.size()) return {};
  const auto* const begin = reinterpret_cast<const char*>(strings.data()) + offset;
  const size_t room = strings.size() - offset;
  const size_t length = strnlen(begin, room);
  return length == room ? std::string_view() : std::string_view(begin, length);
}

class Sections {
 public:
  explicit Sections(Bytes file) : file_(file) {
    const auto header = read<Elf64_Ehdr>(file, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != kMachineCuda || header->e_shentsize != sizeof(Elf64_Shdr))
      return;
    table_ = header->e_shoff;
    const auto first = read<Elf64_Shdr>(file, table_);
    if (!first) return;
    // Numbers that do not fit into the header are in the first section.
    const uint64_t count = header->e_shnum == 0 ? first->sh_size : header->e_shnum;
    const uint32_t names = header->e_shstrndx == SHN_XINDEX ? first->sh_link : header->e_shstrndx;
    count_ = std::min<uint64_t>(count, (file.size() - table_) / sizeof(Elf64_Shdr));
    if (const auto strings = header_of(names)) names_ = content(*strings);
  }

  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] std::optional<Elf64_Shdr> header_of(uint64_t index) const {
    if (index >= count_) return std::nullopt;
    return read<Elf64_Shdr>(file_, table_ + index * sizeof(Elf64_Shdr));
  }
  [[nodiscard]] std::string_view name(const Elf64_Shdr& section) const {
    return text_at(names_, section.sh_name);
  }
  [[nodiscard]] Bytes content(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    return part(file_, section.sh_offset, section.sh_size);
  }

 private:
  Bytes file_;
  uint64_t table_ = 0;
  uint64_t count_ = 0;
  Bytes names_;
};

struct Param {
  size_t position = 0;
  ParamLayout place;
};

/// index:32 (of the kernel, unused), position:16, offset:16, then the size with other facts: from
/// bit 18 on, or, for kernels with more than 4 KiB of parameters, in the lower 16 bits.
std::optional<Param> read_param(Bytes value, bool large) {
  const auto position = read<uint16_t>(value, 4);
  const auto offset = read<uint16_t>(value, 6);
  const auto facts = read<uint32_t>(value, 8);
  if (!position || !offset || !facts) return std::nullopt;
  const size_t bytes = large ? *facts & 0xffff : *facts >> 18;
  if (bytes == 0 || *offset + bytes > kMaxParamBytes || *position >= kMaxParams)
    return std::nullopt;
  return Param{*position, {*offset, bytes}};
}

/// An attribute is its format, its number and 16 bits; those of format kSized are the size of what
/// follows.
std::optional<std::vector<ParamLayout>> read_params(Bytes info) {
  constexpr uint8_t kSized = 4, kFormats = 4, kParamInfo = 0x17, kLargeParamInfo = 0x45;
  std::vector<Param> found;
  for (uint64_t at = 0; at < info.size();) {
    const auto format = read<uint8_t>(info, at), number = read<uint8_t>(info, at + 1);
    const auto size = read<uint16_t>(info, at + 2);
    if (!format || !number || !size || *format == 0 || *format > kFormats) return std::nullopt;
    at += 4;
    if (*format != kSized) continue;
    if (*number == kParamInfo || *number == kLargeParamInfo) {
      const auto param = read_param(part(info, at, *size), *number == kLargeParamInfo);
      if (!param) return std::nullopt;
      found.push_back(*param);
    }
    if (*size > info.size() - at) return std::nullopt;
    at += *size;
  }
  std::vector<ParamLayout> params(found.size());
  std::vector<bool> seen(found.size());
  for (const Param& param : found) {
    if (param.position >= params.size() || seen[param.position]) return std::nullopt;
    seen[param.position] = true;
    params[param.position] = param.place;
  }
  return params;
}

}  // namespace

std::vector<KernelLayout> read_cubin_layouts(Bytes cubin) {
  const Sections sections(cubin);
  std::vector<KernelLayout> layouts;
  for (uint64_t i = 0; i < sections.count(); ++i) {
    const auto section = sections.header_of(i);
    if (!section) break;
    const std::string_view name = sections.name(*section);
    if (!name.starts_with(kInfoPrefix)) continue;
    const Bytes content = sections.content(*section);
    if (content.empty() && section->sh_size != 0) continue;  // cut off
    if (auto params = read_params(content))
      layouts.push_back({std::string(name.substr(kInfoPrefix.size())), std::move(*params)});
  }
  return layouts;
}

}  // namespace convtrace::cupti
