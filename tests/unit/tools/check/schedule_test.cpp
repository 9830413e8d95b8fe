#include <algorithm>
#include <ctime>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

Training with_rates(const std::vector<double>& rates, const char* name = "optimizer.0.0.lr") {
  Training run = training(static_cast<uint32_t>(rates.size()));
  if (std::string_view(name) == "optimizer.0.0.lr") run.erase_fact(name);
  for (uint32_t step = 0; step < rates.size(); ++step)
    run.fact(step, {}, name, std::to_string(rates[step]));
  return run;
}

TEST_CASE("check learning-rate: it is 0 in every step", "[check][rate]") {
  CHECK(found(with_rates({0, 0, 0}), "learning-rate") ==
        List{{"learning-rate", Severity::kWarning, 0, "-", "optimizer.0.lr"}});
  CHECK(silent(with_rates({0, 0}), "learning-rate"));
  CHECK(silent(with_rates({0, 0, 0, 0.1}), "learning-rate"));                 // warm-up
  CHECK(silent(with_rates({0, 0, 0}, "optimizer.0.1.lr"), "learning-rate"));  // beside group 0
  CHECK(found(with_rates({0, 0, 0}, "optimizer.1.0.lr"), "learning-rate") ==
        List{{"learning-rate", Severity::kWarning, 0, "-", "optimizer.1.lr"}});
  Training unknown_rate = training(4);
  unknown_rate.erase_fact("optimizer.0.0.lr").fact(0, {}, "optimizer.0.0.lr", "tensor(0.)");
  CHECK(unknown(unknown_rate, "learning-rate"));
}

TEST_CASE("check learning-rate: jumps", "[check][rate]") {
  const List warning = {{"learning-rate", Severity::kWarning, 4, "-", "optimizer.0.0.lr"}};
  const List hint = {{"learning-rate", Severity::kHint, 4, "-", "optimizer.0.0.lr"}};
  CHECK(found(with_rates({0.1, 0.1, 0.1, 0.09, 0.6}), "learning-rate") == warning);
  CHECK(silent(with_rates({0.1, 0.1, 0.1, 0.09, 0.5}), "learning-rate"));
  CHECK(silent(with_rates({0.1, 0.09, 0.6}), "learning-rate"));
  // A rate that never fell warms up in large steps.
  CHECK(found(with_rates({0.1, 0.1, 0.1, 0.1, 0.6}), "learning-rate") == hint);
  // Each rate is far above those before.
  CHECK(silent(with_rates({0.0001, 0.002, 0.04, 0.8, 0.8}), "learning-rate"));
  // Back to a rate that it had.
  CHECK(found(with_rates({0.1, 0.1, 0.1, 0.001, 0.1}), "learning-rate") == hint);
  CHECK(silent(with_rates({0.1, 0.1, 0.1, 0.02, 0.1}), "learning-rate"));
  CHECK(silent(with_rates({0.1, 0.1, 0.1, 0.05, 0.01, 0.001}), "learning-rate"));  // decay
}

/// A run that makes an optimizer in each of its steps.
Training with_an_optimizer_a_step(uint32_t steps) {
  const Training one = training(1);
  Training run;
  for (uint32_t step = 0; step < steps; ++step)
    for (Entry entry : one.entries) {
      entry.step = step;
      if (entry.fact.starts_with("optimizer.0."))
        entry.fact.replace(0, 11, "optimizer." + std::to_string(step));
      run.entries.push_back(std::move(entry));
    }
  return run;
}

TEST_CASE("check: what a step takes does not depend on how many optimizers there were",
          "[check][rate]") {
  // Of the processor, so that other programs do not count.
  const auto time_of = [](uint32_t steps) {
    const Training run = with_an_optimizer_a_step(steps);
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t begin = std::clock();
      const check::CheckResult result = checked(run);
      least = std::min(least, static_cast<double>(std::clock() - begin));
      CHECK(judged(result, "learning-rate") == uint64_t{steps} * (steps + 1) / 2);
    }
    return least;
  };
  CHECK(time_of(8000) < 7 * time_of(2000));
}

Training with_scales(const std::vector<float>& scales) {
  Training run = training(static_cast<uint32_t>(scales.size()));
  for (uint32_t step = 0; step < scales.size(); ++step)
    run.before(
        step, "", "grad_output:0",
        {.scope = "", .slot = "loss_scale", .phase = Phase::kLoss, .values = {scales[step]}});
  return run;
}

TEST_CASE("check loss-scale: it falls and falls", "[check][scale]") {
  const List falls = {{"loss-scale", Severity::kWarning, 1, "", "loss_scale"}};
  CHECK(found(with_scales({128, 64, 32, 16, 8, 4, 2}), "loss-scale") == falls);
  CHECK(found(with_scales({128, 64, 32, 16, 8, 4, 2, 2, 2}), "loss-scale") == falls);
  CHECK(silent(with_scales({128, 64, 32, 16, 8, 4, 2, 2, 2, 2}), "loss-scale"));  // it found it
  CHECK(silent(with_scales({64, 32, 16, 8, 4, 2}), "loss-scale"));
  CHECK(silent(with_scales({128, 64, 32, 16, 32, 16, 8, 4}), "loss-scale"));
  CHECK(found(with_scales({1, 0.5}), "loss-scale") == falls);
  CHECK(silent(with_scales({0.5, 0.5, 0.5}), "loss-scale"));  // a constant of the program
}

Training clipping(uint32_t steps, uint32_t acting) {
  Training run = training(steps);
  for (uint32_t step = 0; step < steps; ++step) {
    for (const char* slot : {"weight", "bias"}) {
      StatsSpec& gradient = run.at(step, "fc1", std::string("grad:") + slot);
      StatsSpec whole = gradient;
      whole.slot = std::string("grad_unclipped:") + slot;
      if (step < acting) gradient.values = scaled(gradient.values, 0.5);
      run.before(step, "fc1", std::string("grad:") + slot, whole);
    }
  }
  return run;
}

TEST_CASE("check clipping: it acts always or never", "[check][clip]") {
  CHECK(found(clipping(8, 8)) == List{{"clipping", Severity::kHint, 0, "-", ""}});
  const check::CheckResult never = checked(clipping(8, 0), {"clipping"});
  CHECK(found(never).size() == 1);
  CHECK(contains(never.findings[0].text, "acts in none of 8 steps"));
  CHECK(silent(clipping(8, 1), "clipping"));
  CHECK(silent(clipping(8, 7), "clipping"));
  CHECK(silent(clipping(7, 7), "clipping"));
}

TEST_CASE("check clip-after-step: gradients that were used unclipped", "[check][clip]") {
  Training run = training(3);
  for (uint32_t step = 0; step < 3; ++step) {
    const StatsSpec gradient = run.at(step, "fc1", "grad:weight");
    StatsSpec whole = gradient;
    whole.slot = "grad_unclipped:weight";
    const auto end =
        std::ranges::find_if(run.entries, [&](const Entry& entry) { return entry.step > step; });
    run.entries.insert(end, {.step = step, .value = whole});
  }
  const List expected = {
      {"clip-after-step", Severity::kWarning, 0, "fc1", "grad_unclipped:weight"}};
  CHECK(found(run, "clip-after-step") == expected);
  CHECK(silent(clipping(3, 3), "clip-after-step"));
  CHECK(unknown(training(3), "clip-after-step"));
}

/// A second update of fc1's weight at the end of step 1.
Training updated_twice(std::vector<float> values) {
  Training run = training(3);
  const auto end =
      std::ranges::find_if(run.entries, [](const Entry& entry) { return entry.step > 1; });
  run.entries.insert(end, {.step = 1,
                           .value = {.scope = "fc1",
                                     .slot = "param:weight",
                                     .phase = Phase::kOptimizer,
                                     .call = 1,
                                     .values = std::move(values)}});
  return run;
}

TEST_CASE("check two-steps: two updates with one gradient", "[check][two-steps]") {
  CHECK(found(updated_twice(noise(5, 64))) ==
        List{{"two-steps", Severity::kWarning, 1, "fc1", "param:weight"}});
  Training run = training(3);
  CHECK(silent(updated_twice(run.at(1, "fc1", "param:weight").values), "two-steps"));
  Training without = updated_twice(noise(5, 64));  // no gradient is known
  without.erase(1, "fc1", "grad:weight");
  CHECK(silent(without, "two-steps"));
}

TEST_CASE("check two-steps: a backward pass between the updates", "[check][two-steps]") {
  Training run = updated_twice(noise(5, 64));
  auto last = std::ranges::find_if(run.entries, [](const Entry& entry) { return entry.step > 1; });
  --last;
  StatsSpec flow = run.at(1, "fc1", "grad_output:0"), gradient = run.at(1, "fc1", "grad:weight");
  flow.call = gradient.call = 1;
  flow.values = noise(41, 32), gradient.values = noise(42, 64);
  last = run.entries.insert(last, {.step = 1, .value = gradient});
  last = run.entries.insert(last, {.step = 1, .value = flow});
  run.entries.insert(
      last,
      {.step = 1,
       .value = {.scope = "", .slot = "loss", .phase = Phase::kLoss, .call = 1, .values = {0.1F}}});
  CHECK(found(run, "two-steps") == List{});
}

/// Each gradient of fc1's bias is the sum of all steps so far.
Training adding_up(uint32_t steps) {
  Training run = training(steps);
  std::vector<float> sum(8, 0);
  for (uint32_t step = 0; step < steps; ++step) {
    std::vector<float>& gradient = run.at(step, "fc1", "grad:bias").values;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    gradient = sum;
  }
  return run;
}

TEST_CASE("check gradients-add-up: zero_grad() is missing", "[check][add-up]") {
  CHECK(found(adding_up(6)) == List{{"gradients-add-up", Severity::kError, 1, "fc1", "grad:bias"}});
  CHECK(silent(training(6), "gradients-add-up"));
  CHECK(silent(adding_up(3), "gradients-add-up"));
  Training scaling = adding_up(6);
  scaling.before(0, "", "grad_output:0",
                 {.scope = "", .slot = "loss_scale", .phase = Phase::kLoss, .values = {2}});
  CHECK(unknown(scaling, "gradients-add-up"));
  Training ranks = adding_up(6);
  ranks.world_size = 2;
  CHECK(unknown(ranks, "gradients-add-up"));
  Training own = adding_up(6);
  for (Entry& entry : own.entries)
    if (entry.value.scope == "fc1" && entry.fact == "class") entry.text = "model.Linear";
  CHECK(silent(own, "gradients-add-up"));  // fc2 is judged
}

/// The gradients of fc1's output have `sums` as their sums, and those of its bias the sums of all
/// from step `since` on.
Training adding_up_since(uint32_t since, const std::vector<float>& sums) {
  Training run = training(static_cast<uint32_t>(sums.size()));
  for (uint32_t step = 0; step < sums.size(); ++step) {
    std::vector<float>& flow = run.at(step, "fc1", "grad_output:0").values;
    flow.assign(32, 1);
    flow[0] = sums[step] - 31;
    std::vector<float> bias = {sums[step], 1, -1, 2, -2, 3, -3, 0};
    if (step > since) bias[0] += run.at(step - 1, "fc1", "grad:bias").values[0];
    run.at(step, "fc1", "grad:bias").values = bias;
  }
  return run;
}

TEST_CASE("check gradients-add-up: later in the run, and where sums cancel", "[check][add-up]") {
  CHECK(found(adding_up_since(2, {16, 16, 16, 16, 16, 16}), "gradients-add-up") ==
        List{{"gradients-add-up", Severity::kError, 3, "fc1", "grad:bias"}});
  CHECK(silent(adding_up_since(9, {16, 16, 16, 16, 16, 16}), "gradients-add-up"));
  // What is before step 2 is too small to tell: that is no proof of a clearing.
  CHECK(found(adding_up_since(0, {16, -15.7F, 16, 16, 16, 16, 16}), "gradients-add-up").size() ==
        1);
}

/// What the optimizer used of some parameters is there when the next backward pass begins.
Training left_over(const std::vector<std::pair<const char*, const char*>>& parameters) {
  Training run = training(4);
  for (uint32_t step = 1; step < 4; ++step)
    for (const auto& [scope, name] : parameters)
      run.before(step, "", "grad_output:0",
                 {.scope = scope,
                  .slot = std::string("grad_before:") + name,
                  .phase = Phase::kLoss,
                  .values = run.at(step - 1, scope, std::string("grad:") + name).values});
  return run;
}

TEST_CASE("check gradients-add-up: a part is not cleared", "[check][add-up]") {
  const std::string id = "gradients-add-up";
  const Training left = left_over({{"fc1", "weight"}});
  CHECK(found(left, id) == List{{id, Severity::kWarning, 2, "fc1", "grad:weight"}});
  CHECK(silent(left_over({{"fc1", "weight"}, {"fc1", "bias"}, {"fc2", "weight"}, {"fc2", "bias"}}),
               id));
  Training once = left;
  for (uint32_t step = 2; step < 4; ++step) once.erase(step, "fc1", "grad_before:weight");
  CHECK(silent(once, id));
  Training other = left;  // as a momentum that is kept there
  for (uint32_t step = 1; step < 4; ++step)
    other.at(step, "fc1", "grad_before:weight").values =
        scaled(other.at(step, "fc1", "grad_before:weight").values, 0.9);
  CHECK(silent(other, id));
  Training later = left;  // a pass of another optimizer came first
  for (uint32_t step = 1; step < 4; ++step) {
    StatsSpec zeros = later.at(step, "fc1", "grad_before:weight");
    for (float& value : zeros.values) value = 0;
    zeros.call = 1;
    later.before(step, "fc1", "grad:weight", zeros);
  }
  CHECK(silent(later, id));
}

TEST_CASE("check gradients-add-up: micro-batches of one step are meant to", "[check][add-up]") {
  Training run = training(6);
  for (uint32_t step = 0; step < 6; ++step) {
    const std::vector<float> second = noise(step + 900, 32);
    run.before(step, "fc1", "grad:weight",
               {.scope = "fc1",
                .slot = "grad_output:0",
                .phase = Phase::kBackward,
                .call = 1,
                .values = second});
    std::vector<float>& gradient = run.at(step, "fc1", "grad:bias").values;
    for (size_t i = 0; i < second.size(); ++i) gradient[i % 8] += second[i];
  }
  CHECK(silent(run, "gradients-add-up"));
}

/// Two micro-batches a step; their criterion's outputs are `factor` times the losses.
Training micro_batches(uint32_t steps, float factor, const char* reduction) {
  Training run = training(steps);
  run.fact(0, "criterion", "attributes", reduction);
  for (uint32_t step = 0; step < steps; ++step) {
    const float loss = run.at(step, "", "loss").values[0];
    run.before(
        step, "", "loss",
        {.scope = "", .slot = "loss", .phase = Phase::kLoss, .call = 1, .values = {loss / 3}});
    for (uint32_t call = 0; call < 2; ++call)
      run.before(step, "", "loss",
                 {.scope = "criterion",
                  .slot = "output:0",
                  .call = call,
                  .values = {(call == 0 ? loss : loss / 3) * factor}});
  }
  return run;
}

TEST_CASE("check accumulation-scale: means that are added undivided", "[check][accumulation]") {
  const char* const mean = "ignore_index=-100, reduction='mean'";
  const check::CheckResult result = checked(micro_batches(3, 1, mean));
  CHECK(found(result) == List{{"accumulation-scale", Severity::kHint, 2, "criterion", "output:0"}});
  CHECK(contains(result.findings[0].text, "2 losses"));
  CHECK(silent(micro_batches(2, 1, mean), "accumulation-scale"));
  CHECK(silent(micro_batches(4, 2, mean), "accumulation-scale"));  // the losses are half of it
  CHECK(silent(micro_batches(4, 1, "reduction='sum'"), "accumulation-scale"));
  CHECK(unknown(training(4), "accumulation-scale"));
}

TEST_CASE("check accumulation-scale: gradients at the logits that are too large",
          "[check][accumulation]") {
  const auto run = [](double l1) {
    Training made = micro_batches(4, 2, "");
    made.fact(0, "", "loss.cross_entropy_loss", "reduction='mean', ignore_index=-100");
    for (uint32_t step = 0; step < 4; ++step) {
      StatsSpec second = made.at(step, "", "grad_output:0");
      second.call = 1;
      second.values.assign(32, static_cast<float>(l1 / 32));
      made.at(step, "", "grad_output:0").values = second.values;
      made.before(step, "fc2", "grad_output:0", second);
    }
    return made;
  };
  CHECK(found(run(1.2), "accumulation-scale") ==
        List{{"accumulation-scale", Severity::kHint, 2, "", "loss"}});
  CHECK(silent(run(0.9), "accumulation-scale"));
}

TEST_CASE("check hook-twice: one hook at one place", "[check]") {
  Training run = training(3);
  run.fact(1, "fc2", "hook.twice", "forward hook, scale (train.py:41)");
  CHECK(found(run) == List{{"hook-twice", Severity::kHint, 1, "fc2", ""}});
  CHECK(checked(run).findings[0].text ==
        "One forward hook is installed twice in module fc2: scale (train.py:41).");
  CHECK(silent(training(3), "hook-twice"));
}

TEST_CASE("check weight-decay: only where it is asked for", "[check][decay]") {
  Training run = training(2);
  for (Entry& entry : run.entries) {
    if (entry.fact == "optimizer.0.0.weight_decay") entry.text = "0.1";
    if (entry.value.scope == "fc2" && entry.fact == "class")
      entry.text = "torch.nn.modules.normalization.LayerNorm";
  }
  const List all = found(run, "weight-decay");
  REQUIRE(all.size() == 1);
  CHECK(all[0].severity == Severity::kHint);
  CHECK(all[0].scope == "fc2");
  CHECK(found(run) == List{});
  Training groups = run;
  groups.fact(0, {}, "optimizer.0.1.weight_decay", "0.0");
  CHECK(silent(groups, "weight-decay"));
  CHECK(silent(training(2), "weight-decay"));
}

}  // namespace
}  // namespace convtrace::test
