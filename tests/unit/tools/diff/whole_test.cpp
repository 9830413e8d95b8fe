#include <algorithm>
#include <filesystem>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tests/unit/tools/diff/compared.h"
#include "tests/unit/tools/diff/ranks.h"
#include "tools/diff/report/report_parts.h"
#include "tools/trace/names/map_file.h"

namespace convtrace::test {
namespace {

using diff::Class;
using diff::DiffResult;
using diff::DiffRules;
using diff::LayoutChoice;
using diff::Verdict;
using format::DType;
using format::Phase;

Numbers times(Numbers values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

TEST_CASE("whole: copies, shards and parts of a batch are the value of one rank", "[diff][whole]") {
  const Numbers x = numbers(1), w = numbers(2), g = numbers(3);
  const std::vector<Step> one = {{value("fc", "input:0", x), value("fc", "param:weight", w),
                                  value("", "loss", {3}, Phase::kLoss),
                                  value("fc", "grad_output:0", g, Phase::kBackward)}};
  std::vector<Step> two;
  for (size_t rank = 0; rank < 2; ++rank) {
    // A part's gradient is that of the loss of its part, which counts half.
    two.push_back({value("fc", "input:0", part(x, rank, 2)), value("fc", "param:weight", w),
                   value("", "loss", {rank == 0 ? 2.0F : 4.0F}, Phase::kLoss),
                   value("fc", "grad_output:0", times(part(g, rank, 2), 2), Phase::kBackward)});
  }
  for (const bool exchanged : {false, true}) {
    const DiffResult result = exchanged ? compared(two, one) : compared(one, two);
    CHECK(result.verdict == Verdict::kSame);
    CHECK(result.values == 4);
    REQUIRE(result.wholes);
    CHECK(result.wholes->apart.list.empty());
    CHECK(result.wholes->base_ranks == (exchanged ? 2 : 1));
    // Of parts that stand one behind the other the hash of the whole is known.
    CHECK(test::count(result, Class::kIdentical) == 2);
    CHECK(result.bits_unknown == 2);
  }
}

TEST_CASE("whole: what no rank alone shows is seen", "[diff][whole]") {
  const Numbers w = numbers(2);
  const std::vector<Step> one = {{value("fc", "param:weight", w)}};
  Numbers other = part(w, 1, 2);
  bool stands_out = true;  // has what the other run has nowhere
  SECTION("a shard of another scale") {
    other = times(other, 1.01F);
    stands_out = false;
  }
  SECTION("one element among the extrema") { other[5] = 40; }
  SECTION("a shard of zeros") { other = times(other, 0); }
  SECTION("a shard of a larger norm") { other = times(other, 3); }
  SECTION("no number") { other[5] = std::numeric_limits<float>::quiet_NaN(); }
  const std::vector<Step> two = {{value("fc", "param:weight", part(w, 0, 2))},
                                 {value("fc", "param:weight", other)}};
  for (const bool exchanged : {false, true}) {
    const DiffResult result = exchanged ? compared(two, one) : compared(one, two);
    CHECK(result.verdict == Verdict::kDiverged);
    CHECK(where(result).slot == "param:weight");
    CHECK(result.root->holder.has_value() == stands_out);
    if (!stands_out) continue;
    CHECK(result.root->holder->rank == 1);
    CHECK(result.root->holder->in_cand != exchanged);
    CHECK_THAT(diff::headline(result),
               Catch::Matchers::EndsWith(exchanged ? ", held by rank 1 of the baseline"
                                                   : ", held by rank 1 of the candidate"));
  }
}

TEST_CASE("whole: no rank is named where two stand out, or none need be wrong", "[diff][whole]") {
  const Numbers w = numbers(2);
  const auto step = [](const Numbers& values) -> Step {
    return {value("fc", "param:weight", values)};
  };
  const std::vector<Step> one = {step(w)};
  const auto holder = [&](const std::vector<Step>& cand) {
    const DiffResult result = compared(one, cand);
    REQUIRE(result.root);
    return result.root->holder ? static_cast<int>(result.root->holder->rank) : -1;
  };
  const Numbers other = times(w, 1.1F), third = times(w, 1.2F);
  CHECK(holder({step(times(part(w, 0, 2), 3)), step(times(part(w, 1, 2), 3))}) == -1);
  CHECK(holder({step(other), step(w)}) == 0);  // as the other run has it
  CHECK(holder({step(other), step(third)}) == -1);
  CHECK(holder({step(other), step(other), step(third)}) == 2);
  CHECK(holder({step(other), step(w), step(third)}) == -1);
}

TEST_CASE("whole: pieces with equal bits count as often as the other run needs", "[diff][whole]") {
  const Numbers zeros(8), longer(16);
  const std::vector<Step> one = {{value("fc", "param:bias", longer)}};
  const Step half = {value("fc", "param:bias", zeros)}, whole = {value("fc", "param:bias", longer)};
  CHECK(compared(one, {half, half}).verdict == Verdict::kSame);
  CHECK(compared(one, {half, half, half, half}).verdict == Verdict::kSame);
  CHECK(compared(one, {whole, whole, whole}).verdict == Verdict::kSame);
  CHECK(compared({half, half}, {whole, whole, whole}).verdict == Verdict::kSame);
  const DiffResult odd = compared(one, {half, half, half});
  CHECK(odd.verdict == Verdict::kNotComparable);  // nothing else was recorded
  REQUIRE(odd.wholes->apart.list.size() == 1);
  CHECK(odd.wholes->apart.list[0].slot == "param:bias");
  CHECK(odd.wholes->apart.list[0].values == 1);
}

TEST_CASE("whole: what cannot be put together is listed, and no agreement", "[diff][whole]") {
  const Numbers x = numbers(1), w = numbers(2);
  const std::vector<Step> one = {{value("fc", "input:0", x), value("fc", "param:weight", w)}};
  std::vector<Step> two(2, {value("fc", "input:0", x), value("fc", "param:weight", part(w, 0, 2))});
  two[1][1] = value("fc", "param:weight", numbers(5, 40));
  const DiffResult result = compared(one, two);
  CHECK(result.verdict == Verdict::kIncomplete);
  CHECK(test::count(result, Class::kIdentical) == 1);
  REQUIRE(result.wholes->apart.list.size() == 1);
  CHECK(result.wholes->apart.list[0].why ==
        "1 rank with 1 content of 64 elements in the baseline, 2 ranks with 2 contents of 32 "
        "elements in the candidate");
  REQUIRE(result.incomplete.size() == 1);
  CHECK(result.incomplete[0].starts_with("CT-2410 1 value "));
}

TEST_CASE("whole: thousands of values that fit nowhere are counted, and listed up to a limit",
          "[diff][whole]") {
  Step one;
  std::vector<Step> two(2);
  for (uint32_t i = 0; i < 3000; ++i) {
    const std::string slot = "buffer:" + std::to_string(i);
    one.push_back(value("fc", slot.c_str(), {1, 2, 3}));
    for (Step& step : two) step.push_back(value("fc", slot.c_str(), {1, 2}));
  }
  const DiffResult result = compared({one}, two);
  CHECK(result.wholes->apart.values == 3000);
  CHECK(result.wholes->apart.list.size() == diff::ApartValues::kMost);
}

TEST_CASE("whole: of copies that differ the furthest is compared", "[diff][whole]") {
  const Numbers w = numbers(2);
  const std::vector<Step> one = {{value("fc", "param:weight", w)}};
  std::vector<Step> three(3, one[0]);
  three[1][0] = value("fc", "param:weight", times(w, 1.0000001F));
  CHECK(compared(one, three).verdict == Verdict::kSame);
  three[2][0] = value("fc", "param:weight", times(w, 1.1F));
  for (const bool exchanged : {false, true}) {
    const DiffResult result = exchanged ? compared(three, one) : compared(one, three);
    CHECK(result.verdict == Verdict::kDiverged);
    CHECK(where(result).slot == "param:weight");
  }
}

TEST_CASE("whole: unlike values in full are a mean, or what the user says", "[diff][whole]") {
  const Numbers g = numbers(3);
  const auto of = [&g](float factor, float loss, const char* slot) -> Step {
    return {value("", "loss", {loss}, Phase::kLoss),
            value("fc", slot, times(g, factor), Phase::kBackward)};
  };
  const std::vector<Step> one = {of(1, 3, "grad:weight")};
  // A gradient that an optimizer got and that is not the same on all ranks was not reduced.
  const std::vector<Step> mean = {of(0.5F, 2, "grad:weight"), of(1.5F, 4, "grad:weight")};
  CHECK(where(compared(one, mean)).slot == "grad:weight");
  DiffRules averaged;
  averaged.reductions.push_back(
      {settings::Pattern::compile("grad:*").value(), diff::Reduction::kMean});
  CHECK(compared(one, mean, averaged).verdict == Verdict::kSame);
  const std::vector<Step> off = {of(0.5F, 2, "grad:weight"), of(1.7F, 4, "grad:weight")};
  CHECK(where(compared(one, off, averaged)).slot == "grad:weight");
  DiffRules summed;
  for (const char* pattern : {"loss", "grad:*"})
    summed.reductions.push_back(
        {settings::Pattern::compile(pattern).value(), diff::Reduction::kSum});
  const std::vector<Step> sum = {of(0.25F, 1, "grad:weight"), of(0.75F, 2, "grad:weight")};
  CHECK(compared(one, sum, summed).verdict == Verdict::kSame);
  CHECK(compared(one, sum).verdict == Verdict::kDiverged);
}

TEST_CASE("whole: terms of a sum are told from copies by what is nearer", "[diff][whole]") {
  const Numbers g = numbers(3), other = numbers(4);
  const auto output = [](const Numbers& values) -> Step {
    return {value("fc", "output:0", values)};
  };
  Numbers rest = g;
  for (size_t i = 0; i < rest.size(); ++i) rest[i] -= other[i];
  const DiffResult sum =
      compared({output(g)}, {output(other), output(rest), output(other), output(rest)});
  CHECK(sum.verdict == Verdict::kSame);
  CHECK(sum.wholes->summed == 1);
  rest[3] += 2;
  CHECK(compared({output(g)}, {output(other), output(rest)}).verdict == Verdict::kDiverged);
  const DiffResult copies = compared({output(g)}, {output(g), output(times(g, 1.1F))});
  CHECK(copies.verdict == Verdict::kDiverged);
  CHECK(copies.wholes->summed == 0);
}

TEST_CASE("whole: the parts of a batch are counted by what modules get as data", "[diff][whole]") {
  const Numbers x = numbers(1), g = numbers(3);
  const auto step = [&](size_t rank, size_t parts, float loss, float factor) -> Step {
    return {value("", "input:0", part(x, rank, parts), Phase::kData),
            value("", "loss", {loss}, Phase::kLoss),
            value("fc", "grad_output:0", times(part(g, rank, parts), factor), Phase::kBackward)};
  };
  // Equal losses of two parts, as a head of zeros gives, and unlike ones of one.
  CHECK(compared({step(0, 1, 3, 1)}, {step(0, 2, 3, 2), step(1, 2, 3, 2)}).verdict ==
        Verdict::kSame);
  CHECK(compared({step(0, 1, 3, 1)}, {step(0, 1, 3, 1), step(0, 1, 3.0000005F, 1)}).verdict ==
        Verdict::kSame);
  CHECK(compared({step(0, 1, 3, 1)}, {step(0, 2, 3, 1), step(1, 2, 3, 1)}).verdict ==
        Verdict::kDiverged);
}

TEST_CASE("whole: the gradient of a number that parts of a batch share is a sum of theirs",
          "[diff][whole]") {
  const Numbers x = numbers(1);
  const auto step = [&](size_t rank, size_t parts, float gradient) -> Step {
    return {value("", "input:0", part(x, rank, parts), Phase::kData),
            value("", "loss", {3.0F + static_cast<float>(rank)}, Phase::kLoss),
            value("", "grad_output:0", {gradient}, Phase::kBackward)};
  };
  const std::vector<Step> two = {step(0, 2, 0.75F), step(1, 2, 0.25F)};
  const Step one = {value("", "input:0", x, Phase::kData), value("", "loss", {3.5F}, Phase::kLoss),
                    value("", "grad_output:0", {0.5F}, Phase::kBackward)};
  CHECK(compared({one}, two).verdict == Verdict::kSame);
  CHECK(compared(two, {one}).verdict == Verdict::kSame);
  // As of a loss that the model returns.
  CHECK(compared({step(0, 1, 1)}, {step(0, 2, 1), step(1, 2, 1)}).root->record.slot == "loss");
  CHECK(compared({one}, {step(0, 2, 0.5F), step(1, 2, 0.5F)}).verdict == Verdict::kSame);
  std::vector<Step> four;
  for (size_t rank = 0; rank < 4; ++rank)
    four.push_back(step(rank, 4, 0.2F + 0.2F * static_cast<float>(rank)));
  for (size_t rank = 0; rank < 4; ++rank) four[rank][1] = two[rank % 2][1];
  CHECK(compared(two, four).verdict == Verdict::kSame);
  four[3][2] = value("", "grad_output:0", {0.9F}, Phase::kBackward);
  CHECK(compared(two, four).verdict == Verdict::kDiverged);
}

TEST_CASE("whole: a replica that an update parted is told, however wide updates are judged",
          "[diff][whole]") {
  const auto step = [](float update) -> Step {
    const Numbers w = numbers(1), g = numbers(2);
    Numbers after = w;
    for (size_t i = 0; i < w.size(); ++i) after[i] -= update * g[i];
    return {value("fc", "param:weight", w), value("fc", "grad:weight", g, Phase::kBackward),
            value("fc", "param:weight", after, Phase::kOptimizer)};
  };
  CHECK(compared({step(0.01F)}, {step(0.01F), step(0.01F)}).verdict == Verdict::kSame);
  const DiffResult result = compared({step(0.01F)}, {step(0.01F), step(0)});
  CHECK(result.verdict == Verdict::kDiverged);
  CHECK(where(result).phase == Phase::kOptimizer);
}

TEST_CASE("whole: a copy with other bits is seen whatever its statistics", "[diff][whole]") {
  const auto ids = [](const Numbers& values) -> Step {
    StatsSpec spec = value("fc", "input:0", values);
    spec.dtype = DType::kI64;
    return {spec};
  };
  CHECK(compared({ids({1, 2, 3})}, {ids({1, 2, 3}), ids({3, 2, 1})}).verdict == Verdict::kDiverged);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Numbers good = numbers(1);
  Numbers bad = good;
  bad[5] = nan;
  const auto output = [](const Numbers& values) -> Step {
    return {value("fc", "output:0", values)};
  };
  CHECK(compared({output(good)}, {output(good), output(bad)}).verdict == Verdict::kDiverged);
}

TEST_CASE("whole: a loss of one rank that is no number is none in the mean", "[diff][whole]") {
  const auto of = [](float loss) -> Step { return {value("", "loss", {loss}, Phase::kLoss)}; };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinite}) {
    const DiffResult result = compared({of(3)}, {of(3), of(bad)});
    CHECK(result.verdict == Verdict::kDiverged);
    CHECK(test::count(result, Class::kNanBorn) == 1);
    CHECK(compared({of(bad)}, {of(3), of(bad)}).verdict == Verdict::kSame);
  }
}

TEST_CASE("whole: modules in place of one are joined, through shards and names", "[diff][whole]") {
  const Numbers all = numbers(7, 96), x = numbers(1);
  const std::vector<Step> one = {
      {value("model.attn", "input:0", x), value("model.attn.qkv_proj", "param:weight", all)}};
  std::vector<Step> two;
  for (size_t rank = 0; rank < 2; ++rank) {
    Step step = {value("attn", "input:0", x)};
    for (size_t i = 0; i < 3; ++i) {
      static constexpr const char* kNames[] = {"attn.q_proj", "attn.k_proj", "attn.v_proj"};
      step.push_back(value(kNames[i], "param:weight", part(part(all, i, 3), rank, 2)));
    }
    two.push_back(std::move(step));
  }
  DiffRules rules;
  rules.renames.push_back({"model", ""});
  const DiffResult result = compared(one, two, rules);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(result.values == 2);
  CHECK(result.one_sided.empty());
  DiffRules back;
  back.renames.push_back({"", "model"});
  const DiffResult turned = compared(two, one, back);
  CHECK(turned.verdict == Verdict::kSame);
  CHECK(turned.values == 2);
  two[1].back().values = times(two[1].back().values, 1.1F);
  two[1].back().hash = 1;
  CHECK(compared(one, two, rules).verdict == Verdict::kDiverged);
}

TEST_CASE("whole: the map for Megatron-LM, from one rank to two with divided tensors",
          "[diff][whole]") {
  DiffRules rules;
  std::string error;
  REQUIRE(diff::read_map(CONVTRACE_ROOT "/tools/diff/maps/megatron-lm.toml", rules, error));
  struct Divided {
    const char *base, *cand;
    bool divided;
  };
  static constexpr Divided kModules[] = {
      {"model.embed_tokens", "embedding.word_embeddings", true},
      {"model.layers.0.self_attn.q_proj", "decoder.layers.0.self_attention.linear_qkv", true},
      {"model.layers.0.self_attn.k_proj", "", true},
      {"model.layers.0.self_attn.v_proj", "", true},
      {"model.layers.0.self_attn.o_proj", "decoder.layers.0.self_attention.linear_proj", true},
      {"model.layers.0.mlp.gate_proj", "decoder.layers.0.mlp.linear_fc1", true},
      {"model.layers.0.mlp.up_proj", "", true},
      {"model.layers.0.mlp.down_proj", "decoder.layers.0.mlp.linear_fc2", true},
      {"model.norm", "decoder.final_layernorm", false},
      {"lm_head", "output_layer", true}};
  Step base;
  std::vector<Step> cand(2);
  for (uint32_t i = 0; i < std::size(kModules); ++i) {
    const auto& [name, other, divided] = kModules[i];
    const Numbers all = numbers(i);
    base.push_back(value(name, "param:weight", all));
    for (size_t rank = 0; rank < 2; ++rank) {
      const Numbers own = divided ? part(all, rank, 2) : all;
      if (*other != 0) {
        cand[rank].push_back(value(other, "param:weight", own));
      } else {
        Numbers& fused = cand[rank].back().values;
        fused.insert(fused.end(), own.begin(), own.end());
        cand[rank].back().hash = hash_of(fused);
      }
    }
  }
  const DiffResult result = compared({base}, cand, rules);
  CHECK(result.verdict == Verdict::kSame);
  CHECK(result.values == 7);
  CHECK(result.one_sided.empty());
  cand[1][1].values = times(cand[1][1].values, 1.01F);
  cand[1][1].hash = 1;
  const DiffResult off = compared({base}, cand, rules);
  CHECK(off.verdict == Verdict::kDiverged);
  CHECK(where(off).scope == "model.layers.0.self_attn.linear_qkv");
}

TEST_CASE("whole: chosen where layouts differ and every rank has a trace, or by the user",
          "[diff][whole]") {
  const Numbers w = numbers(2);
  const Step whole = {value("fc", "param:weight", w)};
  const std::vector<Step> halves = {{value("fc", "param:weight", part(w, 0, 2))},
                                    {value("fc", "param:weight", part(w, 1, 2))}};
  CHECK(compared({whole}, halves).wholes);
  CHECK_FALSE(compared({whole, whole}, halves).wholes);  // nothing says how they are divided
  CHECK_FALSE(compared({whole}, halves, {}, 1).wholes);  // one trace is missing
  DiffRules rules;
  rules.layouts = LayoutChoice::kWhole;
  CHECK(compared({whole, whole}, halves, rules).verdict == Verdict::kSame);
  // A rank that is missing may have held anything.
  const DiffResult missing = compared({whole}, {whole, whole}, rules, 1);
  CHECK(missing.verdict == Verdict::kIncomplete);
  REQUIRE(missing.incomplete.size() == 1);
  CHECK(missing.incomplete[0].starts_with("CT-2401 candidate: has no trace of 1 rank of 2"));
  rules.layouts = LayoutChoice::kRanks;
  const DiffResult ranks = compared({whole}, halves, rules);
  CHECK_FALSE(ranks.wholes);
  CHECK(ranks.verdict == Verdict::kDiverged);
  DiffRules mapped;
  mapped.base_rank.emplace(1, 0);
  CHECK_FALSE(compared({whole}, halves, mapped).wholes);
}

TEST_CASE("whole: placements of tensors say that layouts differ", "[diff][whole]") {
  const auto placed = [](const char* base, const char* cand) {
    const TempDir folders[2];
    for (size_t run = 0; run < 2; ++run) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        TraceBuilder trace(folders[run] / (std::to_string(rank) + ".ctrace"));
        trace.rank(rank, 2).step(0).stats(value("fc", "input:0", numbers(1)));
        const std::string where = run == 0 ? base : cand;
        if (!where.empty())
          trace.told("fc", "placement.weight",
                     "shape=(4, 4), " + where + ", local=(2, 4), offset=(0, 0)");
        trace.close();
      }
    }
    diff::DiffInputs inputs{.base = folders[0] / ".", .cand = folders[1] / "."};
    DiffResult result;
    std::string error;
    REQUIRE(diff::run_diff(inputs, nullptr, result, error));
    return result.wholes.has_value();
  };
  const char* sharded = "mesh=(0=2), at=(0,), placements=(Shard(dim=0),)";
  CHECK_FALSE(placed(sharded, sharded));
  CHECK(placed(sharded, "mesh=(0=2), at=(0,), placements=(Shard(dim=1),)"));
  CHECK(placed(sharded, ""));
  CHECK_FALSE(placed("", ""));
}

TEST_CASE("whole: ranks that lack a step, and repetitions", "[diff][whole]") {
  const TempDir base, cand;
  const Numbers x = numbers(1), w = numbers(2);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const bool in_base = rank == 2;
    TraceBuilder trace((in_base ? base : cand) / (std::to_string(rank) + ".ctrace"));
    trace.rank(in_base ? 0 : rank, in_base ? 1 : 2);
    for (uint32_t step = 0; step < 3; ++step) {
      if (rank == 1 && step == 2) continue;  // ended early
      const Numbers own = in_base ? w : part(w, rank, 2);
      trace.step(step).stats(value("fc", "param:weight", own)).stats(value("fc", "input:0", x));
    }
    trace.close();
  }
  diff::DiffInputs inputs{.base = base / ".", .cand = cand / "."};
  DiffResult result;
  std::string error;
  REQUIRE(diff::run_diff(inputs, nullptr, result, error));
  CHECK(result.verdict == Verdict::kIncomplete);
  CHECK(result.steps == 3);
  REQUIRE(result.wholes->apart.list.size() == 1);
  CHECK(result.wholes->apart.list[0].first_step == 2);
  inputs.noise.push_back(base / ".");
  DiffResult refused;
  CHECK_FALSE(diff::run_diff(inputs, nullptr, refused, error));
  CHECK(error.starts_with("CT-2410"));
}

}  // namespace
}  // namespace convtrace::test
