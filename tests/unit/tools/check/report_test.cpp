#include <set>
#include <sstream>

#include "tests/unit/tools/browser.h"
#include "tests/unit/tools/check/check_run.h"
#include "tools/check/report/reports.h"

namespace convtrace::test {
namespace {

using check::CheckResult;
using check::Finding;
using tools::Json;

/// Acts on terminals, pages and readers of XML, and turns the text around.
const std::string kHostile = "<script>alert(1)</script>\"'&\x1b[31m\n]]>\xe2\x80\xae\\";

std::set<std::string> keys(const Json& json) {
  std::set<std::string> names;
  for (const auto& [name, value] : json.items()) names.insert(name);
  return names;
}

Finding full() {
  Finding finding{.id = "nan", .severity = Severity::kError, .rank = 3, .step = 7};
  finding.phase = Phase::kBackward;
  finding.scope = "h.0";
  finding.op = "demo::gelu";
  finding.slot = "grad:weight";
  finding.text = "It is wrong.";
  finding.evidence = {"one", "two"};
  finding.cause = "a reason";
  finding.next = "a command";
  return finding;
}

CheckResult result_of(std::vector<Finding> findings) {
  CheckResult result;
  result.paths = {"a.ctrace"};
  result.findings = std::move(findings);
  result.looked = {{"nan", "the first NaN", 12}, {"mode", "modes", 3}, {"padding", "padding", 0}};
  result.ranks = 1, result.steps = 8, result.steps_trained = 6, result.values = 100;
  return result;
}

Finding hostile() {
  Finding finding = full();
  finding.scope = finding.op = finding.slot = kHostile;
  finding.text = finding.cause = finding.next = kHostile;
  finding.evidence = {kHostile};
  return finding;
}

std::string text_of(const CheckResult& result, diff::Terminal terminal = {}) {
  std::ostringstream out;
  write_text(result, terminal, out);
  return out.str();
}
std::string html_of(const CheckResult& result) {
  std::ostringstream out;
  write_html(result, out);
  return out.str();
}
std::string junit_of(const CheckResult& result) {
  std::ostringstream out;
  write_junit(result, out);
  return out.str();
}
size_t count(std::string_view text, std::string_view part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++times;
  return times;
}

TEST_CASE("check report: keys of JSON", "[check][report]") {
  const Json json = json_of(result_of({full()}));
  CHECK(keys(json) == std::set<std::string>{"headline", "traces", "ranks", "steps",
                                            "training_steps", "values", "incomplete", "notes",
                                            "story", "findings", "checks"});
  CHECK(json["training_steps"] == 6);
  const Json& one = json["findings"][0];
  CHECK(keys(one) == std::set<std::string>{"id", "level", "rank", "step", "phase", "scope", "op",
                                           "slot", "text", "evidence", "cause", "next", "times",
                                           "made_by"});
  CHECK(one["id"] == "nan");
  CHECK(one["level"] == "error");
  CHECK(one["rank"] == 3);
  CHECK(one["step"] == 7);
  CHECK(one["phase"] == "backward");
  CHECK(one["scope"] == "h.0");
  CHECK(one["op"] == "demo::gelu");
  CHECK(one["slot"] == "grad:weight");
  CHECK(one["evidence"] == Json::array({"one", "two"}));
  CHECK(json["checks"][2] == Json::parse(R"({"id": "padding", "what": "padding", "judged": 0})"));
}

TEST_CASE("check report: what is not known is null in JSON", "[check][report]") {
  const Json json = json_of(result_of({{.id = "mode", .severity = Severity::kHint}}));
  for (const char* key : {"step", "phase", "scope", "op", "slot"}) {
    INFO(key);
    CHECK(json["findings"][0][key].is_null());
  }
  CHECK(json["findings"][0]["level"] == "hint");
  Finding root = full();
  root.scope = "";
  CHECK(json_of(result_of({root}))["findings"][0]["scope"] == "");
}

TEST_CASE("check report: worst first, then by step", "[check][report]") {
  Training run = training(6);
  run.at(4, "fc1", "grad:weight").values = run.at(3, "fc1", "grad:weight").values;  // error
  for (uint32_t step = 1; step < 4; ++step)
    run.at(step, "", "input:0").values = noise(1, 32);  // warning
  run.at(5, "", "input:0").values[0] = kNan;            // hint
  const std::vector<Found> all = found(run);
  REQUIRE(all.size() == 3);
  CHECK(all[0].id == "stale-gradient");
  CHECK(all[1].id == "same-batch");
  CHECK(all[2].id == "nan");
}

TEST_CASE("check report: JUnit has a case for each check", "[check][report]") {
  Finding hint{.id = "mode", .severity = Severity::kHint};
  Finding memory{.id = "use-after-free", .severity = Severity::kError};
  const std::string xml = junit_of(result_of({full(), full(), memory, hint}));
  CHECK(contains(xml, "tests=\"4\" failures=\"2\" skipped=\"1\""));
  CHECK(contains(
      xml,
      "name=\"nan: the first NaN\">\n    <failure message=\"rank 3, step 7, backward, h.0, "
      "demo::gelu, grad:weight: It is wrong.\">one\ntwo\n</failure>"));
  CHECK(contains(xml, "name=\"mode: modes\"/>"));  // hints pass
  CHECK(contains(xml, "name=\"padding: padding\">\n    <skipped message="));
  CHECK(contains(xml, "name=\"use-after-free: "));
  CHECK(count(xml, "<testcase") == 4);
}

TEST_CASE("check report: JUnit quotes names once", "[check][report]") {
  const std::string xml = junit_of(result_of({hostile()}));
  CHECK_FALSE(contains(xml, "<script"));
  CHECK_FALSE(contains(xml, "\x1b"));
  CHECK_FALSE(contains(xml, "]]>"));
  CHECK(contains(xml, "\\x1b[31m"));
  CHECK_FALSE(contains(xml, "\\\\x1b"));  // a place that was escaped twice
}

TEST_CASE("check report: a page without scripts, names quoted", "[check][report]") {
  CheckResult result = result_of({hostile()});
  result.paths = {kHostile};
  result.notes = {kHostile};
  const std::string page = html_of(result);
  CHECK(contains(page, "default-src 'none'"));
  CHECK_FALSE(contains(page, "<script"));
  CHECK_FALSE(contains(page, "\x1b"));
  CHECK_FALSE(contains(page, "\xe2\x80\xae"));
  CHECK(contains(page, "&lt;script&gt;"));
  CHECK(count(page, "<section>") == count(page, "</section>"));
  CHECK(contains(page, "not known: nothing to judge"));
}

TEST_CASE("check report: the heading of a page says whether it is clean", "[check][report]") {
  CHECK(contains(html_of(result_of({})),
                 "<h1 class=\"same\">Nothing found in 6 training steps of 1 rank"));
  Finding hint{.id = "mode", .severity = Severity::kHint};
  CHECK(contains(html_of(result_of({hint})), "<h1 class=\"same\">1 hint in"));
  CHECK(contains(html_of(result_of({full()})), "<h1 class=\"diverged\">1 error in"));
}

TEST_CASE("check report: axe finds nothing serious in a page", "[check][report][browser]") {
  const std::string axe = axe_script();
  if (axe.empty()) {
    WARN("no chromium or no axe here: accessibility was not checked");
    return;
  }
  CheckResult result = result_of({full(), Finding{.id = "mode", .severity = Severity::kHint}});
  result.incomplete = {"a.ctrace: the trace was not closed, or is damaged"};
  result.notes = {"a note"};
  // The page allows no script, so the test's would not run.
  std::string page = html_of(result);
  const size_t policy = page.find("<meta http-equiv=\"Content-Security-Policy\"");
  REQUIRE(policy != std::string::npos);
  page.erase(policy, page.find('>', policy) + 1 - policy);
  for (const std::string scheme : {"light", "dark"}) {
    INFO(scheme);
    const std::string dark = "@media(prefers-color-scheme:dark)";
    if (scheme == "dark") page.replace(page.find(dark), dark.size(), "@media(min-width:1px)");
    const tools::Json told = axe_of(page, axe);
    CHECK(told["passed"] > 15);
    for (const auto& problem : told["found"]) FAIL_CHECK(problem.get<std::string>());
  }
}

TEST_CASE("check report: text says place, evidence, cause and what was judged", "[check][report]") {
  const std::string text = text_of(result_of({full()}));
  CHECK(text.starts_with("1 error in 6 training steps of 1 rank, by 2 checks.\n"));
  CHECK(contains(text, "error nan  rank 3, step 7, backward, h.0, demo::gelu, grad:weight\n"));
  for (const char* part :
       {"  It is wrong.\n", "seen    one\n", "seen    two\n", "cause   a reason\n",
        "next    a command\n", "judged      nan, mode\n", "not known   padding\n"}) {
    INFO(part);
    CHECK(contains(text, part));
  }
  CheckResult nothing = result_of({});
  nothing.looked = {{"nan", "the first NaN", 0}};
  CHECK(text_of(nothing).starts_with("Nothing to judge in"));
}

TEST_CASE("check report: what is worst may come after what is first", "[check][report]") {
  Finding earlier{.id = "mode", .severity = Severity::kWarning, .step = 2};
  earlier.scope = "h.1";
  CHECK(contains(text_of(result_of({full(), earlier})), "first       mode, step 2, h.1\n"));
  earlier.step = 7;
  CHECK_FALSE(contains(text_of(result_of({full(), earlier})), "first  "));
  earlier.step = 2, earlier.severity = Severity::kHint;
  CHECK_FALSE(contains(text_of(result_of({full(), earlier})), "first  "));
}

TEST_CASE("check report: many findings of one id are counted", "[check][report]") {
  std::vector<Finding> many(7, full());
  many.push_back({.id = "mode", .severity = Severity::kWarning});
  const std::string text = text_of(result_of(many));
  CHECK(count(text, "error nan") == 3);
  CHECK(contains(text, "and 4 more of nan (--json has all)\n"));
  CHECK(count(text, "warning mode") == 1);
  CHECK(json_of(result_of(many))["findings"].size() == 8);
  std::vector<Finding> three(3, full());
  CHECK_FALSE(contains(text_of(result_of(three)), "more of"));
}

TEST_CASE("check report: what came again at a place is counted", "[check][report]") {
  Training run = training(8);
  for (uint32_t step = 2; step < 8; ++step)
    run.at(step, "fc1", "grad:weight").values = run.at(1, "fc1", "grad:weight").values;
  const CheckResult result = checked(run);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].step == 2U);
  CHECK(result.findings[0].times == 6);
  CHECK(contains(text_of(result), "(6 times)"));
}

TEST_CASE("check report: a terminal is not moved by names", "[check][report]") {
  CheckResult result = result_of({hostile()});
  result.notes = {kHostile};
  const std::string text = text_of(result);
  CHECK_FALSE(contains(text, "\x1b"));
  CHECK_FALSE(contains(text, "\xe2\x80\xae"));
  CHECK(contains(text, "\\x1b[31m"));
  diff::Terminal color;
  color.color = true;
  CHECK(contains(text_of(result, color), "\033[31;1m"));
  CHECK(count(text_of(result, color), "\033[31m") == 0);
}

TEST_CASE("check report: bytes that are no UTF-8 stay out of JSON", "[check][report]") {
  Finding finding = full();
  finding.scope = "\xff\xfe";
  const std::string json = tools::dump_json(json_of(result_of({finding})), 2);
  CHECK(Json::parse(json)["findings"][0]["scope"].is_string());
}

}  // namespace
}  // namespace convtrace::test
