#include "interposer/core/control/capture_rules.h"

#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::engine;
using format::Capture;
using settings::Mode;

namespace {

settings::Rule rule(const char* scope, std::optional<Capture> capture,
                    const char* steps = nullptr) {
  settings::Rule made;
  made.scope = settings::Pattern::compile(scope).value();
  made.capture = capture;
  if (steps != nullptr) made.steps = settings::StepSet::parse_steps(steps).value();
  return made;
}

}  // namespace

TEST_CASE("capture_rules: without rules the mode decides", "[engine][rules]") {
  const format::Definitions definitions;
  settings::RuleBook rules;
  const auto decide = [&](Mode mode, Capture asked) {
    return CaptureRules(mode, rules, definitions, true, 8).decide(asked, {}, 0).capture;
  };
  CHECK(decide(Mode::kStats, Capture::kStats) == Capture::kStats);
  CHECK(decide(Mode::kStats, Capture::kHash) == Capture::kHash);
  CHECK(decide(Mode::kHash, Capture::kStats) == Capture::kHash);
  CHECK(decide(Mode::kSnapshot, Capture::kStats) == Capture::kSnapshot);
  CHECK(decide(Mode::kSnapshot, Capture::kHash) == Capture::kHash);
}

TEST_CASE("capture_rules: the first rule that matches scope and step decides", "[engine][rules]") {
  format::Definitions definitions;
  settings::RuleBook rules({rule("h.0.*", Capture::kSnapshot, "5"),
                            rule("h.0.attn", Capture::kHash), rule("h.0.*", Capture::kStats),
                            rule("h.1.*", std::nullopt)});
  CaptureRules captures(Mode::kStats, rules, definitions, true, 8);
  const auto attention = definitions.intern("h.0.attn");
  const auto other = definitions.intern("h.1.attn");
  for (int twice = 0; twice < 2; ++twice) {  // the second time by what is remembered
    CHECK(captures.decide(Capture::kHash, attention, 5).capture == Capture::kSnapshot);
    CHECK(captures.decide(Capture::kStats, attention, 4).capture == Capture::kHash);
    CHECK(captures.decide(Capture::kHash, definitions.intern("h.0.mlp"), 4).capture ==
          Capture::kStats);
    CHECK(captures.decide(Capture::kHash, other, 5).capture ==
          Capture::kHash);  // a rule without capture
  }
  CHECK(captures.may_store());
}

TEST_CASE("capture_rules: a rule of a kernel says nothing of modules", "[engine][rules]") {
  format::Definitions definitions;
  settings::Rule tagged = rule("h.*", Capture::kSnapshot);
  tagged.kernel = settings::Pattern::compile("*gemm*").value();
  settings::RuleBook rules({tagged});
  CaptureRules captures(Mode::kStats, rules, definitions, true, 8);
  CHECK(captures.decide(Capture::kStats, definitions.intern("h.0"), 0).capture == Capture::kStats);
  CHECK_FALSE(captures.may_store());
}

TEST_CASE("capture_rules: where values cannot be stored statistics are taken", "[engine][rules]") {
  const format::Definitions definitions;
  settings::RuleBook rules;
  CaptureRules captures(Mode::kSnapshot, rules, definitions, false, 8);
  CHECK(captures.decide(Capture::kStats, {}, 0).capture == Capture::kStats);
  CHECK_FALSE(captures.may_store());
}

TEST_CASE("capture_rules: samples come from the first rule that says how many, else the setting",
          "[engine][rules]") {
  format::Definitions definitions;
  settings::Rule more = rule("h.*", std::nullopt, "5");
  more.samples = 100;
  settings::RuleBook rules({rule("h.0", Capture::kHash), more});
  CaptureRules captures(Mode::kStats, rules, definitions, true, 3);
  const auto scope = definitions.intern("h.0");
  CHECK(captures.decide(Capture::kStats, scope, 4).samples == 3);
  CHECK(captures.decide(Capture::kStats, scope, 5).samples == 100);
  CHECK(captures.decide(Capture::kStats, scope, 5).capture == Capture::kHash);
  CHECK(captures.decide(Capture::kStats, definitions.intern("x"), 5).samples == 3);
}
