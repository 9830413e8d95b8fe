#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/tools/cli/cli.h"
#include "tests/unit/tools/origin/job.h"
#include "tools/origin/report/reports.h"

namespace convtrace::test {
namespace {

using tools::Json;

ProcessResult run_origin(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "origin");
  return convtrace(arguments);
}

Job faulty() {
  return trained({.ranks = 4, .steps = 5, .change = [](Moment& at) {
                    if (at.is(2, 3, "fc1 output")) at.values[5] = kNan;
                  }});
}

std::string written(const Job& job, const TempDir& dir, const std::string& name) {
  std::filesystem::create_directory(dir / name);
  for (size_t i = 0; i < job.size(); ++i)
    write(job[i], dir / (name + "/" + std::to_string(i) + ".ctrace"));
  return dir / name;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("origin command: exit codes", "[origin][command]") {
  const TempDir dir;
  const std::string clean = written(trained({.ranks = 3, .steps = 3}), dir, "clean");
  const ProcessResult nothing = run_origin({clean});
  CHECK(nothing.exit_code == 0);
  CHECK(nothing.err.empty());
  CHECK(nothing.out.starts_with("Nothing found; read: 3 ranks, 3 steps, 6 collectives"));
  const ProcessResult found = run_origin({written(faulty(), dir, "faulty")});
  CHECK(found.exit_code == 4);
  CHECK(found.out.starts_with("Rank 2 went wrong first, in step 3: nan; read: 4 ranks"));
  CHECK(contains(found.out, "nan  rank 2, step 3, forward, fc1, output:0"));
  CHECK(contains(found.out,
                 "received  by ranks 0, 1, 3, first through all_reduce number 6 of group world"));
  Job open = trained({.ranks = 3, .steps = 3});
  open[1].closed = false;
  const ProcessResult unclosed = run_origin({written(open, dir, "open")});
  CHECK(unclosed.exit_code == 3);
  CHECK(contains(unclosed.out, "incomplete  "));
  CHECK(run_origin({}).exit_code == 2);
  CHECK(run_origin({dir / "missing"}).exit_code == 2);
  CHECK(run_origin({clean, "--json", "-", "--html", "-"}).exit_code == 2);
  // Traces one by one are the same job.
  CHECK(run_origin({clean + "/2.ctrace", clean + "/0.ctrace", clean + "/1.ctrace"}).out ==
        nothing.out);
}

TEST_CASE("origin command: JSON", "[origin][command]") {
  const TempDir dir;
  const Json json = Json::parse(run_origin({written(faulty(), dir, "t"), "--json", "-"}).out);
  REQUIRE(json["origins"].size() == 1);
  const Json& origin = json["origins"][0];
  CHECK(origin["kind"] == "nan");
  CHECK(origin["rank"] == 2);
  CHECK(origin["step"] == 3);
  CHECK(origin["phase"] == "forward");
  CHECK(origin["scope"] == "fc1");
  CHECK(origin["slot"] == "output:0");
  CHECK(origin["ranks"] == Json({0, 1, 3}));
  CHECK(origin["collective"]["group"] == "world");
  CHECK(origin["collective"]["number"] == 6);
  CHECK(origin["suspects"].empty());
  CHECK(json["ranks"] == Json({0, 1, 2, 3}));
  CHECK(json["steps"] == 5);
  CHECK(json["notes"].empty());
}

TEST_CASE("origin page: the matrix of ranks by steps", "[origin][page]") {
  const TempDir dir;
  const std::string page = dir / "page.html";
  CHECK(run_origin({written(faulty(), dir, "t"), "--html", page}).exit_code == 4);
  const std::string text = read(page);
  CHECK(text.starts_with("<!doctype html>"));
  CHECK(contains(text,
                 "<h1 class=\"diverged\">Rank 2 went wrong first, in step 3: nan; read: 4 ranks"));
  CHECK(contains(text, "<th scope=\"row\">rank 2</th>"));
  CHECK(contains(text, "<th scope=\"row\">ranks 0, 1, 3 (3)</th>"));
  CHECK(contains(text, "<td class=\"k3\" title=\"step 3: origin\">"));
  CHECK(contains(text, "<td class=\"k2\" title=\"step 3: received\">"));
  CHECK(contains(text, "<td class=\"k1\" title=\"step 2: nothing found\">"));
  CHECK(contains(text, "<td class=\"step\">3</td>"));  // where it begins
  CHECK(!contains(text, "<script"));
}

TEST_CASE("origin page: texts of a trace are escaped", "[origin][page]") {
  Job job = faulty();
  const std::string evil = "<script>alert(1)</script>\x1b[31m";
  for (RankEvents& rank : job)
    for (Event& event : rank.events) {
      if (event.call) event.call->group = evil;
      if (event.value && event.value->scope == "fc1") event.value->scope = evil;
    }
  const OriginResult result = origins_of(job);
  REQUIRE(!result.origins.empty());
  std::ostringstream page, text;
  origin::write_html(result, page);
  origin::write_text(result, {}, text);
  CHECK(!contains(page.str(), "<script"));
  CHECK(contains(page.str(), "&lt;script&gt;"));
  CHECK(!contains(page.str() + text.str(), "\x1b"));
}

TEST_CASE("origin page: a thousand ranks are few rows", "[origin][page]") {
  OriginResult result;
  for (uint32_t rank = 0; rank < 1000; ++rank) {
    result.ranks.push_back(rank);
    result.cells.emplace_back(500, origin::CellState::kClean);
    if (rank == 17) result.cells.back()[100] = origin::CellState::kOrigin;
  }
  std::ostringstream page;
  origin::write_html(result, page);
  CHECK(page.str().size() < 60'000);
  CHECK(contains(page.str(), "ranks 0-16, 18-999 (999)"));
  CHECK(contains(page.str(), "A column is 5 steps."));
}

}  // namespace
}  // namespace convtrace::test
