// Causes that the values alone show: gradients that add up or have one factor, data of another step or
// in another order, first weights that were drawn otherwise.

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using test::compared;
using test::Item;
using test::Run;
using test::scale;

/// A run whose tensors are large enough for sketches, all of random numbers.
Run wide(uint32_t steps, unsigned seed = 1) {
  Run run = test::training(steps);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (Item& item : run.items) {
    if (item.kind != Item::Kind::kValue) continue;
    item.values.resize(64);
    for (float& one : item.values) one = normal(random);
  }
  return run;
}

std::string cause(const Run& base, const Run& cand) {
  const auto result = compared(base, cand);
  return result.cause ? result.cause->rule + ": " + result.cause->text : "";
}

void add(Item& to, const Item& more, float by = 1) {
  for (size_t i = 0; i < to.values.size(); ++i) to.values[i] += by * more.values[i];
}

constexpr const char* kGradient = "grad:weight";

}  // namespace

TEST_CASE("cause: gradients that were not set to zero, in either run", "[diff][cause]") {
  Run base = wide(4);
  Run cand = base;
  for (const char* layer : {"fc1", "fc2"})
    add(cand.at(2, layer, kGradient), base.at(1, layer, kGradient));
  CHECK(cause(base, cand) ==
        "not-zeroed: the candidate's gradients were not set to zero between steps 1 and 2");
  CHECK(cause(cand, base) ==
        "not-zeroed: the baseline's gradients were not set to zero between steps 1 and 2");
  // Half of it is no gradient that was left, and one gradient alone is told from all that differ.
  Run half = base;
  add(half.at(2, "fc1", kGradient), base.at(1, "fc1", kGradient), 0.5F);
  CHECK(cause(base, half).empty());
  half = cand;
  scale(half.at(2, "fc1", kGradient), 1.5);
  CHECK(cause(base, half).empty());
  Run one = base;
  add(one.at(2, "fc2", kGradient), base.at(1, "fc2", kGradient));
  CHECK(cause(base, one).starts_with("not-zeroed: "));
  // An optimizer may pass over steps that a loop of two networks has.
  Run turns = base;
  for (const char* layer : {"fc1", "fc2"}) turns.erase(2, layer, kGradient);
  Run left = turns;
  for (const char* layer : {"fc1", "fc2"})
    add(left.at(3, layer, kGradient), base.at(1, layer, kGradient));
  INFO(diff::headline(compared(turns, left)));
  CHECK(cause(turns, left) ==
        "not-zeroed: the candidate's gradients were not set to zero between steps 1 and 3");
}

TEST_CASE("cause: all gradients times one number", "[diff][cause]") {
  Run base = wide(3);
  Run cand = base;
  for (const char* layer : {"fc1", "fc2"}) scale(cand.at(1, layer, kGradient), 4);
  CHECK(cause(base, cand) ==
        "scaled-gradient: all gradients are 4 times the baseline's: they are scaled or summed "
        "otherwise");
  scale(cand.at(1, "fc2", kGradient), 1.5);
  CHECK(cause(base, cand).empty());
  Run one = base;
  scale(one.at(1, "fc1", kGradient), 4);
  CHECK(cause(base, one).empty());
}

TEST_CASE("cause: all gradients times the loss scale", "[diff][cause]") {
  Run base = wide(3);
  base.add({.step = 1, .phase = format::Phase::kOptimizer, .slot = "loss_scale", .values = {4}});
  Run cand = base;
  for (const char* layer : {"fc1", "fc2"}) scale(cand.at(1, layer, kGradient), 4);
  CHECK(cause(base, cand).find("which is the loss scale: the candidate's are not unscaled here") !=
        std::string::npos);
  CHECK(cause(cand, base).find("which is the loss scale: the baseline's are not unscaled here") !=
        std::string::npos);
}

TEST_CASE("cause: all gradients times one number, in tensors without sketches", "[diff][cause]") {
  Run base = test::training(3);
  const std::vector<float> numbers = {1, -2, 0.5F, 4, 3, -7, 0.25F, 9};
  for (const char* layer : {"fc1", "fc2"}) base.at(1, layer, kGradient).values = numbers;
  base.at(1, "", "loss").values = {2};
  Run cand = base;
  for (const char* layer : {"fc1", "fc2"}) scale(cand.at(1, layer, kGradient), 8);
  scale(cand.at(1, "", "loss"), 8);
  CHECK(cause(base, cand) ==
        "scaled-gradient: all gradients are 8 times the baseline's: the loss is scaled or divided "
        "otherwise");
  const auto factor = [&](const Run& run) {
    return compared(base, run).root->scalar_factor.has_value();
  };
  CHECK(factor(cand));
  scale(cand.at(1, "", "loss"), 1.5);
  CHECK_FALSE(factor(cand));
  cand.at(1, "fc1", kGradient).values[2] *= 3;
  CHECK(cause(base, cand).empty());
}

TEST_CASE("cause: data of another step of the other run", "[diff][cause]") {
  Run base = wide(6);
  Run ahead = base, again = base;
  for (uint32_t step = 2; step < 4; ++step)
    ahead.at(step, "", "input:0").values = base.at(step + 2, "", "input:0").values;
  for (uint32_t step = 2; step < 6; ++step) scale(ahead.at(step, "", "loss"), 2);
  CHECK(cause(base, ahead) ==
        "other-data: the candidate's data of step 2 are the baseline's of step 4");
  for (uint32_t step = 2; step < 6; ++step)
    again.at(step, "", "input:0").values = base.at(step - 1, "", "input:0").values;
  scale(again.at(2, "", "loss"), 2);
  const auto result = compared(base, again);
  REQUIRE(result.cause);
  CHECK(result.cause->text == "the candidate's data of step 2 are the baseline's of step 1");
  CHECK(result.cause->evidence == std::vector<std::string>{"the hashes of 1 value are equal",
                                                           "so are those of the next 3 calls"});
  // Labels that are moved, too, belong to it; those of a third step contradict it.
  Run with = base, moved = base;
  for (Run* run : {&with, &moved})
    for (uint32_t step = 0; step < 6; ++step) {
      Item labels = base.at(step, "", "input:0");
      labels.slot = "input:1";
      std::ranges::reverse(labels.values);
      const auto at = std::ranges::find_if(run->items, [step](const Item& item) {
        return item.step == step && item.slot == "input:0";
      });
      run->items.insert(at + 1, labels);
    }
  for (uint32_t step = 2; step < 6; ++step) scale(moved.at(step, "", "loss"), 2);
  for (const char* slot : {"input:0", "input:1"})
    moved.at(2, "", slot).values = with.at(4, "", slot).values;
  CHECK(cause(with, moved).starts_with("other-data: "));
  moved.at(2, "", "input:1").values = with.at(5, "", "input:1").values;
  CHECK(cause(with, moved).empty());
  // Data that all steps have are at no place.
  Run same = base;
  for (uint32_t step = 0; step < 6; ++step)
    same.at(step, "", "input:0").values = base.at(0, "", "input:0").values;
  Run doubled = same;
  scale(doubled.at(1, "", "input:0"), 2);
  scale(doubled.at(1, "", "loss"), 2);
  CHECK(cause(same, doubled).starts_with("scaled-input: "));
}

TEST_CASE("cause: data in another order, of one call or of many", "[diff][cause]") {
  Run base = wide(6);
  Run cand = base;
  std::ranges::reverse(cand.at(2, "", "input:0").values);
  scale(cand.at(2, "", "loss"), 1.01);
  CHECK(cause(base, cand) ==
        "order: input:0 of the root module has the same numbers in another order");
  // In the next call nothing is rearranged: the sums may agree by chance.
  cand.at(3, "", "input:0").values[5] += 1;
  CHECK(cause(base, cand).empty());
  std::ranges::reverse(cand.at(3, "", "input:0").values = base.at(3, "", "input:0").values);
  CHECK(cause(base, cand).starts_with("order: "));
  cand.at(2, "", "input:0").values[5] += 1;
  CHECK(cause(base, cand).empty());
  // Shuffled over three steps.
  cand = base;
  scale(cand.at(1, "", "loss"), 1.01);
  for (size_t i = 0; i < 64; i += 2) {
    std::swap(cand.at(1, "", "input:0").values[i], cand.at(2, "", "input:0").values[i]);
    std::swap(cand.at(2, "", "input:0").values[i + 1], cand.at(3, "", "input:0").values[i + 1]);
  }
  CHECK(
      cause(base, cand) ==
      "order: input:0 of the root module has the same numbers in another order in the 3 calls from "
      "step 1 to step 3: shuffled otherwise");
  // A generator that differs is the reason.
  Run seeded = base;
  seeded.tell(1, "-", "rng.torch", "1");
  seeded.tell(2, "-", "rng.torch", "2");
  cand.tell(1, "-", "rng.torch", "3");
  cand.tell(2, "-", "rng.torch", "4");
  CHECK(cause(seeded, cand).starts_with("generator: "));
  // A few numbers of a coarse grid have equal sums by chance.
  Run coarse = base;
  for (uint32_t step = 0; step < 6; ++step)
    for (float& one : coarse.at(step, "", "input:0").values) one = one > 0 ? 1 : -1;
  cand = coarse;
  std::ranges::reverse(cand.at(2, "", "input:0").values);
  CHECK(cause(coarse, cand).empty());
}

TEST_CASE("cause: first weights that are other random numbers", "[diff][cause]") {
  Run base = wide(2), other = wide(2, 7), drawn = wide(2, 8);
  const auto with = [&](const auto& change) {
    Run cand = other;  // whose outputs are others, too
    cand.at(0, "", "input:0").values = base.at(0, "", "input:0").values;
    for (const char* layer : {"fc1", "fc2"}) {
      cand.at(0, layer, "param:weight").values = base.at(0, layer, "param:weight").values;
      change(cand.at(0, layer, "param:weight"), drawn.at(0, layer, "param:weight"));
    }
    return cause(base, cand);
  };
  CHECK(with([](Item& to, const Item& by) { to.values = by.values; }).starts_with("seed: "));
  CHECK(with([](Item& to, const Item& by) {
          to.values = by.values;
          scale(to, 3);
        }).starts_with("initialization: param:weight of module fc1 is initialized or loaded"));
  CHECK(with([](Item& to, const Item&) { scale(to, 1.02); }).empty());
  CHECK(with([](Item& to, const Item& by) { add(to, by, 0.1F); }).empty());
  CHECK(with([](Item& to, const Item&) { scale(to, -1); }).empty());
  CHECK(with([](Item& to, const Item&) { std::ranges::reverse(to.values); }).empty());
}

TEST_CASE("cause: a draw inside a function of the root's module", "[diff][cause]") {
  Run base = wide(3);
  for (uint32_t step = 0; step < 3; ++step) base.tell(step, "-", "rng.torch", std::to_string(step));
  Run cand = base;
  for (const auto& [scope, slot] :
       {std::pair("fc2", "output:0"), std::pair("", "output:0"), std::pair("", "loss")})
    for (size_t i = 0; i < 64; i += 4) cand.at(1, scope, slot).values[i] += 1;
  CHECK(cause(base, cand).empty());
  for (Item& item : cand.items)
    if (item.kind == Item::Kind::kFact && item.step == 2) item.message = "other";
  CHECK(cause(base, cand) ==
        "generator: random numbers of torch differ from step 2 on: one run "
        "drew others");
}
