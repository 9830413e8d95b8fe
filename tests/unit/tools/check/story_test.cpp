#include <cmath>
#include <sstream>

#include "tests/unit/tools/check/check_run.h"
#include "tools/check/report/reports.h"
#include "tools/check/report/story_text.h"
#include "tools/check/story/series.h"

namespace convtrace::test {
namespace {

using check::CheckResult;
using check::Rise;
using check::rises_of;
using check::Series;
using check::Story;
using check::StoryEvent;
using List = std::vector<Found>;
using Numbers = std::vector<double>;

TEST_CASE("check story: a series that goes on as before has no rise", "[check][story]") {
  CHECK(rises_of(Numbers{}).empty());
  CHECK(rises_of(Numbers{1}).empty());
  CHECK(rises_of(Numbers{100, 1, 1.1, 0.9, 1.3, 0.8, 1}).empty());       // a first step far away
  CHECK(rises_of(Numbers{1, 5, 0.8, 6, 1.2, 4, 0.5, 7, 1, 9}).empty());  // noise
  CHECK(rises_of(Numbers{-1, 2, -3, 1, 0, 2, -2, 3}).empty());
  CHECK(rises_of(Numbers{1, 1, 1, 1, 1, 1.5, 1.5}).empty());  // not twice as large
  CHECK(rises_of(Numbers{3, 2, 2.5, 2, 2.2, 2.1, 2.6, 2.9}).empty());
}

TEST_CASE("check story: a spike comes back, a jump does not", "[check][story]") {
  Numbers numbers{12, 9, 10, 8, 7, 6, 6.5, 5, 600, 4, 3, 2.5};
  const std::vector<Rise> spike = rises_of(numbers);
  REQUIRE(spike.size() == 1);
  CHECK(spike[0].kind == Rise::Kind::kSpike);
  CHECK(spike[0].at == 8);
  CHECK(spike[0].end == 9U);
  CHECK(spike[0].before == 6.5);
  CHECK(spike[0].most == 600);
  numbers[9] = 500, numbers[10] = 620, numbers[11] = 510;
  const std::vector<Rise> jump = rises_of(numbers);
  REQUIRE(jump.size() == 1);
  CHECK(jump[0].kind == Rise::Kind::kJump);
  CHECK(jump[0].at == 8);
  CHECK_FALSE(jump[0].end);
  CHECK(jump[0].most == 620);
}

TEST_CASE("check story: a rise in each step to what is not finite, or to the end",
          "[check][story]") {
  const std::vector<Rise> overflow =
      rises_of(Numbers{12.8, 6.4, 44, 2167, 6.9e8, 1.2e25, HUGE_VAL, std::nan("")});
  REQUIRE(overflow.size() == 1);
  CHECK(overflow[0].kind == Rise::Kind::kBlowUp);
  CHECK(overflow[0].at == 2);
  CHECK(overflow[0].end == 6U);
  const std::vector<Rise> steady = rises_of(Numbers{1, 4, 16, 64, 256});
  REQUIRE(steady.size() == 1);
  CHECK(steady[0].kind == Rise::Kind::kBlowUp);
  CHECK(steady[0].at == 1);
  CHECK_FALSE(steady[0].end);
  const std::vector<Rise> at_once = rises_of(Numbers{3, 2, 3, 2, 2.5, std::nan(""), 1});
  REQUIRE(at_once.size() == 1);
  CHECK(at_once[0].kind == Rise::Kind::kNotFinite);
  CHECK(at_once[0].at == 5);
  CHECK(rises_of(Numbers{1, 1.5, 2, 2.5, 3}).empty());  // too little for a blow-up
}

void set_losses(Training& run, const std::vector<float>& losses) {
  for (uint32_t step = 0; step < losses.size(); ++step)
    run.at(step, "", "loss").values = {losses[step]};
}

const Story& story_of(const CheckResult& result) {
  REQUIRE(result.stories.size() == 1);
  return result.stories[0];
}

TEST_CASE("check story: numbers by step", "[check][story]") {
  Training run = training(3);
  set_losses(run, {3, 2, 1});
  for (const char* slot : {"grad:weight", "grad:bias"})
    for (const char* layer : {"fc1", "fc2"}) run.at(1, layer, slot).values = {0};
  run.at(1, "fc2", "grad:bias").values = {3, 4};
  const CheckResult result = checked(run);
  const Story& story = story_of(result);
  REQUIRE(story.steps.size() == 3);
  CHECK(story.steps[0].of(Series::kLoss) == 3.0);
  CHECK(story.steps[1].passes == 1);
  CHECK(*story.steps[1].of(Series::kNorm) == Approx(5));
  CHECK(*story.steps[1].of(Series::kUpdate) > 0.3);  // weights of noise, made anew
  CHECK(story.events.empty());
}

TEST_CASE("check blow-up: a loss that grows until it is infinite", "[check][story]") {
  Training run = training(9);
  set_losses(run, {12.8F, 6.4F, 7, 44, 2167, 6.9e8F, 1.2e25F, kInfinity, kNan});
  List told = found(run, "blow-up");
  REQUIRE(told.size() == 1);
  CHECK(told[0].step == 3U);
  CHECK(told[0].severity == Severity::kWarning);
  // A spike, and a loss that becomes infinite at once, are none.
  set_losses(run, {12, 9, 8, 7, 9, 600, 5, 4, 3});
  CHECK(silent(run, "blow-up"));
  const CheckResult spike = checked(run);
  REQUIRE(story_of(spike).events.size() == 1);
  CHECK(story_of(spike).events[0].kind == StoryEvent::Kind::kSpike);
  CHECK(story_of(spike).events[0].step == 5);
  CHECK(story_of(spike).events[0].until == 6U);
  set_losses(run, {12, 9, 8, 7, 9, 6, 5, kInfinity, 3});
  CHECK(silent(run, "blow-up"));
}

TEST_CASE("check story: epochs of equal batches, and a shorter last group", "[check][story]") {
  Training run = training(9);
  for (uint32_t step = 3; step < 9; ++step)
    run.at(step, "", "input:0").values = run.at(step - 3, "", "input:0").values;
  for (const uint32_t step : {0U, 1U, 3U, 4U, 6U, 7U})
    run.value(step, {.scope = "", .slot = "loss", .phase = Phase::kLoss, .values = {0.25F}});
  const CheckResult result = checked(run);
  std::vector<std::pair<StoryEvent::Kind, uint32_t>> kinds;
  for (const StoryEvent& event : story_of(result).events)
    if (event.kind >= StoryEvent::Kind::kEpochs) kinds.emplace_back(event.kind, event.step);
  CHECK(kinds == std::vector<std::pair<StoryEvent::Kind, uint32_t>>{
                     {StoryEvent::Kind::kShortGroup, 2}, {StoryEvent::Kind::kEpochs, 3}});
  // Other batches, and as many losses in each step.
  const CheckResult other = checked(training(9));
  for (const StoryEvent& event : story_of(other).events)
    CHECK(event.kind < StoryEvent::Kind::kEpochs);
}

TEST_CASE("check story: text is short, JSON has each step, the page a curve", "[check][story]") {
  Training run = training(8);
  set_losses(run, {12, 9, 10, 8, 9, 600, 5, 4});
  const CheckResult result = checked(run);
  std::ostringstream text, page;
  write_text(result, {}, text);
  CHECK(contains(text.str(), "\nloss        8, 9, 600, 5, 4 (from step 3 on)\n"));
  CHECK(contains(text.str(), "\nspike       the loss jumps to 600 in step 5, 60 times"));
  const tools::Json json = json_of(result)["story"];
  REQUIRE(json.size() == 1);
  CHECK(json[0]["steps"].size() == 8);
  CHECK(json[0]["steps"][5]["loss"] == 600);
  CHECK(json[0]["events"][0]["kind"] == "spike");
  CHECK(json[0]["events"][0]["of"] == "loss");
  CHECK(json[0]["events"][0]["until"] == 6);
  write_html(result, page);
  CHECK(contains(page.str(), "<polyline"));
  CHECK_FALSE(contains(page.str(), "nan,"));
  const CheckResult quiet = checked(training(4));
  REQUIRE(story_lines(quiet).size() == 1);
  CHECK(story_lines(quiet)[0].first == "story       ");
  CHECK(contains(story_lines(quiet)[0].second, "loss "));
}

/// An optimizer that keeps squares, and a gradient of 1e25.
Training exploded(const char* optimizer, bool dead) {
  Training run = training(6);
  run.erase_fact("optimizer.0.class").fact(0, {}, "optimizer.0.class", optimizer);
  run.fact(0, {}, "optimizer.0.0.betas", "(0.9, 0.999)");
  for (float& one : run.at(2, "fc1", "grad:weight").values) one = 1e25F;
  for (uint32_t step = 2; dead && step < 6; ++step)
    run.at(step, "fc1", "param:weight").values = run.at(1, "fc1", "param:weight").values;
  return run;
}

TEST_CASE("check infinite-moment: an element that is dead from there", "[check][story]") {
  const auto at = [](Severity severity) {
    return List{{"infinite-moment", severity, 2, "fc1", "grad:weight"}};
  };
  const char* const adam = "torch.optim.adamw.AdamW";
  CHECK(found(exploded(adam, true), "infinite-moment") == at(Severity::kError));
  CHECK(found(exploded(adam, false), "infinite-moment") == at(Severity::kWarning));
  CHECK(silent(exploded("torch.optim.sgd.SGD", false), "infinite-moment"));
  CHECK(silent(exploded("their.Adam", false), "infinite-moment"));
  Training fits = exploded(adam, false);
  for (float& one : fits.at(2, "fc1", "grad:weight").values) one = 1e18F;
  CHECK(silent(fits, "infinite-moment"));
}

/// A model in evaluation mode from the first step on, with a layer of a class beside fc1 and fc2.
Training in_evaluation(const char* path, const char* attributes, uint32_t steps = 4) {
  Training run = training(steps);
  run.fact(0, "drop", "class", path).fact(0, "drop", "attributes", attributes);
  run.fact(0, "drop", "mode", "eval");
  for (uint32_t step = 0; step < steps; ++step)
    run.value(step, {.scope = "drop", .slot = "output:0", .values = {1, 2, 3}});
  return run;
}

TEST_CASE("check mode: a dropout that is never in training mode", "[check][story][mode]") {
  const char* const dropout = "torch.nn.modules.dropout.Dropout";
  const auto at = [](Severity severity) { return List{{"mode", severity, 0, "drop", ""}}; };
  CHECK(found(in_evaluation(dropout, "p=0.3, inplace=False"), "mode") == at(Severity::kWarning));
  CHECK(found(in_evaluation("torch.nn.modules.batchnorm.BatchNorm1d", "eps=1e-05"), "mode") ==
        at(Severity::kHint));
  CHECK(found(in_evaluation("torch.nn.modules.rnn.LSTM", "dropout=0.5"), "mode") ==
        at(Severity::kWarning));
  CHECK(silent(in_evaluation(dropout, "inplace=False, p=0.0"), "mode"));
  CHECK(silent(in_evaluation("torch.nn.modules.rnn.LSTM", "dropout=0.0"), "mode"));
  Training returns = in_evaluation(dropout, "p=0.3");
  returns.fact(2, "drop", "mode", "train");
  CHECK(silent(returns, "mode"));
  Training still = in_evaluation(dropout, "p=0.3");
  for (uint32_t step = 0; step < 4; ++step)
    for (const char* layer : {"fc1", "fc2"})
      for (const char* slot : {"param:weight", "param:bias"})
        still.at(step, layer, slot, Phase::kOptimizer).values =
            still.at(0, layer, slot, Phase::kForward).values;
  CHECK(silent(still, "mode"));
}

}  // namespace
}  // namespace convtrace::test
