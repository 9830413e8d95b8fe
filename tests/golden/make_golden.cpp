// usage: make_golden FOLDER    writes new golden traces and what must be read from them; those of a
// released version are never made again

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/golden/golden_traces.h"

namespace {

namespace fs = std::filesystem;

bool write(const fs::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  return static_cast<bool>(out << content);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace convtrace::test;
  if (argc != 2) {
    std::fputs("usage: make_golden FOLDER\n", stderr);
    return 2;
  }
  const fs::path folder = argv[1];
  fs::create_directories(folder / "must_fail");
  bool good = true;
  for (const GoldenTrace& trace : kGolden) {
    const fs::path path = folder / (std::string(trace.name) + ".ctrace");
    trace.write(path);
    good = good && write(fs::path(path).replace_extension("expected.txt"), reading_of(path)) &&
           write(fs::path(path).replace_extension("expected.jsonl"), json_of(path));
  }
  std::ifstream tiny(folder / "tiny.ctrace", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(tiny), {}};
  for (const MustFail& file : kMustFail) {
    const fs::path path = folder / "must_fail" / (std::string(file.name) + ".ctrace");
    good = good && write(path, file.damage(bytes)) &&
           write(fs::path(path).replace_extension("expected.txt"), reading_of(path));
  }
  return good ? 0 : 1;
}
