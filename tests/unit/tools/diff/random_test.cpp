// What holds for any two runs, on runs and files that were changed at random.

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/command.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using diff::DiffResult;
using test::compared;
using test::Item;
using test::Run;

using Random = std::mt19937;

size_t below(Random& random, size_t limit) { return random() % limit; }

/// Does one thing to a run that real runs differ by.
void mutate(Run& run, Random& random) {
  Item& item = run.items[below(random, run.items.size())];
  const size_t at = static_cast<size_t>(&item - run.items.data());
  switch (below(random, 7)) {
    case 0: run.items.erase(run.items.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: run.items.push_back(Item(item)); break;
    case 2: test::scale(item, 1 + 1e-6 * static_cast<double>(below(random, 1000))); break;
    case 3:
      if (at > 0) std::swap(run.items[at - 1], run.items[at]);
      break;
    case 4: {
      const std::string from = item.scope, to = "other" + std::to_string(below(random, 3));
      for (Item& other : run.items) {
        if (other.scope == from) other.scope = to;
      }
      break;
    }
    case 5: {
      Item finding{.kind = Item::Kind::kFinding, .step = item.step, .scope = "fc1"};
      finding.level = below(random, 4) == 0 ? format::Level::kError : format::Level::kWarning;
      run.items.insert(run.items.begin() + static_cast<std::ptrdiff_t>(at), finding);
      break;
    }
    default:
      if (!item.values.empty()) item.values.pop_back();
      break;
  }
}

Run mutated(Random& random) {
  Run run = test::training(3);
  for (size_t i = below(random, 4); i > 0; --i) mutate(run, random);
  return run;
}

/// A repetition of `run` on a machine that rounds: every tensor moves by up to `eps` epsilons of
/// f32, and is the same to all that see it.
Run rounded(Run run, double eps, Random& random) {
  std::map<uint64_t, double> factors;  // by storage
  for (Item& item : run.items) {
    const double part = static_cast<double>(random()) / static_cast<double>(Random::max());
    const double factor = 1 + (2 * part - 1) * eps * 0x1p-23;
    test::scale(item, factors.emplace(item.storage, factor).first->second);
  }
  return run;
}

void flip_bytes(const std::string& path, Random& random) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  in.close();
  for (size_t i = below(random, 20); i > 0; --i)
    bytes[below(random, bytes.size())] = static_cast<char>(random());
  if (below(random, 4) == 0) bytes.resize(below(random, bytes.size()));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("random: a run against itself is the same", "[diff][random]") {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const Run run = mutated(random);
    const DiffResult result = compared(run, run);
    CAPTURE(i);
    const bool buggy = result.base_findings.errors != 0;
    CHECK(result.verdict == (buggy ? diff::Verdict::kFindings : diff::Verdict::kSame));
    CHECK(test::count(result, diff::Class::kIdentical) == result.values);
  }
}

TEST_CASE("random: exchanging the runs names the same root", "[diff][random]") {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const Run a = mutated(random), b = mutated(random);
    const DiffResult there = compared(a, b), back = compared(b, a);
    CAPTURE(i);
    CHECK(there.verdict == back.verdict);
    CHECK(there.counts == back.counts);
    REQUIRE(there.root.has_value() == back.root.has_value());
    if (!there.root) continue;
    const diff::RecordReport &one = there.root->record, &other = back.root->record;
    CHECK(one.step == other.step);
    CHECK(one.scope == other.cand_scope);
    CHECK(one.slot == other.cand_slot);
    CHECK(one.comparison.verdict == other.comparison.verdict);
  }
}

TEST_CASE("random: steps that are not read are counted as if they were", "[diff][random]") {
  struct Rows final : diff::RowSink {
    uint64_t count = 0;
    void row(const diff::RecordReport&, bool, bool) override { ++count; }
  };
  Random random(4);
  for (int i = 0; i < 150; ++i) {
    const test::TempDir dir;
    diff::DiffInputs inputs{.base = dir / "base.ctrace", .cand = dir / "cand.ctrace"};
    mutated(random).write(inputs.base, below(random, 4) != 0);
    mutated(random).write(inputs.cand, below(random, 4) != 0);
    DiffResult unread, once, all;
    std::string error;
    Rows once_rows, all_rows;
    REQUIRE(diff::run_diff(inputs, nullptr, unread, error));
    REQUIRE(diff::run_diff(inputs, &once_rows, once, error));
    inputs.rules.renames = {{"no such module", "nor this"}};  // equal names prove nothing any more
    REQUIRE(diff::run_diff(inputs, &all_rows, all, error));
    CHECK(once_rows.count == all_rows.count);
    for (const DiffResult& some : {unread, once}) {
      CAPTURE(i);
      CHECK(some.verdict == all.verdict);
      CHECK(some.counts == all.counts);
      CHECK(some.values == all.values);
      CHECK(some.launches == all.launches);
      CHECK(some.steps == all.steps);
      CHECK(some.incomplete == all.incomplete);
      CHECK(some.base_findings.count == all.base_findings.count);
      CHECK(some.cand_findings.errors == all.cand_findings.errors);
      REQUIRE(some.root.has_value() == all.root.has_value());
      if (!some.root) continue;
      CHECK(some.root->matched_before == all.root->matched_before);
      CHECK(some.root->record.comparison.worst_input == all.root->record.comparison.worst_input);
      CHECK(some.root->record.slot == all.root->record.slot);
      CHECK(test::where(some) == test::where(all));
    }
  }
}

TEST_CASE("random: noise of rounding never diverges beside three runs that have it",
          "[diff][random]") {
  Random random(5);
  for (int i = 0; i < 40; ++i) {
    const double eps = std::pow(10, static_cast<double>(below(random, 5)));
    const Run run = test::training(3);
    const Run base = rounded(run, eps, random), cand = rounded(run, eps, random);
    const std::vector<Run> noise = {rounded(run, eps, random), rounded(run, eps, random),
                                    rounded(run, eps, random)};
    CAPTURE(i, eps);
    const DiffResult result = compared(base, cand, noise);
    CHECK(result.verdict == diff::Verdict::kSame);
    CHECK(result.first_bit_difference.has_value());
  }
}

TEST_CASE("random: without them a divergence of that size is within reach of rounding",
          "[diff][random]") {
  Random random(6);
  int diverged = 0;
  for (int i = 0; i < 40; ++i) {
    const Run run = test::training(3);
    const DiffResult result = compared(rounded(run, 200, random), rounded(run, 200, random));
    CAPTURE(i);
    if (!result.root) continue;
    ++diverged;
    CHECK_FALSE(diff::rounding_hint(result).empty());
  }
  CHECK(diverged > 10);
}

TEST_CASE("random: damaged files give an answer or an error", "[diff][random]") {
  Random random(3);
  for (int i = 0; i < 150; ++i) {
    const test::TempDir dir;
    const std::string base = dir / "base.ctrace", cand = dir / "cand.ctrace";
    mutated(random).write(base, below(random, 4) != 0);
    mutated(random).write(cand, below(random, 4) != 0);
    flip_bytes(base, random);
    flip_bytes(cand, random);
    std::ostringstream out, err;
    const std::string html = dir / "page.html", csv = dir / "rows.csv";
    const char* argv[] = {"convtrace-diff", base.c_str(), cand.c_str(), "--html", html.c_str(),
                          "--csv",          csv.c_str(),  "--json",     "-"};
    const int code = diff::diff_command(9, argv, out, err, {});
    CAPTURE(i, err.str());
    CHECK(code >= 0);
    CHECK(code <= 4);
    CHECK((code == 2) == out.str().empty());
  }
}
