// The probable cause: what a rule joins to the root, and where it is silent.

#include <string>

#include "tests/support/catch.h"
#include "tools/diff/cause/rules.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {
namespace {

using format::Phase;

DiffResult diverged(Phase phase, const std::string& scope, const std::string& slot,
                    uint32_t step = 2) {
  DiffResult result;
  RootReport& root = result.root.emplace();
  root.record.step = step;
  root.record.phase = phase;
  root.record.scope = scope;
  root.record.slot = slot;
  return result;
}

FactDifference setting(FactKind kind, const std::string& scope, uint32_t step = 0) {
  return {.kind = kind,
          .name = "p",
          .base = "0.1",
          .cand = "0.2",
          .step = step,
          .scope = scope,
          .first = scope,
          .module_class = "Dropout",
          .configuration = true};
}

std::string rule_of(const DiffResult& result) {
  const auto reason = probable_cause(result);
  return reason ? reason->rule + ": " + reason->text : "";
}

TEST_CASE("cause: a setting of the root's module, or of a module around it", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "h.3.attn.drop", "output:0");
  result.facts = {setting(FactKind::kModule, "h.4.attn.drop")};
  CHECK(rule_of(result).empty());
  result.facts = {setting(FactKind::kModule, "h.3.attn.drop")};
  for (const Phase phase : {Phase::kEvaluation, Phase::kForward}) {
    result.root->record.phase = phase;
    CHECK(rule_of(result) == "setting: Dropout p: 0.1 | 0.2 in h.3.attn.drop");
  }
  result.facts[0].scope = "h.*.attn.drop";
  result.facts[0].modules = 4;
  CHECK(rule_of(result) == "setting: Dropout p: 0.1 | 0.2 in h.*.attn.drop (4 modules)");
  result.facts[0].scope = "h.4.*.drop";
  CHECK(rule_of(result).empty());
  result.facts = {setting(FactKind::kModule, "h.3"), setting(FactKind::kModule, "h.3.attn")};
  const auto reason = probable_cause(result);
  REQUIRE(reason);
  CHECK(reason->text == "Dropout p: 0.1 | 0.2 in h.3.attn");
  CHECK(reason->evidence ==
        std::vector<std::string>{
            "the first value that differs is of module h.3.attn.drop, which is inside "
            "this module"});
}

TEST_CASE("cause: a setting that changes later, or of a whole model, explains no value inside it",
          "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "fc", "output:0");
  result.facts = {setting(FactKind::kModule, "fc", 3)};
  CHECK(rule_of(result).empty());
  result.facts = {setting(FactKind::kModule, "")};
  CHECK(rule_of(result).empty());
  result.facts = {setting(FactKind::kModule, "fc")};
  result.facts[0].configuration = false;
  CHECK(rule_of(result).empty());
  result.facts[0].configuration = true;
  result.root->record.phase = Phase::kData;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: a setting of a module inside the root's, of which no more was compared",
          "[diff][cause]") {
  for (const char* scope : {"h.3", ""}) {
    DiffResult result = diverged(Phase::kEvaluation, scope, "output:0");
    result.facts = {setting(FactKind::kModule, "h.3.drop")};
    CHECK(rule_of(result) == "setting: Dropout p: 0.1 | 0.2 in h.3.drop");
    result.root->compared_inside = {"h.3.attn"};
    CHECK_FALSE(rule_of(result).empty());
    result.root->compared_inside = {"h.3.attn", "h.3.drop"};
    CHECK(rule_of(result).empty());
    result.facts[0].scope = "h.*.drop";
    result.facts[0].modules = 4;
    CHECK(rule_of(result).empty());
    result.root->compared_inside.clear();
    CHECK(rule_of(result) == "setting: Dropout p: 0.1 | 0.2 in h.*.drop (4 modules)");
    result.root->record.slot = "param:weight";
    CHECK(rule_of(result).empty());
  }
  DiffResult result = diverged(Phase::kForward, "h.3", "output:0");
  result.facts = {setting(FactKind::kModule, "h.4.drop"), setting(FactKind::kModule, "h.31.drop")};
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: the state of an optimizer that a resumed run has not counted on",
          "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "fc", "param:weight", 0);
  result.root->weights_differ = true;
  CHECK(rule_of(result).empty());
  // Weights that the other run has later are no initial ones: no rule speaks of them.
  FactDifference random = setting(FactKind::kGenerator, "random.cpu");
  result.facts = {random};
  CHECK_FALSE(rule_of(result).empty());
  result.root->offset = -3;
  CHECK(rule_of(result).empty());

  result = diverged(Phase::kOptimizer, "fc", "param:weight", 3);
  result.root->updates = {4, 4};
  result.root->parameter_gradients = Shown::kEqual;
  result.root->before[static_cast<size_t>(Phase::kForward)] = Shown::kEqual;
  CHECK(rule_of(result).empty());
  result.step_offset = {3, "--step-offset", false};
  CHECK(rule_of(result) ==
        "optimizer-state: the optimizer of the baseline continues behind 3 updates without their "
        "state: it was not loaded, or not all of it");
  result.root->updates.wrong = 3;
  CHECK(rule_of(result).empty());
  result.root->updates.wrong = 4;
  result.root->record.step = 4;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: the optimizer's latest setting up to the update", "[diff][cause]") {
  DiffResult result = diverged(Phase::kOptimizer, "fc", "param:weight");
  result.facts = {setting(FactKind::kOptimizer, "optimizer.0.0", 0),
                  setting(FactKind::kOptimizer, "optimizer.0.1", 2),
                  setting(FactKind::kOptimizer, "optimizer.0.2", 3)};
  CHECK(rule_of(result) ==
        "setting: optimizer p: 0.1 | 0.2 from step 2 in optimizer.0.1 (Dropout)");
  result.root->record.phase = Phase::kBackward;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: changed code of the optimizer's class", "[diff][cause]") {
  DiffResult result = diverged(Phase::kOptimizer, "fc", "param:weight");
  result.facts = {
      {.kind = FactKind::kCode, .name = "opt.py: class Lion", .base = "1", .cand = "2"}};
  CHECK(rule_of(result).empty());  // not known to be an optimizer
  result.facts[0].scope = "optimizer.*";
  CHECK(rule_of(result) == "code: opt.py changed: class Lion");
  result.root->record.phase = Phase::kBackward;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: what decides about gradients alone", "[diff][cause]") {
  DiffResult result = diverged(Phase::kBackward, "emb", "grad:weight");
  FactDifference tied = setting(FactKind::kModule, "head");
  tied.name = "tied";
  tied.base = "none";
  tied.cand = "weight=emb.weight, bias=other.bias";
  result.facts = {tied};
  CHECK(rule_of(result).starts_with("setting: Dropout tied: none | weight=emb.weight"));
  result.root->record.slot = "grad_unclipped:weight";
  CHECK(rule_of(result).starts_with("setting: Dropout tied"));
  result.root->record.slot = "grad:weight2";
  CHECK(rule_of(result).empty());
  FactDifference frozen = setting(FactKind::kModule, "emb");
  frozen.name = "frozen";
  result.facts = {frozen};
  CHECK(rule_of(result).starts_with("setting: Dropout frozen"));
  result.root->record.phase = Phase::kForward;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: a weight that two modules share in one run", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "head", "output:0");
  FactDifference tied = setting(FactKind::kModule, "head");
  tied.name = "tied";
  tied.base = "weight=emb.weight";
  tied.cand = "none";
  result.facts = {tied};
  CHECK(rule_of(result).empty());  // of its inputs nothing is known
  result.root->flow.sources = {{.value = {}, .as = "input:0"}};
  CHECK(rule_of(result).starts_with("setting: Dropout tied: weight=emb.weight | none"));
  result.root->weights = {.bits = diff::Shown::kEqual, .agreed = {}};
  CHECK(rule_of(result).empty());
  result.root->weights.reset();
  result.root->record.comparison.worst_input = diff::Class::kSuspicious;
  CHECK(rule_of(result).empty());
  result = diverged(Phase::kForward, "head", "input:1");
  result.root->record.op = "aten::mm";
  result.facts = {tied};
  CHECK(rule_of(result).empty());
  result.root->is_other_memory = true;
  result.root->known_as =
      "parameter emb.weight in the baseline, parameter head.weight in the candidate";
  CHECK(rule_of(result).starts_with("setting: Dropout tied"));
  result.facts.clear();
  CHECK(rule_of(result) == "other-inputs: op aten::mm takes " + result.root->known_as);
  result = diverged(Phase::kOptimizer, "emb", "param:weight");
  result.facts = {tied};
  CHECK(rule_of(result).starts_with("setting: Dropout tied"));
  result.root->parameter_gradients = diff::Shown::kEqual;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: another type", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "fc", "output:0");
  result.root->record.base.dtype = format::DType::kF32;
  result.root->record.cand.dtype = format::DType::kBF16;
  CHECK(rule_of(result) == "type: module fc computes in f32 | bf16: autocast, or a cast");
  result.root->record.base.dtype = format::DType::kUnknown;  // that run does not have the value
  CHECK(rule_of(result).empty());
  result.root->record.base.dtype = format::DType::kF32;
  result.root->weights_differ = true;
  CHECK(rule_of(result) ==
        "type: the weights of module fc are f32 | bf16: the model was converted");
  result.root->weights_differ = false;
  result.facts = {setting(FactKind::kModule, "fc")};  // is more exact
  CHECK(rule_of(result).starts_with("setting: "));
}

TEST_CASE("cause: a generator, where numbers are drawn from it", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "fc", "output:0");
  FactDifference generator = setting(FactKind::kGenerator, "");
  generator.name = "torch";
  generator.from_the_start = true;
  result.facts = {generator};
  CHECK(rule_of(result).empty());
  result.root->code.module_class = "Dropout2d";
  CHECK(rule_of(result).starts_with("generator: random numbers of torch differ from step 0 on"));
  result.root->code = {};
  result.root->weights_differ = true;
  CHECK(probable_cause(result)->evidence ==
        std::vector<std::string>{"the first values that differ are initial weights"});
  result.root->weights_differ = false;
  result.root->record.phase = Phase::kData;
  CHECK(rule_of(result).starts_with("generator: "));
}

TEST_CASE("cause: a draw inside a function, of a module that may draw", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "norm", "output:0");
  result.root->flow.sources = {{.value = {}, .as = "input:0"}};
  FactDifference generator = setting(FactKind::kGenerator, "");
  generator.name = "torch";
  generator.step = result.root->record.step + 1;
  result.facts = {generator};
  result.root->code.qualified_class = "model.Block";
  CHECK(rule_of(result).starts_with("generator: random numbers of torch differ"));
  result.root->code.qualified_class = "torch.nn.modules.activation.MultiheadAttention";
  CHECK(rule_of(result).starts_with("generator: "));
  // A dropout that does not act any more changes what later modules draw.
  result.root->code.qualified_class = "torch.nn.modules.batchnorm.BatchNorm1d";
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: data that are a multiple", "[diff][cause]") {
  DiffResult result = diverged(Phase::kData, "", "input:0");
  for (const bool of_cand : {false, true}) {
    format::Sketch& sketch =
        of_cand ? result.root->record.cand.stats.sketch : result.root->record.base.stats.sketch;
    sketch.exponent = 0;
    for (size_t i = 0; i < format::Sketch::kBuckets; ++i)
      sketch.bucket[i] = static_cast<float>((i % 2 == 0 ? 10 : -7) * (of_cand ? 2 : 1));
  }
  REQUIRE(result.root->record.base.stats.sketch.is_known());
  CHECK(rule_of(result) ==
        "scaled-input: input:0 of the root module is 2 times the baseline's: it is normalised or "
        "scaled otherwise");
  result.root->record.cand.stats.sketch.bucket[1] *= 1.01F;
  CHECK(rule_of(result).empty());  // a function that is nearly a multiple
  result.root->record.cand.stats.sketch.bucket[0] = 0;
  result.root->record.cand.stats.sketch.bucket[1] = 0;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: code of the root's class, a compiled region", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "fc", "output:0");
  result.root->region.name = "0/1 forward";
  CHECK(rule_of(result).empty());
  result.root->region.border_equal = true;
  CHECK(rule_of(result) == "compiled-region: compiled region 0/1 forward computes otherwise");
  result.root->code = {.module_class = "Attention", .changed = true};
  CHECK(rule_of(result) == "code: Attention, whose code changed");
  result.root->code.op_code = "train.py changed: class Rotate";
  CHECK(rule_of(result) == "code: train.py changed: class Rotate");
}

TEST_CASE("cause: code of the module around the root's, which makes its input", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "block.down", "input:0");
  result.root->caller = {.module_class = "Block", .forward = "model.py:14", .changed = true};
  CHECK(rule_of(result).empty());  // the input did not come in with other bits
  result.root->came_in = result.root->record;
  CHECK(rule_of(result) == "code: Block, whose code changed, model.py:14");
  result.root->caller.changed = false;
  CHECK(rule_of(result).empty());
}

TEST_CASE("cause: a finding that explains the root comes alone", "[diff][cause]") {
  DiffResult result = diverged(Phase::kForward, "fc", "output:0");
  result.facts = {setting(FactKind::kModule, "fc")};
  CHECK_FALSE(rule_of(result).empty());
  diff::FindingReport finding;
  finding.step = 1;
  finding.level = format::Level::kError;
  result.cand_findings.list.push_back(finding);
  CHECK(rule_of(result) == "finding: ");
}

TEST_CASE("cause: a finding that is told behind the value, or of the rank that sent it",
          "[diff][cause]") {
  DiffResult result = diverged(Phase::kBackward, "", "grad_input:0");
  auto& record = result.root->record;
  record.op = "ScaleBackward";
  record.base.t_ns = record.cand.t_ns = 5;
  diff::FindingReport finding;
  finding.step = record.step;
  finding.level = format::Level::kError;
  finding.phase = Phase::kBackward;
  finding.op = record.op;
  finding.slot = "grad_input:1";
  finding.t_ns = 9;
  result.cand_findings.list = {finding};
  CHECK(rule_of(result).empty());
  result.cand_findings.list[0].slot = record.slot;
  CHECK(rule_of(result) == "finding: ");
  CHECK(diff::title_of_cause((result.cause = probable_cause(result), result)).find("rank") ==
        std::string::npos);

  record.slot = "received:0";
  result.cand_findings.list[0] = finding;
  result.cand_findings.list[0].t_ns = 1;
  result.cand_findings.list[0].rank = record.rank + 1;
  CHECK(rule_of(result).empty());
  result.cand_findings.list[0].slot = "sent:0";
  result.cand_findings.list[0].op = "all_gather";
  CHECK(rule_of(result).empty());
  record.op = "recv";
  result.cand_findings.list[0].op = "send";
  CHECK(rule_of(result) == "finding: ");
  CHECK(diff::title_of_cause((result.cause = probable_cause(result), result))
            .ends_with(", on rank 1"));
}

}  // namespace
}  // namespace convtrace::diff
