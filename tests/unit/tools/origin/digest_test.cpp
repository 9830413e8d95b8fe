#include <sstream>

#include "tests/unit/tools/origin/job.h"
#include "tools/origin/digest/table_codec.h"
#include "tools/origin/digest/write_digest.h"
#include "tools/origin/report/reports.h"
#include "tools/origin/run.h"

namespace convtrace::test {
namespace {

/// The digest of a trace as a job of its own.
std::string digest_of(const std::string& path) {
  std::ostringstream out;
  origin::write_digest(path, out);
  const uint32_t window[] = {origin::kWindowEnd, UINT32_MAX, 0, 0, 0};
  out.write(reinterpret_cast<const char*>(window), sizeof window);
  return out.str();
}

/// @return the report, or the error.
std::string judged(const std::string& digest, const std::string& path) {
  std::istringstream in(digest);
  OriginResult result;
  std::string error;
  const bool good = origin::judge_digests(in, {path}, result, error);
  return good ? tools::dump_json(origin::json_of(result), 2) : error;
}

std::string judged(const std::string& path) {
  OriginResult result;
  std::string error;
  const bool good = origin::find_origins({path}, {.threads = 1}, result, error);
  return good ? tools::dump_json(origin::json_of(result), 2) : error;
}

RankEvents faulty_rank() {
  Job job = trained({.ranks = 3, .steps = 4, .change = [](Moment& at) {
                       if (at.is(1, 2, "fc1 output")) at.values[0] = kNan;
                     }});
  return job[1];
}

TEST_CASE("origin: a digest says what its trace says", "[origin][digest]") {
  const TempDir dir;
  const std::string path = dir / "rank.ctrace";
  RankEvents rank = faulty_rank();
  SECTION("closed") {}
  SECTION("not closed") { rank.closed = false; }
  SECTION("without records") { rank.events.clear(); }
  write(rank, path);
  const std::string report = judged(path);
  CHECK(contains(report, "\"origins\""));
  CHECK(judged(digest_of(path), path) == report);
}

TEST_CASE("origin: the digest of what is no trace says so", "[origin][digest]") {
  const TempDir dir;
  const std::string path = dir / "missing.ctrace";
  CHECK(contains(judged(digest_of(path), path), "CT-2101"));
  CHECK(judged(digest_of(path), path) == judged(path));
}

TEST_CASE("origin: damaged digests are refused, or judged as they are",
          "[origin][digest][hostile]") {
  const TempDir dir;
  const std::string path = dir / "rank.ctrace";
  RankEvents rank = faulty_rank();
  rank.events.resize(rank.events.size() / 2);
  write(rank, path);
  const std::string digest = digest_of(path);
  for (size_t length = 0; length < digest.size(); length += 1 + length / 50)
    CHECK(contains(judged(digest.substr(0, length), path), "damaged, or of another version"));
  for (size_t at = 0; at < digest.size(); at += 1 + at / 100)
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string other = digest;
      other[at] = static_cast<char>(other[at] ^ flip);
      CHECK(!judged(other, path).empty());
    }
}

}  // namespace
}  // namespace convtrace::test
