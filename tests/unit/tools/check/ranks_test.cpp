#include "tests/unit/tools/check/check_run.h"

namespace convtrace::test {
namespace {

using List = std::vector<Found>;

/// Two ranks with equal weights and gradients, and data of their own.
std::vector<Training> pair_of(uint32_t steps, uint32_t seed = 1, uint32_t other = 2) {
  std::vector<Training> ranks = {training(steps, seed), training(steps, other)};
  ranks[1].rank = 1;
  for (Training& rank : ranks) rank.world_size = 2;
  return ranks;
}

TEST_CASE("check: ranks that stay equal on data of their own are clean", "[check][ranks]") {
  const check::CheckResult result = checked(pair_of(5));
  CHECK(found(result) == List{});
  CHECK(result.ranks == 2);
  CHECK(judged(result, "replicas-parted") == 1);
  CHECK(judged(result, "same-data") == 1);
}

TEST_CASE("check replicas-parted: equal gradients, other weights", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(5);
  for (const uint32_t step : {3U, 4U}) ranks[1].at(step, "fc2", "param:weight").values[0] += 1;
  const check::CheckResult result = checked(ranks, {"replicas-parted"});
  REQUIRE(result.findings.size() == 1);
  CHECK(found(result) == List{{"replicas-parted", Severity::kError, 3, "fc2", "param:weight"}});
  CHECK(result.findings[0].rank == 1);
  CHECK(contains(result.findings[0].text, "equal gradients, other weights"));
}

TEST_CASE("check replicas-parted: gradients that differ", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(5);
  ranks[1].at(2, "fc1", "grad:weight").values[0] += 1;
  ranks[1].at(2, "fc1", "param:weight").values[0] += 1;
  const check::CheckResult result = checked(ranks, {"replicas-parted"});
  CHECK(found(result) == List{{"replicas-parted", Severity::kError, 2, "fc1", "grad:weight"}});
  CHECK(contains(result.findings[0].text, "their gradients differ"));
}

TEST_CASE("check replicas-parted: optimizers of other parameters", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(5);
  for (const char* kind : {"grad", "param"})
    for (const char* name : {"weight", "bias"})
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const char* others = rank == 0 ? "fc1" : "fc2";
        const std::string slot = std::string(kind) + ":" + name;
        ranks[rank].erase({}, others, slot,
                          kind == std::string_view("grad") ? Phase::kBackward : Phase::kOptimizer);
      }
  const check::CheckResult result = checked(ranks, {"replicas-parted"});
  REQUIRE(result.findings.size() == 1);
  CHECK(contains(result.findings[0].text, "they do not update the same parameters"));
  CHECK(contains(result.findings[0].evidence.at(0),
                 "no gradient and no weight of this step is recorded on both"));
}

/// The ranks train alone from a step on.
void part(std::vector<Training>& ranks, uint32_t first) {
  for (Entry& entry : ranks[1].entries)
    if (entry.step >= first &&
        (entry.value.phase == Phase::kBackward || entry.value.phase == Phase::kOptimizer))
      for (float& v : entry.value.values) v += 1;
}
/// The severity and the step of the only finding.
std::pair<Severity, std::optional<uint32_t>> parting(const std::vector<Training>& ranks) {
  const List all = found(checked(ranks, {"replicas-parted"}));
  REQUIRE(all.size() == 1);
  return {all[0].severity, all[0].step};
}
constexpr auto hint_in = [](uint32_t step) {
  return std::pair(Severity::kHint, std::optional(step));
};
constexpr auto error_in = [](uint32_t step) {
  return std::pair(Severity::kError, std::optional(step));
};

TEST_CASE("check replicas-parted: ranks that never shared anything are a hint", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(4);
  part(ranks, 0);
  CHECK(parting(ranks) == hint_in(0));
}

TEST_CASE("check replicas-parted: from the first step on, beside what is shared",
          "[check][ranks]") {
  std::vector<Training> ranks = pair_of(4);
  ranks[1].at(0, "fc1", "grad:weight").values[0] += 1;
  ranks[1].at(0, "fc1", "param:weight", Phase::kOptimizer).values[0] += 1;
  const List all = found(checked(ranks, {"replicas-parted"}));
  CHECK(all == List{{"replicas-parted", Severity::kError, 0, "fc1", "grad:weight"}});
}

TEST_CASE("check replicas-parted: what is equal by chance is no sign of sharing",
          "[check][ranks]") {
  std::vector<Training> ranks = pair_of(4);
  part(ranks, 0);
  SECTION("a weight that does not move") {
    for (Training& rank : ranks)
      for (const char* layer : {"fc1", "fc2"})
        for (const char* slot : {"param:weight", "param:bias"})
          if (std::string_view(layer) == "fc1" || std::string_view(slot) == "param:bias")
            rank.at(0, layer, slot, Phase::kOptimizer).values =
                rank.at(0, layer, slot, Phase::kForward).values;
  }
  SECTION("gradients of one number") {
    for (Training& rank : ranks)
      for (const char* slot : {"grad:weight", "grad:bias"}) {
        rank.at(0, "fc1", slot).values.assign(8, 0);
        rank.at(0, "fc2", slot).values.assign(8, 0.5F);
      }
    ranks[1].at(0, "fc1", "grad:weight").values[0] = 1;
  }
  SECTION("a penalty that knows no batch, and an update of its sign") {
    for (const char* slot : {"grad:bias", "param:bias"})
      ranks[1].at(0, "fc2", slot, slot[0] == 'g' ? Phase::kBackward : Phase::kOptimizer).values =
          ranks[0].at(0, "fc2", slot, slot[0] == 'g' ? Phase::kBackward : Phase::kOptimizer).values;
  }
  SECTION("steps that took the same batch") {
    ranks = pair_of(4);
    part(ranks, 2);
    for (const uint32_t step : {0U, 1U})
      ranks[1].at(step, "", "input:0").values = ranks[0].at(step, "", "input:0").values;
    CHECK(parting(ranks) == hint_in(2));
    ranks[1].at(1, "", "input:0").values[0] += 1;
    CHECK(parting(ranks) == error_in(2));
    return;
  }
  CHECK(parting(ranks) == hint_in(0));
}

TEST_CASE("check replicas-parted: an optimizer that reduces the gradients itself",
          "[check][ranks]") {
  std::vector<Training> ranks = pair_of(4);
  for (Entry& entry : ranks[1].entries)
    if (entry.value.phase == Phase::kBackward)
      for (float& v : entry.value.values) v += 1;
  const check::CheckResult result = checked(ranks, {"replicas-parted"});
  CHECK(found(result) == List{});
  CHECK(judged(result, "replicas-parted") == 1);
  // It leaves one out, from the first step or from a later one on.
  std::vector<Training> later = ranks;
  later[1].at(2, "fc2", "param:bias").values[0] += 1;
  CHECK(parting(later) == error_in(2));
  ranks[1].at(0, "fc2", "param:bias", Phase::kOptimizer).values[0] += 1;
  CHECK(parting(ranks) == error_in(0));
}

TEST_CASE("check replicas-parted: weights that are averaged later are a hint", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(5);
  part(ranks, 2);
  CHECK(parting(ranks) == error_in(2));
  const auto send = [&ranks](const std::string& op, const auto& values_of) {
    std::vector<Training> sending = ranks;
    for (Training& rank : sending)
      rank.value(3, {.scope = {},
                     .slot = "sent:0",
                     .phase = Phase::kCommunication,
                     .op = op,
                     .values = values_of(rank)});
    return parting(sending);
  };
  const auto weight = [](Training& rank) { return rank.at(3, "fc1", "param:weight").values; };
  CHECK(send("all_reduce", weight) == hint_in(2));
  CHECK(send("all_reduce", [](Training&) { return noise(1, 144); }) == hint_in(2));
  // Results of an evaluation, weights for a checkpoint, and gradients before the update.
  CHECK(send("all_reduce", [](Training&) { return noise(1, 64); }) == error_in(2));
  CHECK(send("gather", weight) == error_in(2));
  for (Training& rank : ranks)
    rank.before(3, "fc1", "grad:weight",
                {.scope = {},
                 .slot = "sent:0",
                 .phase = Phase::kCommunication,
                 .op = "all_reduce",
                 .values = noise(1, 144)});
  CHECK(parting(ranks) == error_in(2));
}

TEST_CASE("check replicas-parted: shards and ranks that end early are silent", "[check][ranks]") {
  std::vector<Training> shards = pair_of(4);
  for (Entry& entry : shards[1].entries)
    if (entry.fact.empty() && entry.value.scope != "")
      for (float& v : entry.value.values) v += 1;
  const check::CheckResult result = checked(shards, {"replicas-parted", "same-data"});
  CHECK(found(result) == List{});
  CHECK(judged(result, "replicas-parted") == 0);
  std::vector<Training> early = pair_of(6);
  std::erase_if(early[1].entries, [](const Entry& entry) { return entry.step > 3; });
  CHECK(found(checked(early, {"replicas-parted"})) == List{});
}

TEST_CASE("check replicas-parted: three ranks, one parts", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(4);
  ranks.push_back(training(4, 3));
  ranks[2].rank = 2;
  for (Training& rank : ranks) rank.world_size = 3;
  ranks[2].at(3, "fc2", "param:bias").values[0] += 1;
  const check::CheckResult result = checked(ranks, {"replicas-parted"});
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].rank == 2);
  CHECK(result.findings[0].step == 3U);
}

TEST_CASE("check same-data: ranks that train on the same batches", "[check][ranks]") {
  const check::CheckResult result = checked(pair_of(4, 1, 1), {"same-data"});
  REQUIRE(result.findings.size() == 1);
  CHECK(found(result) == List{{"same-data", Severity::kWarning, 0, "-", ""}});
  CHECK(result.findings[0].rank == 1);
  CHECK(contains(result.findings[0].text, "Rank 1 trains on the same batches as rank 0"));
}

TEST_CASE("check same-data: the same batches in another order are a hint", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(4, 1, 1);
  std::swap(ranks[1].at(1, "", "input:0").values, ranks[1].at(3, "", "input:0").values);
  const check::CheckResult result = checked(ranks, {"same-data"});
  CHECK(found(result) == List{{"same-data", Severity::kHint, 0, "-", ""}});
  REQUIRE(result.findings.size() == 1);
  CHECK(contains(result.findings[0].text, "in all 4 steps, in another order."));
  // Batches that repeat on each rank are same-batch's.
  for (Training& rank : ranks)
    for (uint32_t step = 0; step < 4; ++step)
      rank.at(step, "", "input:0").values = noise(step == rank.rank ? 5 : 6, 32);
  CHECK(found(checked(ranks, {"same-data"})) == List{});
}

TEST_CASE("check same-data: one other batch, constants and short runs are silent",
          "[check][ranks]") {
  std::vector<Training> one = pair_of(4, 1, 1);
  one[1].at(2, "", "input:0").values[0] += 1;
  CHECK(found(checked(one, {"same-data"})) == List{});
  std::vector<Training> constant = pair_of(4, 1, 1);
  for (Training& rank : constant)
    for (uint32_t step = 0; step < 4; ++step) rank.at(step, "", "input:0").values.assign(32, 1);
  CHECK(found(checked(constant, {"same-data"})) == List{});
  CHECK(found(checked(pair_of(2, 1, 1), {"same-data"})) == List{});
  std::vector<Training> no_data = pair_of(4, 1, 1);
  for (Training& rank : no_data) rank.erase({}, "", "input:0");
  CHECK(found(checked(no_data, {"same-data"})) == List{});
  std::vector<Training> shards = pair_of(4, 1, 1);  // tensor parallel: other weights
  for (Entry& entry : shards[1].entries)
    if (entry.fact.empty() && entry.value.scope != "")
      for (float& v : entry.value.values) v += 1;
  CHECK(found(checked(shards, {"same-data"})) == List{});
}

TEST_CASE("check: two traces of one rank are not two ranks", "[check][ranks]") {
  // A job that was started again, with equal seeds; or one trace named twice.
  std::vector<Training> again = {training(5, 1), training(5, 1)};
  const check::CheckResult result = checked(again, {"same-data"});
  CHECK(found(result) == List{});
  CHECK(result.ranks == 1);
  REQUIRE(result.notes.size() == 1);
  CHECK(contains(result.notes[0], "1.ctrace is a further trace of rank 0"));
  again[1].at(3, "fc2", "param:weight").values[0] += 1;  // the second start is not bit-equal
  CHECK(found(checked(again, {"replicas-parted"})) == List{});
}

TEST_CASE("check: each rank is judged by itself, too", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(5);
  ranks[1].at(2, "fc2", "output:0").values[0] = kNan;
  ranks[1].at(2, "", "output:0").values[0] = kNan;
  const check::CheckResult result = checked(ranks);
  CHECK(found(result) == List{{"nan", Severity::kError, 2, "fc2", "output:0"}});
  CHECK(result.findings[0].rank == 1);
}

TEST_CASE("check: the same at the same place of two ranks is two findings", "[check][ranks]") {
  std::vector<Training> ranks = pair_of(5);
  for (Training& rank : ranks) rank.at(2, "fc2", "output:0").values[0] = kNan;
  const check::CheckResult result = checked(ranks);
  REQUIRE(result.findings.size() == 2);
  CHECK(result.findings[0].rank == 0);
  CHECK(result.findings[1].rank == 1);
}

}  // namespace
}  // namespace convtrace::test
