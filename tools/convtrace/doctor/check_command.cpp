#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "tools/convtrace/doctor/check.h"

namespace convtrace::tools::doctor {
namespace fs = std::filesystem;
namespace {

/// As a shell finds it; empty if there is no such program.
fs::path find_program(const std::string& word) {
  std::error_code error;
  const auto usable = [&](const fs::path& path) {
    return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  if (word.find('/') != std::string::npos) return usable(word) ? fs::path(word) : fs::path();
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const fs::path path = fs::path(folder) / word; usable(path)) return path;
  return {};
}

enum class Kind { kScript, kDynamic, kStatic, kMusl, kOtherMachine };

/// Reads as far as the name of the loader; what cannot be read counts as a script.
Kind kind_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return Kind::kScript;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
    return Kind::kOtherMachine;
  bool dynamic = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + uint64_t{i} * sizeof part));
    if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) break;
    if (part.p_type != PT_INTERP) continue;
    dynamic = true;
    char loader[256] = {};
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(loader, sizeof loader - 1);
    if (std::strstr(loader, "musl") != nullptr) return Kind::kMusl;
    break;
  }
  return dynamic ? Kind::kDynamic : Kind::kStatic;
}

/// @return why the library does not get into the program; empty if it does.
std::string obstacle(const fs::path& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) == 0 && (about.st_mode & (S_ISUID | S_ISGID)) != 0)
    return "is setuid: the loader takes no preload library";
  switch (kind_of(path)) {
    case Kind::kStatic:
      return "is linked statically: it has no loader that could preload";
    case Kind::kMusl:
      return "is a musl program; the library is for glibc";
    case Kind::kOtherMachine:
      return "is no x86-64 program";
    case Kind::kScript:
    case Kind::kDynamic:
      break;
  }
  return "";
}

}  // namespace

void check_command(const Subject& subject, std::vector<Line>& lines) {
  if (subject.command.empty()) return;
  const std::string& word = subject.command.front();
  const fs::path path = find_program(word);
  if (path.empty()) {
    lines.push_back(
        {"command", Level::kFail, word + ": there is no such program", "check the name and PATH"});
    return;
  }
  const std::string why = obstacle(path);
  lines.push_back({"command", why.empty() ? Level::kOk : Level::kFail,
                   path.string() + (why.empty() ? " can be traced" : " " + why),
                   why.empty() ? "" : "trace the program that it starts, or one built for glibc"});
}

}  // namespace convtrace::tools::doctor
