#include "interposer/core/memory/python_layout.h"

#include <utility>
#include <vector>

#include "interposer/core/memory/python_frames.h"
#include "tests/support/catch.h"

namespace convtrace::engine {
namespace {

/// co_linetable that Python 3.11 makes of a function of several lines per statement, a `with`, a loop
/// and, 85 lines further down, a comprehension.
const std::vector<unsigned char> kTable = {
    128, 0,   224, 9,   10,  221, 9,   10,  136, 49,  216, 11,  12,  241, 3,   1,   10,  14,
    244, 0,   1,   10,  14,  241, 3,   2,   10,  14,  128, 65,  240, 6,   0,   10,  11,  240,
    0,   1,   5,   38,  136, 97,  221, 17,  22,  144, 113, 145, 24,  148, 24,  208, 8,   37,
    208, 8,   37,  136, 65,  157, 49,  152, 81,  153, 52,  156, 52,  152, 52,  165, 17,  160,
    49,  161, 20,  164, 20,  160, 20,  160, 20,  208, 8,   37,  240, 3,   1,   5,   38,  240,
    0,   1,   5,   38,  240, 0,   1,   5,   38,  241, 0,   1,   5,   38,  244, 0,   1,   5,
    38,  240, 0,   1,   5,   38,  240, 0,   1,   5,   38,  240, 0,   1,   5,   38,  240, 0,
    1,   5,   38,  240, 0,   1,   5,   38,  240, 0,   1,   5,   38,  248, 248, 248, 240, 0,
    1,   5,   38,  240, 0,   1,   5,   38,  240, 0,   1,   5,   38,  240, 0,   1,   5,   38,
    240, 108, 2,   1,   12,  24,  240, 0,   1,   12,  24,  216, 21,  22,  240, 3,   1,   12,
    24,  241, 0,   1,   12,  24,  244, 0,   1,   12,  24,  240, 0,   1,   5,   24};

TEST_CASE("python_layout: lines of instructions are those that Python tells", "[engine][python]") {
  // (first instruction, line), as co_lines() has them.
  const std::vector<std::pair<uint64_t, uint32_t>> lines = {
      {0, 1},   {2, 3},   {4, 4},   {18, 5},   {20, 4},   {34, 3},   {40, 6}, {46, 7},
      {144, 6}, {176, 0}, {182, 6}, {190, 92}, {194, 93}, {196, 92}, {214, 0}};
  for (size_t i = 0; i + 1 < lines.size(); ++i)
    for (uint64_t at = lines[i].first; at < lines[i + 1].first; at += 2) {
      INFO("instruction at " << at);
      CHECK(line_in(kTable, 1, at) == lines[i].second);
    }
  CHECK(line_in(kTable, 1, 214) == 0);
}

TEST_CASE("python_layout: a table that is cut has no line and is not read further",
          "[engine][python]") {
  constexpr size_t kLastEntry = 5;  // of the instruction at 212
  for (size_t size = 0; size <= kTable.size() - kLastEntry; ++size) {
    const std::vector<unsigned char> cut(kTable.begin(),
                                         kTable.begin() + static_cast<ptrdiff_t>(size));
    CHECK(line_in(cut, 1, 212) == 0);
  }
  const std::vector<unsigned char> endless(64, 0xFF);
  CHECK(line_in(endless, 1, 10000) == 0);
}

TEST_CASE("python_frames: of a process without Python a stack is as it was", "[engine][python]") {
  CHECK_FALSE(learn_python_frames({}));
  void* stack[4] = {&stack, nullptr, nullptr, nullptr};
  CHECK(add_python_frames(stack, 1) == 1);
  CHECK_FALSE(is_python_frame(stack[0]));
}

}  // namespace
}  // namespace convtrace::engine
