// Two whole traces, as they are and with their checksums put right: the diff gives an answer or an
// error, and every report can be written. Input: the length of the first (4 bytes), then both.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/seal_records.h"
#include "tests/support/temp_dir.h"
#include "tools/diff/command.h"

namespace convtrace {
namespace {

using Content = std::vector<std::byte>;

void write(const std::string& path, Bytes bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

int run(std::vector<std::string> words) {
  words.insert(words.begin(), "convtrace-diff");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out, err;
  const int code = diff::diff_command(static_cast<int>(argv.size()), argv.data(), out, err, {});
  if (code < 0 || code > 4) std::abort();
  return code;
}

void compare(const Content& base, const Content& cand) {
  static const test::TempDir folder;
  static const std::string a = folder / "base.ctrace", b = folder / "cand.ctrace";
  static const std::string html = folder / "page.html", csv = folder / "rows.csv";
  write(a, base);
  write(b, cand);
  const int brief = run({a, b, "--json", "-"});  // leaves equal steps unread
  const int whole = run({a, b, "--noise", a, "--html", html, "--csv", csv, "--junit", "-"});
  if ((brief == 2) != (whole == 2)) std::abort();
  (void)run({b, a});
}

}  // namespace
}  // namespace convtrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  if (size < 4) return 0;
  const auto input = std::as_bytes(std::span(data, size));
  const size_t first = std::min<size_t>(load_le<uint32_t>(input.data()), size - 4);
  const Bytes traces = input.subspan(4);
  Content base(traces.begin(), traces.begin() + static_cast<long>(first));
  Content cand(traces.begin() + static_cast<long>(first), traces.end());
  compare(base, cand);
  test::seal_trace(base);
  test::seal_trace(cand);
  compare(base, cand);
  return 0;
}
