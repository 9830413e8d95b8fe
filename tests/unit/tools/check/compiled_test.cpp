#include <string>
#include <utility>

#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

const std::string kOp = "inductor::cpp_fused_tanh";
const std::string kNorm = "inductor::cpp_fused__native_batch_norm_legit_functional_relu";

StatsSpec operand(std::string slot, std::vector<float> values, uint64_t storage,
                  const std::string& op = kOp) {
  return {.scope = "h.0",
          .slot = std::move(slot),
          .op = op,
          .value = {.storage = storage, .generation = storage},
          .address = 4096 * storage,
          .values = std::move(values)};
}

/// Steps of one kernel, which writes out_ptr0 of in_ptr0 and in_ptr1.
check::CheckResult kernel_steps(
    const std::function<StatsSpec(uint32_t, std::string, StatsSpec)>& change,
    const std::string& made = "out_ptr0<in_ptr0,in_ptr1") {
  return checked(
      [&](TraceBuilder& trace) {
        trace.fact("compiled.h.0." + kOp, "cpp_fused_tanh_3 [tanh] model.py:7 region 0/0 forward");
        trace.fact("compiled_made.h.0." + kOp, made);
        for (uint32_t step = 0; step < 4; ++step) {
          trace.step(step);
          for (const auto& [slot, seed] :
               {std::pair{"input:in_ptr0", 1U}, {"input:in_ptr1", 2U}, {"output:out_ptr0", 3U}}) {
            const StatsSpec spec = operand(slot, noise(10 * step + seed, 32), 10 * step + seed);
            trace.stats(change(step, slot, spec));
          }
        }
      },
      {"stale-region", "dropped-write"});
}

StatsSpec as_it_is(uint32_t, const std::string&, StatsSpec spec) { return spec; }

/// The output of step 2 has the bits of step 1.
StatsSpec stale(uint32_t step, const std::string& slot, StatsSpec spec) {
  if (step == 2 && slot == "output:out_ptr0") spec.values = noise(13, 32);
  return spec;
}

TEST_CASE("check stale-region: a kernel's output has the bits of the step before",
          "[check][region]") {
  const check::CheckResult result = kernel_steps(stale);
  CHECK(found(result) == List{{"stale-region", Severity::kError, 2, "h.0", "output:out_ptr0"}});
  CHECK(contains(result.findings.at(0).text,
                 "kernel cpp_fused_tanh_3 of module h.0, region 0/0 forward"));
}

TEST_CASE("check stale-region: what may repeat is silent", "[check][region]") {
  CHECK(found(kernel_steps(as_it_is)).empty());
  CHECK(judged(kernel_steps(as_it_is), "stale-region") != 0);
  INFO("made of an operand that is as it was, of none, or of unknown ones");
  CHECK(found(kernel_steps([](uint32_t step, const std::string& slot, StatsSpec spec) {
          if (step == 2 && slot == "input:in_ptr1") spec.values = noise(12, 32);
          return stale(step, slot, std::move(spec));
        })).empty());
  CHECK(found(kernel_steps(stale, "out_ptr0<")).empty());
  CHECK(found(kernel_steps(stale, "")).empty());
  for (const std::vector<float>& values :
       {std::vector<float>(32, 0.F), std::vector<float>(32, 3.F), noise(1, 8)}) {
    CHECK(found(kernel_steps([&](uint32_t, const std::string& slot, StatsSpec spec) {
            if (slot == "output:out_ptr0") spec.values = values;
            return spec;
          })).empty());
  }
  std::vector<float> signs(32, 1.F);
  signs[3] = -1;
  CHECK(found(kernel_steps([&](uint32_t, const std::string& slot, StatsSpec spec) {
          if (slot == "output:out_ptr0") spec.values = signs;
          return spec;
        })).empty());
  INFO("16 bits hide a small change of what they are made of");
  CHECK(found(kernel_steps([](uint32_t step, const std::string& slot, StatsSpec spec) {
          spec.dtype = format::DType::kBF16;
          return stale(step, slot, std::move(spec));
        })).empty());
}

/// One step in which a kernel writes memory that an earlier value was in.
check::CheckResult reused(const std::vector<float>& held, const std::vector<float>& taken,
                          const std::vector<float>& written, bool reads = false) {
  return checked(
      [&](TraceBuilder& trace) {
        trace.step(0);
        trace.stats(operand("output:0", held, 7, "aten::mm"));
        trace.stats(operand("input:in_ptr0", taken, reads ? 7 : 8));
        trace.stats(operand("output:out_ptr0", written, 7));
      },
      {"dropped-write"});
}

TEST_CASE("check dropped-write: an output is what its memory held before", "[check][region]") {
  CHECK(found(reused(noise(1, 32), noise(2, 32), noise(1, 32))) ==
        List{{"dropped-write", Severity::kError, 0, "h.0", "output:out_ptr0"}});
}

TEST_CASE("check dropped-write: what may stay is silent", "[check][region]") {
  CHECK(found(reused(noise(1, 32), noise(2, 32), noise(3, 32))).empty());
  INFO("a copy; zeros; in place, where a ReLU of positive values changes nothing");
  CHECK(found(reused(noise(1, 32), noise(1, 32), noise(1, 32))).empty());
  CHECK(found(reused(std::vector<float>(32), noise(2, 32), std::vector<float>(32))).empty());
  CHECK(found(reused(noise(1, 32), noise(1, 32), noise(1, 32), true)).empty());
}

TEST_CASE("check dropped-write: a view that the generated code gives up", "[check][region]") {
  const check::CheckResult result = checked(
      [](TraceBuilder& trace) {
        trace.fact("compiled_dropped.h.0." + kOp, "cpp_fused_tanh_3 buf3 buf13");
        trace.step(0);
        trace.stats(operand("output:out_ptr0", noise(1, 32), 7));
      },
      {"dropped-write"});
  REQUIRE(found(result).size() == 1);
  CHECK(result.findings[0].scope == "h.0");
  CHECK(contains(result.findings[0].text,
                 "cpp_fused_tanh_3 computes for buf3, a part of buf13, is never written there"));
}

/// Four steps of a batch norm whose running mean stays as it is from a step on.
check::CheckResult norm_steps(uint32_t mean_stays_from, uint32_t variance_stays_from) {
  return checked(
      [&](TraceBuilder& trace) {
        for (uint32_t step = 0; step < 4; ++step) {
          const auto at = [step](uint32_t stays, uint32_t seed) {
            return noise(100 * seed + std::min(step, stays), 32);
          };
          trace.step(step);
          trace.stats(operand("input:in_ptr0", noise(step, 32), 20 + step, kNorm));
          trace.stats(operand("input:in_ptr1", at(mean_stays_from, 1), 1, kNorm));
          trace.stats(operand("input:in_ptr2", at(variance_stays_from, 2), 2, kNorm));
          const auto next = [step](uint32_t stays, uint32_t seed) {
            return noise(100 * seed + std::min(step + 1, stays), 32);
          };
          trace.stats(operand("output:out_ptr2", next(mean_stays_from, 1), 1, kNorm));
          trace.stats(operand("output:out_ptr4", next(variance_stays_from, 2), 2, kNorm));
        }
      },
      {"dropped-write"});
}

TEST_CASE("check dropped-write: running statistics that stay, while others move",
          "[check][region]") {
  CHECK(found(norm_steps(0, 9)) ==
        List{{"dropped-write", Severity::kError, 1, "h.0", "output:out_ptr2"}});
  CHECK(found(norm_steps(9, 9)).empty());
  INFO("a momentum of 0: no statistics ever move");
  CHECK(found(norm_steps(0, 0)).empty());
}

}  // namespace
}  // namespace convtrace::test
