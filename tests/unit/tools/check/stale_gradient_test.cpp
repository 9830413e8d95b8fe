#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;
const std::string kStale = "stale-gradient";
const List kOfWeight = {{kStale, Severity::kError, 3, "fc1", "grad:weight"}};

/// The weight's gradient of step 3 is that of step 2.
Training repeated(Training run = training(5)) {
  run.at(3, "fc1", "grad:weight").values = run.at(2, "fc1", "grad:weight").values;
  return run;
}

/// The layer fc1 with its shapes: four rows of eight inputs to eight outputs.
Training layer() {
  Training run = training(5);
  for (Entry& entry : run.entries) {
    if (entry.value.scope != "fc1") continue;
    if (entry.value.slot == "input:0" || entry.value.slot == "grad_output:0")
      entry.value.shape = std::vector<uint64_t>{4, 8};
    if (entry.value.slot.ends_with(":weight")) entry.value.shape = std::vector<uint64_t>{8, 8};
  }
  return run;
}

/// Four ranges of two rows each; those of step 3 that are as before are `equal`.
Training ranges(const std::vector<size_t>& equal, Training run = layer(), size_t count = 4) {
  for (uint32_t step = 0; step < 5; ++step)
    for (size_t i = 0; i < count; ++i) {
      const bool stays = step == 3 && std::ranges::find(equal, i) != equal.end();
      run.at(step, "fc1", "grad:weight").range_hashes.push_back((stays ? 200 : step * 100) + i);
      run.at(step, "fc1", "param:weight", Phase::kOptimizer)
          .range_hashes.push_back(step * 100 + 50 + i);
    }
  return run;
}

/// Elements of step 3's gradient, by their indices, are those of step 2.
Training elements(const std::vector<size_t>& equal, Training run = layer()) {
  for (const size_t i : equal)
    run.at(3, "fc1", "grad:weight").values[i] = run.at(2, "fc1", "grad:weight").values[i];
  return run;
}

std::string text_of(const Training& run) {
  const check::CheckResult result = checked(run, {kStale});
  return result.findings.empty() ? "" : result.findings[0].text;
}

/// Whether nothing is found in step 3, and other steps are judged.
bool quiet(const Training& run) { return silent(run, kStale); }

TEST_CASE("check stale-gradient: the bits of the step before", "[check][stale]") {
  CHECK(found(repeated()) == kOfWeight);
  // As the backward pass left it.
  Training clipped = repeated();
  for (uint32_t step = 0; step < 5; ++step) {
    StatsSpec whole = clipped.at(step, "fc1", "grad:weight");
    whole.slot = "grad_unclipped:weight";
    clipped.before(step, "fc1", "grad:weight", whole);
    clipped.at(step, "fc1", "grad:weight").values = noise(7000 + step, 64);
  }
  CHECK(found(clipped, kStale) ==
        List{{kStale, Severity::kError, 3, "fc1", "grad_unclipped:weight"}});
  Training bias = training(5);
  bias.at(3, "fc1", "grad:bias").values = bias.at(2, "fc1", "grad:bias").values;
  CHECK(found(bias, kStale) == List{{kStale, Severity::kError, 3, "fc1", "grad:bias"}});
  CHECK(contains(text_of(repeated()), "fc1.weight has the bits of step 2, although"));
}

TEST_CASE("check stale-gradient: what may come again is silent", "[check][stale]") {
  Training same_flow = training(5);  // equal gradients are made of equal ones
  for (const char* slot : {"grad_output:0", "grad:weight", "grad:bias"})
    same_flow.at(3, "fc1", slot).values = same_flow.at(2, "fc1", slot).values;
  CHECK(quiet(same_flow));
  for (const float number : {0.0F, -0.0F, 0.5F}) {
    Training constant = training(5);
    for (const uint32_t step : {2U, 3U})
      constant.at(step, "fc1", "grad:weight").values.assign(64, number);
    CHECK(quiet(constant));
  }
  Training no_flow = repeated();
  no_flow.erase({}, "fc1", "grad_output:0");
  CHECK(quiet(no_flow));
  Training few = training(5);
  for (const uint32_t step : {2U, 3U}) few.at(step, "fc1", "grad:bias").values = {1, 2, 3};
  CHECK(quiet(few));
  Training signs = training(5);
  for (const uint32_t step : {2U, 3U})
    for (float& value : signs.at(step, "fc1", "grad:weight").values) value = value < 0 ? -1 : 1;
  CHECK(quiet(repeated(signs)));
  Training hashed = repeated();
  hashed.at(3, "fc1", "grad:weight").capture = format::Capture::kHash;
  CHECK(quiet(hashed));
}

TEST_CASE("check stale-gradient: gradients that overflow alike are not stale", "[check][stale]") {
  // A GradScaler that looks for its scale: all elements are NaN in both steps.
  Training run = training(4);
  for (const uint32_t step : {0U, 1U}) {
    run.at(step, "fc1", "grad:weight").values.assign(64, kNan);
    run.at(step, "fc1", "grad_output:0").values[step] = kInfinity;
  }
  CHECK(quiet(run));
}

TEST_CASE("check stale-gradient: calls are compared by what came back, not by their numbers",
          "[check][stale]") {
  // A look at a shape comes before the training: its call has number 0 in that step alone.
  Training look = training(5);
  look.at(2, "fc1", "grad_output:0").call = 1;
  look.at(2, "fc1", "input:0").call = 1;
  for (const char* slot : {"grad_output:0", "grad:weight", "grad:bias"})
    look.at(3, "fc1", slot).values = look.at(2, "fc1", slot).values;
  CHECK(quiet(look));
  // Of two calls one had the same gradient before.
  Training half = repeated();
  StatsSpec again = half.at(2, "fc1", "grad_output:0");
  again.call = 1;
  half.value(3, again);
  CHECK(quiet(half));
  // A call that gave nothing to the loss has zeros in both, which hides nothing.
  Training unused = repeated();
  for (const uint32_t step : {2U, 3U})
    unused.value(step, {.scope = "fc1",
                        .slot = "grad_output:0",
                        .phase = Phase::kBackward,
                        .call = 1,
                        .values = std::vector<float>(32, 0)});
  CHECK(found(unused, kStale) == kOfWeight);
  // What an op inside the module got is not what the module got.
  Training with_op = repeated();
  for (const uint32_t step : {2U, 3U})
    with_op.value(step, {.scope = "fc1",
                         .slot = "grad_output:0",
                         .phase = Phase::kBackward,
                         .op = "MulBackward",
                         .capture = format::Capture::kHash,
                         .values = noise(1, 32)});
  CHECK(found(with_op, kStale) == kOfWeight);
}

TEST_CASE("check stale-gradient: a gradient of an output that came again in part proves nothing",
          "[check][stale]") {
  Training one = repeated();  // one known element
  one.at(3, "fc1", "grad_output:0").values[8] = one.at(2, "fc1", "grad_output:0").values[8];
  CHECK(quiet(one));
  Training zero = repeated();  // which says nothing if it is zero
  for (const uint32_t step : {2U, 3U}) zero.at(step, "fc1", "grad_output:0").values[8] = 0;
  CHECK(found(zero, kStale) == kOfWeight);
  Training signs = repeated();  // few sizes, as an absolute error has them
  for (const uint32_t step : {2U, 3U})
    for (size_t i = 0; i < 32; ++i)
      signs.at(step, "fc1", "grad_output:0").values[i] = (i / 4 + step) % 2 == 0 ? 0.5F : -0.5F;
  CHECK(quiet(signs));
  Training rounding = repeated();  // a change that a sum rounds away
  rounding.at(3, "fc1", "grad_output:0").values = rounding.at(2, "fc1", "grad_output:0").values;
  for (float& value : rounding.at(3, "fc1", "grad_output:0").values) value *= 1 + 0x1p-23F;
  CHECK(quiet(rounding));
}

TEST_CASE("check stale-gradient: a parameter that did not move, or inputs of zeros",
          "[check][stale]") {
  Training still = repeated();  // a learning rate of 0: what a penalty gives stays
  still.at(2, "fc1", "param:weight", Phase::kOptimizer).values =
      still.at(1, "fc1", "param:weight", Phase::kOptimizer).values;
  CHECK(quiet(still));
  Training unseen = repeated();
  unseen.erase({}, "fc1", "param:weight", Phase::kOptimizer);
  CHECK(quiet(unseen));
  Training zeros = repeated();
  zeros.at(3, "fc1", "input:0").values.assign(32, 0);
  CHECK(quiet(zeros));
  // Of most inputs a hash is recorded; the numbers are those of the value with this hash.
  Training hashed = repeated();
  hashed.at(3, "fc1", "input:0").capture = format::Capture::kHash;
  CHECK(found(hashed, kStale) == kOfWeight);
  Training nowhere = repeated();
  nowhere.at(3, "fc1", "input:0").capture = format::Capture::kHash;
  nowhere.at(3, "fc1", "input:0").values = noise(99, 32);
  CHECK(quiet(nowhere));
}

TEST_CASE("check stale-gradient: a sum of many elements may round, a few ulps apart",
          "[check][stale]") {
  const auto nearly = [](size_t count, double factor) {
    Training run = training(5);
    for (uint32_t step = 0; step < 5; ++step) {
      StatsSpec& weight = run.at(step, "fc1", "grad:weight");
      weight.values = noise(step + 1, count);
      StatsSpec& flow = run.at(step, "fc1", "grad_output:0");
      if (step == 3) flow.values = scaled(run.at(2, "fc1", "grad_output:0").values, factor);
    }
    return repeated(run);
  };
  // One bit an element proves something of 2,048 elements, eight of 64.
  CHECK(found(nearly(2048, 1 + 0x1p-22), kStale) == kOfWeight);
  CHECK(quiet(nearly(64, 1 + 0x1p-22)));
  CHECK(found(nearly(64, 1 + 0x1p-15), kStale) == kOfWeight);
}

/// Values as f16 (11 digits, steps of 2^-24 at least) or bf16 (8 digits) has them, stored as f32.
std::vector<float> rounded(std::vector<float> values, int digits, int least = -200) {
  for (float& value : values) {
    int exponent = 0;
    std::ignore = std::frexp(value, &exponent);
    const int step = std::max(exponent - digits, least);
    value = std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
  }
  return values;
}

TEST_CASE("check stale-gradient: f32 that holds fewer bits hides what it was rounded to",
          "[check][stale]") {
  // What gradients are made of changed by `change`, or altogether.
  const auto coarse = [](int digits, double change, float size = 1, int least = -200) {
    Training run = layer();
    for (uint32_t step = 0; step < 5; ++step) {
      auto& values = run.at(step, "fc1", "grad:weight").values;
      values = rounded(scaled(noise(step + 1, 64), size), digits, least);
    }
    if (change != 0)
      run.at(3, "fc1", "grad_output:0").values =
          scaled(run.at(2, "fc1", "grad_output:0").values, 1 + change);
    return run;
  };
  CHECK(found(repeated(coarse(24, 0x1p-10)), kStale) == kOfWeight);
  CHECK(quiet(repeated(coarse(11, 0x1p-10))));
  CHECK(found(repeated(coarse(11, 0x1p-5)), kStale) == kOfWeight);
  CHECK(quiet(repeated(coarse(8, 0x1p-5))));
  for (const int digits : {24, 11, 8})
    CHECK(found(repeated(coarse(digits, 0)), kStale) == kOfWeight);
  INFO("numbers of which f16 has few digits");
  CHECK(found(repeated(coarse(11, 0x1p-5, 0x1p-13F, -24)), kStale) == kOfWeight);
  CHECK(quiet(repeated(coarse(11, 0x1p-5, 0x1p-20F, -24))));
  const auto with_large = [&](int least) {  // one element of 4,096 has all digits
    Training run = coarse(11, 0x1p-8);
    for (const uint32_t step : {2U, 3U}) {
      StatsSpec& gradient = run.at(step, "fc1", "grad:weight");
      gradient.shape = {{8, 512}};
      gradient.values = rounded(scaled(noise(step + 1, 4096), 0x1p-20F), 11, least);
      gradient.values[9] = 0x401p-20F;
    }
    return repeated(run);
  };
  CHECK(found(with_large(-200), kStale) == kOfWeight);
  CHECK(quiet(with_large(-24)));
  INFO("rows and samples");
  CHECK(found(ranges({2}, coarse(24, 0x1p-10)), kStale) == kOfWeight);
  CHECK(quiet(ranges({2}, coarse(11, 0x1p-10))));
  CHECK(found(ranges({2}, coarse(11, 0)), kStale) == kOfWeight);
  CHECK(found(elements({0, 8, 16, 24, 32}, coarse(24, 0x1p-10)), kStale) == kOfWeight);
  CHECK(quiet(elements({0, 8, 16, 24, 32}, coarse(11, 0x1p-10))));
  CHECK(found(elements({0, 8, 16, 24, 32}, coarse(11, 0)), kStale) == kOfWeight);
  INFO("one known element with all bits says that nothing was rounded");
  Training one = coarse(11, 0x1p-10);
  one.at(2, "fc1", "grad:weight").values[8] = noise(3, 64)[8];
  CHECK(found(repeated(one), kStale) == kOfWeight);
  INFO("what the outputs got may hold fewer bits, too");
  Training flow = repeated(coarse(24, 0x1p-5));
  for (const uint32_t step : {2U, 3U}) {
    auto& values = flow.at(step, "fc1", "grad_output:0").values;
    values = rounded(values, 8);
  }
  CHECK(quiet(flow));
}

TEST_CASE("check stale-gradient: rows have the bits of the step before", "[check][stale]") {
  CHECK(found(ranges({2}), kStale) == kOfWeight);
  CHECK(contains(text_of(ranges({2})), "in 2 of its 8 rows, from row 4 on"));
  CHECK(contains(text_of(ranges({0, 3})), "in 4 of its 8 rows, from row 0 on"));
  // Sixteen ranges of half a row: of 3, 4 and 5 the last two are one.
  CHECK(contains(text_of(ranges({3, 4, 5}, layer(), 16)), "in 1 of its 8 rows, from row 2 on"));
  CHECK(quiet(ranges({3, 4}, layer(), 16)));
  CHECK(quiet(ranges({})));
}

TEST_CASE("check stale-gradient: rows that may come again are silent", "[check][stale]") {
  const auto changed = [](const std::function<void(Training&)>& change) {
    Training run = ranges({2});
    change(run);
    return run;
  };
  INFO("the weights of these rows are as they were");
  CHECK(quiet(changed([](Training& run) {
    run.at(2, "fc1", "param:weight", Phase::kOptimizer).range_hashes[2] = 152;
  })));
  INFO("the inputs are as they were, or one known element of them");
  CHECK(quiet(changed([](Training& run) {
    run.at(3, "fc1", "input:0").values = run.at(2, "fc1", "input:0").values;
  })));
  CHECK(quiet(changed([](Training& run) {
    run.at(3, "fc1", "input:0").values[4] = run.at(2, "fc1", "input:0").values[4];
  })));
  INFO("an output may have no gradient at all");
  CHECK(quiet(changed([](Training& run) {
    for (const size_t i : {1U, 2U}) run.at(3, "fc1", "grad_output:0").values[i] = 0;
  })));
  INFO("a row may be zeros; the same content stands elsewhere, too");
  CHECK(quiet(changed([](Training& run) {
    for (size_t i = 1; i < 9; ++i) run.at(3, "fc1", "grad:weight").values[i] = 0;
  })));
  CHECK(
      quiet(changed([](Training& run) { run.at(3, "fc1", "grad:weight").range_hashes[0] = 202; })));
  INFO("a limit for each element");
  CHECK(quiet(changed([](Training& run) {
    for (const uint32_t step : {2U, 3U}) run.at(step, "fc1", "grad:weight").values[60] = 2;
  })));
  INFO("no layer, another layout, modules below it");
  CHECK(quiet(changed([](Training& run) { run.at(3, "fc1", "grad:weight").shape = {{64}}; })));
  CHECK(quiet(changed([](Training& run) { run.at(3, "fc1", "input:0").shape = {{8, 4}}; })));
  CHECK(quiet(changed([](Training& run) { run.at(3, "fc1", "grad_output:0").shape = {{8, 4}}; })));
  CHECK(quiet(changed([](Training& run) {
    run.erase_fact("class").fact(0, "fc1", "class", "torch.nn.modules.conv.ConvTranspose1d");
  })));
  CHECK(quiet(changed(
      [](Training& run) { run.fact(0, "fc1.inner", "class", "torch.nn.modules.linear.Linear"); })));
}

TEST_CASE("check stale-gradient: three samples have the bits of the step before",
          "[check][stale]") {
  // Samples are the first elements of the rows.
  CHECK(found(elements({0, 8, 16}), kStale) == kOfWeight);
  CHECK(contains(text_of(elements({0, 8, 16})), "in 3 of 8 samples"));
  CHECK(quiet(elements({0, 8, 17})));
  Training moved = elements({0, 8, 16});
  moved.at(2, "fc1", "param:weight", Phase::kOptimizer).values[8] =
      moved.at(1, "fc1", "param:weight", Phase::kOptimizer).values[8];
  CHECK(quiet(moved));  // the weight there is as it was
  Training one_size = layer();
  for (const uint32_t step : {2U, 3U})
    for (const size_t i : {0U, 8U, 16U})
      one_size.at(step, "fc1", "grad:weight").values[i] = i == 8 ? -0.5F : 0.5F;
  CHECK(quiet(one_size));
  Training zeros = layer();
  for (const uint32_t step : {2U, 3U})
    for (const size_t i : {0U, 8U, 16U}) zeros.at(step, "fc1", "grad:weight").values[i] = -0.0F;
  CHECK(quiet(zeros));
  // Known elements of the inputs are in columns 0 and 4. In column 0 they are zeros here.
  Training other = elements({0, 8, 16});
  for (const uint32_t step : {2U, 3U})
    for (const size_t i : {0U, 8U, 16U, 24U}) other.at(step, "fc1", "input:0").values[i] = 0;
  CHECK(quiet(other));
  Training halves = elements({0, 8, 16});
  for (const uint32_t step : {2U, 3U})
    halves.at(step, "fc1", "grad:weight").dtype = format::DType::kBF16;
  CHECK(quiet(halves));
}

TEST_CASE("check stale-gradient: a convolution's rows are of its output channels",
          "[check][stale]") {
  // Two pictures of two channels of 2 x 4 to four channels, by kernels of 2 x 4.
  Training run = elements({0, 16, 32});
  for (Entry& entry : run.entries) {
    if (entry.value.scope != "fc1") continue;
    if (entry.value.slot == "input:0") entry.value.shape = {{2, 2, 2, 4}};
    if (entry.value.slot == "grad_output:0") entry.value.shape = {{2, 4, 2, 2}};
    if (entry.value.slot.ends_with(":weight")) entry.value.shape = {{4, 2, 2, 4}};
  }
  CHECK(found(run, kStale) == kOfWeight);
  for (uint32_t step = 0; step < 5; ++step) run.at(step, "fc1", "input:0").shape = {{2, 4, 2, 2}};
  CHECK(quiet(run));  // of groups
}

}  // namespace
}  // namespace convtrace::test
