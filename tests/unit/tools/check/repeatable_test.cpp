#include <algorithm>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

/// One more call of a module or op, before `slot` of `scope` of the step.
Training& call(Training& run, uint32_t step, const ScopeName& scope, uint32_t number, Phase phase,
               std::vector<float> input, std::vector<float> output, const char* op = "") {
  const auto add = [&](const char* slot, std::vector<float> values) {
    run.before(step, "", "grad_output:0",
               {.scope = scope,
                .slot = slot,
                .phase = phase,
                .call = number,
                .op = op,
                .values = std::move(values)});
  };
  add("input:0", std::move(input));
  add("output:0", std::move(output));
  return run;
}

/// Two calls of a layer with equal inputs in the forward pass of step 1.
Training twice(const std::string& kind, std::vector<float> first, std::vector<float> second) {
  Training run = training(3);
  run.fact(0, "act", "class", kind);
  call(run, 1, "act", 0, Phase::kForward, noise(1, 32), std::move(first));
  return call(run, 1, "act", 1, Phase::kForward, noise(1, 32), std::move(second));
}

/// The step draws no random numbers: the state of the generators is the same behind it.
Training without_draw(Training run, uint32_t step) {
  std::erase_if(run.entries, [step](const Entry& entry) {
    return entry.step == step + 1 && entry.fact == "rng.torch";
  });
  return run;
}

const std::string kRelu = "torch.nn.modules.activation.ReLU";

TEST_CASE("check not-repeatable: two calls of a layer of torch", "[check][repeat]") {
  const check::CheckResult result =
      checked(twice(kRelu, noise(2, 32), noise(3, 32)), {"not-repeatable"});
  CHECK(found(result) == List{{"not-repeatable", Severity::kWarning, 1, "act", "output:0"}});
  CHECK(contains(result.findings[0].text, "when it was called again in the step"));
  CHECK(silent(twice(kRelu, noise(2, 32), noise(2, 32)), "not-repeatable"));
  Training merged = twice(kRelu, noise(2, 32), noise(3, 32));  // a weight is written in between
  const auto second = std::ranges::find_if(merged.entries, [](const Entry& entry) {
    return entry.step == 1 && entry.value.scope == "act" && entry.value.call == 1;
  });
  Entry written = *second;
  written.value.slot = "param_written:weight";
  merged.entries.insert(second, written);
  CHECK(unknown(merged, "not-repeatable"));
  // Another order of additions is a hint.
  const List rounding =
      found(twice(kRelu, noise(2, 32), scaled(noise(2, 32), 1.001)), "not-repeatable");
  CHECK(rounding == List{{"not-repeatable", Severity::kHint, 1, "act", "output:0"}});
}

TEST_CASE("check not-repeatable: poison is proposed where the run had none", "[check][repeat]") {
  const Training run = twice(kRelu, noise(2, 32), noise(3, 32));
  for (const char* poison : {"0", "1"}) {
    const check::CheckResult told = checked([&](TraceBuilder& trace) {
      trace.fact("setting.CONVTRACE_POISON", poison);
      run.append_to(trace);
    });
    const auto one = std::ranges::find(told.findings, "not-repeatable", &check::Finding::id);
    REQUIRE(one != told.findings.end());
    CHECK(contains(one->next, "convtrace run --poison 1 -- CMD") == (poison[0] == '0'));
  }
}

TEST_CASE("check not-repeatable: layers that draw, and other inputs, are silent",
          "[check][repeat]") {
  for (const char* kind :
       {"torch.nn.modules.dropout.Dropout2d", "torch.nn.modules.activation.RReLU",
        "torch.nn.modules.activation.MultiheadAttention", "torch.nn.modules.rnn.LSTM"}) {
    INFO(kind);
    CHECK(found(twice(kind, noise(2, 32), noise(3, 32)), "not-repeatable") == List{});
  }
  Training inputs = twice(kRelu, noise(2, 32), noise(3, 32));
  inputs.at(1, "act", "input:0").values[7] += 1;
  CHECK(found(inputs, "not-repeatable") == List{});
  Training reshaped = twice("torch.nn.modules.activation.Softmax", noise(2, 32), noise(3, 32));
  reshaped.at(1, "act", "input:0").shape = {4, 8};
  CHECK(found(reshaped, "not-repeatable") == List{});
  Training unrecorded = twice(kRelu, noise(2, 32), noise(3, 32));
  unrecorded.erase(1, "act", "input:0");
  CHECK(unknown(unrecorded, "not-repeatable"));
  Training apart = twice(kRelu, noise(2, 32), noise(3, 32));  // in two steps
  for (Entry& entry : apart.entries)
    if (entry.value.scope == "act" && entry.value.call == 1) entry.step = 2;
  CHECK(found(apart, "not-repeatable") == List{});
}

TEST_CASE("check not-repeatable: a backward pass, buffers and containers part two calls",
          "[check][repeat]") {
  Training backward = twice(kRelu, noise(2, 32), noise(3, 32));
  for (auto entry = backward.entries.begin(); entry != backward.entries.end(); ++entry) {
    if (entry->value.scope != "act" || entry->value.call != 1) continue;
    backward.entries.insert(
        entry,
        {.step = 1, .value = {.scope = "", .slot = "loss", .phase = Phase::kLoss, .values = {1}}});
    break;
  }
  CHECK(found(backward, "not-repeatable") == List{});
  Training buffers = twice("torch.nn.modules.batchnorm.BatchNorm1d", noise(2, 32), noise(3, 32));
  buffers.value(1, {.scope = "act", .slot = "buffer:running_mean", .values = noise(4, 8)});
  CHECK(found(buffers, "not-repeatable") == List{});
  Training container = twice("torch.nn.modules.container.Sequential", noise(2, 32), noise(3, 32));
  container.fact(0, "act.0", "class", kRelu);
  CHECK(found(container, "not-repeatable") == List{});
  Training neighbour = twice(kRelu, noise(2, 32), noise(3, 32));  // not below it
  neighbour.fact(0, "act2", "class", kRelu).fact(0, "act-0", "class", kRelu);
  CHECK(found(neighbour, "not-repeatable").size() == 1);
}

TEST_CASE("check not-repeatable: layers of the program, where no generator moved",
          "[check][repeat]") {
  const Training own = twice("model.Mix", noise(2, 32), noise(3, 32));
  CHECK(found(own, "not-repeatable") == List{});
  CHECK(found(without_draw(own, 1), "not-repeatable") ==
        List{{"not-repeatable", Severity::kHint, 1, "act", "output:0"}});
  for (const char* kind : {"torch.nn.utils.parametrizations._SpectralNorm"})
    CHECK(
        found(without_draw(twice(kind, noise(2, 32), noise(3, 32)), 1), "not-repeatable").empty());
  // Of a trace without states of generators it is not known whether one moved.
  Training no_states = own;
  no_states.erase_fact("rng.torch");
  CHECK(found(no_states, "not-repeatable") == List{});
}

TEST_CASE("check not-repeatable: ops, where no generator moved", "[check][repeat]") {
  Training run = training(3);
  call(run, 1, "fc1", 0, Phase::kForward, noise(1, 32), noise(2, 32), "demo::gelu");
  call(run, 1, "fc1", 1, Phase::kForward, noise(1, 32), noise(3, 32), "demo::gelu");
  CHECK(found(run, "not-repeatable") == List{});
  const check::CheckResult result = checked(without_draw(run, 1), {"not-repeatable"});
  CHECK(found(result).size() == 1);
  CHECK(result.findings[0].op == "demo::gelu");
  run.at(1, "fc1", "output:0").op = "";
}

TEST_CASE("check not-repeatable: operations of PyTorch", "[check][repeat]") {
  const auto called = [](const char* op, Phase second) {
    Training run = training(3);
    call(run, 1, "fc1", 0, Phase::kForward, noise(1, 32), noise(2, 32), op);
    return without_draw(call(run, 1, "fc1", second == Phase::kForward ? 1 : 0, second, noise(1, 32),
                             noise(3, 32), op),
                        1);
  };
  CHECK(found(called("demo::scale", Phase::kForward), "not-repeatable").size() == 1);
  // They take numbers that are not recorded, as an exponent.
  CHECK(unknown(called("aten::pow.Tensor_Scalar", Phase::kForward), "not-repeatable"));
  CHECK(found(called("aten::mm", Phase::kRecompute), "not-repeatable").size() == 1);
  // New memory has any contents.
  CHECK(unknown(called("aten::empty_like", Phase::kRecompute), "not-repeatable"));
}

TEST_CASE("check not-repeatable: ops that take tensors alone, in a step that draws",
          "[check][repeat]") {
  for (const ScopeName& scope : {ScopeName("fc1"), ScopeName(""), ScopeName()}) {
    INFO("scope: " << scope.value_or("-"));
    const auto twice_with = [&](const std::vector<float>& second) {
      Training run = training(3);
      call(run, 1, scope, 7, Phase::kForward, noise(1, 32), noise(2, 32), "demo::gelu");
      return call(run, 1, scope, 8, Phase::kForward, noise(1, 32), second, "demo::gelu");
    };
    Training alone = twice_with(noise(3, 32)), other = alone, alike = twice_with(noise(2, 32));
    alone.fact(1, scope, "op.demo::gelu", "tensors alone");
    CHECK(silent(alike.fact(1, scope, "op.demo::gelu", "tensors alone"), "not-repeatable"));
    CHECK(found(alone, "not-repeatable") ==
          List{{"not-repeatable", Severity::kWarning, 1, scope.value_or("-"), "output:0"}});
    other.fact(1, scope, "op.demo::silu", "tensors alone").fact(1, "fc2", "op.demo::gelu", "draws");
    CHECK(unknown(other, "not-repeatable"));
    for (const char* reason : {"draws", "other arguments"}) {  // as told last, and for good
      Training not_alone = alone;
      not_alone.fact(1, scope, "op.demo::gelu", reason);
      CHECK(unknown(not_alone, "not-repeatable"));
      CHECK(unknown(without_draw(not_alone, 1), "not-repeatable"));
    }
  }
}

TEST_CASE("check not-repeatable: a recomputation gives other outputs", "[check][repeat]") {
  const auto run = [](std::vector<float> input, std::vector<float> output) {
    Training made = training(3);
    const std::vector<float>& before = made.at(1, "fc2", "input:0").values;
    return call(made, 1, "fc2", 0, Phase::kRecompute, input.empty() ? before : input,
                output.empty() ? made.at(1, "fc2", "output:0").values : output);
  };
  CHECK(found(run({}, noise(9, 32)), "not-repeatable") ==
        List{{"not-repeatable", Severity::kWarning, 1, "fc2", "output:0"}});
  CHECK(silent(run({}, {}), "not-repeatable"));
  const check::CheckResult other = checked(run(noise(8, 32), noise(9, 32)), {"not-repeatable"});
  CHECK(found(other) == List{{"not-repeatable", Severity::kWarning, 1, "fc2", "input:0"}});
  CHECK(contains(other.findings[0].text, "got another input than in the forward pass"));
  // What is rebuilt from an output differs by rounding.
  Training plain = training(3);
  const std::vector<float> rebuilt = scaled(plain.at(1, "fc2", "input:0").values, 1.0001);
  CHECK(found(run(rebuilt, noise(9, 32)), "not-repeatable") ==
        List{{"not-repeatable", Severity::kHint, 1, "fc2", "input:0"}});
  // Of two calls it is not known which one is recomputed.
  Training two = run(noise(8, 32), noise(9, 32));
  call(two, 1, "fc2", 1, Phase::kForward, noise(7, 32), noise(6, 32));
  CHECK(found(two, "not-repeatable") == List{});
  // A call in front of the forward pass recomputes another one, as a hook does in an earlier pass.
  for (Training before : {run({}, noise(9, 32)), run(noise(8, 32), noise(9, 32))}) {
    const auto in_step = std::ranges::find(before.entries, 1U, &Entry::step);
    std::stable_partition(in_step, before.entries.end(), [](const Entry& entry) {
      return entry.value.phase == Phase::kRecompute;
    });
    CHECK(found(before, "not-repeatable") == List{});
  }
  // Dropout must draw the same numbers again.
  Training dropout = run({}, noise(9, 32));
  for (Entry& entry : dropout.entries)
    if (entry.value.scope == "fc2" && entry.fact == "class")
      entry.text = "torch.nn.modules.dropout.Dropout";
  CHECK(found(dropout, "not-repeatable").size() == 1);
}

TEST_CASE("check not-repeatable: two calls of an evaluation are a hint", "[check][repeat]") {
  Training run = training(3);
  call(run, 1, "fc1", 0, Phase::kEvaluation, noise(1, 32), noise(2, 32));
  call(run, 1, "fc1", 1, Phase::kEvaluation, noise(1, 32), noise(3, 32));
  CHECK(found(run, "not-repeatable") ==
        List{{"not-repeatable", Severity::kHint, 1, "fc1", "output:0"}});
  Training in_training_mode = run;
  in_training_mode.fact(1, "fc1", "mode.evaluation", "train");
  CHECK(found(in_training_mode, "not-repeatable") == List{});
}

/// fc1, dropout, fc2: zeros in the dropout's output and in the gradient of fc1's output.
Training with_dropout(uint32_t steps, size_t forward, size_t backward) {
  Training run = training(steps);
  run.fact(0, "drop", "class", "torch.nn.modules.dropout.Dropout");
  for (uint32_t step = 0; step < steps; ++step) {
    const std::vector<float> input = noise(step + 1, 512);
    std::vector<float> output = input, flow = noise(step + 100, 512);
    for (size_t i = 0; i < forward; ++i) output[i] = 0;
    for (size_t i = 0; i < backward; ++i) flow[511 - i] = 0;
    run.at(step, "fc1", "output:0").values = input;
    run.at(step, "fc2", "input:0").values = output;
    run.at(step, "fc1", "grad_output:0").values = flow;
    run.erase(step, "fc1", "grad:bias");
    call(run, step, "drop", 0, Phase::kForward, input, output);
  }
  return run;
}

TEST_CASE("check not-repeatable: the backward pass of a dropout has another mask",
          "[check][repeat][dropout]") {
  CHECK(found(with_dropout(4, 50, 40), "not-repeatable") ==
        List{{"not-repeatable", Severity::kWarning, 2, "drop", "output:0"}});
  CHECK(silent(with_dropout(4, 50, 50), "not-repeatable"));
  CHECK(silent(with_dropout(4, 50, 60), "not-repeatable"));            // 0 by themselves
  CHECK(found(with_dropout(2, 50, 40), "not-repeatable") == List{});   // three places
  CHECK(found(with_dropout(4, 50, 200), "not-repeatable") == List{});  // also past the dropout
  CHECK(found(with_dropout(4, 50, 0), "not-repeatable") == List{});
  CHECK(found(with_dropout(4, 0, 0), "not-repeatable") == List{});  // evaluation
  Training zeros = with_dropout(4, 50, 40);                         // zeros of its own input
  for (uint32_t step = 0; step < 4; ++step)
    for (const char* scope : {"fc1", "drop"})
      zeros.at(step, scope, scope[0] == 'f' ? "output:0" : "input:0").values[500] = 0;
  CHECK(found(zeros, "not-repeatable") == List{});
  Training several = with_dropout(4, 50, 40);  // two modules gave the same bits
  for (uint32_t step = 0; step < 4; ++step)
    call(several, step, "copy", 0, Phase::kForward, noise(7, 8),
         several.at(step, "fc1", "output:0").values);
  CHECK(found(several, "not-repeatable") == List{});
  Training other = with_dropout(4, 50, 40);
  for (Entry& entry : other.entries)
    if (entry.value.scope == "drop" && entry.fact == "class") entry.text = kRelu;
  CHECK(found(other, "not-repeatable") == List{});
}

}  // namespace
}  // namespace convtrace::test
