// --expect: contracts over made-up runs.

#include <cmath>
#include <fstream>

#include "tests/unit/tools/diff/command_scene.h"

namespace convtrace::test {
namespace {

struct Answer {
  int code = 0;
  Json json;

  /// @return the verdict of the clause that begins in a line; 0: the one that no file has.
  [[nodiscard]] std::string at(unsigned line = 1) const {
    for (const Json& clause : json["clauses"])
      if (line == 0 ? clause["line"].is_null() : clause["line"] == line) return clause["verdict"];
    return "";
  }
  [[nodiscard]] std::string text(unsigned line = 1) const {
    for (const Json& clause : json["clauses"])
      if (clause["line"] == line) return clause["text"];
    return "";
  }
};

Answer expect(const std::string& contract, const Run& base, const Run& cand,
              std::vector<std::string> more = {}) {
  const Pair pair(base, cand);
  std::ofstream(pair.dir / "expect.toml") << contract;
  std::vector<std::string> words{pair.base, pair.cand, "--expect", pair.dir / "expect.toml",
                                 "--json",  "-"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run(words);
  INFO(outcome.err);
  REQUIRE(outcome.code != 2);
  return {outcome.code, Json::parse(outcome.out)};
}

std::string complaint(const std::string& contract) {
  const Pair pair(training(), training());
  std::ofstream(pair.dir / "expect.toml") << contract;
  const Outcome outcome = run({pair.base, pair.cand, "--expect", pair.dir / "expect.toml"});
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  require_escaped(outcome.err);
  return outcome.err.substr(outcome.err.find(".toml") + 5);
}

TEST_CASE("expect: unchanged values agree, differ, or are not known", "[diff][expect]") {
  const std::string all = "[[unchanged]]\n";
  CHECK(expect(all + "\n[[runs]]\nscope = \"fc1\"", training(), diverging()).at() == "broken");
  const Answer broken = expect(all, training(), diverging());
  CHECK(broken.code == 1);
  CHECK(broken.json["verdict"] == "broken");
  CHECK(broken.json["clauses"][0]["place"]["step"] == 1);
  CHECK(broken.json["clauses"][0]["place"]["scope"] == "fc2");
  CHECK(contains(broken.text(), "differ, the first: step 1, forward, fc2"));
  CHECK(expect("[[unchanged]]\nscope = \"fc1\"", training(), diverging()).at() == "kept");
  CHECK(expect("[[unchanged]]\nscope = \"fc2\"", training(), diverging()).at() == "broken");
  CHECK(expect("[[unchanged]]\nscope = \"f*\"", training(), diverging()).at() == "broken");
  CHECK(expect("[[unchanged]]\nscope = \"\"", training(), diverging()).at() == "broken");
  CHECK(expect("[[unchanged]]\nsteps = \"0\"", training(), diverging()).at() == "kept");
  CHECK(expect("[[unchanged]]\nphase = \"loss\"", training(), diverging()).at() == "kept");
  CHECK(expect("[[unchanged]]\nphase = [\"loss\", \"forward\"]", training(), diverging()).at() ==
        "broken");
  CHECK(expect("[[unchanged]]\nslot = \"input:*\"", training(), diverging()).at() == "kept");
  const Answer nothing = expect("[[unchanged]]\nscope = \"other\"", training(), diverging());
  CHECK(nothing.at() == "cannot-tell");
  CHECK(nothing.code == 3);
  CHECK(contains(nothing.text(), "neither run has such a value"));
}

TEST_CASE("expect: up to rounding, and to the bit", "[diff][expect]") {
  Run rounded = training();
  rounded.meta.facts.emplace_back("version.torch", "2");  // so that bits need not agree
  Item& output = rounded.at(1, "fc2", "output:0");
  output.values[0] = std::nextafter(output.values[0], 1e9F);
  CHECK(expect("[[unchanged]]\nscope = \"fc2\"", training(), rounded).at() == "kept");
  CHECK(expect("[[unchanged]]\nscope = \"fc2\"\nto = \"bit\"", training(), rounded).at() ==
        "broken");
  CHECK(expect("[[changed]]\nscope = \"fc2\"", training(), rounded).at() == "broken");
  CHECK(expect("[[changed]]\nscope = \"fc2\"\nto = \"bit\"", training(), rounded).at() == "kept");
}

TEST_CASE("expect: what must change", "[diff][expect]") {
  CHECK(expect("[[changed]]\nscope = \"fc2\"", training(), diverging()).at() == "kept");
  CHECK(expect("[[changed]]\nscope = \"fc1\"", training(), diverging()).at() == "broken");
  CHECK(expect("[[changed]]\nscope = \"other\"", training(), diverging()).at() == "cannot-tell");
  Run more = training();
  more.add({.step = 1, .scope = "fc3", .slot = "output:0", .values = {1, 2}});
  CHECK(expect("[[changed]]\nscope = \"fc3\"", training(), more).at() == "kept");
}

TEST_CASE("expect: code that differs, and code that ran", "[diff][expect]") {
  Run base = training(), cand = training();
  base.meta.facts = {{"code.model.py", "1"}, {"code.model.py.Net", "1"}};
  cand.meta.facts = {{"code.model.py", "2"}, {"code.model.py.Net", "2"}};
  const std::string changed = "[[changed]]\ncode = \"model.py\"";
  CHECK(expect(changed, base, cand).at() == "kept");
  CHECK(expect(changed, base, cand).code == 0);
  CHECK(expect("[[changed]]\ncode = \"model.py: class Net\"", base, cand).at() == "kept");
  CHECK(expect("[[changed]]\ncode = \"other.py\"", base, cand).at() == "cannot-tell");
  const Answer same = expect(changed, base, base);
  CHECK(same.at() == "broken");
  CHECK(same.at(0) == "broken");
  CHECK(expect("[[runs]]\ncode = \"model.py: class Net\"", base, cand).at() == "kept");
  CHECK(expect("[[runs]]\ncode = \"model.py: class Head\"", base, cand).at() == "broken");
  CHECK(expect("[[runs]]\ncode = \"*GELU*\"", base, cand).at() == "cannot-tell");
  // The same file, imported from where it is not hashed: its class is the same.
  Run elsewhere = training();
  elsewhere.meta.facts = {{"code.../base/model.py", "1"}, {"code.../base/model.py.Net", "1"}};
  CHECK(expect(changed, base, elsewhere).at() == "cannot-tell");
}

TEST_CASE("expect: equal runs break every contract but that of one program", "[diff][expect]") {
  const Answer same = expect("[[unchanged]]", training(), training());
  CHECK(same.at() == "kept");
  CHECK(same.at(0) == "broken");
  CHECK(same.code == 1);
  const Answer meant = expect("same_program = true\n[[unchanged]]", training(), training());
  CHECK(meant.at(0).empty());
  CHECK(meant.code == 0);
  Run other = training();
  other.meta.facts.emplace_back("version.torch", "2");
  CHECK(expect("[[unchanged]]", training(), other).code == 0);
}

TEST_CASE("expect: what must run, at least once or in each step", "[diff][expect]") {
  Run cand = diverging();
  CHECK(expect("[[runs]]\nscope = \"fc1\"\neach_step = true", training(), cand).at() == "kept");
  CHECK(expect("[[runs]]\nscope = \"fc9\"", training(), cand).at() == "broken");
  std::erase_if(cand.items, [](const Item& item) { return item.step == 1 && item.scope == "fc1"; });
  CHECK(expect("[[runs]]\nscope = \"fc1\"", training(), cand).at() == "kept");
  const Answer missing = expect("[[runs]]\nscope = \"fc1\"\neach_step = true", training(), cand);
  CHECK(missing.at() == "broken");
  CHECK(missing.text() == "in 1 of 2 steps, not in step 1");
  // An op of PyTorch that nobody recorded may have run.
  CHECK(expect("[[runs]]\nop = \"aten::relu\"", training(), cand).at() == "cannot-tell");
  CHECK(expect("[[never]]\nop = \"aten::relu\"", training(), cand).at() == "cannot-tell");
  cand.meta.facts.emplace_back("setting.CONVTRACE_OPS", "*");
  CHECK(expect("[[runs]]\nop = \"aten::relu\"", training(), cand).at() == "broken");
  CHECK(expect("[[never]]\nop = \"aten::relu\"", training(), cand).at() == "kept");
  CHECK(expect("[[never]]\nscope = \"fc2\"", training(), cand).at() == "broken");
}

TEST_CASE("expect: parameters alone do not run, and do not change a module", "[diff][expect]") {
  Run unused = diverging();
  for (const uint32_t step : {0U, 1U})
    unused.add({.step = step,
                .phase = format::Phase::kOptimizer,
                .scope = "aux",
                .slot = "param:weight",
                .values = {1, 2}});
  CHECK(expect("[[runs]]\nscope = \"aux\"", training(), unused).at() == "broken");
  CHECK(expect("[[runs]]\nscope = \"aux\"\nslot = \"param:*\"", training(), unused).at() == "kept");
  CHECK(expect("[[never]]\nscope = \"aux\"", training(), unused).at() == "kept");
  CHECK(expect("[[changed]]\nscope = \"aux\"", training(), unused).at() == "cannot-tell");
}

TEST_CASE("expect: values that a run lacks are no change and no agreement", "[diff][expect]") {
  Run shorter = diverging();
  shorter.end_before(1);
  const Answer changed = expect("[[changed]]\nscope = \"fc2\"", training(), shorter);
  CHECK(changed.at() == "cannot-tell");
  CHECK(expect("[[unchanged]]\nsteps = \"0-1\"", training(), shorter).at() == "cannot-tell");
  CHECK(expect("[[unchanged]]\nsteps = \"0\"", training(), shorter).at() == "kept");
  CHECK(expect("[[unchanged]]\nsteps = \"0-9\"", training(), training()).at() == "cannot-tell");
  CHECK(expect("[[never]]\nscope = \"x\"\nsteps = \"1\"", training(), shorter).at() ==
        "cannot-tell");
  CHECK(expect("[[runs]]\nscope = \"fc1\"\nsteps = \"1\"", training(), shorter).at() ==
        "cannot-tell");
  CHECK(
      expect("[[runs]]\nscope = \"fc1\"\nsteps = \"0\"\neach_step = true", training(), diverging())
          .at() == "kept");
  Run frozen = training();
  frozen.meta.facts.emplace_back("version.torch", "2");
  std::erase_if(frozen.items, [](const Item& item) {
    return item.scope == "fc1" && item.slot.starts_with("grad:");
  });
  const Answer lost = expect("[[unchanged]]", training(), frozen);
  CHECK(lost.at() == "cannot-tell");
  CHECK(contains(lost.text(), "the candidate lacks"));
}

TEST_CASE("expect: ops by their name, and those that are not recorded", "[diff][expect]") {
  Run cand = diverging();
  for (const uint32_t step : {0U, 1U})
    cand.add({.step = step,
              .scope = "fc1",
              .slot = "output:0",
              .op = "aten::mul.Tensor",
              .values = {1, 2}});
  cand.meta.facts.emplace_back("setting.CONVTRACE_OPS", "fc1");
  CHECK(expect("[[runs]]\nop = \"aten::mul\"", training(), cand).at() == "kept");
  CHECK(expect("[[never]]\nop = \"aten::mul\"", training(), cand).at() == "broken");
  // Only ops in fc1 were recorded.
  for (const std::string op : {"aten::relu", "*relu*", "re:relu"})
    CHECK(expect("[[never]]\nop = \"" + op + "\"", training(), cand).at() == "cannot-tell");
  CHECK(expect("[[never]]\nop = \"my::relu\"", training(), cand).at() == "kept");
  CHECK(expect("[[runs]]\nslot = \"output:0\"", training(), cand, {"--ignore", "*"}).at() ==
        "kept");
}

TEST_CASE("expect: findings that the baseline lacks", "[diff][expect]") {
  Run buggy = diverging();
  Item& found = buggy.add({.kind = Item::Kind::kFinding, .scope = "fc1"});
  const std::string errors = "[[never]]\nfindings = \"error\"";
  CHECK(expect(errors, training(), buggy).at() == "broken");
  CHECK(expect(errors, buggy, buggy, {"--exact", "off"}).at() == "kept");
  found.level = format::Level::kWarning;
  CHECK(expect(errors, training(), buggy).at() == "kept");
  CHECK(expect("[[never]]\nfindings = \"warning\"", training(), buggy).at() == "broken");
  buggy.items.back().suppressed = true;
  CHECK(expect("[[never]]\nfindings = \"warning\"", training(), buggy).at() == "kept");
}

TEST_CASE("expect: too few steps tell no time", "[diff][expect]") {
  CHECK(expect("[[never]]\nslower = \"5%\"", training(), diverging()).at() == "cannot-tell");
}

TEST_CASE("expect: an incomplete run cannot tell of all steps", "[diff][expect]") {
  const Pair pair(training(), training());
  Run cut = training();
  cut.meta.facts.emplace_back("version.torch", "2");
  const std::string part = pair.dir / "part.ctrace";
  cut.write(part, false);
  std::ofstream(pair.dir / "e.toml") << "[[unchanged]]\n";
  CHECK(run({pair.base, part, "--expect", pair.dir / "e.toml"}).code == 3);
  std::ofstream(pair.dir / "e.toml") << "[[unchanged]]\nsteps = \"0\"\n";
  CHECK(run({pair.base, part, "--expect", pair.dir / "e.toml"}).code == 0);
}

TEST_CASE("expect: runs that cannot be compared keep no clause of values", "[diff][expect]") {
  Run launches = training();
  std::erase_if(launches.items, [](const Item& item) { return item.kind == Item::Kind::kValue; });
  const Answer answer = expect("[[unchanged]]\n[[changed]]\nscope = \"fc1\"", launches, launches);
  CHECK(answer.at(1) == "cannot-tell");
  CHECK(answer.at(2) == "cannot-tell");
}

TEST_CASE("expect: a file that cannot be used is one line with its number", "[diff][expect]") {
  CHECK(contains(complaint("[[unchanged]]\nscop = \"a\""),
                 ":2: [[unchanged]] has no \"scop\"; the "
                 "nearest is scope"));
  CHECK(contains(complaint("[[unchangd]]\nscope = \"a\""), "the nearest is unchanged"));
  CHECK(contains(complaint("[[runs]]\nto = \"bit\"\nop = \"a\""), ":2: [[runs]] has no \"to\""));
  CHECK(contains(complaint("[[changed]]\nphase = \"before\""), ":2: phase takes"));
  CHECK(contains(complaint("[[changed]]\nsteps = \"x\""), ":2: steps takes"));
  CHECK(contains(complaint("[[changed]]\nscope = \"re:(\""), ":2: scope takes"));
  CHECK(contains(complaint("[[never]]\nslower = \"5\""), ":2: slower takes"));
  CHECK(contains(complaint("[[never]]\nfindings = \"bad\""), ":2: findings takes"));
  CHECK(contains(complaint("[[never]]\nslower = \"nan%\""), ":2: slower takes"));
  CHECK(contains(complaint("[[runs]]\ncode = \"a\"\neach_step = true"), "is about values"));
  CHECK(contains(complaint("[[changed]]\nop = \"re:" + std::string(20'000, '(') + "\""),
                 ":2: op takes"));
  CHECK(contains(complaint("[[changed]]"), ":1: [[changed]] says nothing"));
  CHECK(contains(complaint("[[changed]]\ncode = \"a\"\nscope = \"b\""), "clauses of their own"));
  CHECK(contains(complaint("unchanged = 1"), "is a list of tables"));
  CHECK(contains(complaint("same_program = 1"), "takes true or false"));
  CHECK(contains(complaint(""), "has no clause"));
  CHECK(contains(complaint("[[unchanged]"), ":1"));
  CHECK(contains(complaint("[[\x1b[31m]]"), ""));
}

TEST_CASE("expect: both runs keep what is proposed for them", "[diff][expect]") {
  Run weird = diverging();
  for (Item& item : weird.items)
    if (item.scope == "fc1") item.scope = "fc*1 \"\x01";
  Run told = diverging();
  told.meta.facts = {{"code.model.py", "2"}};
  for (const auto& [base, cand] : {std::pair(training(), training()),
                                   {training(), diverging()},
                                   {diverging(), training()},
                                   {weird, weird},
                                   {training(), told}}) {
    const Pair pair(base, cand);
    const Outcome proposed = run({pair.base, pair.cand, "--expect-init"});
    INFO(proposed.out);
    CHECK(proposed.code == 0);
    std::ofstream(pair.dir / "e.toml") << proposed.out;
    const Outcome kept = run({pair.base, pair.cand, "--expect", pair.dir / "e.toml"});
    INFO(kept.out << kept.err);
    CHECK(kept.code == 0);
  }
  // What is proposed for a divergence is broken by equal runs.
  const Pair pair(training(), diverging());
  std::ofstream(pair.dir / "e.toml") << run({pair.base, pair.cand, "--expect-init"}).out;
  CHECK(run({pair.base, pair.base, "--expect", pair.dir / "e.toml"}).code == 1);
}

TEST_CASE("expect: text, short answer and JUnit say the same", "[diff][expect]") {
  const Pair pair(training(), diverging());
  std::ofstream(pair.dir / "e.toml") << "[[unchanged]]\nscope = \"fc2\"\n[[changed]]\nscope = "
                                        "\"fc2\"\n[[runs]]\nop = \"aten::x\"\n";
  const std::vector<std::string> words{pair.base, pair.cand, "--expect", pair.dir / "e.toml"};
  const Outcome text = run(words);
  CHECK(text.out.starts_with("BROKEN: 1 of 4 clauses\n"));
  CHECK(contains(text.out, "broken       unchanged  scope = \"fc2\"  (line 1)\n"));
  CHECK(contains(text.out, "kept         changed  scope = \"fc2\"  (line 3)\n"));
  CHECK(contains(text.out, "cannot-tell  runs  op = \"aten::x\"  (line 5)\n"));
  CHECK(contains(text.out, "diff        DIVERGED at step 1"));
  auto more = words;
  more.insert(more.end(), {"--brief", "--junit", pair.dir / "j.xml"});
  const Json brief = Json::parse(run(more).out);
  CHECK(brief["verdict"] == "broken");
  CHECK(brief["place"]["scope"] == "fc2");
  CHECK(brief["cannot_tell"].size() == 1);
  const std::string junit = content(pair.dir / "j.xml");
  CHECK(contains(junit, "tests=\"4\" failures=\"1\" skipped=\"1\""));
}

}  // namespace
}  // namespace convtrace::test
