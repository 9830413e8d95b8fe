#include "tools/diff/facts/facts.h"
#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/facts/excuses.h"
#include "tools/diff/facts/fact_groups.h"

namespace {

using namespace convtrace;
using diff::DiffResult;
using diff::FactDifference;
using diff::FactKind;
using test::compared;
using test::Run;
using test::scale;
using test::training;

/// What the facts say, a line each.
std::vector<std::string> told(const DiffResult& result) {
  std::vector<std::string> lines;
  for (const FactDifference& fact : result.facts) lines.push_back(fact_text(fact));
  return lines;
}
using Lines = std::vector<std::string>;

Run with_dropout(const std::string& p, uint32_t steps = 3) {
  Run run = training(steps);
  for (const char* block : {"blocks.0", "blocks.1", "blocks.2"}) {
    const std::string scope = std::string(block) + ".drop";
    run.tell(0, scope, "class", "torch.nn.modules.dropout.Dropout");
    run.tell(0, scope, "call", "model.py:12");
    run.tell(0, scope, "attributes", "inplace=False, p=" + p);
  }
  return run;
}

/// An optimizer whose learning rate is told in each step.
Run with_rates(const std::vector<std::string>& rates) {
  Run run = training(static_cast<uint32_t>(rates.size()));
  run.tell(0, "-", "optimizer.0.class", "torch.optim.adamw.AdamW");
  run.tell(0, "-", "optimizer.0.0.betas", "(0.9, 0.95)");
  for (uint32_t step = 0; step < rates.size(); ++step) {
    if (step == 0 || rates[step] != rates[step - 1])
      run.tell(step, "-", "optimizer.0.0.lr", rates[step]);
  }
  return run;
}

/// One hash a step; "" where it is as before.
Run with_states(const std::vector<std::string>& states) {
  Run run = training(static_cast<uint32_t>(states.size()));
  for (uint32_t step = 0; step < states.size(); ++step) {
    if (!states[step].empty()) run.tell(step, "-", "rng.torch", states[step]);
  }
  return run;
}

}  // namespace

TEST_CASE("facts: autocast, which one run has off where the other has it on", "[diff][facts]") {
  const auto run = [](const std::string& types) {
    Run made = training();
    made.tell(0, "fc1", "class", "torch.nn.modules.linear.Linear");
    if (!types.empty()) made.tell(0, "fc1", "autocast", types);
    return made;
  };
  CHECK(told(compared(run("cpu=torch.bfloat16"), run("cpu=torch.bfloat16"))).empty());
  CHECK(told(compared(run(""), run("cpu=torch.bfloat16"))) ==
        Lines{"Linear autocast: off | cpu=torch.bfloat16 in fc1"});
  CHECK(told(compared(run("cpu=torch.float16"), run(""))) ==
        Lines{"Linear autocast: cpu=torch.float16 | off in fc1"});
  Run without = training();  // the module did not run
  CHECK(told(compared(without, run("cpu=torch.bfloat16"))).empty());
}

TEST_CASE("facts: parameters without gradients, parameters of other modules, modes of evaluation",
          "[diff][facts]") {
  const auto run = [](const std::string& name, const std::string& value) {
    Run made = training();
    made.tell(0, "fc1", "class", "torch.nn.modules.linear.Linear");
    made.tell(0, "fc1", "attributes", "p=0.1");
    if (!name.empty()) made.tell(0, "fc1", name, value);
    return made;
  };
  const Run plain = run("", "");
  CHECK(told(compared(plain, run("frozen", "weight, bias"))) ==
        Lines{"Linear frozen: none | weight, bias in fc1"});
  CHECK(told(compared(run("tied", "weight=emb.weight"), plain)) ==
        Lines{"Linear tied: weight=emb.weight | none in fc1"});
  CHECK(told(compared(plain, run("mode.evaluation", "train"))) ==
        Lines{"Linear training in evaluation: no | yes in fc1"});
  CHECK(told(compared(run("tied", "weight=a"), run("tied", "weight=a"))).empty());
}

TEST_CASE("facts: of no module, in a damaged trace, what modules have is left out",
          "[diff][facts]") {
  const auto run = [](const char* mode, const char* kind) {
    Run made = training();
    made.tell(0, "-", "class", kind);
    for (const char* name : {"mode", "autocast", "attributes", "loss.mse_loss"})
      made.tell(0, "-", name, mode);
    return made;
  };
  CHECK(told(compared(run("train", "Net"), run("eval", "Net"))).empty());
  CHECK(told(compared(run("train", "Net"), run("train", "Model"))).empty());
}

TEST_CASE("facts: a model that trains in evaluation mode", "[diff][facts]") {
  const auto run = [](const Lines& in_evaluation, uint32_t told_in) {
    Run made = training();
    for (const char* scope : {"", "fc1", "drop"}) {
      made.tell(0, scope, "class", scope == std::string("drop") ? "torch.nn.Dropout" : "m.Part");
      made.tell(0, scope, "attributes", scope == std::string("drop") ? "inplace=False, p=0.1" : "");
    }
    for (const std::string& scope : in_evaluation) made.tell(told_in, scope, "mode", "eval");
    return made;
  };
  const auto diverged = [](Run made) {
    scale(made.at(0, "fc1", "output:0"), 2);
    return made;
  };
  const Run plain = run({}, 0);
  // Of a whole model it is known one step later, and its parts are told that act in training alone.
  CHECK(told(compared(plain, diverged(run({"", "fc1", "drop"}, 1)))) ==
        Lines{"Part training: True | False in the root module",
              "Dropout training: True | False in drop"});
  CHECK(told(compared(plain, diverged(run({"fc1"}, 0)))) ==
        Lines{"Part training: True | False in fc1"});
  CHECK(told(compared(plain, diverged(run({"fc1"}, 1)))).empty());  // later than the root
  CHECK(told(compared(run({"", "drop"}, 1), diverged(run({"", "drop"}, 1)))).empty());
}

TEST_CASE("facts: what a loss function was told is a setting", "[diff][facts]") {
  const auto run = [](const std::string& smoothing) {
    Run made = training();
    made.tell(0, "", "loss.cross_entropy_loss", "reduction='mean', label_smoothing=" + smoothing);
    return made;
  };
  Run cand = run("0.1");
  cand.at(0, "", "loss").values[0] *= 1 + 0x1p-22F;  // too little to tell
  const DiffResult result = compared(run("0.0"), cand);
  CHECK(result.verdict == diff::Verdict::kDiverged);
  REQUIRE(result.root);
  CHECK(result.root->setting == "cross_entropy_loss label_smoothing: 0.0 | 0.1 in the root module");
  CHECK(compared(run("0.1"), run("0.1")).facts.empty());
}

TEST_CASE(
    "facts: another function of the loss is the cause where the loss differs by more than rounding",
    "[diff][facts]") {
  const auto run = [](const std::string& function, float factor) {
    Run made = training();
    made.tell(0, "", "loss.backward", "function=" + function);
    made.tell(0, "", "backward.call", "train.py:12");
    made.at(0, "", "loss").values[0] *= factor;
    return made;
  };
  const DiffResult other = compared(run("MseLoss", 1), run("Mean(Abs)", 2));
  REQUIRE(other.cause);
  CHECK(other.cause->text == "the loss function: MseLoss | Mean(Abs)");
  CHECK(other.root->code.backward == "train.py:12");
  CHECK_FALSE(compared(run("MseLoss", 1), run("Mean(Pow)", 1 + 0x1p-22F)).root);
  // No function of a loss is why a value before it differs.
  Run hurt = run("Mean(Abs)", 1);
  hurt.at(0, "fc1", "output:0").values[0] *= 2;
  const DiffResult before = compared(run("MseLoss", 1), hurt);
  REQUIRE(before.root);
  CHECK((!before.cause || !before.cause->text.starts_with("the loss function")));
  // A sum of two losses, and each of them with a pass of its own.
  Run two = run("MseLoss", 1);
  two.tell(0, "", "loss.backward:1", "function=L1Loss");
  CHECK(compared(run("Add(MseLoss L1Loss)", 1), two).facts.empty());
}

TEST_CASE("facts: a setting of many modules is told once", "[diff][facts]") {
  const DiffResult result = compared(with_dropout("0.1"), with_dropout("0.12"));
  CHECK(told(result) == Lines{"Dropout p: 0.1 | 0.12 in blocks.*.drop (3 modules)"});
  const FactDifference& fact = result.facts.at(0);
  CHECK(fact.kind == FactKind::kModule);
  CHECK(fact.configuration);
  CHECK(fact.name == "p");
  CHECK(fact.base == "0.1");
  CHECK(fact.cand == "0.12");
  CHECK(fact.first == "blocks.0.drop");
  CHECK(fact.scope == "blocks.*.drop");
  CHECK(fact.modules == 3);
  CHECK(fact.step == 0);
}

TEST_CASE("facts: a setting that one run alone sets while it runs is one, what both set is none",
          "[diff][facts]") {
  Run base = training(4), cand = base;
  for (Run* run : {&base, &cand}) {
    run->tell(0, "fc1", "class", "model.Scaled");
    run->tell(0, "fc1", "attributes", "eps=1, seen=0.0");
  }
  cand.tell(2, "fc1", "attributes", "eps=2, seen=0.0");
  cand.at(2, "", "loss").values[0] *= 1 + 0x1p-22F;  // too little to tell
  CHECK(told(compared(base, cand)) == Lines{"Scaled eps: 1 | 2 in fc1 from step 2 on"});
  CHECK(compared(base, cand).root->setting == "Scaled eps: 1 | 2 in fc1 from step 2 on");
  for (Run* run : {&base, &cand})
    run->tell(1, "fc1", "attributes", run == &base ? "eps=1, seen=0.5" : "eps=1, seen=0.6");
  const DiffResult averages = compared(base, cand);  // an average that differs by rounding
  REQUIRE(!averages.facts.empty());
  CHECK(averages.facts[0].name == "seen");
  CHECK_FALSE(averages.facts[0].configuration);
}

TEST_CASE("facts: of several optimizers the one that differs is named", "[diff][facts][text]") {
  const auto run = [](const std::string& rate) {
    Run made = with_rates({"0.1"});
    made.tell(0, "-", "optimizer.1.class", "torch.optim.sgd.SGD");
    made.tell(0, "-", "optimizer.1.0.lr", rate);
    return made;
  };
  CHECK(told(compared(run("1"), run("2"))) ==
        Lines{"optimizer lr: 1 | 2 from step 0 in optimizer.1.0 (SGD)"});
}

TEST_CASE("facts: equal programs differ in none, wherever their code stands", "[diff][facts]") {
  Run cand = with_dropout("0.1");
  for (test::Item& item : cand.items) {
    if (item.slot == "call") item.message = "model.py:40";
  }
  const DiffResult result = compared(with_dropout("0.1"), cand);
  CHECK(result.facts.empty());
  CHECK(result.verdict == diff::Verdict::kSame);
}

TEST_CASE("facts: a difference is told beside equal values, too", "[diff][facts]") {
  const DiffResult result =
      compared(with_rates({"0.1", "0.1", "0.1"}), with_rates({"0.1", "0.1", "0.2"}));
  CHECK(told(result) == Lines{"optimizer lr: 0.1 | 0.2 from step 2 in optimizer.0.0 (AdamW)"});
}

TEST_CASE("facts: a setting is what it was said to be last, also in steps that are not read",
          "[diff][facts]") {
  Run cand = with_rates({"0.4", "0.3", "0.3", "0.3"});
  scale(cand.at(3, "fc2", "output:0"), 1.5);
  CHECK(told(compared(with_rates({"0.4", "0.3", "0.2", "0.1"}), cand)) ==
        Lines{"optimizer lr: 0.2 | 0.3 from step 2 in optimizer.0.0 (AdamW)"});
}

TEST_CASE("facts: what differs behind the root is not its cause", "[diff][facts]") {
  Run cand = with_rates({"0.1", "0.1", "0.2"});
  scale(cand.at(1, "fc2", "output:0"), 1.5);
  const DiffResult result = compared(with_rates({"0.1", "0.1", "0.1"}), cand);
  CHECK(result.root.has_value());
  CHECK(result.facts.empty());
}

TEST_CASE("facts: what one run alone says behind the end of the other is no difference",
          "[diff][facts]") {
  CHECK(compared(with_rates({"0.1", "0.1"}), with_rates({"0.1", "0.1", "0.2"})).facts.empty());
}

TEST_CASE("facts: a key of one version alone is no configuration", "[diff][facts]") {
  Run base = with_rates({"0.1"}), cand = base;
  cand.tell(0, "-", "optimizer.0.0.decoupled_weight_decay", "False");
  const DiffResult result = compared(base, cand);
  CHECK(
      told(result) ==
      Lines{
          "optimizer decoupled_weight_decay: (none) | False from step 0 in optimizer.0.0 (AdamW)"});
  CHECK_FALSE(result.facts.at(0).configuration);

  Run drop = with_dropout("0.1"), newer = with_dropout("0.1, new=True");
  REQUIRE(compared(drop, newer).facts.size() == 1);
  CHECK_FALSE(compared(drop, newer).facts.at(0).configuration);
  cand.tell(0, "-", "optimizer.1.0.lr", "0.1");  // an optimizer that one run alone has
  CHECK(compared(base, cand).facts.size() == 1);
}

TEST_CASE("facts: groups of optimizers are paired by their parameters", "[diff][facts]") {
  using Group = std::pair<std::string, std::vector<std::string>>;  // weight decay, modules
  const auto run = [](const std::vector<Group>& groups) {
    Run made = training();
    made.tell(0, "-", "optimizer.0.class", "torch.optim.adamw.AdamW");
    for (size_t i = 0; i < groups.size(); ++i) {
      made.tell(1, "-", "optimizer.0." + std::to_string(i) + ".weight_decay", groups[i].first);
      for (const std::string& module : groups[i].second)
        made.tell(0, module, "group.weight", "0." + std::to_string(i));
    }
    return made;
  };
  const Run base = run({{"0.1", {"fc1"}}, {"0", {"fc2"}}});
  CHECK(compared(base, run({{"0", {"fc2"}}, {"0.1", {"fc1"}}})).facts.empty());
  CHECK(compared(run({{"0.1", {"fc1", "fc2"}}}), run({{"0.1", {"fc2"}}, {"0.1", {"fc1"}}}))
            .facts.empty());

  Run cand = run({{"0", {}}, {"0.1", {"fc1", "fc2"}}});
  const auto decays = [](const std::string& of) {
    return "optimizer weight_decay: 0 | 0.1 from step 1 in optimizer.0.1 (AdamW), of " + of;
  };
  CHECK(told(compared(base, cand)) == Lines{decays("fc2.weight")});
  CHECK(told(compared(run({{"0.1", {}}, {"0", {"fc1", "fc2"}}}), cand)) ==
        Lines{"optimizer weight_decay: 0 | 0.1 from step 1 in optimizer.0.1 (AdamW)"});  // all
  CHECK(
      told(compared(base, run({{"0.1", {}}, {"0.2", {"fc1", "fc2"}}}))) ==
      Lines{"optimizer weight_decay: 0.1 | 0.2 from step 1 in optimizer.0.0 (AdamW), of fc1.weight",
            "optimizer weight_decay: 0 | 0.2 from step 1 in optimizer.0.1 (AdamW), of fc2.weight"});

  // It is the cause of an update of that parameter alone.
  const auto cause = [&](const std::string& module) {
    Run other = cand;
    scale(other.at(1, module, "param:weight"), 1.5);
    const DiffResult result = compared(base, other);
    REQUIRE(result.root);
    CHECK(result.root->record.scope == module);
    return result.cause && result.cause->rule == "setting";
  };
  CHECK(cause("fc2"));
  CHECK_FALSE(cause("fc1"));
}

TEST_CASE("facts: another hook of the root's module is its cause, and no root itself",
          "[diff][facts]") {
  const auto run = [](const std::string& hooks) {
    Run made = training();
    for (const char* module : {"fc1", "fc2"}) {
      made.tell(0, module, "class", "torch.nn.modules.linear.Linear");
      if (!hooks.empty()) made.tell(0, module, "hooks", hooks);
    }
    return made;
  };
  const std::string log = "forward hook log (model.py:12)";
  CHECK(compared(run(log), run("forward hook log (model.py:40)")).facts.empty());
  const DiffResult same = compared(run(""), run(log));
  CHECK(told(same) == Lines{"Linear hooks: none | " + log + " in fc1",
                            "Linear hooks: none | " + log + " in fc2"});
  CHECK(same.verdict == diff::Verdict::kSame);
  Run cand = run("");
  cand.tell(0, "fc2", "hooks", log);
  scale(cand.at(1, "fc2", "output:0"), 1.5);
  const DiffResult result = compared(run(""), cand);
  REQUIRE(result.cause);
  CHECK(result.cause->text == "Linear hooks: none | " + log + " in fc2");
}

TEST_CASE("facts: another class is told, not its other settings", "[diff][facts]") {
  Run base = training(), cand = training();
  base.tell(0, "fc1", "class", "torch.nn.modules.activation.GELU");
  base.tell(0, "fc1", "attributes", "approximate='none'");
  cand.tell(0, "fc1", "class", "model.NewGELU");
  cand.tell(0, "fc1", "attributes", "approximate='tanh'");
  CHECK(told(compared(base, cand)) == Lines{"GELU class: GELU | NewGELU in fc1"});
  Run moved = base;
  moved.items.front().message = "elsewhere.GELU";
  CHECK(compared(base, moved).facts.empty());
}

TEST_CASE("facts: a class and a flag are no root where nothing diverges, a number is",
          "[diff][facts]") {
  const auto run = [](const std::string& attributes, const std::string& kind, float factor) {
    Run made = training();
    made.tell(0, "fc1", "class", kind);
    made.tell(0, "fc1", "attributes", attributes);
    made.at(1, "", "loss").values[0] *= factor;
    return made;
  };
  constexpr float kRounding = 1 + 0x1p-22F;
  const Run base = run("flag=False", "model.Old", 1);
  for (const Run& cand :
       {run("flag=True", "model.Old", kRounding), run("flag=False", "model.New", kRounding)}) {
    const DiffResult same = compared(base, cand);
    CHECK(same.facts.at(0).configuration);
    CHECK_FALSE(same.root);
  }
  // Statistics of one run alone, which evaluation uses, are no agreement.
  Run without = run("flag=True", "model.Old", kRounding);
  Run with = base;
  with.add({.step = 1, .scope = "fc1", .slot = "buffer:running_mean", .values = {1, 2}});
  const DiffResult unlike = compared(with, without);
  REQUIRE(unlike.root);
  CHECK(unlike.root->setting == "Old flag: False | True in fc1");
  const DiffResult number =
      compared(run("eps=1e-05", "model.Old", 1), run("eps=1e-06", "model.Old", kRounding));
  REQUIRE(number.root);
  CHECK(number.root->setting == "Old eps: 1e-05 | 1e-06 in fc1");
  CHECK(number.cause->evidence == Lines{"no value diverges before it is used"});
  // A flag that was there in steps that agreed is not where a later value went wrong.
  const DiffResult later = compared(base, run("flag=True", "model.Old", 2));
  REQUIRE(later.root);
  CHECK(later.root->record.step == 1);
  CHECK(later.root->setting.empty());
}

TEST_CASE("facts: an input that one run alone takes is the cause, unless it did no harm before",
          "[diff][facts]") {
  const auto run = [](std::optional<uint32_t> taken_from) {
    Run made = training();
    scale(made.at(1, "fc2", "output:0"), taken_from ? 2 : 1);
    if (!taken_from) return made;
    for (uint32_t step = *taken_from; step < 2; ++step) {
      const auto at = std::ranges::find_if(made.items, [&](const test::Item& item) {
        return item.step == step && item.scope == "fc2" && item.slot == "output:0";
      });
      made.items.insert(at, {.step = step, .scope = "fc2", .slot = "input:1", .values = {1}});
    }
    return made;
  };
  const DiffResult found = compared(run(std::nullopt), run(1));
  REQUIRE(found.cause);
  CHECK(found.cause->rule == "other-inputs");
  CHECK(found.cause->text == "module fc2 takes input:1 in the candidate alone");
  const DiffResult harmless = compared(run(std::nullopt), run(0));
  CHECK((!harmless.cause || harmless.cause->rule != "other-inputs"));
}

TEST_CASE("facts: a generator that parts from the other run's is told with its step",
          "[diff][facts]") {
  const DiffResult result =
      compared(with_states({"a", "b", "c", "d"}), with_states({"a", "b", "x", "y"}));
  CHECK(told(result) ==
        Lines{"random numbers of torch differ from step 2 on: one run drew others"});
  CHECK_FALSE(result.facts.at(0).configuration);
  CHECK(told(compared(with_states({"a", "", "b"}), with_states({"a", "x", "x"}))) ==
        Lines{"random numbers of torch differ from step 1 on: one run drew others"});
  CHECK(told(compared(with_states({"a", "b"}), with_states({"x", "y"}))) ==
        Lines{"random numbers of torch differ from step 0 on, the first that is known: seeded "
              "otherwise, or one run drew some before"});
}

TEST_CASE("facts: a generator that nobody draws from decides nothing", "[diff][facts]") {
  CHECK(compared(with_states({"a", ""}), with_states({"x", ""})).facts.empty());
}

TEST_CASE("facts: modules go by the baseline's names", "[diff][facts]") {
  Run base = with_dropout("0.1"), cand = with_dropout("0.2");
  for (test::Item& item : cand.items) {
    if (item.scope.starts_with("blocks")) item.scope.replace(0, 6, "layers");
  }
  CHECK(compared(base, cand).facts.empty());  // their modules have no values to be paired by
  for (Run* run : {&base, &cand}) {
    for (test::Item& item : run->items) {
      if (item.kind == test::Item::Kind::kFact) item.scope = run == &base ? "fc1" : "first";
      if (item.scope == "fc1" && run == &cand) item.scope = "first";
    }
  }
  CHECK(told(compared(base, cand)) == Lines{"Dropout p: 0.1 | 0.2 in fc1"});
}

TEST_CASE("facts: code that changed is told by file and class", "[diff][facts]") {
  Run base = training(), cand = training();
  base.meta.facts = {{"code.model.py", "1"},     {"code.model.py.Attention", "2"},
                     {"code.model.py.MLP", "3"}, {"code.train.py", "4"},
                     {"code.old.py", "5"},       {"version.python", "3.11.2"}};
  cand.meta.facts = {{"code.model.py", "x"},
                     {"code.model.py.Attention", "y"},
                     {"code.model.py.MLP", "3"},
                     {"code.train.py", "z"},
                     {"version.python", "3.11.9"}};
  CHECK(told(compared(base, cand)) == Lines{"model.py changed: class Attention", "train.py changed",
                                            "old.py was imported in the baseline alone"});
  cand.meta.facts.back().second = "3.12.1";  // the bytes of its instructions are others anyway
  CHECK(told(compared(base, cand)) ==
        Lines{"model.py changed", "train.py changed", "old.py was imported in the baseline alone"});
  for (const diff::PreflightEntry& entry : compared(base, cand).preflight)
    CHECK_FALSE(entry.name.starts_with("code."));
}

TEST_CASE("facts: the lines of code that changed, where both runs recorded the source",
          "[diff][facts]") {
  Run base = training(), cand = training();
  base.meta.facts = {{"code.model.py", "1"},
                     {"code.model.py.MLP", "1"},
                     {"code.lib/act.py.Act", "1"},
                     {"source.model.py.MLP", "3\nclass MLP:\n  a"},
                     {"source.lib/act.py.Act", "9\nclass Act:\n  a\n  b\n  c\n  d"},
                     {"version.python", "3.11.2"}};
  cand.meta.facts = {{"code.model.py", "2"},
                     {"code.model.py.MLP", "2"},
                     {"code.lib/act.py.Act", "2"},
                     {"source.model.py.MLP", "3\nclass MLP:\n  A"},
                     {"source.lib/act.py.Act", "12\nclass Act:\n  a\n  b\n  c\n  e\n  d"},
                     {"version.python", "3.11.2"}};
  const auto lines_of = [&](const std::string& name) {
    const DiffResult result = compared(base, cand);
    const auto found = std::ranges::find(result.facts, name, &FactDifference::name);
    REQUIRE(found != result.facts.end());
    return found->lines;
  };
  const std::string inserted = "lib/act.py: class Act", replaced = "model.py: class MLP";
  CHECK(lines_of(inserted) == Lines{"@@ -11,3 +14,4 @@", "   b", "   c", "+  e", "   d"});
  CHECK(lines_of(replaced) == Lines{"@@ -3,2 +3,2 @@", " class MLP:", "-  a", "+  A"});
  for (const diff::PreflightEntry& entry : compared(base, cand).preflight)
    CHECK_FALSE(entry.name.starts_with("source."));

  // The whole file's lines stand for those of its classes.
  base.meta.facts.emplace_back("source.model.py", "1\n\n\nclass MLP:\n  a\nlr = 1");
  cand.meta.facts.emplace_back("source.model.py", "1\n\n\nclass MLP:\n  A\nlr = 2");
  CHECK(lines_of("model.py") ==
        Lines{"@@ -2,4 +2,4 @@", " ", " class MLP:", "-  a", "-lr = 1", "+  A", "+lr = 2"});
  CHECK(lines_of(replaced).empty());
}

TEST_CASE("facts: two scripts are versions of one program", "[diff][facts]") {
  Run base = training(), cand = training();
  base.meta.command_line = {"python", "old/train_old.py", "--x"};
  cand.meta.command_line = {"python", "train_new.py"};
  base.meta.facts = {{"code.train_old.py", "1"},
                     {"code.train_old.py.Net", "1"},
                     {"code.train_old.pyx", "1"},
                     {"version.python", "3.11.2"}};
  cand.meta.facts = {
      {"code.train_new.py", "2"}, {"code.train_new.py.Net", "2"}, {"version.python", "3.11.2"}};
  CHECK(told(compared(base, cand)) == Lines{"train_new.py changed: class Net"});
  cand.meta.facts[1].second = "1";
  CHECK(told(compared(base, cand)) == Lines{"train_new.py changed"});
  cand.meta.facts.emplace_back("code.train_old.py", "1");  // imported by the other
  CHECK(told(compared(base, cand)) == Lines{"train_new.py was imported in the candidate alone"});
}

TEST_CASE(
    "facts: a class of a notebook, of a module below others, or inside of a function is named",
    "[diff][facts]") {
  const auto root_of = [](const std::string& kind, const std::string& forward,
                          const std::string& fact) {
    Run base = training(), cand = training();
    for (Run* run : {&base, &cand}) {
      run->tell(0, "fc2", "class", kind);
      run->tell(0, "fc2", "forward", forward);
      run->meta.facts = {
          {"version.python", "3.11.2"}, {"code.a.py.B", "1"}, {fact, run == &base ? "1" : "2"}};
    }
    scale(cand.at(1, "fc2", "output:0"), 1.5);
    const DiffResult result = compared(base, cand);
    REQUIRE(result.root.has_value());
    CHECK(result.root->code.changed);
    base.meta.facts.front().second = "3.12.1";  // is it known to be a class?
    CHECK(compared(base, cand).facts.empty());
    return told(result);
  };
  CHECK(root_of("__main__.Net", "<string>:7", "code.__main__.Net") ==
        Lines{"__main__ changed: class Net"});
  CHECK(root_of("pkg.model.Net", "pkg/base.py:7", "code.pkg/model.py.Net") ==
        Lines{"pkg/model.py changed: class Net"});
  CHECK(root_of("__main__.make.<locals>.Net", "train.py:7", "code.train.py.make.<locals>.Net") ==
        Lines{"train.py changed: class make.<locals>.Net"});
}

TEST_CASE("facts: another CUPTI is told first of all and chooses no kernel", "[diff][facts]") {
  Run base = training(), cand = training();
  base.meta.facts = {{"version.cupti", "API 22"}, {"version.driver", "12.4"}};
  cand.meta.facts = {{"version.cupti", "13.0"}, {"version.driver", "12.4"}};
  const std::vector<diff::PreflightEntry> told = compared(base, cand).preflight;
  REQUIRE(told.size() == 1);
  CHECK(told[0] == diff::PreflightEntry{"version.cupti", "API 22", "13.0"});
  CHECK(diff::meaning_of(told[0]).excuse == diff::Excuse::kNone);
  // Another driver may choose another kernel.
  CHECK(diff::meaning_of({"version.driver", "12.4", "13.0"}).excuse == diff::Excuse::kRounding);
}

TEST_CASE("facts: another choice of an autotuner is told, a kernel of one run alone is none",
          "[diff][facts]") {
  Run base = training(), cand = training();
  base.meta.facts = {{"autotune.gemm", "BLOCK: 64"}, {"autotune.triton_poi_fused_0", "XBLOCK: 1"}};
  cand.meta.facts = {{"autotune.gemm", "BLOCK: 128"}};
  const std::vector<diff::PreflightEntry> told = compared(base, cand).preflight;
  REQUIRE(told.size() == 1);
  CHECK(told[0] == diff::PreflightEntry{"autotune.gemm", "BLOCK: 64", "BLOCK: 128"});
  CHECK(diff::meaning_of(told[0]).excuse == diff::Excuse::kRounding);
}

TEST_CASE("facts: the root's module is told by its class and places", "[diff][facts]") {
  Run base = training(), cand = training();
  for (Run* run : {&base, &cand}) {
    run->tell(0, "fc2", "class", "model.Linear2");
    run->tell(0, "fc2", "forward", "model.py:41");
    run->tell(0, "fc2", "call", "model.py:88");
  }
  scale(cand.at(1, "fc2", "output:0"), 1.5);
  const DiffResult result = compared(base, cand);  // the facts lie in a step that is not read
  REQUIRE(result.root.has_value());
  CHECK(code_text(result.root->code) == "Linear2, model.py:41, called at model.py:88");
  base.meta.facts = {{"code.model.py.Linear2", "1"}, {"code.model.py.Linear", "1"}};
  cand.meta.facts = {{"code.model.py.Linear2", "1"}, {"code.model.py.Linear", "2"}};
  CHECK_FALSE(compared(base, cand).root->code.changed);
  cand.meta.facts[0].second = "2";
  CHECK(code_text(compared(base, cand).root->code) ==
        "Linear2, whose code changed, model.py:41, called at model.py:88");
}

TEST_CASE("facts: settings are parsed as Python writes them", "[diff][facts]") {
  using Settings = std::map<std::string, std::string>;
  CHECK(diff::parse_settings("").empty());
  CHECK(diff::parse_settings("p=0.1") == Settings{{"p", "0.1"}});
  CHECK(diff::parse_settings(R"(a=(1, 2), b='x, y=3', c="it's, so", d='\'', e=[(1, 2), 3])") ==
        Settings{{"a", "(1, 2)"},
                 {"b", "'x, y=3'"},
                 {"c", "\"it's, so\""},
                 {"d", "'\\''"},
                 {"e", "[(1, 2), 3]"}});
  CHECK(diff::parse_settings("p=1, a=(1, 2").size() == 1);  // cut
  CHECK(diff::parse_settings("p=1, a='x").size() == 1);
  CHECK(diff::parse_settings("no key, p=1") == Settings{{"p", "1"}});
}

TEST_CASE("facts: modules are joined where numbers alone tell them apart", "[diff][facts]") {
  const auto groups = [](const std::vector<std::string>& scopes) {
    std::vector<FactDifference> facts;
    for (const std::string& scope : scopes)
      facts.push_back({.name = "p", .base = "1", .cand = "2", .scope = scope, .first = scope});
    Lines found;
    for (const FactDifference& fact : diff::grouped(facts))
      found.push_back(fact.scope + " " + std::to_string(fact.modules));
    return found;
  };
  CHECK(groups({"h.0.a", "h.1.a", "h.1.b"}) == Lines{"h.*.a 2", "h.1.b 1"});
  CHECK(groups({"h.0.3", "h.1.3"}) == Lines{"h.*.3 2"});
  CHECK(groups({"h.0", "h.0"}) == Lines{"h.0 1"});  // of two ranks
  CHECK(groups({""}) == Lines{" 1"});
}

TEST_CASE("diff: metadata that differs is listed, versions first", "[diff][preflight]") {
  Run cand = test::training();
  cand.meta.facts = {{"library.ops.so", "00ff /home/me/ops.so"},
                     {"setting.output", "elsewhere"},
                     {"switch.CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
                     {"version.torch", "2.14.0"}};
  cand.meta.command_line.emplace_back("--fast");
  const DiffResult result = compared(test::training(), cand);
  REQUIRE(result.preflight.size() == 3);
  CHECK(result.preflight[0] == diff::PreflightEntry{"version.torch", "2.13.0", "2.14.0"});
  CHECK(result.preflight[1] ==
        diff::PreflightEntry{"switch.CUBLAS_WORKSPACE_CONFIG", std::nullopt, ":4096:8"});
  CHECK(result.preflight[2].name == "command line");
  Run base = test::training();
  base.meta.facts.insert(base.meta.facts.end(), {{"package.a", "1"}, {"package.b", "1"}});
  cand.meta.facts = {{"version.torch", "2.13.0"}, {"package.b", "2"}, {"package.c", "1"}};
  const auto packages = compared(base, cand).preflight;
  REQUIRE(packages.size() == 4);
  CHECK(packages[0].name == "package.b");  // before those of one run alone
}

TEST_CASE("diff: variables of the environment that differ are named, and excuse nothing",
          "[diff][preflight]") {
  Run base = test::training(), cand = base;
  base.meta.facts.emplace_back("run.environment", "FUSED=#00000001 HOME=#00000002 OLD=#00000003");
  CHECK(compared(base, cand).preflight.empty());  // the candidate's were not recorded
  cand.meta.facts.emplace_back("run.environment", "FUSED=#00000009 HOME=#00000002");
  const auto told = compared(base, cand).preflight;
  REQUIRE(told.size() == 1);
  CHECK(told[0] == diff::PreflightEntry{diff::kEnvironment, "FUSED=#00000001 OLD=#00000003",
                                        "FUSED=#00000009"});
  CHECK(diff::meaning_of(told[0]).excuse == diff::Excuse::kNone);
}
