#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "format/settings/rules.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/tools/diff_run.h"
#include "tools/common/json.h"
#include "tools/diff/command.h"

namespace {

using namespace convtrace;
using test::Item;
using test::Run;
using test::TempDir;
using tools::Json;

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome run(std::vector<std::string> arguments, diff::Terminal terminal = {}) {
  arguments.insert(arguments.begin(), "convtrace-diff");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out, err;
  const int code =
      diff::diff_command(static_cast<int>(argv.size()), argv.data(), out, err, terminal);
  return {code, out.str(), err.str()};
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> keys(const Json& json) {
  std::set<std::string> names;
  for (const auto& [name, value] : json.items()) names.insert(name);
  return names;
}

bool has_all(const std::set<std::string>& names, const std::set<std::string>& wanted) {
  return std::ranges::includes(names, wanted);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void scale(Item& item, double factor) {
  for (float& v : item.values) v = static_cast<float>(v * factor);
}

Run diverging() {
  Run cand = test::training();
  scale(cand.at(1, "fc2", "output:0"), 1.5);
  scale(cand.at(1, "", "output:0"), 1.5);
  return cand;
}

/// base.ctrace and cand.ctrace in a folder of their own.
struct Pair {
  TempDir dir;
  std::string base = dir / "base.ctrace";
  std::string cand = dir / "cand.ctrace";
  Pair(const Run& b, const Run& c) {
    b.write(base);
    c.write(cand);
  }
};

void require_escaped(const std::string& text) {
  for (const char c : text) {
    INFO(text);
    REQUIRE((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
    REQUIRE(c != '\x7f');
  }
}

}  // namespace

TEST_CASE("convtrace-diff: exit codes say same, diverged, not comparable, findings",
          "[diff][command]") {
  const Pair same(test::training(), test::training());
  CHECK(run({same.base, same.cand}).code == 0);
  CHECK(run({same.base, same.base}).code == 0);
  const Pair diverged(test::training(), diverging());
  CHECK(run({diverged.base, diverged.cand}).code == 1);
  Run launches = test::training();
  std::erase_if(launches.items, [](const Item& i) { return i.kind == Item::Kind::kValue; });
  const Pair uncomparable(launches, launches);
  CHECK(run({uncomparable.base, uncomparable.cand}).code == 3);
  Run buggy = test::training();
  buggy.add({.kind = Item::Kind::kFinding, .scope = "fc1"});
  const Pair findings(test::training(), buggy);
  CHECK(run({findings.base, findings.cand}).code == 4);
}

TEST_CASE("convtrace-diff: input that is no trace is exit 2 and one clear line",
          "[diff][command]") {
  const Pair pair(test::training(), test::training());
  const TempDir empty_folder;
  std::ofstream(pair.dir / "text.ctrace") << "this is not a trace, whatever its name says\n";
  std::ofstream(pair.dir / "empty.ctrace").flush();
  for (const std::string& bad : {pair.dir / "text.ctrace", pair.dir / "empty.ctrace",
                                 pair.dir / "missing.ctrace", empty_folder / "."}) {
    for (const auto& arguments : {std::vector{pair.base, bad}, std::vector{bad, pair.base}}) {
      const Outcome outcome = run(arguments);
      INFO(bad);
      CHECK(outcome.code == 2);
      CHECK(outcome.out.empty());
      CHECK(contains(outcome.err, bad));
      CHECK(std::ranges::count(outcome.err, '\n') == 1);
    }
  }
}

TEST_CASE("convtrace-diff: wrong usage is exit 2, help is exit 0", "[diff][command]") {
  CHECK(run({}).code == 2);
  CHECK(run({"one.ctrace"}).code == 2);
  CHECK(run({"a", "b", "--nonsense"}).code == 2);
  CHECK(run({"one.ctrace"}).err == "convtrace-diff: CAND is required (see --help)\n");
  const Outcome help = run({"--help"});
  CHECK(help.code == 0);
  CHECK(contains(help.out, "Exit codes: 0 same, 1 diverged"));
}

TEST_CASE("convtrace-diff: a report that cannot be written is exit 2 before any comparison",
          "[diff][command]") {
  const Pair pair(test::training(), test::training());
  const Outcome outcome = run({pair.base, pair.cand, "--json", pair.dir / "no/such/folder.json"});
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(run({pair.base, pair.cand, "--json", "-", "--csv", "-"}).code == 2);
}

TEST_CASE("convtrace-diff: --json has every promised key", "[diff][command][json]") {
  const Pair pair(test::training(), diverging());
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, "DIVERGED"));  // people's text makes room for data
  const Json json = Json::parse(outcome.out);
  CHECK(has_all(keys(json), {"verdict", "root", "first_bit_difference", "counts", "compared",
                             "preflight", "findings", "incomplete"}));
  const std::set<std::string> root_keys = {"rank",
                                           "step",
                                           "phase",
                                           "scope",
                                           "call",
                                           "slot",
                                           "op",
                                           "kernel",
                                           "class",
                                           "base",
                                           "cand",
                                           "difference",
                                           "tolerance_used",
                                           "tolerance_needed",
                                           "matched_before"};
  CHECK(has_all(keys(json["root"]), root_keys));
  CHECK(has_all(keys(json["first_bit_difference"]), root_keys));
  CHECK(keys(json["compared"]) == std::set<std::string>{"values", "launches"});
  CHECK(keys(json["findings"]) == std::set<std::string>{"base", "cand"});
  CHECK(json["verdict"] == "diverged");
  CHECK(json["root"]["step"] == 1);
  CHECK(json["root"]["phase"] == "forward");
  CHECK(json["root"]["scope"] == "fc2");
  CHECK(json["root"]["slot"] == "output:0");
  CHECK(json["root"]["class"] == "diverged");
  CHECK(json["root"]["op"].is_null());
  CHECK(json["root"]["difference"] > json["root"]["tolerance_used"]);
  CHECK(json["root"]["cand"]["l2"].get<double>() ==
        Approx(1.5 * json["root"]["base"]["l2"].get<double>()));
  CHECK(json["counts"]["diverged"] == 2);
  CHECK(json["incomplete"] == false);
}

TEST_CASE("convtrace-diff: without a divergence root and first bit difference are null",
          "[diff][command][json]") {
  const Pair pair(test::training(), test::training());
  const Json json = Json::parse(run({pair.base, pair.cand, "--json", "-"}).out);
  CHECK(json["verdict"] == "same");
  CHECK(json["root"].is_null());
  CHECK(json["first_bit_difference"].is_null());
}

TEST_CASE("convtrace-diff: an unclosed candidate is compared up to its end",
          "[diff][command][json]") {
  const TempDir dir;
  test::training(2).write(dir / "base.ctrace");
  Run killed = test::training(2);
  killed.items.resize(killed.items.size() - 5);
  killed.write(dir / "cand.ctrace", false);
  const Outcome outcome = run({dir / "base.ctrace", dir / "cand.ctrace", "--json", "-"});
  CHECK(outcome.code == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["incomplete"] == true);
  CHECK(json["preflight"][0]["name"] == "state");
  CHECK(json["preflight"][0]["cand"] == "unclosed");
  CHECK(json["counts"]["unmatched"] == 5);
}

TEST_CASE("convtrace-diff: a cut last step without values does not make runs uncomparable",
          "[diff][command]") {
  const TempDir dir;
  test::training(2).write(dir / "base.ctrace");
  Run killed = test::training(2);
  killed.end_before(1);
  killed.add({.kind = Item::Kind::kLaunch, .step = 1, .scope = "fc1", .kernel = "gemm"});
  killed.write(dir / "cand.ctrace", false);
  CHECK(run({dir / "base.ctrace", dir / "cand.ctrace"}).code == 0);
}

TEST_CASE("convtrace-diff: the first screen names place, value, tolerance and next command",
          "[diff][command][text]") {
  const Pair pair(test::training(), diverging());
  const std::string text = run({pair.base, pair.cand}).out;
  for (const char* part :
       {"DIVERGED at step 1, forward, fc2 (call 0): output:0", "root  inputs agree, the result",
        "mean", "tolerance used", "would have passed", "values matched", "first bit difference",
        "[[rule]]\nscope = \"fc2\"\ncapture = \"snapshot\"\nEOF\n",
        "convtrace run --output root-base.ctrace --steps 1 --config convtrace-root.toml -- python "
        "train.py\n",
        "convtrace-diff root-base.ctrace root-cand.ctrace\n"}) {
    INFO(text);
    CHECK(contains(text, part));
  }
  CHECK_FALSE(contains(text, "\x1b["));
  CHECK(contains(run({pair.base, pair.cand}, {.color = true}).out, "\x1b[31;1mDIVERGED"));
}

TEST_CASE("convtrace-diff: a small divergence without --noise is within reach of rounding",
          "[diff][command][text]") {
  Run cand = test::training();
  scale(cand.at(0, "", "loss"), 1 + 5e-5);
  const Pair pair(test::training(), cand);
  CHECK(contains(run({pair.base, pair.cand}).out, "within reach of rounding: rerun with --noise"));
  const Outcome noisy = run({pair.base, pair.cand, "--noise", pair.cand, pair.base});
  CHECK(noisy.code == 0);
  CHECK_FALSE(contains(noisy.out, "within reach"));
}

TEST_CASE("convtrace-diff: for a raw kernel it suggests a rule that convtrace accepts",
          "[diff][command][text]") {
  Run base = test::training(), cand = diverging();
  for (Run* r : {&base, &cand}) {
    for (Item& item : r->items) {
      if (item.scope == "fc2" && item.slot == "output:0") item.kernel = "a\"b\\\x1b[31m\n'x";
    }
  }
  const Pair pair(base, cand);
  const std::string text = run({pair.base, pair.cand}).out;
  const size_t begin = text.find("[[rule]]"), end = text.find("\nEOF", begin);
  REQUIRE(end != std::string::npos);
  const std::string path = pair.dir / "root.toml";
  std::ofstream(path) << text.substr(begin, end - begin);
  const settings::LoadedRules rules = settings::load_rules(path);
  CHECK(rules.problems == std::vector<std::string>{});
  REQUIRE(rules.rules.size() == 1);
  CHECK(rules.rules[0].kernel->matches("a\"b\\\x1b[31m\n'x"));
  CHECK(rules.rules[0].capture == format::Capture::kSnapshot);
}

TEST_CASE("convtrace-diff: hostile names reach no report as they are", "[diff][command]") {
  const std::string evil = "\x1b]0;owned\x07<script>alert(1)</script>\"'\n=cmd";
  Run base = test::training(), cand = diverging();
  for (Run* r : {&base, &cand}) {
    r->meta.command_line.push_back(r == &base ? evil : evil + "2");
    for (Item& item : r->items) {
      if (item.scope == "fc2") item.scope = item.op = item.kernel = evil;
    }
    r->items.front().scope = evil;
  }
  cand.items.insert(cand.items.begin(),
                    {.kind = Item::Kind::kFinding, .scope = evil, .op = evil, .message = evil});
  const Pair pair(base, cand);
  const auto file = [&](const char* name) { return pair.dir / name; };
  const Outcome outcome = run({pair.base, pair.cand, "--json", file("j"), "--csv", file("c"),
                               "--html", file("h"), "--junit", file("u")});
  CHECK(outcome.code == 1);
  require_escaped(outcome.out);
  for (const char* name : {"j", "c", "h", "u"}) require_escaped(content(file(name)));
  CHECK_FALSE(contains(content(file("h")), "<script>alert"));
  CHECK_FALSE(contains(content(file("u")), "<script"));
  CHECK(contains(outcome.out, "\\x1b]0;owned\\x07"));
}

TEST_CASE("convtrace-diff: --csv has one row per compared or unmatched value",
          "[diff][command][csv]") {
  Run cand = diverging();
  cand.erase(0, "fc1", "grad_output:0");
  const Pair pair(test::training(), cand);
  const std::string csv = run({pair.base, pair.cand, "--csv", "-"}).out;
  std::istringstream lines(csv);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  REQUIRE(rows.size() == 1 + 30);
  const auto columns = std::ranges::count(rows[0], ',');
  for (const std::string& row : rows) CHECK(std::ranges::count(row, ',') == columns);
  CHECK(std::ranges::count_if(rows, [](const auto& r) { return contains(r, ",diverged,"); }) == 2);
  CHECK(std::ranges::count_if(rows, [](const auto& r) { return contains(r, ",unmatched,"); }) == 1);
}

TEST_CASE("convtrace-diff: --junit fails the rank that diverged", "[diff][command][junit]") {
  const Pair pair(test::training(), diverging());
  const std::string xml = run({pair.base, pair.cand, "--junit", "-"}).out;
  CHECK(contains(xml, "tests=\"4\" failures=\"1\""));
  CHECK(contains(xml, "<failure message=\"rank 0, step 1, forward, fc2 (call 0): output:0"));
}

TEST_CASE("convtrace-diff: --html is one page with verdict, root and its neighbours",
          "[diff][command][html]") {
  const Pair pair(test::training(), diverging());
  const std::string path = pair.dir / "report.html";
  CHECK(run({pair.base, pair.cand, "--html", path}).code == 1);
  const std::string html = content(path);
  CHECK(contains(html, "<h1 class=\"diverged\">DIVERGED at step 1, forward, fc2"));
  CHECK(contains(html, "<tr class=\"root\"><td>step 1, forward, fc2 (call 0)</td>"));
  CHECK_FALSE(contains(html, "http://"));
  CHECK_FALSE(contains(html, "https://"));
}

TEST_CASE("convtrace-diff: folders are compared rank by rank", "[diff][command][ranks]") {
  const TempDir base, cand;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Run good = test::training(), bad = rank == 0 ? test::training() : diverging();
    good.meta.rank = bad.meta.rank = rank;
    good.meta.world_size = bad.meta.world_size = 4;
    if (rank == 2) bad.at(0, "", "loss").values[0] += 1;  // the earliest step wins
    const std::string name = "r" + std::to_string(3 - rank) + ".ctrace";
    good.write(base / name);
    if (rank != 1) bad.write(cand / name);
  }
  const Outcome outcome = run({base / ".", cand / ".", "--json", "-"});
  CHECK(outcome.code == 1);
  const Json json = Json::parse(outcome.out);
  CHECK(json["root"]["rank"] == 2);
  CHECK(json["root"]["step"] == 0);
  CHECK(json["root"]["slot"] == "loss");
  CHECK(json["incomplete"] == true);
  REQUIRE(json["preflight"].size() == 1);
  CHECK(json["preflight"][0]["name"] == "trace of rank 1");
  CHECK(json["preflight"][0]["cand"].is_null());
  // A rank's command line does not start its job.
  CHECK(contains(run({base / ".", cand / "."}).out,
                 "\nexport CONVTRACE_STEPS=0 CONVTRACE_CONFIG=$PWD/convtrace-root.toml\n"
                 "# then start both jobs as before"));
}

TEST_CASE("convtrace-diff: where a hash alone was recorded it does not claim agreement",
          "[diff][command][text]") {
  Run cand = test::training();
  Item& input = cand.at(1, "fc2", "input:0");
  input.values[0] += 1;
  input.storage = 0;  // of no producer that could say by how much it differs
  const Pair hashes(test::training(), cand);
  const std::string same = run({hashes.base, hashes.cand}).out;
  CHECK(contains(same, "of 1 value only the hash is known, and it differs"));

  scale(cand.at(1, "fc2", "output:0"), 1.5);
  const Pair diverged(test::training(), cand);
  const std::string text = run({diverged.base, diverged.cand}).out;
  CHECK(contains(text, "input:0 had other bits already when it came in"));
  CHECK_FALSE(contains(text, "inputs agree"));
}

TEST_CASE("convtrace-diff: a changed value is told from producer to victim",
          "[diff][command][json]") {
  Run cand = test::training();
  cand.at(1, "fc2", "input:0").values.assign(16, 7);
  scale(cand.at(1, "fc2", "output:0"), 3);
  scale(cand.at(1, "", "output:0"), 3);
  const Pair pair(test::training(), cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  const Json root = Json::parse(outcome.out)["root"];
  CHECK(root["class"] == "changed-between");
  CHECK(root["scope"] == "fc1");
  CHECK(root["op"] == "demo::gelu");
  CHECK(root["changed_in"] == "cand");
  CHECK(root["consumer"]["scope"] == "fc2");
  CHECK(root["consumer"]["slot"] == "input:0");
  CHECK(root["effect"]["slot"] == "output:0");
  CHECK(root["difference"] == root["effect"]["difference"]);
  CHECK(contains(outcome.err, "changed in the candidate before fc2 used it"));
}

TEST_CASE("convtrace-diff: --tol decides what the values it names may differ by",
          "[diff][command]") {
  const Pair pair(test::training(), diverging());  // by the factor 1.5 in fc2 and the root module
  CHECK(run({pair.base, pair.cand, "--tol", "re:output=0.6"}).code == 0);
  CHECK(run({pair.base, pair.cand, "--tol", "fc2=0.6"}).code == 1);
  Run cand = test::training();
  scale(cand.at(0, "", "loss"), 1 + 8e-6);  // suspicious, no more
  const Pair close(test::training(), cand);
  CHECK(run({close.base, close.cand}).code == 0);
  CHECK(run({close.base, close.cand, "--tol", "loss=1e-6"}).code == 1);
  CHECK(run({close.base, close.cand, "--tol", "loss=1e-6", "--tol", "*=1"}).code == 0);
  for (const char* bad : {"loss", "loss=", "loss=x", "re:(=1", "loss=-1", "=1"}) {
    INFO(bad);
    const Outcome outcome = run({close.base, close.cand, "--tol", bad});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "takes PATTERN=X"));
  }
}

TEST_CASE("convtrace-diff: --map says which names and ranks belong together", "[diff][command]") {
  Run cand = diverging();
  for (Item& item : cand.items) {
    if (item.scope == "fc2") item.scope = "head";
  }
  const Pair pair(test::training(), cand);
  const std::string map = pair.dir / "map.toml";
  std::ofstream(map) << "[modules]\nfc2 = 'head'\n";
  const std::string text = run({pair.base, pair.cand, "--map", map}).out;
  CHECK(contains(text, "stable key in a module of another name; in the candidate head"));
  for (const char* bad :
       {"[modules]\nfc2 = 3\n", "[ranks]\nx = 1\n", "[rank]\n0 = 1\n", "[ranks"}) {
    std::ofstream(map) << bad;
    INFO(bad);
    CHECK(run({pair.base, pair.cand, "--map", map}).code == 2);
  }

  const TempDir base, other;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Run good = test::training(), same = rank == 0 ? diverging() : test::training();
    good.meta.rank = rank;
    same.meta.rank = 5 - rank;
    if (rank == 0) good = diverging(), good.meta.rank = 0;
    good.write(base / (std::to_string(rank) + ".ctrace"));
    same.write(other / (std::to_string(rank) + ".ctrace"));
  }
  std::ofstream(map) << "[ranks]\n0 = 5\n1 = 4\n";
  CHECK(run({base / ".", other / "."}).code == 3);
  CHECK(run({base / ".", other / ".", "--map", map}).code == 0);
}

TEST_CASE("convtrace-diff: values stored in both runs are compared element by element",
          "[diff][command][json]") {
  Run base = test::training(), cand = test::training();
  for (Run* r : {&base, &cand}) {
    Item& item = r->at(1, "fc2", "output:0");
    item.capture = format::Capture::kSnapshot;
    item.shape = {4, 4};
  }
  std::vector<float>& values = cand.at(1, "fc2", "output:0").values;
  values[6] += 3;
  values[9] = std::nextafter(values[9], 9.0F);
  const Pair pair(base, cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  const Json elements = Json::parse(outcome.out)["root"]["elements"];
  CHECK(elements["compared"] == 16);
  CHECK(elements["differing"] == 2);
  CHECK(elements["max_abs"].get<double>() == Approx(3));
  CHECK(elements["cosine"].get<double>() < 1);
  CHECK(elements["within"]["0.01"] == 15);
  CHECK(elements["ulps"][0] == 14);
  CHECK(elements["ulps"][1] == 1);
  CHECK(elements["first"]["index"] == 6);
  CHECK(contains(outcome.err, "first at [1, 2]: "));
  CHECK(contains(outcome.err, "2 of 16 elements differ; max abs 3,"));
}

TEST_CASE("convtrace-diff: a terminal's width is kept, commands apart", "[diff][command][text]") {
  Run base = test::training(), cand = diverging();
  for (Run* r : {&base, &cand}) {
    r->meta.facts.emplace_back("switch.long",
                               std::string(r == &base ? "on " : "off ") +
                                   "and on and on and on and on and on and on and on");
  }
  const Pair pair(base, cand);
  for (const size_t columns : {72, 80, 200}) {
    std::istringstream text(run({pair.base, pair.cand}, {.columns = columns}).out);
    for (std::string line; std::getline(text, line) && !line.starts_with("next  ");) {
      INFO(columns << ": " << line);
      CHECK(line.size() <= columns);
    }
  }
}

TEST_CASE("convtrace-diff: launches without values are told what to record", "[diff][command]") {
  Run bare = test::training();
  std::erase_if(bare.items, [](const Item& item) { return item.kind == Item::Kind::kValue; });
  const Pair pair(bare, bare);
  const Outcome outcome = run({pair.base, pair.cand});
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.out, "  [[rule]]\n"));
  CHECK(contains(outcome.out, "CONVTRACE_MODE=stats"));
}

TEST_CASE("convtrace-diff: a report appears whole or not at all", "[diff][command]") {
  const Pair pair(test::training(), diverging());
  const std::string report = pair.dir / "report.json", link = pair.dir / "link.json";
  std::ofstream(report) << "an earlier one";
  std::filesystem::create_symlink(report, link);
  CHECK(run({pair.base, pair.dir / "absent.ctrace", "--json", report}).code == 2);
  CHECK(content(report) == "an earlier one");
  CHECK(run({pair.base, pair.cand, "--json", link}).code == 1);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(Json::parse(content(report))["verdict"] == "diverged");
  for (const auto& entry : std::filesystem::directory_iterator(pair.dir / ".")) {
    CHECK(entry.path().extension() != ".unfinished");
  }
}

TEST_CASE("convtrace-diff: a rank that stops being a replica is named, a shard is not",
          "[diff][command][ranks]") {
  const TempDir base, cand;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Run good = test::training(5);
    if (rank == 3) scale(good.at(0, "fc1", "grad:weight"), 2);  // never was one
    Run bad = good;
    if (rank == 1) {
      for (uint32_t step = 2; step < 5; ++step) scale(bad.at(step, "fc2", "grad:weight"), 2);
    }
    if (rank == 2) scale(bad.at(3, "fc1", "param:weight"), 2);
    good.meta.rank = bad.meta.rank = rank;
    good.write(base / (std::to_string(rank) + ".ctrace"));
    bad.write(cand / (std::to_string(rank) + ".ctrace"));
  }
  const Outcome outcome = run({base / ".", cand / ".", "--json", "-"});
  const Json replicas = Json::parse(outcome.out)["replicas"];
  REQUIRE(replicas.size() == 2);
  CHECK(replicas[0] ==
        Json{{"run", "cand"}, {"rank", 1}, {"other", 0}, {"step", 2}, {"in_gradients", true}});
  CHECK(replicas[1] ==
        Json{{"run", "cand"}, {"rank", 2}, {"other", 0}, {"step", 3}, {"in_gradients", false}});
  CHECK(contains(outcome.err, "rank 1 had the weights of rank 0 and parts from it in step 2"));
  CHECK(Json::parse(run({base / ".", base / ".", "--json", "-"}).out)["replicas"].empty());
}
