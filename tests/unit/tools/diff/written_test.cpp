// Parameters that the program writes itself, by no optimizer's step.

#include <algorithm>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using diff::DiffResult;
using diff::Verdict;
using format::Phase;
using test::compared;
using test::Item;
using test::Run;
using test::scale;
using test::where;
using test::Where;

/// Adds that the program wrote fc2's weight between the update of step `step - 1` and the step, which
/// multiplied it.
void write(Run& run, uint32_t step, double factor) {
  Item written = run.at(step - 1, "fc2", "param:weight", step == 1 ? 1 : 0);
  written.step = step;
  written.phase = Phase::kForward;
  written.slot = "param_written:weight";
  scale(written, factor);
  const auto first =
      std::ranges::find_if(run.items, [step](const Item& item) { return item.step == step; });
  run.items.insert(first, written);
}

/// What a weight of fc2 that is `factor` times as large makes in a step.
void use(Run& run, uint32_t step, double factor) {
  scale(run.at(step, "fc2", "output:0"), factor);
  scale(run.at(step, "", "output:0"), factor);
  scale(run.at(step, "", "loss"), factor);
}

}  // namespace

TEST_CASE("diff: a weight that the program wrote is the root, not the module that uses it",
          "[diff][written]") {
  const Run base = test::training(4);
  Run cand = base;
  write(cand, 2, 4);
  use(cand, 2, 4);
  const DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kDiverged);
  CHECK(where(result) == Where{2, Phase::kForward, "fc2", "param:weight"});
  CHECK(result.root->written ==
        "written by the program between step 1's update and step 2, in the candidate alone");
  CHECK(result.root->record.comparison.difference > 0.5);
  REQUIRE(result.cause.has_value());
  CHECK(result.cause->rule == "written");
  CHECK(result.root->has_values());
  CHECK_FALSE(result.root->leads_on());
}

TEST_CASE("diff: a weight that both runs write, and otherwise, is the root", "[diff][written]") {
  Run base = test::training(4), cand = base;
  write(base, 2, 2);
  use(base, 2, 2);
  write(cand, 2, 4);
  use(cand, 2, 4);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{2, Phase::kForward, "fc2", "param:weight"});
  CHECK(result.root->written ==
        "written by the program between step 1's update and step 2, with other values in each run");
}

TEST_CASE("diff: a weight that only the baseline writes is told of it", "[diff][written]") {
  Run base = test::training(4);
  const Run cand = base;
  write(base, 1, 3);
  use(base, 1, 3);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{1, Phase::kForward, "fc2", "param:weight"});
  CHECK(result.root->written ==
        "written by the program between step 0's update and step 1, in the baseline alone");
}

TEST_CASE("diff: memory that the program fills in its first call is no root", "[diff][written]") {
  const Run base = test::training(3);
  Run cand = base;
  scale(cand.at(0, "fc2", "param:weight"), 3);  // before that call
  CHECK(
      diff::headline(compared(base, cand)).ends_with("but for memory that was yet to be written"));
  scale(cand.at(0, "fc2", "param:weight", 1), 3);
  CHECK(where(compared(base, cand)) == Where{0, Phase::kForward, "fc2", "param:weight"});
}

TEST_CASE("diff: a swap of weights that one run alone undoes is the root", "[diff][written]") {
  Run base = test::training(4), cand = base;
  for (Run* run : {&base, &cand}) {
    if (run == &base) write(*run, 2, 1);
    write(*run, 2, 4);
  }
  CHECK(compared(base, base).verdict == Verdict::kSame);
  use(cand, 2, 4);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{2, Phase::kForward, "fc2", "param:weight"});
  CHECK(result.root->written ==
        "written by the program between two uses in step 2, in the baseline alone");
  // A swap that is undone leaves the weights as those of a run that has made none.
  CHECK(compared(base, test::training(4)).verdict == Verdict::kSame);
}

TEST_CASE("diff: of a module's weights is said whether they agree", "[diff][written]") {
  const auto said = [](const Run& base, Run cand) {
    use(cand, 1, 4);
    const DiffResult result = compared(base, cand);
    CHECK(where(result) == Where{1, Phase::kForward, "fc2", "output:0"});
    return diff::root_sentence(*result.root);
  };
  const Run base = test::training();
  Run other = base;
  scale(other.at(0, "fc2", "param:weight", 1), 1 + 1e-7);
  const auto behind = [](const char* when) {
    return std::string("inputs agree, the result does not; its weights agree ") + when +
           ", and were not compared at this use (--ops records what it computes with)";
  };
  CHECK(said(base, base) == behind("behind step 0's update"));
  // A record before this use, of both runs.
  Run recorded = base;
  write(recorded, 1, 1);
  CHECK(said(recorded, recorded) == "inputs and weights agree, the result does not");
  CHECK(said(recorded, base) == behind("behind step 0's update"));
  CHECK(said(base, other) ==
        "inputs agree within rounding, the result does not; the module's weights have other bits, "
        "too");
  // Updates by an optimizer that is not observed are not recorded.
  Run by_hand = base;
  std::erase_if(by_hand.items, [](const Item& item) { return item.phase == Phase::kOptimizer; });
  const std::string open =
      "inputs agree, the result does not; the weights as it used them were not compared (--ops "
      "records what it computes with)";
  CHECK(said(by_hand, by_hand) == behind("at their first use in step 0"));
  // Of two models that take turns the second is used behind the first one's update.
  Run turns = base;
  std::erase_if(turns.items, [](const Item& item) {
    return item.step > 0 || (item.scope == "fc2" && item.phase == Phase::kOptimizer);
  });
  for (Item item : base.items) {
    if (item.step != 1 || item.phase == Phase::kOptimizer) continue;
    item.step = 0;
    item.call = 1;
    turns.add(item);
  }
  Run other_turn = turns;
  for (const char* scope : {"fc2", ""}) scale(other_turn.at(0, scope, "output:0", 1), 4);
  CHECK(diff::root_sentence(*compared(turns, other_turn).root) ==
        behind("at their first use in step 0"));
  Run first = base;
  use(first, 0, 4);
  const DiffResult at_first = compared(base, first);
  CHECK(diff::root_sentence(*at_first.root) == "inputs and weights agree, the result does not");
  CHECK(at_first.root->weights_are(diff::Shown::kEqual));
  Run without = base;
  std::erase_if(without.items, [](const Item& item) {
    return item.scope == "fc2" && item.slot == "param:weight";
  });
  CHECK(said(without, without) == "inputs agree, the result does not");
  CHECK(said(base, without) == open);
}

TEST_CASE("diff: a gradient that is written to behind its backward pass is no fault of that pass",
          "[diff][written]") {
  const auto run = [](double factor, uint32_t writes, const char* type) {
    Run made = test::training();
    Item& gradient = made.at(1, "fc1", "grad:weight");
    gradient.version = writes;
    scale(gradient, factor);
    made.tell(0, "fc1", "class", type);
    return made;
  };
  constexpr auto kLinear = "torch.nn.modules.linear.Linear";
  const DiffResult result = compared(run(1, 0, kLinear), run(3, 1, kLinear));
  CHECK(where(result) == Where{1, Phase::kBackward, "fc1", "grad:weight"});
  CHECK(diff::headline(result).starts_with("DIVERGED at step 1, after backward, fc1"));
  CHECK(diff::root_sentence(*result.root) ==
        "what the gradient is made of agrees; the candidate wrote to it 1 time more before the "
        "optimizer got it");
  CHECK(diff::phase_text(result).ends_with("look at what changes them behind the backward pass"));
  REQUIRE(result.cause);
  CHECK(result.cause->rule == "written");

  // A backward pass of the program's own may write in place, and so may another version's.
  CHECK_FALSE(compared(run(1, 0, "m.Own"), run(3, 1, "m.Own")).root->is_after_backward());
  Run newer = run(3, 1, kLinear);
  newer.meta.facts = {{"version.torch", "2.14.0"}};
  CHECK_FALSE(compared(run(1, 0, kLinear), newer).root->is_after_backward());
  CHECK_FALSE(compared(run(1, 1, kLinear), run(3, 1, kLinear)).root->is_after_backward());
  // Gradients that one program sets to zero, and the other drops, have other counts throughout.
  Run zeroed = run(3, 1, kLinear);
  zeroed.at(1, "fc2", "grad:weight").version = 1;
  CHECK_FALSE(compared(run(1, 0, kLinear), zeroed).root->is_after_backward());
  Run without = run(3, 1, kLinear), plain = run(1, 0, kLinear);
  for (Run* one : {&without, &plain}) one->erase(1, "fc1", "grad_output:0");
  CHECK_FALSE(compared(plain, without).root->is_after_backward());
}

TEST_CASE("diff: a gradient that agrees before it is clipped was made right", "[diff][written]") {
  Run base = test::training();
  Item gradient = base.at(1, "fc1", "grad:weight");
  gradient.slot = "grad_unclipped:weight";
  base.items.insert(base.items.begin() + (&base.at(1, "fc1", "grad:weight") - base.items.data()),
                    gradient);
  Run cand = base;
  scale(cand.at(1, "fc1", "grad:weight"), -1);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{1, Phase::kBackward, "fc1", "grad:weight"});
  CHECK(diff::headline(result).starts_with("DIVERGED at step 1, after backward, fc1"));
  CHECK(diff::root_sentence(*result.root) ==
        "the gradient agrees before it is clipped, and differs as the optimizer got it");
}

TEST_CASE("diff: a gradient that is written to before it is clipped is no fault of its backward",
          "[diff][written]") {
  const auto run = [](float factor, uint32_t writes) {
    Run made = test::training();
    for (const char* layer : {"fc1", "fc2"}) {
      Item whole = made.at(1, layer, "grad:weight");
      whole.slot = "grad_unclipped:weight";
      scale(whole, 10);
      if (layer == std::string("fc1")) {
        scale(whole, factor);
        whole.version = writes;
        scale(made.at(1, layer, "grad:weight"), factor);
      }
      const auto at = std::ranges::find_if(made.items, [layer](const Item& item) {
        return item.step == 1 && item.scope == layer && item.slot == "grad:weight";
      });
      made.items.insert(at, whole);
    }
    made.tell(0, "fc1", "class", "torch.nn.modules.linear.Linear");
    return made;
  };
  const DiffResult result = compared(run(1, 0), run(3, 1));
  CHECK(where(result) == Where{1, Phase::kBackward, "fc1", "grad_unclipped:weight"});
  CHECK(diff::headline(result).starts_with("DIVERGED at step 1, after backward, fc1"));
  CHECK(diff::root_sentence(*result.root) ==
        "what the gradient is made of agrees; the candidate wrote to it 1 time more before it was "
        "clipped");
  CHECK_FALSE(compared(run(1, 0), run(3, 0)).root->is_after_backward());
}

TEST_CASE("diff: gradients of parameters that were not compared do not agree", "[diff][root]") {
  const auto said = [](Run base, bool with_gradients) {
    if (!with_gradients)
      std::erase_if(base.items, [](const Item& one) { return one.slot == "grad:weight"; });
    Run cand = base;
    for (const char* layer : {"fc1", "fc2"}) scale(cand.at(1, layer, "param:weight"), 2);
    diff::DiffRules rules;
    rules.exact = diff::ExactChoice::kOn;
    const DiffResult result = compared(base, cand, {}, rules);
    CHECK(where(result) == Where{1, Phase::kOptimizer, "fc1", "param:weight"});
    return diff::phase_text(result);
  };
  CHECK(said(test::training(), true) ==
        "step 1: loss and gradients agree, the updated weights do not: look at the optimizer");
  CHECK(said(test::training(), false) ==
        "step 1: loss and gradients of modules' outputs agree, the updated weights do not "
        "(gradients of parameters not compared): look at the optimizer, and at what changes "
        "gradients before it");
}

TEST_CASE("diff: a write that changes nothing, or that both runs make, blames nobody",
          "[diff][written]") {
  const Run plain = test::training(4);
  Run same = plain;
  write(same, 2, 1);
  const DiffResult alike = compared(plain, same);
  CHECK(alike.verdict == Verdict::kSame);
  CHECK(alike.one_sided.empty());
  CHECK(alike.values == compared(plain, plain).values);

  Run base = plain, cand = plain;
  write(base, 2, 2);
  write(cand, 2, 2);
  use(cand, 2, 4);
  CHECK(where(compared(base, cand)) == Where{2, Phase::kForward, "fc2", "output:0"});
  write(same, 3, 1);
  use(same, 3, 4);
  CHECK(where(compared(plain, same)) == Where{3, Phase::kForward, "fc2", "output:0"});
}

TEST_CASE("diff: a write too small for the difference, or of another module, is not the root",
          "[diff][written]") {
  const Run base = test::training(4);
  Run small = base;
  write(small, 2, 1.001);
  use(small, 2, 4);
  CHECK(where(compared(base, small)) == Where{2, Phase::kForward, "fc2", "output:0"});
  Run other = base;
  write(other, 2, 4);
  scale(other.at(2, "fc1", "output:0"), 4);
  CHECK(where(compared(base, other)).scope == "fc1");
  CHECK(compared(base, other).root->written.empty());
}

TEST_CASE("diff: rounding of a weight that both runs average blames nobody", "[diff][written]") {
  Run base = test::training(4), cand = base;
  write(base, 2, 2);
  write(cand, 2, 2 * (1 + 1e-7));
  CHECK(compared(base, cand).verdict == Verdict::kSame);
  use(cand, 2, 4);
  CHECK(where(compared(base, cand)) == Where{2, Phase::kForward, "fc2", "output:0"});
}

TEST_CASE("diff: a weight that is not trained is known from the first step", "[diff][written]") {
  Run base = test::training(6);
  std::erase_if(base.items, [](const Item& item) {
    return item.scope == "fc2" && item.phase == Phase::kOptimizer;
  });
  Run cand = base;
  Item written = base.at(0, "fc2", "param:weight");
  written.step = 5;
  written.slot = "param_written:weight";
  scale(written, 4);
  cand.items.insert(std::ranges::find(cand.items, 5U, &Item::step), written);
  use(cand, 5, 4);
  const DiffResult result = compared(base, cand);
  CHECK(where(result) == Where{5, Phase::kForward, "fc2", "param:weight"});
  CHECK(
      result.root->written ==
      "written by the program between its first use in step 0 and step 5, in the candidate alone");
}

TEST_CASE("diff: what a collective sends is known by a record of the same memory", "[diff][root]") {
  const auto run = [](double factor, uint64_t generation, uint32_t writes = 0) {
    Run made = test::training();
    made.tell(0, "fc1", "class", "torch.nn.modules.linear.Linear");
    Item& gradient = made.at(1, "fc1", "grad:weight");
    gradient.generation = 9;
    scale(gradient, factor);
    Item sent = gradient;
    sent.phase = Phase::kCommunication;
    sent.scope = "";
    sent.slot = "sent:0";
    sent.op = "all_reduce";
    sent.generation = generation;
    Item other = sent;
    other.call = 1;
    other.generation = 0;
    scale(other, 3 / factor);
    sent.version = writes;
    const auto at = made.items.begin() + (&gradient - made.items.data());
    made.items.insert(at, {sent, other});
    return made;
  };
  const DiffResult found = compared(run(1, 9), run(2, 9));
  REQUIRE(found.root);
  CHECK(found.root->record.slot == "sent:0");
  CHECK(found.root->known_as == "the gradient of fc1.weight");
  CHECK(found.root->made_of_equal);
  CHECK(diff::headline(found).ends_with("op all_reduce, sent:0 (the gradient of fc1.weight)"));
  CHECK(diff::root_sentence(*found.root) ==
        "the gradient of fc1.weight differs here; the forward pass and the gradient of what its "
        "module gave out agree");
  CHECK_FALSE(found.root->is_after_backward());
  const DiffResult written = compared(run(1, 9), run(2, 9, 1));
  CHECK(diff::headline(written).starts_with("DIVERGED at step 1, after backward, root module"));
  CHECK(diff::root_sentence(*written.root) ==
        "what the gradient is made of agrees; the candidate wrote to it 1 time more before it was "
        "sent to the other ranks");
  REQUIRE(written.cause);
  CHECK(written.cause->text.starts_with("the gradient of fc1.weight: the candidate wrote"));
  CHECK(compared(run(1, 8), run(2, 8)).root->known_as.empty());
  CHECK(compared(run(1, 0), run(2, 0)).root->known_as.empty());
  // Without the gradient of the module's output nothing is known of what it is made of.
  Run base = run(1, 9), cand = run(2, 9);
  for (Run* one : {&base, &cand}) one->erase(1, "fc1", "grad_output:0");
  const DiffResult less = compared(base, cand);
  CHECK(less.root->known_as == "the gradient of fc1.weight");
  CHECK_FALSE(less.root->made_of_equal);
  CHECK_FALSE(less.root->is_after_backward());
}
