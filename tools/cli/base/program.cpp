#include "tools/cli/base/program.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tools/common/child.h"

namespace convtrace::tools {
namespace fs = std::filesystem;
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr char kWrongMachine[] = "is no aarch64 program";
#else
constexpr uint16_t kMachine = EM_X86_64;
constexpr char kWrongMachine[] = "is no x86-64 program";
#endif

enum class ProgramKind { kScript, kDynamic, kStatic, kMusl, kOtherMachine };

/// Reads up to the name of the loader. A file that cannot be read counts as a script.
ProgramKind kind_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return ProgramKind::kScript;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine)
    return ProgramKind::kOtherMachine;
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
    if (std::strstr(loader, "musl") != nullptr) return ProgramKind::kMusl;
    break;
  }
  return dynamic ? ProgramKind::kDynamic : ProgramKind::kStatic;
}

bool is_named(const std::string& word, std::string_view name) {
  return fs::path(word).filename().string() == name;
}

bool is_python(const std::string& word) {
  return fs::path(word).filename().string().starts_with("python");
}

/// Splits a shell's command line roughly, well enough to find a program in it.
void split_shell_words(const std::string& line, std::vector<std::string>& words) {
  constexpr std::string_view kBetween = " \t\n;&|()<>\"'";
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find_first_of(kBetween, begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
}

/// The command, with the string that a shell runs replaced by its words.
std::vector<std::string> words_of(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  bool shell = false, is_line = false;
  for (const std::string& word : command) {
    if (is_line) {
      split_shell_words(word, words);
    } else {
      words.push_back(word);
    }
    shell = shell || is_named(word, "sh") || is_named(word, "bash") || is_named(word, "dash") ||
            is_named(word, "zsh");
    is_line = shell && !is_line && word.starts_with("-") && !word.starts_with("--") &&
              word.ends_with("c");
  }
  return words;
}

/// The Python in the `#!` line of a script; empty if there is none.
std::string python_of_script(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 256> line{};
  if (!file.get(line.data(), line.size())) return "";
  const std::string_view text = line.data();
  if (!text.starts_with("#!")) return "";
  std::istringstream words{std::string(text.substr(2))};
  for (std::string word; words >> word;)
    if (is_python(word)) return word;  // also after /usr/bin/env
  return "";
}

}  // namespace

std::string preload_obstacle(const fs::path& program) {
  struct stat about {};
  if (stat(program.c_str(), &about) == 0 && (about.st_mode & (S_ISUID | S_ISGID)) != 0)
    return "is setuid: the loader takes no preload library";
  switch (kind_of(program)) {
    case ProgramKind::kStatic: return "is linked statically: it has no loader that could preload";
    case ProgramKind::kMusl: return "is a musl program; the library is for glibc";
    case ProgramKind::kOtherMachine: return kWrongMachine;
    case ProgramKind::kScript:
    case ProgramKind::kDynamic: break;
  }
  return "";
}

std::string clearing_option(const std::vector<std::string>& command) {
  if (fs::path(command.front()).filename() != "env") return "";
  for (size_t i = 1; i < command.size() && command[i].starts_with("-"); ++i) {
    const std::string& word = command[i];
    if (word == "-i" || word == "-" || word == "--ignore-environment") return word;
    if (word == "--unset=LD_PRELOAD" || word == "-uLD_PRELOAD") return word;
    if (word == "-u" && i + 1 < command.size() && command[++i] == "LD_PRELOAD") return word;
  }
  return "";
}

std::vector<std::string> python_part(const std::vector<std::string>& command) {
  std::vector<std::string> words = words_of(command);
  for (size_t i = 0; i < words.size(); ++i) {
    std::string python = is_python(words[i]) ? words[i] : "";
    if (python.empty()) {
      const fs::path program = find_program(words[i]);
      if (!program.empty()) python = python_of_script(program);
    }
    if (python.empty()) continue;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
    words.front() = std::move(python);
    return words;
  }
  return {};
}

}  // namespace convtrace::tools
