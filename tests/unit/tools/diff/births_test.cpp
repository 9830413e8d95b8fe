// Differences that were passed on, and those that were born.

#include <cmath>
#include <random>

#include "tests/unit/tools/diff/compared.h"
#include "tests/unit/tools/diff/noisy_runs.h"
#include "tools/diff/report/report_parts.h"

namespace {

using namespace convtrace;
using diff::Class;
using diff::DiffResult;
using diff::Verdict;
using format::DType;
using format::Phase;
using test::chain;
using test::compared;
using test::count;
using test::Item;
using test::kBF16;
using test::kF32;
using test::noisy;
using test::Run;
using test::taken;
using test::value;
using test::where;
using test::Where;
using test::with_type;

const Run kEqual = chain(0, 0);

}  // namespace

TEST_CASE("births: from the step on in which rounding has the size of the values nothing is judged",
          "[diff][births][text]") {
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  // In 6 layers rounding grows to more than a quarter of the values, in 3 it does not.
  const auto result_of = [](const std::vector<int>& layers_of_steps) {
    Run base, cand;
    for (Run* run : {&base, &cand}) {
      for (uint32_t step = 0; step < layers_of_steps.size(); ++step) {
        run->add(value(step, "0", "input:0", 0));
        double error = run == &cand ? 200 * kF32 : 0;
        for (int layer = 0; layer < layers_of_steps[step]; ++layer, error *= 7.5) {
          const std::string name = std::to_string(layer);
          const auto storage = static_cast<uint64_t>(10 + layer);
          if (layer != 0) run->add(taken(step, name.c_str(), error / 7.5, storage - 1));
          run->add(value(step, name.c_str(), "output:0", error, storage));
        }
      }
    }
    return compared(base, cand);
  };
  const DiffResult small = result_of({3, 3});
  CHECK(small.verdict == Verdict::kSame);
  CHECK_FALSE(has(diff::hidden_text(small), "a fault of any size"));

  const DiffResult late = result_of({3, 6});
  CHECK(late.verdict == Verdict::kCannotTell);
  CHECK(diff::headline(late) ==
        "CANNOT TELL: rounding has grown to the size of the values in step 1; what was compared "
        "before is the same but for rounding");
  CHECK(has(diff::hidden_text(late), "from step 1 on a fault of any size may look the same"));

  const DiffResult first = result_of({6, 6});
  CHECK(first.verdict == Verdict::kCannotTell);
  CHECK(to_string(first.verdict) == "cannot-tell");
  CHECK(diff::headline(first) ==
        "CANNOT TELL: rounding has grown to the size of the values in step 0, the first of both "
        "runs");
  CHECK(has(diff::hidden_text(first), "from step 0 on a fault of any size may look the same"));
  CHECK(has(diff::advice(first).front(), "in higher precision"));
}
TEST_CASE("births: rounding of the size of the values hides only what is made of them",
          "[diff][births]") {
  // In step 0 rounding grows to a fifth of the values; in step 1 it has `given` of them in front of the
  // last layer, which is wrong.
  const auto result_of = [](double given) {
    constexpr double kFirst = 200 * kF32;
    Run base, cand;
    for (Run* run : {&base, &cand}) {
      for (const uint32_t step : {0U, 1U}) {
        const double gain = step == 0 ? 7 : std::pow(given / kFirst, 1.0 / 5);
        double error = run == &cand ? kFirst : 0, before = 0;
        run->add(value(step, "0", "input:0", 0));
        for (int layer = 0; layer < (step == 0 ? 6 : 7); ++layer) {
          const std::string name = std::to_string(layer);
          const auto storage = static_cast<uint64_t>(10 + layer);
          if (layer != 0) run->add(taken(step, name.c_str(), before, storage - 1));
          run->add(value(step, name.c_str(), "output:0", error, storage));
          before = error;
          error *= layer == 5 ? 50 : gain;
        }
      }
    }
    return compared(base, cand);
  };
  const DiffResult small = result_of(0.01);
  CHECK(small.verdict == Verdict::kDiverged);
  CHECK(where(small) == Where{1, Phase::kForward, "6", "output:0"});
  CHECK(result_of(0.15).verdict == Verdict::kCannotTell);
  CHECK_FALSE(diff::hides_all(0.12));
  CHECK(diff::hides_all(std::nan("")));
}

TEST_CASE("births: what hides faults has grown, in the forward pass", "[diff][births][text]") {
  // A type in which rounding is as large as the values.
  const DiffResult coarse =
      compared(with_type(chain(0, 0), DType::kF8E5M2), with_type(chain(0, 0.1), DType::kF8E5M2));
  CHECK(coarse.verdict == Verdict::kSame);
  CHECK_FALSE(coarse.hidden.has_value());
  CHECK(diff::hidden_text(coarse).find("100 % of a tensor's size") != std::string::npos);
  // A loss whose terms cancel, and an op in the backward pass.
  for (const bool is_loss : {true, false}) {
    Run base = chain(0, 0), cand = chain(200 * kF32, 1000 * kF32);
    for (Run* run : {&base, &cand}) {
      double error = run == &cand ? 1000 * kF32 : 0;
      if (is_loss) {
        Item loss{.phase = Phase::kLoss, .slot = "loss", .values = {1e-7F}};
        if (run == &cand) loss.values = {-1e-7F};
        run->add(loss);
        continue;
      }
      for (int op = 0; op < 5; ++op, error *= 7) {
        for (const char* slot : {"input:0", "output:0"}) {
          Item item = value(0, "b", slot, slot[0] == 'i' ? error / 7 : error);
          item.phase = Phase::kBackward;
          item.op = "aten::op" + std::to_string(op);
          run->add(item);
        }
      }
    }
    const DiffResult result = compared(base, cand);
    INFO(is_loss);
    CHECK(result.verdict == Verdict::kSame);
    CHECK_FALSE(result.hidden);
    CHECK(result.carried.count >= (is_loss ? 2 : 3));
  }
}

TEST_CASE("births: what a value was made of explains eight times its difference",
          "[diff][births]") {
  const DiffResult grown = compared(kEqual, chain(200 * kF32, 1000 * kF32));
  CHECK(grown.verdict == Verdict::kSame);
  CHECK(count(grown, Class::kSuspicious) == 1);
  REQUIRE(grown.carried.count == 1);
  CHECK(grown.carried.first->scope == "b");
  CHECK(grown.carried.largest == Approx(1000 * kF32).epsilon(0.6));
  CHECK(where(compared(kEqual, chain(200 * kF32, 6000 * kF32))) ==
        Where{0, Phase::kForward, "b", "output:0"});
  CHECK(where(compared(kEqual, chain(0, 1000 * kF32))) ==
        Where{0, Phase::kForward, "b", "output:0"});
}

TEST_CASE("births: an update that one run alone has not made is no rounding", "[diff][births]") {
  // Of an optimizer of the program's own gradients are not recorded. Beside the update of fc2 that of
  // fc1 is small.
  const auto held = [](double moved, double before) {
    Run base = test::training();
    base.at(0, "fc1", "param:weight", 1).values = base.at(0, "fc1", "param:weight").values;
    for (const uint32_t step : {0U, 1U})
      for (const char* layer : {"fc1", "fc2"}) base.erase(step, layer, "grad:weight");
    Run cand = base;
    scale(base.at(0, "fc1", "param:weight", 1), 1 + moved);
    scale(cand.at(0, "", "loss"), 1 + before);
    return compared(base, cand);
  };
  const DiffResult found = held(1e-3, 0);
  REQUIRE(found.verdict == Verdict::kDiverged);
  CHECK(where(found) == Where{0, Phase::kOptimizer, "fc1", "param:weight"});
  CHECK(held(2e-7, 0).verdict == Verdict::kSame);
  CHECK(held(1e-3, 5e-7).verdict == Verdict::kSame);  // rounding may have led to another branch
}

TEST_CASE("births: each type has a roundoff of its own", "[diff][births]") {
  const auto verdict = [](DType dtype, double error) {
    return compared(with_type(kEqual, dtype), with_type(chain(0, error), dtype)).verdict;
  };
  CHECK(verdict(DType::kF32, 50 * kF32) == Verdict::kSame);
  CHECK(verdict(DType::kF32, 1000 * kF32) == Verdict::kDiverged);
  CHECK(verdict(DType::kBF16, 2 * kBF16) == Verdict::kSame);
  CHECK(verdict(DType::kBF16, 20 * kBF16) == Verdict::kDiverged);
}

TEST_CASE("births: a call that gives one value in 16 bits may have computed all of them so",
          "[diff][births]") {
  const auto run = [](DType first, double error) {
    Run made;
    made.add(value(0, "a", "input:0", 0));
    Item& narrow = made.add(value(0, "a", "output:0", 0));
    narrow.dtype = first;
    made.add(value(0, "a", "output:1", error));
    return made;
  };
  const auto verdict = [&](DType first, double error) {
    return compared(run(first, 0), run(first, error)).verdict;
  };
  CHECK(verdict(DType::kBF16, kBF16) == Verdict::kSame);
  CHECK(verdict(DType::kF32, kBF16) == Verdict::kDiverged);
  CHECK(verdict(DType::kBF16, 20 * kBF16) == Verdict::kDiverged);
}

TEST_CASE("births: a sketch in f32 says nothing of how little f64 differs", "[diff][births]") {
  // One small element is off, by too little for a sum in f32.
  const auto run = [](float first, float second) {
    Run made = with_type(chain(0, 0), DType::kF64);
    made.at(0, "a", "output:0").values[0] = 1e-4F * first;
    made.at(0, "b", "input:0").values[0] = 1e-4F * first;
    made.at(0, "b", "output:0").values[0] = 0.1F * second;
    return made;
  };
  const float other = 1 + 0x1p-22F;
  CHECK(where(compared(run(1, 1), run(1, other))) == Where{0, Phase::kForward, "b", "output:0"});
  CHECK(compared(run(1, 1), run(other, other)).verdict == Verdict::kSame);
}

TEST_CASE("births: a permutation leaves every average as it was and is one", "[diff][births]") {
  Run cand = kEqual;
  std::vector<float>& values = cand.at(0, "b", "output:0").values;
  std::rotate(values.begin(), values.begin() + 32, values.end());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const DiffResult result = compared(with_type(kEqual, dtype), with_type(cand, dtype));
    CHECK(where(result) == Where{0, Phase::kForward, "b", "output:0"});
    CHECK(result.root->record.comparison.field == diff::Field::kRms);
    CHECK(result.root->record.comparison.difference == Approx(std::sqrt(2.0)).epsilon(0.6));
  }
}

TEST_CASE("births: an output in 16 bits of equal values may not shift its mean", "[diff][births]") {
  Run base, cand;
  for (Run* run : {&base, &cand}) {
    run->add(value(0, "a", "input:0", 0));
    Item& output = run->add(value(0, "a", "output:0", 0));
    output.dtype = DType::kBF16;
    output.values = noisy(0, 1, 65536);
  }
  for (float& v : cand.items[1].values) v += 1.0F * static_cast<float>(kBF16);
  const DiffResult result = compared(base, cand);
  CHECK(result.verdict == Verdict::kDiverged);
  CHECK(result.root->record.comparison.field == diff::Field::kMean);
  Run inexact = cand, other = base;  // behind another difference it says nothing
  other.items[0].dtype = inexact.items[0].dtype = DType::kBF16;
  inexact.items[0].values = noisy(kBF16);
  CHECK(compared(other, inexact).verdict == Verdict::kSame);
}

TEST_CASE("births: code between modules has what the module around it was given as its sources",
          "[diff][births]") {
  const auto run = [](double given, double made, double last) {
    Run made_run;
    made_run.add(value(0, "block", "input:0", given));
    made_run.add(value(0, "block.qkv", "input:0", given));
    made_run.add(value(0, "block.qkv", "output:0", given));
    made_run.add(value(0, "block.out", "input:0", made));  // an attention's product
    made_run.add(value(0, "block.out", "output:0", last));
    made_run.add(value(0, "block", "output:0", last));
    return made_run;
  };
  const Run base = run(0, 0, 0);
  CHECK(where(compared(base, run(0, 1e-2, 1e-2))) ==
        Where{0, Phase::kForward, "block.out", "input:0"});
  CHECK(compared(base, run(1e-4, 4e-4, 4e-4)).verdict == Verdict::kDiverged);  // given differs
  CHECK(where(compared(base, run(1e-4, 4e-4, 4e-4))).scope == "block");
  CHECK(compared(base, run(100 * kF32, 700 * kF32, 700 * kF32)).verdict == Verdict::kSame);
}

TEST_CASE("births: a module's own parameters are sources, vectors by what they add",
          "[diff][births]") {
  const auto run = [](double gradient, double move, double own, double other) {
    Run made;
    const auto bias = [&](Phase phase, const char* slot, double by) {
      std::vector<float> values(64, 0.05F);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] += static_cast<float>(i % 2 == 0 ? by : -by);
      made.add({.phase = phase, .scope = "fc", .slot = slot, .values = values});
    };
    bias(Phase::kForward, "param:bias", 0);
    made.add(
        {.phase = Phase::kBackward, .scope = "fc", .slot = "grad_output:0", .values = noisy(0)});
    bias(Phase::kBackward, "grad:bias", gradient);
    bias(Phase::kOptimizer, "param:bias", move);
    made.add(value(1, "fc", "input:0", 0));
    made.add(value(1, "fc", "output:0", own));
    made.add(value(1, "free", "input:0", 0));
    made.add(value(1, "free", "output:0", other));
    return made;
  };
  const Run base = run(0, 0, 0, 0);
  const DiffResult moved = compared(base, run(1e-8, 1e-3, 1e-3, 0));
  CHECK(moved.verdict == Verdict::kSame);
  // The bias itself is apart by 2 %: it says nothing of how far rounding has grown.
  CHECK(moved.carried.largest == Approx(1e-3).epsilon(0.6));
  CHECK(where(compared(base, run(1e-8, 1e-3, 1e-3, 1e-3))).scope == "free");
  CHECK(where(compared(base, run(1e-8, 1e-3, 0.2, 0))).scope == "fc");
}

TEST_CASE("births: a loss is the average of as many rows as its sources have", "[diff][births]") {
  const auto run = [](double logits, double loss) {
    Run made;
    Item& out = made.add(value(0, "", "output:0", logits));
    out.shape = {64, 16};
    out.dtype = DType::kBF16;
    made.add({.phase = Phase::kLoss, .slot = "loss", .values = {static_cast<float>(4 + loss)}});
    return made;
  };
  CHECK(compared(run(0, 0), run(0, 1e-6)).verdict == Verdict::kSame);
  CHECK(where(compared(run(0, 0), run(0, 1e-3))).slot == "loss");
  CHECK(compared(run(0, 0), run(2 * kBF16, 1e-2)).verdict == Verdict::kSame);
  CHECK(where(compared(run(0, 0), run(2 * kBF16, 0.5))).slot == "loss");
}

TEST_CASE("births: what a program kept of the step before is no data of its own",
          "[diff][births]") {
  const auto run = [](double error, uint32_t seed) {
    Run made = chain(error / 5, error);
    made.add({.step = 1,
              .phase = Phase::kData,
              .scope = "",
              .slot = "input:0",
              .values = noisy(error, seed)});
    return made;
  };
  const Run base = run(0, 1);
  CHECK(compared(base, run(1000 * kF32, 1)).verdict == Verdict::kSame);
  CHECK(where(compared(base, run(1000 * kF32, 2))) == Where{1, Phase::kData, "", "input:0"});
}

TEST_CASE("births: an index that was chosen among values that differ is no root",
          "[diff][births]") {
  const auto run = [](double error, float index) {
    Run made;
    made.add(value(0, "router", "input:0", error));
    Item& chosen = made.add({.scope = "router", .slot = "output:1", .values = {index, 2, 3}});
    chosen.dtype = DType::kI64;
    return made;
  };
  CHECK(where(compared(run(0, 1), run(0, 2))).slot == "output:1");
  const DiffResult chosen = compared(run(0, 1), run(4 * kF32, 2));
  CHECK(chosen.verdict == Verdict::kSame);
  CHECK(count(chosen, Class::kSuspicious) == 1);
}

TEST_CASE("births: a buffer is an average of what its module was given, and of what it was",
          "[diff][births]") {
  // Of inputs of size 1 the average is 0.01, off by `error` of it.
  const auto calls = [](double taken_error, double first, double second) {
    Run run;
    for (const uint32_t step : {0U, 1U}) {
      run.add(value(step, "norm", "input:0", taken_error));
      run.add(value(step, "norm", "output:0", taken_error));
      Item& buffer = run.add(value(step, "norm", "buffer:mean", step == 0 ? first : second));
      test::scale(buffer, 0.01F);
    }
    return run;
  };
  const Run base = calls(0, 0, 0);
  CHECK(compared(base, calls(0, 10000 * kF32, 10000 * kF32)).verdict == Verdict::kSame);
  const DiffResult born = compared(base, calls(0, 0, 0.1));
  CHECK(where(born) == Where{1, Phase::kForward, "norm", "buffer:mean"});
  CHECK(where(compared(base, calls(40 * kF32, 0.001, 0.1))).step == 1);
  CHECK(compared(base, calls(40 * kF32, 0.001, 0.005)).verdict == Verdict::kSame);
}

TEST_CASE("births: a buffer that began with other bits is told where its module's output differs",
          "[diff][births]") {
  const auto run = [](double mean, double output) {
    Run made;
    for (const char* name : {"mean", "table"}) {
      Item& item = made.add(value(0, "norm", (std::string("buffer_initial:") + name).c_str(),
                                  *name == 'm' ? mean : 0));
      item.capture = format::Capture::kHash;
    }
    for (const char* scope : {"fc", "norm"})
      for (const char* slot : {"input:0", "output:0"})
        made.add(value(0, scope, slot, *scope == 'n' && *slot == 'o' ? output : 0)).phase =
            Phase::kEvaluation;
    return made;
  };
  const DiffResult told = compared(run(0, 0), run(0.1, 0.1));
  CHECK(where(told) == Where{0, Phase::kEvaluation, "norm", "output:0"});
  CHECK(told.root->buffers == std::vector<std::string>{"mean"});
  CHECK(compared(run(0, 0), run(0, 0.1)).root->buffers.empty());
  // Its memory may be one that nothing reads.
  const DiffResult unread = compared(run(0, 0), run(0.1, 0));
  CHECK(unread.verdict == Verdict::kSame);
  CHECK_FALSE(unread.first_bit_difference);
}

TEST_CASE("births: what a module computes in evaluation is made of its buffers, too",
          "[diff][births]") {
  const auto run = [](double buffer, Phase phase) {
    Run made;
    made.add(value(0, "norm", "input:0", 0));
    made.add(value(0, "norm", "output:0", 0));
    made.add(value(0, "norm", "buffer:mean", buffer));
    for (const char* slot : {"input:0", "output:0"}) {
      Item& item = made.add(value(1, "norm", slot, *slot == 'o' ? 4 * buffer : 0));
      item.phase = phase;
    }
    return made;
  };
  const double error = 200 * kF32;
  for (const Phase phase : {Phase::kEvaluation, Phase::kForward}) {
    const DiffResult result = compared(run(0, phase), run(error, phase));
    CHECK((result.verdict == Verdict::kSame) == (phase == Phase::kEvaluation));
  }
}

TEST_CASE("births: all that was born is listed, the first first", "[diff][births]") {
  Run cand = kEqual;
  cand.at(0, "a", "output:0").values = noisy(0.01);
  cand.at(0, "b", "input:0").values = noisy(0.01);
  cand.at(0, "b", "output:0").values = noisy(0.9);
  const DiffResult result = compared(kEqual, cand);
  REQUIRE(result.births.size() == 2);
  CHECK(result.births[0].scope == "a");
  CHECK(result.births[1].scope == "b");
  CHECK(diff::birth_lines(result)[1].find("is explained") != std::string::npos);
}

TEST_CASE("births: of a multiple the factor is told", "[diff][births]") {
  Run cand = kEqual;
  test::scale(cand.at(0, "b", "output:0"), 8);
  CHECK(diff::factor_text(compared(kEqual, cand).root->record) ==
        "the candidate is 8 times the baseline");
  Run other = kEqual;
  other.at(0, "b", "output:0").values = noisy(0.5);
  CHECK(diff::factor_text(compared(kEqual, other).root->record).empty());
}

TEST_CASE("births: the factor of a small tensor is told by its elements", "[diff][births]") {
  const auto told = [](std::vector<float> base, std::vector<float> cand) {
    Run a = kEqual, b = kEqual;
    for (Run* run : {&a, &b})
      run->add({.phase = Phase::kBackward,
                .scope = "b",
                .slot = "grad:bias",
                .values = run == &a ? base : cand});
    return diff::factor_text(compared(a, b).root->record);
  };
  CHECK(told({1, -2, 0.5F, 4}, {3, -6, 1.5F, 12}) == "the candidate is 3 times the baseline");
  CHECK(told({1, -2, 0.5F, 4}, {3, -6, 1.5F, 13}).empty());
  CHECK(told({0, -2, 0, 0}, {0, -6, 0, 0}).empty());  // one number alone
}

TEST_CASE("births: the factor of scalars is told where all calls of a place have it",
          "[diff][births]") {
  const auto losses = [](double factor, double last, size_t calls) {
    Run run = kEqual;
    for (size_t i = 0; i < calls; ++i) {
      const double loss = (0.3 + 0.1 * static_cast<double>(i)) * (i + 1 == calls ? last : factor);
      run.add({.step = 0,
               .phase = Phase::kLoss,
               .slot = "loss",
               .call = static_cast<uint32_t>(i),
               .values = {static_cast<float>(loss)}});
    }
    return run;
  };
  const auto told = [&](double factor, double last, size_t calls) {
    return diff::factor_text(*compared(losses(1, 1, calls), losses(factor, last, calls)).root);
  };
  CHECK(told(8, 8, 4) == "the candidate is 8 times the baseline, in all 4 calls of the step");
  CHECK(told(8, 7, 4).find("calls") == std::string::npos);
  CHECK(told(8, 8, 1).find("calls") == std::string::npos);
}

TEST_CASE("births: a trace without sketches is judged by its samples and averages",
          "[diff][births]") {
  const auto plain = [](double error) {
    Run run = chain(0, error);
    for (Item& item : run.items) item.sketched = false;
    return run;
  };
  CHECK(compared(plain(0), plain(20 * kF32)).verdict == Verdict::kSame);
  CHECK(where(compared(plain(0), plain(0.1))).scope == "b");
}

TEST_CASE("births: a single element that is stored in both runs", "[diff][births][elements]") {
  // Of 16384 elements one is off by 0.001, which is half of what rounding may be in all of them.
  const auto chain_of = [](double error, float fault, format::Capture capture) {
    Run run = chain(0, error);
    Item& output = run.at(0, "b", "output:0");
    output.values = noisy(error, 1, 16384);
    output.values[77] += fault;
    output.capture = capture;
    return run;
  };
  const auto found = [&](float fault, format::Capture capture) {
    return compared(chain_of(0, 0, capture), chain_of(20 * kF32, fault, capture));
  };
  CHECK(found(0.001F, format::Capture::kStats).verdict == Verdict::kSame);
  CHECK(found(0, format::Capture::kSnapshot).verdict == Verdict::kSame);
  const DiffResult result = found(0.001F, format::Capture::kSnapshot);
  CHECK(where(result) == Where{0, Phase::kForward, "b", "output:0"});
  CHECK(result.root->record.comparison.field == diff::Field::kElement);
}

// A network of which the truth is known: each module makes of its inputs what they are, with a
// gain, and rounding; one of them has a fault, or none.
TEST_CASE("births: a random model of births and passings-on", "[diff][births][random]") {
  std::mt19937 random(11);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  int wrong = 0;
  constexpr int kRuns = 400;
  for (int i = 0; i < kRuns; ++i) {
    const bool narrow = random() % 2 == 0;
    const double unit = narrow ? kBF16 : kF32;
    const int depth = 3 + static_cast<int>(random() % 6);
    const int faulty = static_cast<int>(random() % static_cast<uint32_t>(2 * depth));  // or none
    Run base, cand;
    double error = random() % 2 == 0 ? 0 : uniform(0, 3) * unit;
    for (int m = 0; m < depth; ++m) {
      const std::string scope = "m" + std::to_string(m);
      const auto add = [&](const char* slot, double of) {
        for (Run* run : {&base, &cand}) {
          Item& item = run->add(value(0, scope.c_str(), slot, run == &base ? 0 : of));
          item.dtype = narrow ? DType::kBF16 : DType::kF32;
        }
      };
      add("input:0", error);
      error = error * uniform(0.5, 2) + uniform(0, 2) * unit;
      if (m == faulty) error = std::max(0.3, 40 * error);
      add("output:0", error);
    }
    const DiffResult result = compared(base, cand);
    const std::string expected = faulty < depth ? "m" + std::to_string(faulty) : "";
    const std::string found = result.root ? result.root->record.scope : "";
    wrong += found == expected ? 0 : 1;
  }
  CHECK(wrong == 0);
}
