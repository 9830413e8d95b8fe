#include <algorithm>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

/// Every optimizer is plain gradient descent.
Training plain(Training run) {
  for (Entry& entry : run.entries)
    if (entry.fact == "optimizer.0.0.momentum") entry.text = "0";
  return run;
}

/// A parameter keeps the value that it had at first.
Training unmoved(Training run, uint32_t steps, const char* scope, const char* slot) {
  for (uint32_t step = 0; step < steps; ++step)
    run.at(step, scope, slot, Phase::kOptimizer) = [&] {
      StatsSpec value = run.at(0, scope, slot, Phase::kForward);
      value.phase = Phase::kOptimizer;
      return value;
    }();
  return run;
}

Training without_gradient(uint32_t steps) {
  Training run =
      unmoved(unmoved(training(steps), steps, "fc1", "param:weight"), steps, "fc1", "param:bias");
  return run.erase({}, "fc1", "grad:weight").erase({}, "fc1", "grad:bias");
}

TEST_CASE("check no-gradient: a parameter of a called module has none", "[check][no-gradient]") {
  const check::CheckResult cut_off = checked(without_gradient(3));
  CHECK(found(cut_off) == List{{"no-gradient", Severity::kWarning, 0, "fc1", "param:weight"}});
  CHECK(contains(cut_off.findings[0].text, "2 parameters (fc1.weight, fc1.bias)"));
  // Nothing passes the module, but its output is used.
  Training detached = without_gradient(3);
  detached.erase({}, "fc1", "grad_output:0");
  CHECK(found(detached).at(0).severity == Severity::kWarning);
  // An auxiliary head, whose output no module takes.
  Training unused = detached;
  for (uint32_t step = 0; step < 3; ++step) unused.at(step, "fc1", "output:0").values[0] += 1;
  CHECK(found(unused) == List{{"no-gradient", Severity::kHint, 0, "fc1", "param:weight"}});
  // What has no element has no gradient to miss.
  Training empty = without_gradient(3);
  for (uint32_t step = 0; step < 3; ++step)
    for (const char* slot : {"param:weight", "param:bias"})
      for (Entry& entry : empty.entries)
        if (!entry.value.values.empty() && entry.step == step && entry.value.scope == "fc1" &&
            entry.value.slot == slot)
          entry.value.values.clear();
  CHECK(silent(empty, "no-gradient"));
  // Zeros are none, of a bias a hint.
  Training zeros = training(3);
  for (uint32_t step = 0; step < 3; ++step)
    for (const char* slot : {"grad:weight", "grad:bias"})
      for (float& v : zeros.at(step, "fc1", slot).values) v = 0;
  CHECK(found(zeros, "no-gradient") ==
        List{{"no-gradient", Severity::kWarning, 0, "fc1", "param:weight"},
             {"no-gradient", Severity::kHint, 0, "fc1", "param:bias"}});
}

/// In each step fc2 gives its weight a gradient and its bias none.
Training without_last_bias(bool by_loss) {
  Training run = unmoved(training(3), 3, "fc2", "param:bias").erase({}, "fc2", "grad:bias");
  if (by_loss) return run;
  // The gradient of its output is asked for before there is a loss, which is made of it.
  for (uint32_t step = 0; step < 3; ++step)
    for (const char* scope : {"", "fc2"}) {
      const StatsSpec asked = run.at(step, scope, "grad_output:0");
      run.erase(step, scope, "grad_output:0").before(step, "", "loss", asked);
    }
  return run;
}

TEST_CASE("check no-gradient: the last bias, if the loss is a penalty of gradients alone",
          "[check][no-gradient]") {
  CHECK(found(without_last_bias(true)) ==
        List{{"no-gradient", Severity::kWarning, 0, "fc2", "param:bias"}});
  CHECK(found(without_last_bias(false)) ==
        List{{"no-gradient", Severity::kHint, 0, "fc2", "param:bias"}});
  // Another loss brings the output's gradient, and the bias is detached.
  Training both = without_last_bias(false);
  StatsSpec passed = both.at(1, "fc2", "grad_output:0");
  both.before(1, "fc1", "grad:weight", passed);
  CHECK(found(both) == List{{"no-gradient", Severity::kWarning, 0, "fc2", "param:bias"}});
  // No parameter of the module has a gradient: what it gives is cut off.
  Training cut_off = unmoved(without_last_bias(false), 3, "fc2", "param:weight");
  cut_off.erase({}, "fc2", "grad:weight");
  CHECK(found(cut_off) == List{{"no-gradient", Severity::kWarning, 0, "fc2", "param:weight"}});
}

TEST_CASE("check no-gradient: where it is meant, or not known, it is silent",
          "[check][no-gradient]") {
  Training frozen = without_gradient(3);
  frozen.fact(0, "fc1", "frozen", "bias, weight");
  CHECK(silent(frozen, "no-gradient"));
  Training uncalled = without_gradient(3);
  uncalled.erase({}, "fc1", "input:0").erase({}, "fc1", "output:0");
  CHECK(silent(uncalled, "no-gradient"));
  Training sparse = training(3);  // it moves, so it had one
  sparse.erase({}, "fc1", "grad:weight");
  CHECK(silent(sparse, "no-gradient"));
  CHECK(unknown(without_gradient(1), "no-gradient"));
  Training once = without_gradient(3);  // one gradient is enough
  once.value(2, {.scope = "fc1", .slot = "grad:weight", .phase = Phase::kBackward, .values = {1}});
  once.value(2, {.scope = "fc1", .slot = "grad:bias", .phase = Phase::kBackward, .values = {1}});
  CHECK(silent(once, "no-gradient"));
  Training hashes = training(3);  // of a hash it is not known whether it is zero
  for (Entry& entry : hashes.entries)
    if (entry.fact.empty()) entry.value.capture = format::Capture::kHash;
  CHECK(found(hashes, "no-gradient") == List{});
}

TEST_CASE("check no-motion: gradients, updates, and the same bits", "[check][no-motion]") {
  Training run = unmoved(training(4), 4, "fc1", "param:weight");
  CHECK(found(run) == List{{"no-motion", Severity::kWarning, 0, "fc1", "param:weight"}});
  Training moved = run;
  moved.at(3, "fc1", "param:weight").values = noise(1, 64);
  CHECK(silent(moved, "no-motion"));
  const check::CheckResult two = checked(unmoved(run, 4, "fc1", "param:bias"), {"no-motion"});
  REQUIRE(two.findings.size() == 1);  // of one reason
  CHECK(contains(two.findings[0].text, "2 parameters"));
}

TEST_CASE("check no-motion: an update below the last bit", "[check][no-motion]") {
  const auto run = [](format::DType dtype, double size) {
    Training made = training(4);
    for (uint32_t step = 0; step < 4; ++step)
      made.at(step, "fc1", "grad:weight").values = scaled(noise(step, 64), size);
    made = unmoved(std::move(made), 4, "fc1", "param:weight");
    for (Entry& entry : made.entries)
      if (entry.value.scope == "fc1" && entry.value.slot == "param:weight")
        entry.value.dtype = dtype;
    return made;
  };
  const List hint = {{"no-motion", Severity::kHint, 0, "fc1", "param:weight"}};
  CHECK(found(run(format::DType::kF32, 1e-9), "no-motion") == hint);
  CHECK(found(run(format::DType::kBF16, 1e-9), "no-motion") == hint);  // rounding, beside others
  const check::CheckResult result = checked(run(format::DType::kBF16, 1e-3), {"no-motion"});
  CHECK(found(result) == List{{"no-motion", Severity::kWarning, 0, "fc1", "param:weight"}});
  CHECK(contains(result.findings[0].cause, "bf16"));
}

TEST_CASE("check no-motion: a rate of 0, lost steps and frozen weights are silent",
          "[check][no-motion]") {
  Training run = unmoved(training(4), 4, "fc1", "param:weight");
  Training idle = run;
  for (Entry& entry : idle.entries)
    if (entry.fact == "optimizer.0.0.lr") entry.text = "0.0";
  CHECK(found(idle, "no-motion") == List{});
  Training infinite = run;  // a GradScaler passes over such steps
  for (uint32_t step = 0; step < 3; ++step)
    infinite.at(step, "fc1", "grad:weight").values[0] = kInfinity;
  CHECK(found(infinite, "no-motion") == List{});
  Training group = run;  // a group that is frozen by its rate
  group.fact(0, {}, "optimizer.0.1.lr", "0");
  CHECK(found(group, "no-motion").at(0).severity == Severity::kHint);
  Training frozen = run;
  frozen.fact(0, "fc1", "frozen", "weight");
  CHECK(silent(frozen, "no-motion"));
}

TEST_CASE("check no-motion: a parameter that no optimizer has", "[check][no-motion]") {
  Training one = training(4);
  one.erase({}, "fc2", "param:bias", Phase::kOptimizer);
  CHECK(found(one) == List{{"no-motion", Severity::kWarning, 0, "fc2", "param:bias"}});
  Training most = training(4);  // a part that was not handed over
  most.erase({}, "fc1", "param:weight", Phase::kOptimizer)
      .erase({}, "fc1", "param:bias", Phase::kOptimizer);
  CHECK(found(most).size() == 1);
  CHECK(found(most).at(0).severity == Severity::kHint);
  Training unreached = one;
  unreached.erase({}, "fc2", "grad_output:0");
  CHECK(found(unreached, "no-motion") == List{});
  Training replaced = one;  // another module has the name from now on
  replaced.fact(1, "fc2", "class", "model.Other");
  CHECK(found(replaced, "no-motion") == List{});
  Training sent = one;  // another process updates it
  const auto write = [&sent](uint32_t step, uint32_t seed) {
    sent.value(step, {.scope = "fc2", .slot = "param_written:bias", .values = noise(seed, 8)});
  };
  write(1, 31);
  write(2, 31);
  CHECK(found(sent, "no-motion").size() == 1);  // written once, as when it is clipped
  write(3, 32);
  CHECK(silent(sent, "no-motion"));
  for (uint32_t step = 1; step < 4; ++step)  // all are written, as by weight decay
    sent.value(step,
               {.scope = "fc2", .slot = "param_written:weight", .values = noise(40 + step, 64)});
  CHECK(found(sent, "no-motion").size() == 1);
  Training renamed = one;  // the same memory is updated under another name
  renamed.at(0, "fc2", "param:bias").value.storage = 7;
  for (uint32_t step = 0; step < 4; ++step)
    renamed.at(step, "fc2", "param:weight", Phase::kOptimizer).value.storage = 7;
  CHECK(silent(renamed, "no-motion"));
}

TEST_CASE("check optimizer-of-others: it updates tensors that no module owns", "[check][others]") {
  Training run = training(3);
  for (Entry& entry : run.entries) {
    const bool update = entry.fact.empty() && entry.value.phase == Phase::kOptimizer;
    if (!update) continue;
    entry.value.slot = "param:group0." + entry.value.slot.substr(6, 1) + *entry.value.scope;
    entry.value.scope = {};
  }
  const List all = found(run);
  REQUIRE(all.size() == 1);
  CHECK(all[0].id == "optimizer-of-others");
  CHECK(all[0].severity == Severity::kError);
  Training more = training(3);  // a tensor of its own beside the model's
  for (uint32_t step = 0; step < 3; ++step)
    more.value(step, {.scope = {},
                      .slot = "param:group1.0",
                      .phase = Phase::kOptimizer,
                      .values = noise(step, 8)});
  CHECK(silent(more, "optimizer-of-others"));
  Training precise = run;  // 32-bit weights that are copied into the model
  for (uint32_t step = 0; step < 3; ++step)
    precise.value(step, {.scope = {},
                         .slot = "grad:group0.wfc1",
                         .phase = Phase::kBackward,
                         .values = noise(step, 64)});
  CHECK(found(precise, "optimizer-of-others") == List{});
}

TEST_CASE("check moved-without-gradient: only under plain descent", "[check][moved]") {
  Training zeros = plain(training(4));
  for (float& v : zeros.at(2, "fc1", "grad:weight").values) v = 0;
  CHECK(found(zeros) ==
        List{{"moved-without-gradient", Severity::kWarning, 2, "fc1", "param:weight"}});
  for (const bool all : {false, true}) {
    const check::CheckResult told = checked([&](TraceBuilder& trace) {
      if (all) trace.fact("setting.CONVTRACE_STACKS", "all");
      zeros.append_to(trace);
    });
    CHECK(told.findings.at(0).next.ends_with("CONVTRACE_STACKS=all to see who owns the memory") ==
          !all);
  }
  Training missing = plain(training(4));
  missing.erase(2, "fc1", "grad:weight");
  CHECK(found(missing, "moved-without-gradient").size() == 1);
  Training still = zeros;
  still.at(2, "fc1", "param:weight").values = still.at(1, "fc1", "param:weight").values;
  CHECK(silent(still, "moved-without-gradient"));
  CHECK(silent(plain(training(4)), "moved-without-gradient"));
  for (const auto& [setting, text] :
       {std::pair("optimizer.0.0.momentum", "0.9"), std::pair("optimizer.0.0.weight_decay", "0.1"),
        std::pair("optimizer.0.class", "torch.optim.adamw.AdamW"),
        std::pair("optimizer.1.class", "torch.optim.adam.Adam")}) {
    Training other = zeros;
    other.fact(0, {}, setting, text);
    INFO(setting);
    CHECK(unknown(other, "moved-without-gradient"));
  }
}

TEST_CASE("check moved-without-gradient: only between two consecutive steps", "[check][moved]") {
  Training gap = plain(training(4));
  for (float& v : gap.at(2, "fc1", "grad:weight").values) v = 0;
  std::erase_if(gap.entries, [](const Entry& entry) { return entry.step == 1; });
  CHECK(found(gap, "moved-without-gradient") == List{});
  // This parameter was not recorded in the step between, and had a gradient there.
  Training unseen = plain(training(4));
  unseen.erase(1, "fc1", "param:weight");
  for (float& v : unseen.at(2, "fc1", "grad:weight").values) v = 0;
  CHECK(found(unseen, "moved-without-gradient") == List{});
}

TEST_CASE("check no-gradient: a module that is called without an element", "[check][no-gradient]") {
  Training run = without_gradient(4);
  for (Entry& entry : run.entries)
    if (entry.value.scope == "fc1" && entry.fact.empty() &&
        (entry.value.slot == "input:0" || entry.value.slot == "output:0")) {
      entry.value.values.clear();
      entry.value.stats = {};
    }
  CHECK(unknown(run.erase({}, "fc2", "grad:weight").erase({}, "fc2", "grad:bias"), "no-gradient"));
}

/// The backward of an op adds `part` of what it returns to a parameter's gradient itself.
Training adding(float part, size_t size) {
  Training run = training(4);
  for (uint32_t step = 1; step < 4; ++step) {
    const std::vector<float> before = noise(10 + step, size), given = noise(20 + step, size);
    std::vector<float> after = before;
    for (size_t i = 0; i < size; ++i) after[i] += part * given[i];
    const auto record = [&](const char* slot, const std::vector<float>& values) {
      run.value(step, {.scope = "fc1",
                       .slot = slot,
                       .phase = Phase::kBackward,
                       .op = "FusedBackward",
                       .address = 4096,
                       .values = values});
    };
    record("grad_before:1", before);
    record("grad_after:1", after);
    record("grad_input:1", given);
  }
  return run;
}

TEST_CASE("check added-twice: what a backward adds is what it returns", "[check][added-twice]") {
  for (const size_t size : {4U, 400U}) {
    INFO(size);
    Training run = adding(1, size);
    run.at(2, "fc1", "grad:weight").address = 4096;
    const check::CheckResult result = checked(run, {"added-twice"});
    CHECK(found(result) == List{{"added-twice", Severity::kError, 2, "fc1", "grad_input:1"}});
    CHECK(contains(result.findings.at(0).text, "FusedBackward adds to the gradient of fc1.weight"));
    CHECK(silent(adding(0.5F, size), "added-twice"));  // a part, and the rest is returned
  }
  Training once = adding(1, 400);
  for (const char* slot : {"grad_before:1", "grad_after:1", "grad_input:1"})
    once.erase(2, "fc1", slot).erase(3, "fc1", slot);
  CHECK(silent(once, "added-twice"));
  CHECK(unknown(adding(1, 400).erase({}, "fc1", "grad_after:1"), "added-twice"));
}

TEST_CASE("check added-twice: a leaf that had no gradient", "[check][added-twice]") {
  Training run = training(4);
  for (uint32_t step = 1; step < 4; ++step)
    for (const char* slot : {"grad_after:1", "grad_input:1"})
      run.value(step, {.scope = "fc1",
                       .slot = slot,
                       .phase = Phase::kBackward,
                       .op = "RecomputeBackward",
                       .values = noise(20 + step, 40)});
  CHECK(found(run, "added-twice").size() == 1);
  for (float& v : run.at(1, "fc1", "grad_after:1").values) v *= 2;
  CHECK(silent(run, "added-twice"));
}

/// In each step from `first` on a second backward pass goes through the loss.
Training passing_twice(uint32_t first, bool cleared) {
  Training run = training(5);
  for (uint32_t step = first; step < 5; ++step) {
    run.before(step, "fc2", "grad_output:0", run.at(step, "fc2", "grad_output:0"));
    if (cleared) continue;
    StatsSpec& gradient = run.at(step, "fc2", "grad:bias");
    gradient.values = scaled(gradient.values, 2);
  }
  return run;
}

TEST_CASE("check added-twice: two backward passes through one loss", "[check][added-twice]") {
  const check::CheckResult result = checked(passing_twice(2, false), {"added-twice"});
  REQUIRE(found(result) == List{{"added-twice", Severity::kWarning, 3, "fc2", "grad:bias"}});
  CHECK(contains(result.findings[0].text, "fc2.bias contains that of one call's output twice"));
  CHECK(found(passing_twice(4, false), "added-twice") == List{});
  CHECK(found(passing_twice(1, true), "added-twice") == List{});
}

}  // namespace
}  // namespace convtrace::test
