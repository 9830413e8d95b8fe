// usage: make_golden FOLDER    writes new golden traces; those of a released version are never made
// again

#include <cstdio>
#include <fstream>

#include "reader/trace_reader.h"
#include "tests/golden/tiny_trace.h"
#include "tests/support/describe.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_golden FOLDER\n", stderr);
    return 2;
  }
  const std::string path = std::string(argv[1]) + "/tiny.ctrace";
  convtrace::test::write_tiny_trace(path);
  const auto reader = convtrace::reader::TraceReader::open(path);
  std::ofstream expected(std::string(argv[1]) + "/tiny.expected.txt");
  convtrace::format::Event event;
  while (reader.ok() && reader.value()->next(event)) {
    expected << convtrace::test::describe(event) << '\n';
  }
  return reader.ok() && expected ? 0 : 1;
}
