#include <algorithm>
#include <cmath>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

/// Shares memory of fc1 in step 1. `what`: "whole, kept".
Training sharing(const std::string& slot, const std::string& what,
                 const char* optimizer = nullptr) {
  Training run = training(4);
  run.fact(1, "fc2", "shares." + slot, "optimizer 0, 256 bytes, " + what + ", " + slot + " of fc1");
  if (optimizer != nullptr)
    run.erase_fact("optimizer.0.class").fact(0, {}, "optimizer.0.class", optimizer);
  return run;
}
List at_fc2(const std::string& slot, Severity severity) {
  return {{"shared-memory", severity, 1, "fc2", slot}};
}
constexpr const char* kAdam = "torch.optim.adam.Adam";
constexpr const char* kOwn = "mine.Momentum";

TEST_CASE("check shared-memory: parameters that are updated twice", "[check][memory]") {
  const std::string slot = "param:weight", id = "shared-memory";
  CHECK(found(sharing(slot, "whole, updated", kAdam), id) == at_fc2(slot, Severity::kError));
  CHECK(found(sharing(slot, "part, updated", kAdam), id) == at_fc2(slot, Severity::kError));
  CHECK(found(sharing(slot, "part, updated"), id) == at_fc2(slot, Severity::kError));
  // Gradient descent adds up what is one weight.
  CHECK(found(sharing(slot, "whole, updated"), id) == at_fc2(slot, Severity::kHint));
  Training decays = sharing(slot, "whole, updated");
  decays.erase_fact("optimizer.0.0.weight_decay").fact(0, {}, "optimizer.0.0.weight_decay", "0.1");
  CHECK(found(decays, id) == at_fc2(slot, Severity::kError));
  Training resting = sharing(slot, "whole, updated", kAdam);
  resting.erase({}, "fc2", "grad:weight");
  CHECK(found(resting, id) == at_fc2(slot, Severity::kHint));
  CHECK(silent(training(3), id));
}

/// After each update the program multiplies all weights by a factor, in the memory of `where`.
Training multiplied(const std::string& where, double factor = 0.99) {
  Training run = training(6);
  for (uint32_t step = 0; step < 6; ++step) {
    uint64_t storage = 0;
    for (const char* scope : {"fc1", "fc2"})
      for (const std::string name : {"weight", "bias"}) {
        run.at(step, scope, "param:" + name, Phase::kOptimizer).value.storage = ++storage;
        if (step == 0) continue;
        StatsSpec written = run.at(step - 1, scope, "param:" + name, Phase::kOptimizer);
        written.scope = where + scope;
        written.slot = "param_written:" + name;
        written.phase = Phase::kEvaluation;
        written.values = scaled(written.values, factor);
        run.before(step, "", "input:0", written);
      }
  }
  return run;
}

TEST_CASE("check shared-memory: an average of weights with themselves", "[check][memory]") {
  const std::string id = "shared-memory";
  CHECK(found(multiplied("teacher."), id) ==
        List{{id, Severity::kHint, 3, "teacher.fc2", "param_written:bias"}});
  CHECK(silent(multiplied(""), id));  // a decay by hand
  CHECK(silent(multiplied("teacher.", 1), id));
  CHECK(silent(multiplied("teacher.", 1.01), id));
  Training other = multiplied("teacher.");  // as weights that are clipped
  for (uint32_t step = 1; step < 6; ++step)
    other.at(step, "teacher.fc1", "param_written:weight").values =
        other.at(step - 1, "fc1", "param:weight", Phase::kOptimizer).values;
  CHECK(silent(other, id));
  Training apart = multiplied("teacher.");
  for (Entry& entry : apart.entries)
    if (entry.value.slot.starts_with("param_written:")) entry.value.value.storage += 10;
  CHECK(silent(apart, id));
}

TEST_CASE("check shared-memory: gradients that contain one another", "[check][memory]") {
  const std::string slot = "grad:weight", id = "shared-memory";
  CHECK(found(sharing(slot, "whole, kept"), id) == at_fc2(slot, Severity::kError));
  Training unused = sharing(slot, "whole, kept");
  unused.erase({}, "fc2", "grad_output:0");
  CHECK(found(unused, id) == at_fc2(slot, Severity::kHint));
  // Handed over by the program, although fc2 had one of its own.
  CHECK(found(sharing(slot, "whole, same"), id) == at_fc2(slot, Severity::kWarning));
  Training alike = sharing(slot, "whole, same");
  alike.at(1, "fc1", "grad_output:0").values = alike.at(1, "fc2", "grad_output:0").values;
  CHECK(found(alike, id) == at_fc2(slot, Severity::kHint));
  // Two storages over one memory.
  CHECK(found(sharing(slot, "whole, foreign"), id) == at_fc2(slot, Severity::kError));
  Training scratch = sharing(slot, "whole, foreign");
  scratch.at(1, "fc1", "grad_output:0").values = scratch.at(1, "fc2", "grad_output:0").values;
  CHECK(found(scratch, id) == at_fc2(slot, Severity::kWarning));
}

TEST_CASE("check shared-memory: gradients that autograd gives out twice", "[check][memory]") {
  const std::string slot = "grad:weight", id = "shared-memory";
  CHECK(silent(sharing(slot, "whole, new"), id));
  Training zero = sharing(slot, "whole, kept");
  zero.at(1, "fc2", "grad:weight").values.assign(64, 0);
  CHECK(silent(zero, id));
  Training clipped = sharing(slot, "whole, new");
  clipped.before(1, "fc1", "grad:weight",
                 {.scope = "fc2",
                  .slot = "grad_unclipped:weight",
                  .phase = Phase::kBackward,
                  .values = scaled(clipped.at(1, "fc2", "grad:weight").values, 2)});
  CHECK(found(clipped, id) == at_fc2(slot, Severity::kWarning));
}

TEST_CASE("check shared-memory: a gradient that another one was written over", "[check][memory]") {
  const std::string slot = "grad:weight", id = "shared-memory";
  Training run = sharing(slot, "part, new");
  for (const char* scope : {"fc1", "fc2"}) {
    StatsSpec& gradient = run.at(1, scope, slot);
    gradient.value.storage = 7;
    gradient.address = scope[2] == '1' ? 4096 : 4128;
    StatsSpec returned = gradient;
    returned.op = "mineBackward";
    returned.slot = "grad_input:1";
    run.before(1, scope, slot, returned);
  }
  CHECK(silent(run, id));  // parts of one gradient, which an op has returned twice
  Training both = run;
  for (const char* scope : {"fc1", "fc2"})
    both.at(1, scope, slot).values = scaled(both.at(1, scope, slot).values, 0.5);
  CHECK(silent(both, id));  // and the program has halved both
  run.at(1, "fc1", "grad_input:1").values[3] = 9;
  CHECK(found(run, id) == at_fc2(slot, Severity::kWarning));
}

TEST_CASE("check shared-memory: a state that is the parameter itself", "[check][memory]") {
  const auto held = [](const std::string& key) {
    Training run = training(4);
    run.fact(1, "fc2", "shares.state:weight." + key,
             "optimizer 0, 256 bytes, whole, held, param:weight of fc2");
    return run;
  };
  for (const std::string key : {"slow", "exp_avg"})
    CHECK(found(held(key), "shared-memory") == at_fc2("state:weight." + key, Severity::kWarning));
  CHECK(silent(held("master"), "shared-memory"));
}

TEST_CASE("check shared-memory: a state that is the gradient itself", "[check][memory]") {
  const auto held = [](const std::string& key) {
    Training run = training(4);
    run.fact(1, "fc2", "shares.state:weight." + key,
             "optimizer 0, 256 bytes, whole, held, grad:weight of fc2");
    return run;
  };
  const std::string slot = "state:weight.momentum_buffer";
  CHECK(found(held("momentum_buffer"), "shared-memory") == at_fc2(slot, Severity::kWarning));
  for (const char* key : {"main_grad", "grad_accumulator", "work"})
    CHECK(silent(held(key), "shared-memory"));
}

TEST_CASE("check shared-memory: states that are written for two", "[check][memory]") {
  const std::string slot = "state:weight.exp_avg", id = "shared-memory";
  CHECK(found(sharing(slot, "whole, written", kAdam), id) == at_fc2(slot, Severity::kError));
  CHECK(found(sharing(slot, "part, written", kAdam), id) == at_fc2(slot, Severity::kError));
  CHECK(found(sharing(slot, "whole, in turn", kAdam), id) == at_fc2(slot, Severity::kError));
  CHECK(found(sharing(slot, "whole, written", kOwn), id) == at_fc2(slot, Severity::kWarning));
  CHECK(found(sharing("state:weight.work", "whole, written", kOwn), id) ==
        at_fc2("state:weight.work", Severity::kHint));
  CHECK(silent(sharing("state:weight.qmap", "whole, read", kOwn), id));
  Training resting = sharing(slot, "whole, written", kAdam);
  resting.erase({}, "fc1", "grad:weight");
  CHECK(found(resting, id) == at_fc2(slot, Severity::kHint));
}

TEST_CASE("check shared-memory: one finding of all pairs", "[check][memory]") {
  Training run = sharing("grad:weight", "part, kept");
  run.fact(1, "fc2", "shares.grad:bias", "optimizer 0, 8 bytes, part, kept, grad:weight of fc2");
  for (const char* text : {"", "optimizer 0", "optimizer x, 1 bytes, part, kept, grad:weight",
                           "optimizer 0, 8 bytes, part, kept, grad:none of none"})
    run.fact(1, "fc2", "shares.grad:none", text);
  const check::CheckResult result = checked(run, {"shared-memory"});
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].evidence ==
        std::vector<std::string>{"fc1.weight and fc2.weight: 256 bytes in common",
                                 "fc2.weight and fc2.bias: 8 bytes in common"});
}

/// Module "norm" in three steps. `again`: what its count and its average are behind the
/// recomputation of step 1, which has the inputs `input`.
Training recomputing(float count, float average, uint32_t input = 500) {
  Training run = training(3);
  const auto add = [&run](uint32_t step, const char* slot, Phase phase, std::vector<float> values) {
    run.before(step, phase == Phase::kForward ? "fc2" : "fc1",
               phase == Phase::kForward ? "input:0" : "grad_output:0",
               {.scope = "norm", .slot = slot, .phase = phase, .values = std::move(values)});
  };
  run.fact(0, "norm", "class", "torch.nn.modules.batchnorm.BatchNorm1d");
  for (uint32_t step = 0; step < 2; ++step) {
    const auto number = static_cast<float>(step + 1);
    add(step, "input:0", Phase::kForward, noise(500 + step, 8));
    add(step, "buffer:running_mean", Phase::kForward, {number, number});
    add(step, "buffer:num_batches_tracked", Phase::kForward, {number});
  }
  add(1, "input:0", Phase::kRecompute, noise(input + 1, 8));
  add(1, "buffer:running_mean", Phase::kRecompute, {average, average});
  add(1, "buffer:num_batches_tracked", Phase::kRecompute, {count});
  return run;
}

TEST_CASE("check recomputed-buffer: what moves twice", "[check][memory]") {
  const std::string id = "recomputed-buffer";
  const List first = {{id, Severity::kWarning, 1, "norm", "buffer:running_mean"}};
  CHECK(found(recomputing(3, 3), id) == first);
  CHECK(contains(checked(recomputing(3, 3), {id}).findings[0].text,
                 "(running_mean, num_batches_tracked)"));
  CHECK(found(recomputing(3, 2), id) ==
        List{{id, Severity::kWarning, 1, "norm", "buffer:num_batches_tracked"}});
  Training idle = recomputing(3, 2);
  CHECK(silent(idle.fact(0, "norm", "attributes", "eps=1e-05, momentum=0.1"), id));
  // Written with what is there; other inputs: no recomputation of this call.
  CHECK(unknown(recomputing(2, 2), id));
  CHECK(silent(recomputing(3, 3, 700), id));
  // Others stood in for the buffers, which have kept what they were.
  Training replaced = recomputing(3, 3);
  for (const char* slot : {"buffer:running_mean", "buffer:num_batches_tracked"})
    replaced.at(1, "norm", slot, Phase::kRecompute).value.storage = 9;
  CHECK(silent(replaced, id));
  // The forward pass leaves them as they are.
  Training once = recomputing(3, 3);
  once.erase(1, "norm", "buffer:running_mean", Phase::kForward)
      .erase(1, "norm", "buffer:num_batches_tracked", Phase::kForward);
  CHECK(silent(once, id));
  // The program has put the buffers back before the next step.
  const auto put_back = [](const char* slot, float value) {
    Training run = recomputing(3, 3);
    run.before(2, "fc1", "input:0",
               {.scope = "norm", .slot = slot, .phase = Phase::kForward, .values = {value, value}});
    return run;
  };
  CHECK(found(put_back("buffer_initial:running_mean", 2), id) ==
        List{{id, Severity::kWarning, 1, "norm", "buffer:num_batches_tracked"}});
  CHECK(found(put_back("buffer_initial:running_mean", 3), id) == first);
  // An end before the module's inputs were recorded.
  CHECK(found(recomputing(3, 3).erase(1, "norm", "input:0", Phase::kRecompute), id) == first);
}

TEST_CASE("check recomputed-buffer: a power iteration is a hint", "[check][memory]") {
  Training run = recomputing(3, 3);
  run.erase_fact("class").fact(0, "norm", "class", "torch.nn.utils.parametrizations._SpectralNorm");
  CHECK(found(run, "recomputed-buffer") ==
        List{{"recomputed-buffer", Severity::kHint, 1, "norm", "buffer:running_mean"}});
}

/// Two calls of an op, whose outputs lie at `address` and at 4096, and what the graph says of them.
Training reusing(uint64_t address, uint32_t seed, const std::string& fact) {
  Training run = training(2);
  const auto gives = [&run](const char* scope, uint64_t at, uint32_t of) {
    run.before(1, "fc2", "input:0",
               {.scope = scope, .op = "mine", .address = at, .values = noise(of, 32)});
  };
  gives("fc1", address, seed);
  gives("", 4096, 901);
  run.fact(1, "fc1", "reused.mine", fact);
  return run;
}

TEST_CASE("check reused-output: the reader has what another call wrote", "[check][memory]") {
  const std::string id = "reused-output", fact = "output:0, 0, 1, 0, AddBackward0";
  CHECK(found(reusing(4096, 900, fact), id) == List{{id, Severity::kError, 1, "fc1", "output:0"}});
  CHECK(found(reusing(4160, 900, fact), id).size() == 1);
  CHECK(contains(checked(reusing(4096, 900, fact), {id}).findings[0].text, "by Add."));
  CHECK(silent(reusing(4096, 901, fact), id));  // equal bits
  CHECK(silent(reusing(8192, 900, fact), id));  // not those records
  for (const char* wrong : {"", "output:0", "output:0, 0, 2, 0, Add", "output:1, 0, 1, 0, Add",
                            "output:0, 9999999999999999999999, x, 0, Add"})
    CHECK(silent(reusing(4096, 900, wrong), id));
  CHECK(unknown(training(3), id));
}

TEST_CASE("check reused-output: a gradient that waits for others", "[check][memory]") {
  Training run = training(3);
  for (const auto& [scope, seed] : {std::pair("fc2", 900U), std::pair("fc1", 901U)})
    run.value(1, {.scope = scope,
                  .slot = "grad_input:0",
                  .phase = Phase::kBackward,
                  .op = "mineBackward",
                  .address = 4096,
                  .values = noise(seed, 32)});
  run.fact(1, "fc2", "reused.mineBackward", "grad_input:0, 0, 1, 0, AddBackward0");
  CHECK(found(run, "reused-output") ==
        List{{"reused-output", Severity::kError, 1, "fc2", "grad_input:0"}});
}

/// Two gradients of one call of an op.
Training common(const std::string& how, std::vector<float> values = noise(900, 32)) {
  Training run = training(3);
  run.value(1, {.scope = "fc2",
                .slot = "grad_input:0",
                .phase = Phase::kBackward,
                .op = "mineBackward",
                .values = std::move(values)});
  run.fact(1, "fc2", "common.mineBackward", "grad_input:0, grad_input:1, 0, " + how);
  return run;
}

TEST_CASE("check reused-output: two gradients of a call in one memory", "[check][memory]") {
  const std::string id = "reused-output";
  const auto at = [&id](Severity severity) {
    return List{{id, severity, 1, "fc2", "grad_input:1"}};
  };
  for (const char* how : {"whole, kept, needed", "inside, kept, needed", "whole, foreign, needed",
                          "across, kept, unknown", "across, foreign, unknown"})
    CHECK(found(common(how), id) == at(Severity::kWarning));
  for (const char* how : {"whole, kept, unknown", "across, new, needed", "across, new, unknown"})
    CHECK(found(common(how), id) == at(Severity::kHint));
  // An op that adds its inputs, zeros that an op keeps, no such record, no such fact.
  for (const char* how : {"whole, new, needed", "inside, new, needed", "whole, foreign, unknown"})
    CHECK(silent(common(how), id));
  CHECK(silent(common("whole, kept, needed", std::vector<float>(32, 0)), id));
  Training lost = common("whole, kept, needed");
  CHECK(silent(lost.erase(1, "fc2", "grad_input:0"), id));
  CHECK(unknown(common("whole, kept"), id));
}

/// An op around the output of fc2, whose backward returns what `returns` gives in each of five steps.
Training keeping(const std::function<std::vector<float>(uint32_t)>& returns, uint64_t storage = 7,
                 bool same_given = false) {
  Training run = training(5);
  for (uint32_t step = 0; step < 5; ++step) {
    StatsSpec given = run.at(step, "fc2", "grad_output:0");
    if (same_given) given.values = run.at(0, "fc2", "grad_output:0").values;
    given.op = "mineBackward";
    StatsSpec returned = given;
    returned.slot = "grad_input:0";
    returned.value.storage = storage != 0 ? storage : 7 + step;
    returned.values = returns(step);
    run.value(step, std::move(given)).value(step, std::move(returned));
  }
  return run;
}

TEST_CASE("check stale-gradient: what an op returns in memory that it keeps", "[check][memory]") {
  const std::string id = "stale-gradient";
  const size_t count = training(1).at(0, "fc2", "grad_output:0").values.size();
  const auto changing = [count](uint32_t step) { return noise(700 + step, count); };
  const auto constant = [count](uint32_t) { return noise(700, count); };
  const auto half = [&](uint32_t step) {
    std::vector<float> values = changing(step), kept = constant(step);
    std::copy_n(kept.begin(), count / 2, values.begin());
    return values;
  };
  const List at_fc2 = {{id, Severity::kWarning, 2, "fc2", "grad_input:0"}};
  CHECK(found(keeping(constant), id) == at_fc2);
  CHECK(found(keeping(half), id) == at_fc2);
  CHECK(contains(checked(keeping(half), {id}).findings[0].text, "in 4 of 8 samples"));
  CHECK(silent(keeping(changing), id));
  CHECK(silent(keeping(constant, 0), id));        // memory is new in each step
  CHECK(silent(keeping(constant, 7, true), id));  // so is what it was given
  // Numbers of samples that no element has, or that the two do not share.
  const auto made_up = [&](format::DType dtype, std::optional<size_t> given, size_t returned) {
    Training run = keeping(half);
    for (Entry& entry : run.entries) {
      StatsSpec& value = entry.value;
      if (value.slot == "grad_output:0" && value.scope == "fc2")
        value.dtype = dtype, value.sample_bytes = given;
      if (value.slot == "grad_input:0" && value.op == "mineBackward")
        value.dtype = dtype, value.sample_bytes = returned;
    }
    return run;
  };
  CHECK(found(made_up(format::DType::kF64, {}, 64), id) == at_fc2);
  CHECK(silent(made_up(format::DType::kF64, 15, 15), id));
  CHECK(silent(made_up(format::DType::kF32, 4, 32), id));
  CHECK(silent(made_up(format::DType::kF32, {}, 7), id));
  const auto masked = [&](uint32_t step) {
    std::vector<float> values = changing(step);
    std::fill_n(values.begin(), count / 2, 0.0F);
    return values;
  };
  CHECK(silent(keeping(masked), id));
  CHECK(silent(keeping([count](uint32_t) { return std::vector<float>(count, 0.5F); }), id));
}

/// An op in fc2 that returns `returns(step)` for the gradient of fc2's output, which is `given(step)`.
Training returning(const std::function<std::vector<float>(uint32_t)>& given,
                   const std::function<std::vector<float>(uint32_t)>& returns, uint32_t steps = 6) {
  Training run = training(steps);
  for (uint32_t step = 0; step < steps; ++step) {
    StatsSpec& output = run.at(step, "fc2", "grad_output:0");
    output.values = given(step);
    StatsSpec taken = output;
    taken.op = "mineBackward";
    StatsSpec returned = taken;
    returned.slot = "grad_input:0";
    returned.values = returns(step);
    run.value(step, std::move(taken)).value(step, std::move(returned));
  }
  return run;
}

TEST_CASE("check gradients-add-up: what an op returns is a sum over its calls", "[check][memory]") {
  const std::string id = "gradients-add-up";
  const size_t count = training(1).at(0, "fc2", "grad_output:0").values.size();
  const auto given = [count](uint32_t step) {
    std::vector<float> values = noise(800 + step, count);
    for (float& one : values) one += 0.2F + 0.1F * static_cast<float>(step % 3);
    return values;
  };
  /// Each call adds what it was given times `factor` to `kept` of what is there.
  const auto sum = [&](double factor, double kept) {
    return [=](uint32_t step) {
      std::vector<float> all(count);
      for (uint32_t one = 0; one <= step; ++one) {
        all = scaled(std::move(all), kept);
        const std::vector<float> own = given(one);
        for (size_t i = 0; i < count; ++i) all[i] += static_cast<float>(factor) * own[i];
      }
      return all;
    };
  };
  const List at_fc2 = {{id, Severity::kWarning, 4, "fc2", "grad_input:0"}};
  CHECK(found(returning(given, sum(1, 1)), id) == at_fc2);
  CHECK(found(returning(given, sum(-0.25, 1)), id) == at_fc2);
  CHECK(silent(returning(given, sum(1, 1), 4), id));   // too few to say
  CHECK(silent(returning(given, sum(1, 0)), id));      // cleared
  CHECK(silent(returning(given, sum(0.1, 0.9)), id));  // an average
  const auto group = [&](uint32_t step) {              // returned once a group
    return step % 2 == 0 ? std::vector<float>(count) : sum(1, 1)(step);
  };
  CHECK(silent(returning(given, group), id));
  // A loss that falls by a constant factor.
  const auto falling = [&](double size) {
    return [=](uint32_t step) { return scaled(given(0), size * std::pow(0.8, step)); };
  };
  CHECK(silent(returning(falling(1), falling(3)), id));
  const auto constant = [&](uint32_t) { return given(0); };
  const auto rising = [&](uint32_t step) { return scaled(given(0), 1 + step); };
  CHECK(silent(returning(constant, rising), id));
}

}  // namespace
}  // namespace convtrace::test
