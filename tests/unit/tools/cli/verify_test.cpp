#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {

TEST_CASE("verify: 0 for a good trace, 3 for one that is not closed, 1 for what is no trace",
          "[cli]") {
  const TempDir folder;
  const std::string good = folder / "good", unclosed = folder / "unclosed", text = folder / "text";
  TraceBuilder(good).step(1).stats({.values = {1}}).close();
  TraceBuilder(unclosed).step(1).stats({.values = {1}}).leave_unclosed();
  std::ofstream(text) << "no trace";
  const ProcessResult result = convtrace({"verify", good});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("complete: 7 records, 2 events, 0 problems") == 0);
  CHECK(result.err.empty());
  CHECK(convtrace({"verify", unclosed}).exit_code == 3);
  CHECK(convtrace({"verify", unclosed}).out.find("not closed") != std::string::npos);
  CHECK(convtrace({"verify", text}).exit_code == 1);
  CHECK(convtrace({"verify", text}).out.empty());
}

TEST_CASE("verify: a damaged byte is named by the offset of its record", "[cli]") {
  const TempDir folder;
  const std::string path = folder / "a.ctrace";
  TraceBuilder(path).step(1).stats({.values = {1}}).close();
  std::string bytes = read_file(path);
  bytes[64 + 64 + 3] ^= 1;  // in the payload of the first record
  std::ofstream(path, std::ios::binary) << bytes;
  const ProcessResult text = convtrace({"verify", path});
  CHECK(text.exit_code == 3);
  CHECK(text.out.find("offset 64: payload: damaged data") != std::string::npos);
  const ProcessResult json = convtrace({"verify", "--json", path});
  CHECK(json.exit_code == 3);
  const tools::Json report = tools::Json::parse(json.out);
  CHECK(report["state"] == "damaged");
  CHECK(report["problem_count"] == 1);
  CHECK(report["problems"][0]["offset"] == 64);
}

}  // namespace convtrace::test
