#include "interposer/core/memory/python_layout.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace convtrace::engine {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kStateWords = 64, kFrameWords = 16, kCodeWords = 40;
constexpr uint64_t kTags = 7;  // low bits, which a reference on the stack may carry
constexpr size_t kFewest = 3;  // frames by which two places cannot be mistaken for each other
constexpr size_t kLength = 2 * kWord;  // offset of the length in a str and a bytes object
constexpr size_t kBytes = 4 * kWord;   // offset of the first byte in a bytes object
constexpr size_t kMostCharacters = 4096;
constexpr size_t kMostLines = size_t{1} << 20;

template <size_t count>
using Words = std::array<uint64_t, count>;

bool read(uint64_t address, void* out, size_t bytes) {
  const iovec ours{out, bytes}, theirs{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(bytes);
}

template <size_t count>
std::optional<Words<count>> words_at(uint64_t address) {
  Words<count> words{};
  if (address == 0 || address % kWord != 0 || !read(address, words.data(), sizeof words))
    return std::nullopt;
  return words;
}

using Frames = std::span<const KnownFrame>;

/// @return whether the frame at `address` and those before it are the known ones.
bool is_chain(uint64_t address, const PythonLayout& layout, Frames known) {
  for (const KnownFrame& one : known) {
    const auto frame = words_at<kFrameWords>(address);
    if (!frame || ((*frame)[layout.code / kWord] & ~kTags) != one.code) return false;
    address = (*frame)[layout.previous / kWord];
  }
  return true;
}

/// Finds where a frame has its code and the frame before it.
bool find_links(uint64_t frame, PythonLayout& layout, Frames known) {
  const auto words = words_at<kFrameWords>(frame);
  if (!words) return false;
  for (size_t code = 0; code < kFrameWords; ++code) {
    if (((*words)[code] & ~kTags) != known[0].code) continue;
    for (size_t previous = 0; previous < kFrameWords; ++previous) {
      layout.code = code * kWord;
      layout.previous = previous * kWord;
      if (previous != code && is_chain(frame, layout, known)) return true;
    }
  }
  return false;
}

/// @return the innermost frame; 0 if it is not found.
uint64_t find_frames(uint64_t state, PythonLayout& layout, Frames known) {
  const auto words = words_at<kStateWords>(state);
  if (!words) return 0;
  for (size_t i = 0; i < kStateWords; ++i) {
    layout.frame_in_state = i * kWord;
    layout.behind_pointer.reset();
    if (find_links((*words)[i], layout, known)) return (*words)[i];
    const auto behind = words_at<4>((*words)[i]);
    for (size_t k = 0; behind && k < behind->size(); ++k) {
      layout.behind_pointer = k * kWord;
      if (find_links((*behind)[k], layout, known)) return (*behind)[k];
    }
  }
  return 0;
}

/// Finds the pointer to the running instruction, and where code has its first one.
bool find_instruction(uint64_t innermost, PythonLayout& layout, Frames known) {
  for (size_t i = 0; i < kFrameWords; ++i) {
    uint64_t frame = innermost, first = 0;
    bool fits = true;
    for (const KnownFrame& one : known) {
      const auto words = words_at<kFrameWords>(frame);
      if (!words) return false;
      const uint64_t start = (*words)[i] - one.instruction - one.code;
      fits = fits && start > 0 && start < kCodeWords * kWord && (first == 0 || first == start);
      first = start;
      frame = (*words)[layout.previous / kWord];
    }
    layout.instruction = i * kWord;
    layout.first = first;
    if (fits) return true;
  }
  return false;
}

/// Finds a word, or half of one, that all code objects have at one place.
template <typename Number>
bool find_in_code(Frames known, size_t& offset, const auto& wanted) {
  for (offset = 0; offset < kCodeWords * kWord; offset += sizeof(Number)) {
    const bool all = std::ranges::all_of(known, [&](const KnownFrame& one) {
      Number found{};
      return read(one.code + offset, &found, sizeof found) && found == wanted(one);
    });
    if (all) return true;
  }
  return false;
}

bool find_characters(Frames known, PythonLayout& layout) {
  for (layout.characters = 3 * kWord; layout.characters < 8 * kWord; layout.characters += kWord) {
    const bool all = std::ranges::all_of(known, [&](const KnownFrame& one) {
      const auto is = [&](uint64_t text, std::string_view content) {
        uint64_t length = 0;
        std::string found(content.size(), '\0');
        return read(text + kLength, &length, sizeof length) && length == content.size() &&
               read(text + layout.characters, found.data(), found.size()) && found == content;
      };
      return is(one.file, one.file_text) && is(one.name, one.name_text);
    });
    if (all) return true;
  }
  return false;
}

/// A signed number of 6 bits a byte, the lowest first; a further bit says that more follow.
int64_t take_number(std::span<const unsigned char>& rest) {
  uint64_t number = 0;
  for (unsigned shift = 0; !rest.empty(); shift += 6) {
    const unsigned char byte = rest.front();
    rest = rest.subspan(1);
    if (shift < 60) number |= uint64_t{byte & 63u} << shift;
    if ((byte & 64) == 0) break;
  }
  const auto half = static_cast<int64_t>(number >> 1);
  return (number & 1) != 0 ? -half : half;
}

}  // namespace

std::optional<PythonLayout> learn_layout(uint64_t state, Frames known) {
  if (known.size() < kFewest || state == 0) return std::nullopt;
  PythonLayout layout;
  const uint64_t innermost = find_frames(state, layout, known);
  const auto file = [](const KnownFrame& one) { return one.file; };
  const auto name = [](const KnownFrame& one) { return one.name; };
  const auto lines = [](const KnownFrame& one) { return one.lines; };
  const auto line = [](const KnownFrame& one) { return one.first_line; };
  const bool found = innermost != 0 && find_instruction(innermost, layout, known) &&
                     find_in_code<uint64_t>(known, layout.file, file) &&
                     find_in_code<uint64_t>(known, layout.name, name) &&
                     find_in_code<uint64_t>(known, layout.lines, lines) &&
                     find_in_code<uint32_t>(known, layout.line, line) &&
                     find_characters(known, layout) &&
                     read(known[0].code + kWord, &layout.code_type, kWord);
  const bool sound = found && std::ranges::all_of(known, [&](const KnownFrame& one) {
                       return line_of(layout, one.code, one.instruction) == one.line;
                     });
  return sound ? std::optional(layout) : std::nullopt;
}

uint64_t innermost_frame(const PythonLayout& layout, uint64_t state) {
  const uint64_t found = word_at(state + layout.frame_in_state);
  if (!layout.behind_pointer || found == 0) return found;
  return word_at(found + *layout.behind_pointer);
}

std::string text_of_python(const PythonLayout& layout, uint64_t text) {
  const uint64_t length = word_at(text + kLength);
  const auto* const first = reinterpret_cast<const char*>(text + layout.characters);
  if (length > kMostCharacters) return "?";
  std::string copy(first, length);
  // Others than ASCII begin at another place.
  const bool ascii = std::ranges::all_of(copy, [](char c) { return c >= ' ' && c <= '~'; });
  return ascii && first[length] == '\0' ? copy : "?";
}

uint32_t line_of(const PythonLayout& layout, uint64_t code, uint64_t instruction) {
  const uint64_t table = word_at(code + layout.lines);
  const uint64_t size = word_at(table + kLength);
  uint32_t first_line = 0;
  std::memcpy(&first_line, reinterpret_cast<const void*>(code + layout.line), sizeof first_line);
  if (size > kMostLines) return 0;
  return line_in({reinterpret_cast<const unsigned char*>(table + kBytes), size}, first_line,
                 instruction);
}

uint32_t line_in(std::span<const unsigned char> table, uint32_t first_line, uint64_t instruction) {
  constexpr unsigned kNone = 15, kLong = 14, kLineAlone = 13, kSameLine = 10;
  int64_t line = first_line;
  uint64_t behind = 0;  // the first byte of code after the decoded entries
  while (!table.empty()) {
    const unsigned kind = (table.front() >> 3) & 15;
    behind += 2 * (uint64_t{table.front() & 7u} + 1);
    table = table.subspan(1);
    if (kind == kLong || kind == kLineAlone) line += take_number(table);
    if (kind >= kSameLine && kind < kLineAlone) line += kind - kSameLine;
    if (instruction < behind) return kind == kNone || line < 0 ? 0 : static_cast<uint32_t>(line);
    while (!table.empty() && (table.front() & 0x80) == 0) table = table.subspan(1);
  }
  return 0;
}

}  // namespace convtrace::engine
