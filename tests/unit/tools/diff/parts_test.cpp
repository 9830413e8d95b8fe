#include <filesystem>
#include <sstream>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/ranks/part_file.h"
#include "tools/diff/report/reports.h"

namespace convtrace::test {
namespace {

constexpr uint32_t kRanks = 3;

/// Two jobs of several ranks, each in a folder.
struct Jobs {
  Jobs() {
    for (const char* run : {"base", "cand"}) std::filesystem::create_directory(dir / run);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      Run base = training(3);
      base.meta.rank = rank;
      base.meta.world_size = kRanks;
      Run cand = base;
      if (rank == 1) scale(cand.at(1, "fc2", "output:0"), 1.5);
      if (rank == 2) cand.end_before(2);
      base.write(path("base", rank));
      cand.write(path("cand", rank));
    }
  }
  [[nodiscard]] std::string path(const std::string& run, uint32_t rank) const {
    return dir / (run + "/" + std::to_string(rank) + ".ctrace");
  }
  TempDir dir;
  diff::DiffInputs inputs{.base = dir / "base", .cand = dir / "cand"};
};

std::string message(const std::string& bytes) {
  const uint64_t length = bytes.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
}

std::string descriptions_of(const Jobs& jobs) {
  const uint32_t count = 2 * kRanks;
  std::string bytes(reinterpret_cast<const char*>(&count), sizeof count);
  for (const bool in_cand : {false, true})
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::string path = jobs.path(in_cand ? "cand" : "base", rank);
      bytes += message(to_bytes(diff::describe(in_cand, true, path, path, "")));
    }
  return bytes;
}

std::string part_of(const Jobs& jobs, uint32_t rank) {
  diff::RankPart part{.rank = rank, .result = {}};
  std::string error;
  const diff::DiffInputs inputs{.base = jobs.path("base", rank), .cand = jobs.path("cand", rank)};
  REQUIRE(diff::compare_pair(inputs, true, part, error));
  return to_bytes(part);
}

std::string joined(const Jobs& jobs, const std::string& bytes) {
  std::istringstream in(bytes);
  diff::Described described;
  described.base.path = jobs.inputs.base;
  described.cand.path = jobs.inputs.cand;
  std::string error;
  if (!read_descriptions(in, described, error)) return error;
  std::vector<std::optional<diff::RankPart>> parts;
  if (!read_parts(in, parts)) return "odd parts";
  diff::DiffResult result;
  diff::join_parts(jobs.inputs, described.base, described.cand, parts, result);
  return tools::dump_json(diff::json_report(result), 2);
}

TEST_CASE("diff: ranks compared apart and joined are those compared together", "[diff][parts]") {
  const Jobs jobs;
  std::string bytes = descriptions_of(jobs);
  for (uint32_t rank = 0; rank < kRanks; ++rank) bytes += message(part_of(jobs, rank));
  diff::DiffResult result;
  std::string error;
  REQUIRE(diff::run_diff(jobs.inputs, nullptr, result, error));
  CHECK(result.verdict == diff::Verdict::kDiverged);
  CHECK(!result.incomplete.empty());
  CHECK(joined(jobs, bytes) == tools::dump_json(diff::json_report(result), 2));
}

TEST_CASE("diff: a rank whose task failed is told", "[diff][parts]") {
  const Jobs jobs;
  const std::string report = joined(jobs, descriptions_of(jobs) + message(part_of(jobs, 0)) +
                                              message("") + message(part_of(jobs, 2)));
  CHECK(report.find("rank 1: the task that compares it has failed") != std::string::npos);
  CHECK(report.find("\"verdict\": \"incomplete\"") != std::string::npos);
}

TEST_CASE("diff: damaged parts are refused", "[diff][parts][hostile]") {
  const Jobs jobs;
  const std::string descriptions = descriptions_of(jobs), part = part_of(jobs, 1);
  for (size_t length = 0; length < descriptions.size(); length += 1 + length / 20)
    CHECK(joined(jobs, descriptions.substr(0, length)).find("damaged") != std::string::npos);
  for (size_t length = 1; length < part.size(); length += 1 + length / 20)
    CHECK(joined(jobs, descriptions + message(part.substr(0, length))) == "odd parts");
  for (size_t at = 0; at < part.size(); at += 1 + at / 50) {
    std::string other = part;
    other[at] = static_cast<char>(other[at] ^ 0xFF);
    CHECK(!joined(jobs, descriptions + message("") + message(other)).empty());
  }
}

}  // namespace
}  // namespace convtrace::test
