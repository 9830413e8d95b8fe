#include <cmath>

#include "tests/unit/tools/origin/job.h"

namespace convtrace::test {
namespace {

TEST_CASE("origin: a job in which nothing is wrong", "[origin]") {
  for (const char* reduction : {"avg", "sum"}) {
    const OriginResult result = of({.ranks = 5, .steps = 6, .reduction = reduction}, {});
    CHECK(told(result) == List{});
    CHECK(result.notes == List{});
    CHECK(result.incomplete == List{});
    CHECK(result.ranks == std::vector<uint32_t>{0, 1, 2, 3, 4});
    CHECK(result.collectives == 12);
    CHECK(result.joined == 12);
    CHECK(result.values == 120);
  }
}

TEST_CASE("origin nan: one rank makes it, all others receive it", "[origin][nan]") {
  const OriginResult result = of({.ranks = 4, .steps = 5}, [](Moment& at) {
    if (at.is(2, 3, "fc1 output")) at.values[5] = kNan;
  });
  REQUIRE(told(result) == List{"nan 2@3 fc1 output:0"});
  const Origin& origin = result.origins[0];
  CHECK(origin.ranks == std::vector<uint32_t>{0, 1, 3});
  REQUIRE(origin.through);
  CHECK(origin.through->op == "all_reduce");
  CHECK(origin.through->number == 6);
  CHECK(origin.through->step == 3);
  CHECK(contains(origin.text, "Rank 2 made the first NaN in step 3: output:0 of module fc1"));
  CHECK(has_line(origin.evidence, "1 NaN, 0 infinite of 64 elements (f32)"));
  CHECK(has_line(origin.evidence, "input:0 of the same call: finite"));
  CHECK(contains(origin.next, "convtrace show --nan --steps 3 "));
}

TEST_CASE("origin nan: two ranks that make one of their own are two origins", "[origin][nan]") {
  const OriginResult result = of({.ranks = 4, .steps = 4}, [](Moment& at) {
    if (at.is(1, 2, "fc1 output")) at.values[0] = kNan;
    if (at.is(3, 2, "fc2 output")) at.values[0] = kInfinity;
  });
  CHECK(told(result).size() == 2);
  CHECK(has_line(told(result), "nan 1@2 fc1 output:0"));
  CHECK(has_line(told(result), "nan 3@2 fc2 output:0"));
  // What follows the first sum is a consequence, on any rank.
  const OriginResult later = of({.ranks = 4, .steps = 4}, [](Moment& at) {
    if (at.is(1, 2, "fc1 output")) at.values[0] = kNan;
    if (at.is(3, 3, "fc2 output")) at.values[0] = kNan;
  });
  CHECK(told(later) == List{"nan 1@2 fc1 output:0"});
}

TEST_CASE("origin nan: between the last value and the call", "[origin][nan]") {
  const OriginResult result = of({.ranks = 3, .steps = 3}, [](Moment& at) {
    if (at.is(1, 1, "fc1 local")) at.values[7] = kNan;
  });
  REQUIRE(told(result) == List{"nan 1@1 fc1 sent:0"});
  CHECK(contains(result.origins[0].text, "between the last recorded value, which is finite, and"));
  CHECK(result.origins[0].ranks == std::vector<uint32_t>{0, 2});
}

TEST_CASE("origin nan: data are told where something follows from them", "[origin][nan]") {
  const OriginResult result = of({.ranks = 3, .steps = 3}, [](Moment& at) {
    if (at.is(0, 1, "input")) at.values[7] = kNan;
  });
  CHECK(told(result) == List{"nan 0@1  input:0"});
  Job missing = trained({.ranks = 3, .steps = 3});
  missing[0].value(1, "input:0", "").values[3] = kNan;  // and no other value has one
  missing[0].value(1, "input:0", "fc1").values[3] = kNan;
  missing[0].value(1, "input:0", "fc1").phase = Phase::kData;
  const OriginResult silent = origins_of(missing);
  CHECK(told(silent) == List{});
  CHECK(has_line(silent.notes, "rank 0 has values that are not finite in step 1"));
}

TEST_CASE("origin nan: negative infinities of a mask are none", "[origin][nan]") {
  Job job = trained({.ranks = 3, .steps = 3});
  StatsSpec& mask = job[1].value(1, "input:0", "fc1");
  mask.values[2] = -kInfinity;
  job[1].value(1, "output:0", "fc1").values[2] = -kInfinity;
  CHECK(told(origins_of(job)) == List{});
  job[1].value(1, "grad_output:0", "fc2").values[2] = -kInfinity;
  CHECK(told(origins_of(job)) == List{"nan 1@1 fc2 grad_output:0"});
}

TEST_CASE("origin nan: a GradScaler that looks for its scale", "[origin][nan]") {
  const Change overflow = [](Moment& at) {
    if (at.is(1, 2, "fc2 local")) at.values[0] = kInfinity;
  };
  const OriginResult searching = of({.ranks = 3, .steps = 5, .scaled = true}, overflow);
  CHECK(told(searching) == List{});
  CHECK(has_line(searching.notes, "a GradScaler's search"));
  // A NaN later is told, though the scaler has met infinities.
  const OriginResult later = of({.ranks = 3, .steps = 6, .scaled = true}, [&](Moment& at) {
    overflow(at);
    if (at.is(2, 4, "fc1 output")) at.values[0] = kNan;
  });
  CHECK(told(later) == List{"nan 2@4 fc1 output:0"});
}

TEST_CASE("origin nan: a sum that is too large for its type", "[origin][nan]") {
  Job job = empty_job(3);
  const std::vector<float> large(8, 3e38F);
  add_to_all(
      job, 0, "all_reduce", 0, [&](uint32_t) { return large; },
      [](uint32_t) { return std::vector<float>(8, kInfinity); }, "sum");
  const OriginResult result = origins_of(job);
  REQUIRE(told(result) == List{"nan ?@0 - received:0"});
  CHECK(contains(result.origins[0].text, "all that its members sent is finite"));
}

TEST_CASE("origin nan: a rank without a trace may have made it", "[origin][nan]") {
  Job job = trained({.ranks = 4, .steps = 4, .change = [](Moment& at) {
                       if (at.is(2, 2, "fc1 output")) at.values[0] = kNan;
                     }});
  job.erase(job.begin() + 2);
  const OriginResult result = origins_of(job);
  CHECK(told(result) == List{});
  CHECK(has_line(result.notes, "rank 2 took part in collectives"));
  CHECK(has_line(result.notes, "ranks without a trace"));
}

TEST_CASE("origin unequal: one member has another result", "[origin][unequal]") {
  const OriginResult result = of({.ranks = 4, .steps = 4}, [](Moment& at) {
    if (at.is(3, 2, "fc1 received")) at.values[9] *= 1.5F;
  });
  REQUIRE(told(result) == List{"unequal 3@2 fc1 received:0"});
  CHECK(has_line(result.origins[0].evidence, "then: not-reduced of rank 3 in step 2"));
}

TEST_CASE("origin unequal: of two members nobody knows which", "[origin][unequal]") {
  Job job = trained({.ranks = 2, .steps = 3, .change = [](Moment& at) {
                       if (at.is(1, 1, "fc1 received")) at.values[9] += 1;
                     }});
  for (RankEvents& rank : job)  // without what tells the sum
    rank.call(1, "all_reduce", 1).capture = format::Capture::kHash;
  const OriginResult result = origins_of(job);
  REQUIRE(result.origins.size() == 1);
  CHECK(result.origins[0].kind == Kind::kUnequal);
  CHECK(!result.origins[0].rank);
  CHECK(result.origins[0].suspects == std::vector<uint32_t>{0, 1});
}

TEST_CASE("origin unequal: of two members the one that has not the sum", "[origin][unequal]") {
  Job job = empty_job(2);
  const std::vector<std::vector<float>> sent = {noise(1, 100), noise(2, 100)};
  add_to_all(
      job, 0, "all_reduce", 0, [&](uint32_t rank) { return sent[rank]; },
      [&](uint32_t rank) {
        std::vector<float> sum = sum_of(sent);
        if (rank == 1) sum[7] += 1;
        return sum;
      },
      "sum");
  CHECK(told(origins_of(job)) == List{"unequal 1@0 - received:0"});
}

TEST_CASE("origin unequal: orders of addition are not told", "[origin][unequal]") {
  Job job = empty_job(3);
  std::vector<std::vector<float>> sent;
  for (uint32_t rank = 0; rank < 3; ++rank) sent.push_back(noise(50 + rank, 64));
  add_to_all(
      job, 0, "all_reduce", 0, [&](uint32_t rank) { return sent[rank]; },
      [&](uint32_t rank) {
        std::vector<float> sum = sum_of(sent);
        for (size_t i = rank; i < sum.size(); i += 3) sum[i] = std::nextafter(sum[i], 10.0F);
        return sum;
      },
      "sum");
  CHECK(told(origins_of(job)) == List{});
}

TEST_CASE("origin unequal: NaN have other bits on each member", "[origin][unequal]") {
  Job job = empty_job(3);
  add_to_all(
      job, 0, "all_reduce", 0,
      [](uint32_t rank) { return rank == 0 ? std::vector<float>(8, kNan) : noise(rank, 8); },
      [](uint32_t rank) { return std::vector<float>(8, rank == 1 ? -kNan : kNan); }, "sum");
  CHECK(told(origins_of(job)) == List{"nan 0@0 - sent:0"});
}

TEST_CASE("origin: a value that one member alone did not get finite", "[origin][unequal]") {
  const OriginResult result = of({.ranks = 4, .steps = 4}, [](Moment& at) {
    if (at.is(3, 2, "fc1 received")) at.values[9] = kNan;
  });
  CHECK(told(result) == List{"unequal 3@2 fc1 received:0"});
}

}  // namespace
}  // namespace convtrace::test
