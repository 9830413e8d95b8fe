// Runs whose steps have other numbers, and steps that hold evaluation alone.

#include "tests/unit/tools/diff/command_scene.h"

namespace convtrace::test {
namespace {

using format::Phase;

/// A run from step `first` on, which begins with step 0 anew.
Run resumed(const Run& whole, uint32_t first) {
  Run rest = whole;
  std::erase_if(rest.items, [&](const Item& item) { return item.step < first; });
  for (Item& item : rest.items) item.step -= first;
  return rest;
}

Json report(const std::string& base, const std::string& cand, std::vector<std::string> options,
            int code) {
  options.insert(options.begin(), {base, cand, "--json", "-"});
  const Outcome outcome = run(options);
  INFO(outcome.err);
  REQUIRE(outcome.code == code);
  return Json::parse(outcome.out);
}

}  // namespace

TEST_CASE("convtrace-diff: a resumed run is aligned by the optimizers' counters", "[diff][steps]") {
  const Run whole = training(5);
  Run rest = resumed(whole, 2);
  rest.meta.facts.emplace_back("steps.updates_before", "2");
  rest.at(1, "fc2", "output:0").values[3] *= 2;  // step 3 of the whole run
  const Pair pair(whole, rest);
  const Json found = report(pair.base, pair.cand, {}, 1);
  CHECK(found["step_offset"]["steps"] == -2);
  CHECK(found["root"]["step"] == 3);
  CHECK(found["root"]["scope"] == "fc2");
  CHECK(found["steps"] == 3);
  CHECK(found["preflight"] == Json::array());
  const std::string next = found["next"].dump();
  CHECK(contains(next, "root-base.ctrace --steps 3 "));
  CHECK(contains(next, "root-cand.ctrace --steps 1 "));
  CHECK_FALSE(contains(next, "--step-offset"));  // the traces tell it
  CHECK(contains(report(pair.base, pair.cand, {"--step-offset", "-2"}, 1)["next"].dump(),
                 "convtrace-diff root-base.ctrace root-cand.ctrace --step-offset -2"));
  const Json turned = report(pair.cand, pair.base, {}, 1);
  CHECK(turned["step_offset"]["steps"] == 2);
  CHECK(turned["root"]["step"] == 3);
  CHECK(contains(turned["next"].dump(), "root-base.ctrace --steps 1 "));
  const Outcome text = run({pair.base, pair.cand});
  CHECK(contains(text.out, "step of the candidate = step of the baseline - 2"));
  CHECK(contains(text.out, "0 | 2"));
}

TEST_CASE("convtrace-diff: settings of a resumed run are compared at the aligned step",
          "[diff][steps]") {
  const auto with_rates = [](Run made, const std::vector<std::string>& rates) {
    made.tell(0, "-", "optimizer.0.class", "torch.optim.sgd.SGD");
    for (uint32_t step = 0; step < rates.size(); ++step)
      made.tell(step, "-", "optimizer.0.0.lr", rates[step]);
    return made;
  };
  const Run whole = with_rates(training(5), {"0.5", "0.4", "0.3", "0.2", "0.1"});
  const auto facts = [&](const std::vector<std::string>& rates, int code) {
    Run rest = with_rates(resumed(training(5), 2), rates);
    rest.meta.facts.emplace_back("steps.updates_before", "2");
    if (code != 0) rest.at(0, "fc2", "param:weight").values[0] *= 2;
    const Pair pair(whole, rest);
    const Json found = report(pair.base, pair.cand, {}, code);
    const Json turned = report(pair.cand, pair.base, {}, code);
    CHECK(turned["facts"].size() == found["facts"].size());
    return found["facts"];
  };
  CHECK(facts({"0.3", "0.2", "0.1"}, 0).empty());
  const Json lost = facts({"0.5", "0.4", "0.3"}, 1);  // the scheduler began anew
  REQUIRE(lost.size() == 1);
  CHECK(lost[0]["name"] == "lr");
  CHECK(lost[0]["step"] == 2);
  CHECK(lost[0]["base"] == "0.3");
  CHECK(lost[0]["cand"] == "0.5");
  const Json later = facts({"0.3", "0.25", "0.1"}, 1);
  CHECK(later.empty());  // behind the root
}

TEST_CASE("convtrace-diff: a resumed run is held against the weights before its first step",
          "[diff][steps]") {
  Run whole = training(5);
  Run rest = resumed(whole, 2);
  rest.meta.facts.emplace_back("steps.updates_before", "2");
  for (const char* module : {"fc1", "fc2"})
    rest.add({.phase = Phase::kForward,
              .scope = module,
              .slot = "param:weight",
              .values = whole.at(1, module, "param:weight").values});
  std::rotate(rest.items.begin(), rest.items.end() - 2, rest.items.end());
  {
    const Pair pair(whole, rest);
    CHECK(report(pair.base, pair.cand, {}, 0)["root"].is_null());
  }
  scale(rest.at(0, "fc2", "output:0"), 2);
  const auto root = [&] {
    const Pair pair(whole, rest);
    const Json turned = report(pair.cand, pair.base, {}, 1)["root"];
    const Json found = report(pair.base, pair.cand, {}, 1)["root"];
    CHECK(turned["slot"] == found["slot"]);
    CHECK(turned.value("note", "") == found.value("note", ""));
    return found;
  };
  CHECK(root()["slot"] == "output:0");  // the weights agree
  scale(rest.at(0, "fc2", "param:weight"), 1.5);
  const Json found = root();
  CHECK(found["step"] == 2);
  CHECK(found["scope"] == "fc2");
  CHECK(found["slot"] == "param:weight");
  CHECK(found["note"] == "weights differ before step 2");
}

TEST_CASE("convtrace-diff: a resumed run that says no count of updates is aligned by its weights",
          "[diff][steps]") {
  Run whole = training(5);
  for (uint32_t step = 1; step < 5; ++step)
    for (float& value : whole.at(step, "fc1", "param:weight").values)
      value += static_cast<float>(step);
  Run rest = resumed(whole, 2);
  rest.add({.phase = Phase::kForward,
            .scope = "fc1",
            .slot = "param:weight",
            .values = whole.at(1, "fc1", "param:weight").values});
  std::rotate(rest.items.begin(), rest.items.end() - 1, rest.items.end());
  const Pair pair(whole, rest);
  const Json aligned = report(pair.base, pair.cand, {}, 0)["step_offset"];
  CHECK(aligned["steps"] == -2);
  CHECK(aligned["why"] ==
        "the first weights of the candidate are those that the baseline has after 2 steps");
  CHECK(report(pair.cand, pair.base, {}, 0)["step_offset"]["steps"] == 2);
  const Outcome rows = run({pair.base, pair.cand, "--csv", "-"});  // of every value, too
  CHECK(rows.code == 0);
  CHECK(contains(rows.out, "identical"));
  CHECK_FALSE(contains(rows.out, "diverged"));
  report(pair.base, pair.cand, {"--step-offset", "-2"}, 0);

  // The user's offset is kept, and the weights propose another.
  const std::vector<std::string> kept = {"--step-offset", "0"};
  CHECK(contains(run({pair.base, pair.cand, kept[0], kept[1]}).out,
                 "step 0: the candidate begins with the weights of the baseline behind its step 1: "
                 "compare with --step-offset -2"));
  CHECK_FALSE(contains(run({pair.base, pair.cand, kept[0], kept[1]}).out, "incomplete"));
  CHECK(report(pair.base, pair.cand, kept, 1)["next"] ==
        Json::array({"convtrace-diff " + pair.base + ' ' + pair.cand + " --step-offset -2"}));
  rest.end_before(2);
  const Pair shorter(whole, rest);
  CHECK(contains(
      run({shorter.base, shorter.cand}).out,
      "incomplete  CT-2402 candidate: ends after step 3, the other run goes on to step 4"));
  // One weight that is another one is no resumption.
  Run other = rest;
  other.add({.phase = Phase::kForward,
             .scope = "fc2",
             .slot = "param:weight",
             .values = std::vector<float>(4, 9)});
  std::rotate(other.items.begin(), other.items.end() - 1, other.items.end());
  const Pair apart(whole, other);
  CHECK(report(apart.base, apart.cand, {}, 1)["step_offset"]["steps"] == 0);
}

TEST_CASE("convtrace-diff: steps whose sums are equal are known by their shifted numbers",
          "[diff][steps]") {
  const Run whole = training(5);
  Run rest = resumed(whole, 2);
  rest.meta.facts.emplace_back("steps.updates_before", "2");
  const Pair pair(whole, rest);
  const Json found = report(pair.base, pair.cand, {}, 0);
  CHECK(found["steps"] == 3);
  CHECK(found["counts"]["diverged"] == 0);
  CHECK(found["compared"]["launches"] == 6);
  const TempDir dir;  // a report of every value reads them
  CHECK(run({pair.base, pair.cand, "--csv", dir / "rows.csv"}).code == 0);
  CHECK(contains(content(dir / "rows.csv"), "identical"));
}

TEST_CASE("convtrace-diff: --step-offset overrules what the traces say", "[diff][steps]") {
  const Run whole = training(5);
  Run rest = resumed(whole, 2);
  rest.meta.facts.emplace_back("steps.updates_before", "7");
  const Pair pair(whole, rest);
  CHECK(report(pair.base, pair.cand, {"--step-offset", "-2"}, 0)["step_offset"] ==
        Json::parse(R"({"steps": -2, "why": "--step-offset"})"));
  CHECK(report(pair.cand, pair.base, {"--step-offset=2"}, 0)["steps"] == 3);
  report(pair.base, pair.cand, {"--step-offset", "0"}, 1);
  report(pair.base, pair.cand, {}, 3);  // nothing in common
  CHECK(run({pair.base, pair.cand, "--step-offset", "4294967294"}).code == 3);
  CHECK(run({pair.base, pair.cand, "--step-offset", "-9223372036854775808"}).code == 2);
  CHECK(run({pair.base, pair.cand, "--step-offset", "two"}).code == 2);
}

TEST_CASE("convtrace-diff: a step of evaluation alone is missed by nobody", "[diff][steps]") {
  const Run base = training(2);
  Run cand = base;
  cand.add({.step = 2,
            .phase = Phase::kForward,
            .scope = "average",
            .slot = "param:weight",
            .values = {1}});
  cand.add(
      {.step = 2, .phase = Phase::kEvaluation, .scope = "", .slot = "output:0", .values = {3}});
  const Pair pair(base, cand);
  Json found = report(pair.base, pair.cand, {}, 0);
  CHECK(found["incomplete_why"] == Json::array());
  CHECK(found["counts"]["unmatched"] == 2);
  Run other = base;
  other.add({.step = 2,
             .phase = Phase::kEvaluation,
             .scope = "other",
             .slot = "output:0",
             .values = {3}});
  const Pair apart(cand, other);  // nothing of that step could be compared
  CHECK(report(apart.base, apart.cand, {}, 0)["why_not_comparable"] == nullptr);
}

TEST_CASE("convtrace-diff: evaluation that differs is told as such", "[diff][steps]") {
  Run base = training(2);
  base.add(
      {.step = 1, .phase = Phase::kEvaluation, .scope = "", .slot = "output:0", .values = {3}});
  Run cand = base;
  cand.items.back().values = {4};
  const Pair pair(base, cand);
  const Json found = report(pair.base, pair.cand, {}, 1);
  CHECK(found["root"]["phase"] == "evaluation");
  CHECK(contains(found["phase"], "what is computed without gradients differs"));
}

TEST_CASE("convtrace-diff: gradients before clipping are no part of the norm", "[diff][steps]") {
  Run base = training(2);
  for (const char* layer : {"fc1", "fc2"}) {
    Item unclipped = base.at(1, layer, "grad:weight");
    unclipped.slot = "grad_unclipped:weight";
    for (float& value : unclipped.values) value *= 10;
    base.add(unclipped);
  }
  Run cand = base;
  cand.at(1, "fc1", "grad_unclipped:weight").values[0] += 5;
  const Pair clipped(base, cand), plain(training(2), diverging());
  const Json found = report(clipped.base, clipped.cand, {}, 1);
  CHECK(found["root"]["slot"] == "grad_unclipped:weight");
  const Json& step = found["per_step"].back();
  const Json other = report(plain.base, plain.cand, {}, 1)["per_step"].back();
  CHECK(step["step"] == 1);
  REQUIRE(step["gradient_norm"]["base"].is_number());
  CHECK(step["gradient_norm"]["base"] == other["gradient_norm"]["base"]);
}

}  // namespace convtrace::test
