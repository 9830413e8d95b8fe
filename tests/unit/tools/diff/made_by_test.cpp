#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tools/diff/cause/rules.h"
#include "tools/trace/flow/made_by.h"
#include "tools/trace/flow/nan_stories.h"

namespace convtrace::diff {
namespace {

using format::Phase;

/// A step made of a few lines. A value is known by its number, which is also its memory's.
struct Scene {
  format::Definitions names;
  std::vector<Passed> step;
  std::vector<Health> health;

  size_t add(Phase phase, const std::string& scope, const std::string& slot, uint64_t value,
             const std::string& op = "", Health state = Health::kNotKnown) {
    Passed one{.kind = role_of(slot),
               .place = {.scope = names.intern(scope), .call = 0, .phase = phase},
               .slot = names.intern(slot),
               .measured = true,
               .value = {value, 0, 1, 0},
               .bytes = 16};
    if (!op.empty()) one.op = names.intern(op);
    one.stats.hash = value;
    one.stats.count = 4;
    one.stats.finite = 4;
    step.push_back(one);
    health.push_back(state);
    return step.size() - 1;
  }
  void call(const std::string& scope, uint64_t in, uint64_t out, const std::string& op = "") {
    add(Phase::kForward, scope, "input:0", in, op);
    add(Phase::kForward, scope, "output:0", out, op);
  }
  size_t gradient(const std::string& scope, uint64_t value, Health state = Health::kGood) {
    return add(Phase::kBackward, scope, "grad_output:0", value, "", state);
  }
  [[nodiscard]] std::optional<MadeBy> of(size_t gradient) const {
    return made_by(step, gradient, names, [&](size_t i) { return health[i]; });
  }
};

std::vector<std::string> texts(const MadeBy& made) {
  std::vector<std::string> all;
  for (const Maker& maker : made.makers) all.push_back(maker_text(maker) + ' ' + maker.slot);
  return all;
}

TEST_CASE("made by: the module that took the output, and not the one that received the gradient",
          "[diff][blame]") {
  Scene scene;
  scene.call("a", 1, 2);
  scene.call("b", 2, 3);
  scene.gradient("b", 13);
  const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
  REQUIRE(made);
  CHECK(made->how == HowKnown::kTaken);
  CHECK_FALSE(made->is_likely());
  CHECK(texts(*made) == std::vector<std::string>{"module b grad_input:0"});
  CHECK(maker_text(made->receiver) == "module a");
  CHECK(made->receiver.slot == "grad_output:0");
}

TEST_CASE("made by: the op that wrote what another one keeps for its backward", "[diff][blame]") {
  for (const std::string written : {"grad_input:0", "saved_shared:0"}) {
    Scene scene;
    const auto keeps = [&](Phase phase, const std::string& op, uint64_t hash) {
      const size_t kept = scene.add(phase, "m", "saved:0", 7, op);
      scene.step[kept].stats.hash = hash;
    };
    keeps(Phase::kForward, "Exp", 70);
    scene.step[scene.add(Phase::kBackward, "m", written, 7, "SiluBackward")].stats.hash = 71;
    scene.step[scene.add(Phase::kBackward, "m", "grad_output:0", 7, "LogBackward")].stats.hash = 71;
    SECTION(written + ": changed") {
      keeps(Phase::kBackward, "ExpBackward", 71);
      const auto made =
          scene.of(scene.add(Phase::kBackward, "m", "grad_input:0", 9, "ExpBackward"));
      REQUIRE(made);
      CHECK(made->how == HowKnown::kOverwrote);
      const std::string slot = written == "grad_input:0" ? written : "saved:0";
      CHECK(texts(*made) == std::vector<std::string>{"op SiluBackward of module m " + slot});
      CHECK(maker_text(made->receiver) == "op ExpBackward of module m");
    }
    SECTION(written + ": restored") {
      keeps(Phase::kBackward, "ExpBackward", 70);
      CHECK_FALSE(scene.of(scene.add(Phase::kBackward, "m", "grad_input:0", 9, "ExpBackward")));
    }
  }
}

TEST_CASE("made by: a view of the output, or a copy with its bytes, was taken, too",
          "[diff][blame]") {
  for (const bool view : {true, false}) {
    Scene scene;
    scene.call("a", 1, 2);
    scene.call("b", view ? 2 : 20, 3);
    Passed& taken = scene.step[2];
    if (view) {
      taken.value.offset = 8;
      taken.bytes = 8;
      taken.stats.hash = 99;
    } else {
      taken.stats.hash = 2;
    }
    scene.gradient("b", 13);
    const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
    REQUIRE(made);
    CHECK(texts(*made) == std::vector<std::string>{"module b grad_input:0"});
  }
}

TEST_CASE("made by: of several that took it, those whose own gradient is good", "[diff][blame]") {
  for (const Health of_c : {Health::kGood, Health::kBad, Health::kNotKnown}) {
    Scene scene;
    scene.call("a", 1, 2);
    scene.call("b", 2, 3);
    scene.call("c", 2, 4);
    scene.gradient("c", 14, of_c);
    scene.gradient("b", 13);
    const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
    REQUIRE(made);
    std::vector<std::string> expected{"module b grad_input:0"};
    if (of_c == Health::kGood) expected.emplace_back("module c grad_input:0");
    CHECK(texts(*made) == expected);
  }
}

TEST_CASE("made by: an op that gave back a good gradient had no part in it", "[diff][blame]") {
  Scene scene;
  scene.call("a", 1, 2);
  scene.call("m", 2, 3, "Good");
  scene.call("m", 2, 4, "lib::unknown");
  scene.add(Phase::kBackward, "m", "grad_output:0", 13, "GoodBackward", Health::kGood);
  scene.add(Phase::kBackward, "m", "grad_input:0", 15, "GoodBackward", Health::kGood);
  const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
  REQUIRE(made);
  CHECK(texts(*made) == std::vector<std::string>{"op lib::unknown of module m grad_input:0"});
}

TEST_CASE("made by: the backward of an op that only one run has a record of", "[diff][blame]") {
  Scene scene;
  scene.call("a", 1, 2);
  scene.call("m", 2, 3, "Cube");
  scene.add(Phase::kBackward, "m", "grad_input:0", 12, "CubeBackward");
  const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
  REQUIRE(made);
  CHECK(made->how == HowKnown::kReturned);
  CHECK(texts(*made) == std::vector<std::string>{"op CubeBackward of module m grad_input:0"});
}

TEST_CASE("made by: what the backward of an op returned is its own where its gradient was good",
          "[diff][blame]") {
  for (const Health given : {Health::kGood, Health::kNotKnown, Health::kBad}) {
    Scene scene;
    scene.call("m", 1, 2, "Cube");
    scene.call("b", 2, 3);
    scene.gradient("b", 13);
    scene.add(Phase::kBackward, "m", "grad_output:0", 12, "CubeBackward", given);
    const auto made = scene.of(
        scene.add(Phase::kBackward, "m", "grad_input:0", 11, "CubeBackward", Health::kBad));
    CHECK(made.has_value() == (given == Health::kBad));
    if (made) CHECK(texts(*made) == std::vector<std::string>{"module b grad_input:0"});
  }
}

TEST_CASE("made by: an op that wrote the gradient of a residual in place", "[diff][blame]") {
  for (const bool wrote : {true, false}) {
    Scene scene;
    scene.call("a", 1, 2);
    scene.add(Phase::kForward, "m", "input:0", 2);
    scene.call("m.fc", 2, 3);
    scene.call("m", 3, 4, "Scale");
    scene.add(Phase::kForward, "m", "output:0", 5);
    scene.gradient("m", 15);
    scene.add(Phase::kBackward, "m", "grad_output:0", 15, "ScaleBackward");
    const size_t after =
        scene.add(Phase::kBackward, "m", "grad_output_shared:0", 15, "ScaleBackward");
    if (wrote) scene.step[after].stats.hash = 16;
    scene.gradient("m.fc", 13);
    const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
    REQUIRE(made);
    CHECK(texts(*made) ==
          std::vector<std::string>{wrote ? "op ScaleBackward of module m grad_output:0"
                                         : "module m.fc grad_input:0"});
    if (!wrote) CHECK(made->around == std::vector<std::string>{"m"});
  }
}

TEST_CASE("made by: where nobody took it the code between is likely, not certain",
          "[diff][blame]") {
  Scene scene;
  scene.add(Phase::kForward, "m", "input:0", 1);
  scene.call("m.qkv", 1, 2);
  scene.call("m.other", 1, 9);  // of an older value: not made of m.qkv's output
  scene.call("m.out", 3, 4);
  scene.add(Phase::kForward, "m", "output:0", 4);
  scene.gradient("m", 14);
  scene.gradient("m.out", 14);
  const auto made = scene.of(scene.gradient("m.qkv", 12, Health::kBad));
  REQUIRE(made);
  CHECK(made->how == HowKnown::kOrder);
  CHECK(texts(*made) ==
        std::vector<std::string>{"the code of module m ", "module m.out grad_input:0"});
  CHECK(made_text(*made) == "likely made by the backward of the code of module m or module m.out");
}

TEST_CASE("made by: in a compiled backward pass the order says nothing", "[diff][blame]") {
  Scene scene;
  scene.call("a", 1, 2);
  scene.add(Phase::kForward, "b", "input:0", 2);
  scene.add(Phase::kForward, "b", "output:0", 3);
  scene.call("c", 5, 6);
  scene.add(Phase::kBackward, "c", "output:0", 13, "aten::mm");
  CHECK_FALSE(scene.of(scene.gradient("b", 14, Health::kBad)));
  CHECK(scene.of(scene.gradient("a", 12, Health::kBad)));  // what took it is known
}

TEST_CASE("made by: where the backward pass begins it is likely the loss", "[diff][blame]") {
  Scene scene;
  scene.call("", 1, 2);
  scene.add(Phase::kLoss, "", "loss", 3);
  const auto made = scene.of(scene.gradient("", 12, Health::kBad));
  REQUIRE(made);
  CHECK(made->how == HowKnown::kBegin);
  CHECK(made->makers.empty());
  CHECK(made_text(*made) == "likely made by the backward of the loss function");
  CHECK(made_by_json(*made)["place"].is_null());
}

TEST_CASE("made by: of several makers the place is the module that holds them", "[diff][blame]") {
  Scene scene;
  scene.call("norm", 1, 2);
  scene.add(Phase::kForward, "attn", "input:0", 2);
  scene.call("attn.q", 2, 3);
  scene.call("attn.k", 2, 4);
  scene.add(Phase::kForward, "attn", "output:0", 5);
  scene.gradient("attn", 15);
  scene.gradient("attn.k", 14);
  scene.gradient("attn.q", 13);
  const auto made = scene.of(scene.gradient("norm", 12, Health::kBad));
  REQUIRE(made);
  CHECK(made->makers.size() == 2);
  REQUIRE(made->place());
  CHECK(made->place()->scope == "attn");
  CHECK(made->around == std::vector<std::string>{"attn"});
}

TEST_CASE("made by: a call of a module that only passes values on is not said to have a part",
          "[diff][blame]") {
  Scene scene;
  scene.call("a", 1, 2);
  scene.add(Phase::kForward, "m", "input:0", 2);
  scene.call("m.0", 2, 3);
  scene.call("m.1", 3, 4);
  scene.add(Phase::kForward, "m", "output:0", 4);
  scene.gradient("m", 14);
  scene.gradient("m.1", 14);
  scene.gradient("m.0", 13);
  const auto made = scene.of(scene.gradient("a", 12, Health::kBad));
  REQUIRE(made);
  CHECK(texts(*made) == std::vector<std::string>{"module m.0 grad_input:0"});
  CHECK(made->around.empty());
}

TEST_CASE("made by: a finding about the maker is a better cause than one about the memory",
          "[diff][blame]") {
  RootReport root;
  root.record.step = 3;
  root.record.scope = "a";
  root.record.cand.value.storage = 7;
  root.record.cand.t_ns = 100;
  FindingReport of_memory;
  of_memory.kind = format::FindingKind::kInputMutated;
  of_memory.level = format::Level::kError;
  of_memory.step = 3;
  of_memory.scope = "a";
  of_memory.op = "ScaleBackward";
  of_memory.storage = 7;
  of_memory.t_ns = 110;
  FindingReport of_maker = of_memory;
  of_maker.scope = "b";
  of_maker.storage = 6;
  of_maker.t_ns = 90;
  const Findings findings{.list = {of_memory, of_maker}, .count = 2, .errors = 2};
  const auto scope_of = [&] { return find_cause(root, {}, findings).value().finding.scope; };
  CHECK(scope_of() == "a");
  root.made_by = MadeBy{.how = HowKnown::kWrote, .makers = {{.scope = "b", .op = "ScaleBackward"}}};
  CHECK(scope_of() == "b");
}

TEST_CASE("nan stories: a gradient that is not finite is followed to who made it",
          "[diff][blame][nan]") {
  Scene scene;
  scene.call("a", 1, 2);
  scene.call("b", 2, 3);
  scene.gradient("b", 13);
  const size_t bad = scene.gradient("a", 12);
  scene.step[bad].stats.finite = 3;
  scene.step[bad].stats.neg_inf = 1;
  const size_t reached = scene.add(Phase::kBackward, "a", "grad:weight", 20);
  scene.step[reached].stats.nan = 1;
  NanStories stories(scene.names);
  const auto told = stories.see(scene.step);
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == NanStory::Kind::kBorn);
  CHECK(told[0].value == bad);
  CHECK(told[0].reached == reached);
  const auto made = stories.maker_of(scene.step, bad);
  REQUIRE(made);
  CHECK(texts(*made) == std::vector<std::string>{"module b grad_input:0"});
  CHECK(stories.see(scene.step).empty());  // one birth a run
}

}  // namespace
}  // namespace convtrace::diff
