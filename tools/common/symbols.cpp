#include "tools/common/symbols.h"

#include <sys/stat.h>

#include <charconv>
#include <chrono>
#include <fstream>

#include "format/base/build_id.h"
#include "tools/common/child.h"
#include "tools/common/json.h"

namespace convtrace::tools {
namespace {

constexpr std::string_view kFact = "library.";
constexpr std::chrono::seconds kPatience(60);  ///< a debug build of PyTorch has gigabytes of lines
constexpr size_t kMaxNotes = 1U << 20;

template <typename T>
bool read_at(std::ifstream& file, uint64_t offset, T* to, size_t bytes) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(
      file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes)));
}

std::string build_id_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!read_at(file, 0, &header, sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return {};
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read_at(file, header.e_phoff + uint64_t{i} * sizeof part, &part, sizeof part)) break;
    if (part.p_type != PT_NOTE || part.p_filesz > kMaxNotes) continue;
    std::vector<std::byte> notes(part.p_filesz);
    if (!read_at(file, part.p_offset, notes.data(), notes.size())) break;
    if (std::string id = build_id_in(notes, part.p_align); !id.empty()) return id;
  }
  return {};
}

uint64_t modified_ns(const struct stat& file) {
  return static_cast<uint64_t>(file.st_mtim.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(file.st_mtim.tv_nsec);
}

/// A function and where its source is, as `addr2line -p` prints them.
struct Line {
  std::string_view function;  ///< empty: unknown
  std::string_view source;    ///< "file:line"; empty: unknown
};

Line parse_line(std::string_view text) {
  text = text.substr(0, text.find(" (discriminator"));
  const size_t at = text.find(" at ");
  if (at == std::string_view::npos || text.starts_with("??")) return {};  // "?? ??:0"
  Line line{text.substr(0, at), text.substr(at + 4)};
  if (line.source.ends_with(":?") || line.source.ends_with(":0")) line.source = {};
  return line;
}

/// The output of `addr2line -aip`: for each address "0x12: f at a.cpp:3", and for each function
/// that this one is inlined into " (inlined by) g at b.cpp:4".
class Answer {
 public:
  /// @param text  borrowed, by the lines, too.
  explicit Answer(std::string_view text) : rest_(text) {}

  /// @return the functions at the next address, innermost first; one at least.
  std::vector<Line> next() {
    constexpr std::string_view kColon = ": ", kInlined = " (inlined by) ";
    const std::string_view first = take();
    std::vector<Line> lines{
        parse_line(first.substr(std::min(first.size(), first.find(kColon) + kColon.size())))};
    while (rest_.starts_with(kInlined)) lines.push_back(parse_line(take().substr(kInlined.size())));
    return lines;
  }

 private:
  std::string_view take() {
    const std::string_view line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(rest_.size(), line.size() + 1));
    return line;
  }

  std::string_view rest_;
};

}  // namespace

struct Symbols::Frame {
  std::string text;     ///< as recorded
  std::string library;  ///< key of libraries_
  uint64_t offset = 0;
  bool named = false;  ///< the recorded text has a function
  [[nodiscard]] std::string place() const {
    return named ? text.substr(text.rfind(" (")) : " (" + text + ')';
  }
};

Symbols::Symbols(const format::TraceMeta& meta)
    : start_ns_(meta.start_realtime_ns), addr2line_(find_program("addr2line")) {
  for (const auto& [name, value] : meta.facts) {
    const size_t space = value.find(' ');
    if (!name.starts_with(kFact) || space == std::string::npos) continue;
    Library library{value.substr(0, space), value.substr(space + 1), std::nullopt};
    if (library.build_id == "-") library.build_id.clear();
    libraries_[name.substr(kFact.size())] = std::move(library);
  }
}

std::vector<std::string> Symbols::frames(std::span<const std::string> stack) {
  std::map<std::string, std::vector<Frame>> unknown;  // by library
  for (const std::string& text : stack) {
    if (known_.contains(text)) continue;
    known_.emplace(text, std::vector<std::string>{text});
    if (std::optional<Frame> frame = parse(text)) unknown[frame->library].push_back(*frame);
  }
  for (const auto& [library, frames] : unknown) name(frames);
  std::vector<std::string> all;
  for (const std::string& text : stack) {
    const std::vector<std::string>& texts = known_.find(text)->second;
    all.insert(all.end(), texts.begin(), texts.end());
  }
  return all;
}

/// "function+0x1c (ops.so+0x1234)" or "ops.so+0x1234", of a library that the trace knows.
std::optional<Symbols::Frame> Symbols::parse(std::string_view text) const {
  Frame frame{std::string(text), {}, 0, text.ends_with(')')};
  if (frame.named) {
    const size_t begin = text.rfind(" (");
    if (begin == std::string_view::npos) return std::nullopt;
    text = text.substr(begin + 2, text.size() - begin - 3);
  }
  const size_t plus = text.rfind("+0x");
  if (plus == std::string_view::npos) return std::nullopt;
  frame.library = text.substr(0, plus);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + plus + 3, end, frame.offset, 16);
  if (error != std::errc() || stop != end || frame.offset == 0) return std::nullopt;
  return libraries_.contains(frame.library) ? std::optional(frame) : std::nullopt;
}

std::string Symbols::obstacle(const Library& library) const {
  struct stat file {};
  if (addr2line_.empty()) return "addr2line (binutils) is not installed";
  if (!library.path.starts_with('/') || stat(library.path.c_str(), &file) != 0 ||
      !S_ISREG(file.st_mode))
    return library.path + " is not on this machine";
  const bool same = library.build_id.empty() ? modified_ns(file) <= start_ns_
                                             : build_id_of_file(library.path) == library.build_id;
  return same ? "" : library.path + " is not what the run had loaded: it was built anew";
}

/// @param frames of one library.
void Symbols::name(const std::vector<Frame>& frames) {
  Library& library = libraries_.at(frames.front().library);
  if (!library.obstacle) library.obstacle = obstacle(library);
  std::optional<std::string> text;
  if (library.obstacle->empty()) {
    std::vector<std::string> words{addr2line_, "-Cfipa", "-e", library.path};
    // The call lies before the address it returns to.
    for (const Frame& frame : frames) words.push_back(hex_text(frame.offset - 1));
    text = answer_of(words, kPatience);
    if (!text) library.obstacle = "addr2line could not read " + library.path;
  }
  Answer answer(text ? *text : std::string_view());
  for (const Frame& frame : frames) {
    std::vector<std::string> texts;
    bool has_source = false;
    for (const Line& line : answer.next()) {
      if (line.function.empty()) continue;
      has_source = has_source || !line.source.empty();
      texts.push_back(std::string(line.function) +
                      (line.source.empty() ? "" : " at " + std::string(line.source)) +
                      frame.place());
    }
    // The recorded text has the offset in the function, too: only a source line adds information.
    if (has_source || (!frame.named && !texts.empty())) {
      known_[frame.text] = std::move(texts);
    } else if (!frame.named) {
      unnamed_.insert(frame.library);
    }
  }
}

std::vector<std::string> Symbols::obstacles() const {
  std::vector<std::string> lines;
  for (const std::string& name : unnamed_) {
    const std::string& why = *libraries_.find(name)->second.obstacle;
    if (!why.empty()) lines.push_back("functions of " + name + " have no names: " + why);
  }
  return lines;
}

}  // namespace convtrace::tools
