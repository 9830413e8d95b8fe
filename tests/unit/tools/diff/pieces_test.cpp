#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tests/unit/tools/diff/compared.h"
#include "tests/unit/tools/diff/ranks.h"
#include "tools/common/element.h"
#include "tools/trace/model/pieces.h"

namespace convtrace::test {
namespace {

using diff::DiffResult;
using diff::Verdict;
using format::DType;
using format::Phase;

TEST_CASE("whole: hashes of pieces alone are no agreement", "[diff][whole]") {
  const Numbers w = numbers(2);
  const auto step = [](const Numbers& values) -> Step {
    StatsSpec spec = value("fc", "param:weight", values);
    spec.capture = format::Capture::kHash;
    return {spec, value("fc", "input:0", numbers(1))};
  };
  const DiffResult same = compared({step(w)}, {step(part(w, 0, 2)), step(part(w, 1, 2))});
  CHECK(same.verdict == Verdict::kSame);  // one behind the other
  const DiffResult other = compared({step(w)}, {step(part(w, 1, 2)), step(part(w, 0, 2))});
  CHECK(other.verdict == Verdict::kIncomplete);
}

/// Three steps of four parameters on one rank and in halves on two. @param changed  what rank 1 of
/// the two does to an update of an element: step, number of the parameter, the weight, the update
DiffResult trained(const std::function<float(uint32_t, uint32_t, float, float)>& changed,
                   float gradient_of_half = 1) {
  const TempDir base, cand;
  for (size_t rank = 0; rank < 3; ++rank) {
    const bool one = rank == 2;
    TraceBuilder trace((one ? base : cand) / (std::to_string(rank) + ".ctrace"));
    trace.rank(one ? 0 : static_cast<uint32_t>(rank), one ? 1 : 2);
    std::vector<Numbers> weights;
    for (uint32_t m = 0; m < 4; ++m) weights.push_back(numbers(m, 256));
    for (uint32_t step = 0; step < 3; ++step) {
      trace.step(step);
      for (uint32_t m = 0; m < 4; ++m) {
        const std::string scope = "fc" + std::to_string(m);
        Numbers &w = weights[m], g = numbers(100 + m + step, 256);
        const size_t half = g.size() / 2;
        for (size_t i = half; i < g.size(); ++i) g[i] *= gradient_of_half;
        const auto add = [&](const char* slot, const Numbers& values, Phase phase) {
          trace.stats(value(scope.c_str(), slot, one ? values : part(values, rank, 2), phase));
        };
        if (step == 0) add("param:weight", w, Phase::kForward);
        add("grad:weight", g, Phase::kBackward);
        for (size_t i = 0; i < w.size(); ++i)
          w[i] = !one && rank == 1 && i >= half ? changed(step, m, w[i], w[i] - 0.05F * g[i])
                                                : w[i] - 0.05F * g[i];
        add("param:weight", w, Phase::kOptimizer);
      }
    }
    trace.close();
  }
  diff::DiffInputs inputs{.base = base / ".", .cand = cand / "."};
  DiffResult result;
  std::string error;
  REQUIRE(diff::run_diff(inputs, nullptr, result, error));
  return result;
}

TEST_CASE("whole: an optimizer's fault on one rank is seen where weights are in pieces",
          "[diff][whole]") {
  for (const float factor : {1.0F, 0.98F}) {
    const DiffResult result = trained([factor](uint32_t, uint32_t, float before, float after) {
      return after - (1 - factor) * before;
    });
    CHECK(result.verdict == (factor == 1 ? Verdict::kSame : Verdict::kDiverged));
    if (factor != 1) CHECK(result.root->record.step == 0);
  }
}

TEST_CASE("whole: a piece that one rank did not update is seen in that step", "[diff][whole]") {
  const auto held_back = [](uint32_t step, uint32_t m, float before, float after) {
    return step == 1 && m == 2 ? before : after;
  };
  const DiffResult result = trained(held_back);
  CHECK(where(result) == Where{1, Phase::kOptimizer, "fc2", "param:weight"});
  REQUIRE(result.root->holder);
  CHECK(result.root->holder->rank == 1);
  CHECK(result.root->updates.wrong == 1);
  // What has no gradient, or one whose update is lost in rounding, is not updated by anybody.
  for (const float gradient : {0.0F, 1e-7F}) {
    const auto none = [](uint32_t, uint32_t, float before, float) { return before; };
    CHECK(trained(none, gradient).verdict == Verdict::kSame);
  }
}

/// Every statistic that is defined for a piece, by the definitions.
void check_added(const Numbers& values, size_t pieces) {
  const format::Stats all = stats_of(values);
  format::Stats sum = stats_of(part(values, 0, pieces));
  for (size_t i = 1; i < pieces; ++i)
    diff::add_piece(DType::kF32, sum, stats_of(part(values, i, pieces)));
  const auto near = [](double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-12 * (1 + std::abs(a));
  };
  CHECK(sum.count == all.count);
  CHECK(sum.finite == all.finite);
  CHECK(sum.nan == all.nan);
  CHECK(sum.pos_inf == all.pos_inf);
  CHECK(sum.pos_zero == all.pos_zero);
  CHECK(sum.negative == all.negative);
  for (format::Scalar format::Stats::*const one :
       {&format::Stats::min, &format::Stats::max, &format::Stats::amax,
        &format::Stats::amin_nonzero})
    CHECK(near((sum.*one).as_f64(), (all.*one).as_f64()));
  CHECK(near(sum.sum.as_f64(), all.sum.as_f64()));
  CHECK(near(sum.l1.as_f64(), all.l1.as_f64()));
  CHECK(near(sum.l2, all.l2));
  CHECK((all.finite == 0 ? std::isnan(sum.mean) : near(sum.mean, all.mean)));
  CHECK((all.finite == 0 ? std::isnan(sum.std) : std::abs(sum.std - all.std) < 1e-7));
}

TEST_CASE("whole: statistics of pieces are those of the whole", "[diff][whole]") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Numbers values = numbers(seed, 60);
    std::mt19937 engine(seed);
    for (float& one : values) {
      if (seed % 3 == 1 && engine() % 4 == 0) one = 0;
      if (seed % 5 == 2 && engine() % 8 == 0) one = std::numeric_limits<float>::quiet_NaN();
      if (seed % 7 == 3 && engine() % 8 == 0) one = std::numeric_limits<float>::infinity();
    }
    for (const size_t pieces : std::initializer_list<size_t>{1, 2, 3, 5, 12, 60})
      check_added(values, pieces);
  }
  check_added(Numbers(12, std::numeric_limits<float>::quiet_NaN()), 4);
  check_added(Numbers(12, 0.0F), 4);
}

TEST_CASE("whole: integers of pieces keep their signs and 128 bits", "[diff][whole]") {
  const auto of = [](int64_t low, int64_t high, uint64_t sum_low, uint64_t sum_high) {
    format::Stats stats;
    stats.count = stats.finite = 2;
    stats.min = format::Scalar::i64(low);
    stats.max = format::Scalar::i64(high);
    stats.amax = format::Scalar::u64(9);
    stats.sum = {sum_low, sum_high};
    return stats;
  };
  format::Stats sum = of(-9, -3, 0 - uint64_t{12}, ~uint64_t{0});
  diff::add_piece(DType::kI64, sum, of(4, 5, 9, 0));
  CHECK(sum.min.as_i64() == -9);
  CHECK(sum.max.as_i64() == 5);
  CHECK(tools::wide_as_double(DType::kI64, sum.sum) == -3);
  CHECK(sum.mean == -0.75);
  format::Stats zeros = of(0, 0, 0, 0);
  zeros.amin_nonzero = {};
  format::Stats ones = of(1, 1, 2, 0);
  ones.amin_nonzero = format::Scalar::u64(1);
  diff::add_piece(DType::kU8, zeros, ones);
  CHECK(zeros.amin_nonzero.as_u64() == 1);
  CHECK(zeros.min.as_u64() == 0);
}

}  // namespace
}  // namespace convtrace::test
