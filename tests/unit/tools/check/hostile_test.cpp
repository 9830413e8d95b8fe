#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "tests/support/event_generator.h"
#include "tests/unit/tools/check/check_run.h"
#include "tools/check/report/reports.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

constexpr const char* kSlots[] = {
    "input:0",    "output:0",  "grad_output:0",         "param:weight", "grad:weight",    "loss",
    "loss_scale", "grad:bias", "grad_unclipped:weight", "buffer:mean",  "param:group0.1", ""};
constexpr const char* kFacts[] = {
    "class", "mode",   "mode.evaluation", "optimizer.0.0.lr", "optimizer.0.class",
    "tied",  "frozen", "rng.torch"};
constexpr const char* kScopes[] = {"", "fc1", "fc1.act", "fc2"};
constexpr uint64_t kHuge = uint64_t{1} << 63;
constexpr double kNanD = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfD = std::numeric_limits<double>::infinity();

/// All forms of what a hostile trace gives; none may fail.
void write_all(const check::CheckResult& result) {
  std::ostringstream out;
  write_text(result, {}, out);
  write_html(result, out);
  write_junit(result, out);
  out << tools::dump_json(json_of(result), 2);
  CHECK_FALSE(out.str().empty());
}

/// A training of which every record has the statistics that `change` makes of its own.
Training absurd(uint32_t steps, const std::function<void(format::Stats&, uint32_t)>& change) {
  Training run = training(steps);
  for (Entry& entry : run.entries) {
    if (!entry.fact.empty()) continue;
    entry.value.stats = stats_of(entry.value.values);
    entry.value.values.clear();
    change(entry.value.stats, entry.step);
  }
  return run;
}

TEST_CASE("check hostile: counts of 2^63", "[check][hostile]") {
  for (const auto dtype : {format::DType::kF32, format::DType::kF16, format::DType::kI64}) {
    Training run = absurd(10, [](format::Stats& stats, uint32_t step) {
      stats.count = stats.finite = stats.saturated = stats.subnormal = kHuge;
      stats.pos_zero = stats.neg_zero = kHuge + step;  // their sum overflows
      stats.nan = stats.pos_inf = stats.neg_inf = kHuge;
    });
    for (Entry& entry : run.entries) entry.value.dtype = dtype, entry.value.bytes = kHuge;
    write_all(checked(run));
  }
}

TEST_CASE("check hostile: numbers that are none", "[check][hostile]") {
  for (const double number : {kNanD, kInfD, -kInfD, -1.0, 0.0, 1e308, 5e-324}) {
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{64}, kHuge}) {
      Training run = absurd(12, [&](format::Stats& stats, uint32_t step) {
        stats.count = stats.finite = count;
        stats.l2 = stats.mean = stats.std = number * std::pow(1.6, step);
        stats.sum = stats.l1 = format::WideScalar::f64(number);
        stats.min = stats.max = stats.amax = format::Scalar::f64(number);
      });
      write_all(checked(run));
    }
  }
}

TEST_CASE("check hostile: an overflow that is never near is not told", "[check][hostile]") {
  for (const double amax : {0.0, kNanD, 5e-324, -1.0}) {
    for (const double start : {1.0, kInfD}) {
      Training run = absurd(12, [&](format::Stats& stats, uint32_t step) {
        stats.count = stats.finite = 64;
        stats.l2 = step == 0 ? 1 : start * std::pow(1.6, step);
        stats.amax = format::Scalar::f64(amax);
      });
      const check::CheckResult result = checked(run, {"norm-growth"});
      for (const check::Finding& finding : result.findings) {
        INFO(finding.text);
        CHECK_FALSE(contains(finding.text, "922337203685477"));  // what no integer holds
        CHECK_FALSE(contains(finding.text, "1844674407370955"));
      }
      write_all(result);
    }
  }
}

TEST_CASE("check hostile: sketches at the ends of their exponents", "[check][hostile]") {
  for (const int16_t exponent : {int16_t{-32767}, int16_t{0}, int16_t{32767}}) {
    Training run = training(4);
    run.fact(0, "act", "class", "torch.nn.modules.activation.ReLU");
    for (uint32_t call = 0; call < 2; ++call) {
      StatsSpec value{.scope = "act", .slot = "input:0", .call = call, .values = noise(1, 32)};
      run.before(1, "", "loss", value);
      value.slot = "output:0";
      value.stats = stats_of(noise(call, 32));
      value.stats.sketch.exponent = exponent;
      value.stats.sketch.bucket.fill(call == 0 ? kInfinity : kNan);
      value.values.clear();
      run.before(1, "", "loss", value);
    }
    const check::CheckResult result = checked(run, {"not-repeatable"});
    CHECK(found(result).size() == 1);
    write_all(result);
  }
}

TEST_CASE("check hostile: more ranges than the format has", "[check][hostile]") {
  Training run = training(5);
  for (uint32_t step = 0; step < 5; ++step) {
    std::vector<uint64_t> ranges(step == 2 ? 5000 : 256);
    for (size_t i = 0; i < ranges.size(); ++i) ranges[i] = i + 1000 * step;
    run.at(step, "fc1", "grad:weight").range_hashes = ranges;
  }
  write_all(checked(run));
  for (uint32_t step = 0; step < 5; ++step)
    run.at(step, "fc1", "grad:weight").range_hashes.assign(256, 7);
  CHECK(silent(run, "stale-gradient"));
}

TEST_CASE("check: steps whose records cross are put in order", "[check][hostile]") {
  Training run = training(6);
  run.at(3, "fc1", "grad:weight").values = run.at(2, "fc1", "grad:weight").values;
  // Steps 2, 4, 5, 3: within what is waited for.
  Training crossed = run;
  std::ranges::stable_sort(crossed.entries, {}, [](const Entry& entry) {
    return entry.step == 3 ? 5.5 : static_cast<double>(entry.step);
  });
  CHECK(found(crossed) == found(run));
  CHECK(found(run).size() == 1);
}

TEST_CASE("check: values that arrive when their step is judged prove nothing", "[check][hostile]") {
  Training run = training(8);
  // The updates of step 1 come with step 6.
  std::ranges::stable_sort(run.entries, {}, [](const Entry& entry) {
    const bool late = entry.step == 1 && entry.value.phase == Phase::kOptimizer;
    return late ? 6.5 : static_cast<double>(entry.step);
  });
  CHECK(found(run) == List{});
}

TEST_CASE("check: steps that threads share are not judged", "[check][hostile]") {
  Training run = training(6);
  run.at(3, "fc1", "grad:weight").values = run.at(2, "fc1", "grad:weight").values;
  // In turn, a step each.
  for (Entry& entry : run.entries) entry.value.thread = 1 + entry.step % 2;
  CHECK(found(run).size() == 1);
  CHECK(checked(run).notes.empty());
  // At once.
  run.at(2, "fc2", "param:bias", Phase::kOptimizer).thread = 2;
  const check::CheckResult result = checked(run);
  CHECK(found(result) == List{});
  CHECK(judged(result, "stale-gradient") == 0);
  REQUIRE(result.notes.size() == 1);
  CHECK(contains(result.notes[0], "threads train at once from step 2 on"));
}

TEST_CASE("check: records outside any step", "[check][hostile]") {
  Training none = training(4);
  for (Entry& entry : none.entries) entry.step = format::kNoStep;
  write_all(checked(none));
  // The initial weights stand before the first step, what follows a step belongs to it.
  Training run = training(5);
  for (Entry& entry : run.entries) {
    const bool initial =
        entry.value.slot.starts_with("param:") && entry.value.phase == Phase::kForward;
    if (initial || entry.step == 2) entry.step = format::kNoStep;
  }
  CHECK(found(run, "nan") == List{});
  write_all(checked(run));
  CHECK(checked(Training{}).steps == 0);
}

TEST_CASE("check: runs that begin or end far away", "[check][hostile]") {
  for (const uint32_t base : {1000U, 0x7FFFFFFDU, 0xFFFFFFF0U, 0xFFFFFFFAU}) {
    Training run = training(5);
    run.at(3, "fc1", "grad:weight").values = run.at(2, "fc1", "grad:weight").values;
    for (Entry& entry : run.entries) entry.step += base;
    INFO(base);
    CHECK(found(run) == List{{"stale-gradient", Severity::kError, base + 3, "fc1", "grad:weight"}});
  }
  // Numbers from everywhere.
  Training wild = training(40);
  for (Entry& entry : wild.entries) entry.step = entry.step * 2'654'435'761U;
  const check::CheckResult result = checked(wild);
  CHECK(result.values == checked(training(40)).values);
  write_all(result);
}

TEST_CASE("check hostile: facts that are none", "[check][hostile]") {
  Training run = training(6);
  for (const char* name :
       {"optimizer.", "optimizer..lr", "optimizer.0", "optimizer.0.", "optimizer.-1.0.lr",
        "optimizer.99999999999999999999.0.lr", "optimizer.0.4294967295.lr", "optimizer.1.0.lr"}) {
    for (const char* text : {"nan", "inf", "-inf", "1e999", "", "0x10", "-0", "1e-320"})
      for (uint32_t step = 0; step < 6; ++step) run.fact(step, {}, name, text);
  }
  for (const char* name : {"tied", "frozen", "class", "attributes", "mode", "mode.evaluation", ""})
    for (const char* text :
         {"", ",", ", ", "=", "weight=", ", , ,", "weight, bias", "....", "torch.nn.modules."})
      for (const char* scope : {"", "fc1", ".", "fc1."}) run.fact(2, scope, name, text);
  std::ranges::stable_sort(run.entries, {}, &Entry::step);
  write_all(checked(run));
}

TEST_CASE("check hostile: any values at the places of a training", "[check][hostile]") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    const check::CheckResult result = checked([seed](TraceBuilder& trace) {
      format::Definitions& names = trace.definitions();
      EventGenerator random(seed, names);
      for (uint32_t i = 0; i < 500; ++i) {
        const uint32_t step = random.below(40) == 0 ? format::kNoStep : i / 40 + 1;
        const format::StringId scope = names.intern(kScopes[random.below(std::size(kScopes))]);
        if (random.below(8) == 0) {
          auto fact = std::get<format::Fact>(random.make(format::kKindOf<format::Fact>));
          fact.header.step = step;
          fact.scope = random.below(3) == 0 ? format::StringId{} : scope;
          fact.name = names.intern(kFacts[random.below(std::size(kFacts))]);
          trace.event(fact);
          continue;
        }
        auto value =
            std::get<format::TensorStats>(random.make(format::kKindOf<format::TensorStats>));
        value.header.step = step;
        value.place.scope = scope;
        value.place.call = static_cast<uint32_t>(random.below(3));
        value.slot = names.intern(kSlots[random.below(std::size(kSlots))]);
        value.op = {}, value.kernel = {};
        trace.event(value);
      }
    });
    write_all(result);
  }
}

TEST_CASE("check hostile: ranks that repeat, and a rank far away", "[check][hostile]") {
  std::vector<Training> ranks(4, training(4, 1));
  ranks[3].rank = 0xFFFFFFF0U;
  ranks[3].at(2, "fc2", "param:weight").values[0] += 1;
  ranks[0].entries.clear();
  write_all(checked(ranks));
}

TEST_CASE("check hostile: thousands of calls of one module take no time", "[check][hostile]") {
  constexpr uint32_t kCalls = 2000;
  Training run = training(2);
  run.fact(0, "cell", "class", "torch.nn.modules.activation.Tanh");
  const auto end = std::ranges::find(run.entries, 1U, &Entry::step);
  std::vector<Entry> calls;
  for (uint32_t call = 0; call < kCalls; ++call)
    for (const char* slot : {"input:0", "output:0"})
      calls.push_back({.step = 0,
                       .value = {.scope = "cell",
                                 .slot = slot,
                                 .call = call,
                                 .values = {static_cast<float>(call), 1}}});
  for (uint32_t flow = 0; flow < 5 * kCalls; ++flow)
    calls.push_back({.step = 0,
                     .value = {.scope = "cell",
                               .slot = "grad_output:0",
                               .phase = Phase::kBackward,
                               .call = flow,
                               .values = {static_cast<float>(flow), 2}}});
  run.entries.insert(end, calls.begin(), calls.end());
  const auto begin = std::chrono::steady_clock::now();
  CHECK(found(run) == List{});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

}  // namespace
}  // namespace convtrace::test
