#include <cmath>

#include "tests/unit/tools/origin/job.h"

namespace convtrace::test {
namespace {

std::vector<std::vector<float>> parts(uint32_t ranks, size_t elements) {
  std::vector<std::vector<float>> all;
  for (uint32_t rank = 0; rank < ranks; ++rank) all.push_back(noise(20 + rank, elements));
  return all;
}

/// One collective of all ranks that sends `sent` and whose members receive `received`.
OriginResult reduced(const std::vector<std::vector<float>>& sent,
                     const std::vector<float>& received, const std::string& reduction = "sum",
                     format::DType dtype = format::DType::kF32) {
  Job job = empty_job(static_cast<uint32_t>(sent.size()));
  add_to_all(
      job, 0, "all_reduce", 0, [&](uint32_t rank) { return sent[rank]; },
      [&](uint32_t) { return received; }, reduction);
  for (RankEvents& rank : job) rank.call(0, "all_reduce").dtype = dtype;
  return origins_of(job);
}

TEST_CASE("origin wrong-sum: a contribution that is missing, for tensors of any size",
          "[origin][sum]") {
  for (const size_t elements : {size_t{1}, size_t{12}, size_t{64}, size_t{5000}}) {
    const auto sent = parts(4, elements);
    CHECK(told(reduced(sent, sum_of(sent))) == List{});
    auto without = sent;
    without.erase(without.begin() + 2);
    const OriginResult result = reduced(sent, sum_of(without));
    REQUIRE(result.origins.size() == 1);
    const Origin& origin = result.origins[0];
    CHECK(origin.kind == Kind::kWrongSum);
    if (elements == 1) continue;  // any member explains one number
    CHECK(origin.rank == 2U);
    CHECK(contains(origin.text, "It lacks the contribution of rank 2."));
    CHECK(has_line(origin.evidence, "times what rank 2 sent"));
    CHECK(origin.ranks == std::vector<uint32_t>{0, 1, 3});
  }
}

TEST_CASE("origin wrong-sum: a contribution twice, or with a factor", "[origin][sum]") {
  const auto sent = parts(5, 300);
  auto twice = sent;
  twice.push_back(sent[1]);
  const OriginResult doubled = reduced(sent, sum_of(twice));
  REQUIRE(told(doubled) == List{"wrong-sum 1@0 - received:0"});
  CHECK(contains(doubled.origins[0].text, "It has the contribution of rank 1 twice."));
  auto scaled = sent;
  for (float& value : scaled[3]) value *= 4;
  const OriginResult four = reduced(sent, sum_of(scaled));
  REQUIRE(told(four) == List{"wrong-sum 3@0 - received:0"});
  CHECK(contains(four.origins[0].text, "times 4."));
}

TEST_CASE("origin wrong-sum: memory of nobody", "[origin][sum]") {
  const auto sent = parts(4, 300);
  std::vector<float> damaged = sum_of(sent);
  damaged[7] = 1e6F;
  const OriginResult result = reduced(sent, damaged);
  REQUIRE(told(result) == List{"wrong-sum ?@0 - received:0"});
  CHECK(result.origins[0].suspects == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(contains(result.origins[0].text, "No single member's contribution"));
}

TEST_CASE("origin wrong-sum: a result that was written again before it was read", "[origin][sum]") {
  const auto sent = parts(4, 300);
  std::vector<float> average = sum_of(sent);
  for (float& value : average) value /= 4;
  for (const std::vector<float>& other : {average, noise(999, 300)}) {
    const OriginResult result = reduced(sent, other);
    CHECK(told(result) == List{});
    CHECK(has_line(result.notes, "may have been written again before they were read"));
  }
}

TEST_CASE("origin wrong-sum: averages", "[origin][sum]") {
  const auto sent = parts(4, 100);
  std::vector<float> average = sum_of(sent);
  for (float& value : average) value /= 4;
  CHECK(told(reduced(sent, average, "avg")) == List{});
  auto without = sent;
  without.pop_back();
  std::vector<float> lacking = sum_of(without);
  for (float& value : lacking) value /= 4;
  CHECK(told(reduced(sent, lacking, "avg")) == List{"wrong-sum 3@0 - received:0"});
}

/// Rounds as bf16 does.
float bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

TEST_CASE("origin wrong-sum: rounding of a type with few bits is none", "[origin][sum]") {
  for (const uint32_t ranks : {2U, 8U, 16U, 32U}) {
    auto sent = parts(ranks, 400);
    std::vector<float> sum(400, 0);
    for (auto& part : sent)
      for (size_t i = 0; i < part.size(); ++i) {
        part[i] = bf16(part[i]);
        sum[i] = bf16(sum[i] + part[i]);
      }
    CHECK(told(reduced(sent, sum, "sum", format::DType::kBF16)) == List{});
    std::vector<float> lacking(400, 0);
    for (size_t part = 1; part < sent.size(); ++part)
      for (size_t i = 0; i < 400; ++i) lacking[i] = bf16(lacking[i] + sent[part][i]);
    if (ranks <= 16) {
      const OriginResult result = reduced(sent, lacking, "sum", format::DType::kBF16);
      CHECK(told(result) == List{"wrong-sum 0@0 - received:0"});
    }
  }
}

TEST_CASE("origin wrong-sum: cancellation is rounding", "[origin][sum]") {
  // Large contributions that cancel out leave the rounding of partial sums.
  std::vector<std::vector<float>> sent = {std::vector<float>(200, 1e6F), noise(1, 200),
                                          std::vector<float>(200, -1e6F), noise(2, 200)};
  CHECK(told(reduced(sent, sum_of(sent))) == List{});
}

TEST_CASE("origin wrong-sum: integers are exact", "[origin][sum]") {
  Job job = empty_job(3);
  const auto add = [&](uint64_t sum) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      CollectiveSpec call =
          call_of(job, rank, "all_reduce", job[rank].events.size() / 3, {}, {}, "sum");
      call.dtype = format::DType::kI64;
      const uint64_t id = call.number + 1;
      job[rank].add(0, call);
      for (const bool received : {false, true}) {
        StatsSpec value{.scope = {},
                        .slot = received ? "received:0" : "sent:0",
                        .phase = Phase::kBackward,
                        .dtype = format::DType::kI64};
        value.collective = id;
        value.stats.count = value.stats.finite = 100;
        value.stats.hash = received ? sum : rank + 5;
        const uint64_t total = received ? sum : 100 * (rank + 1);
        value.stats.sum.lo = value.stats.l1.lo = total;
        value.stats.max = format::Scalar::i64(10);
        job[rank].add(0, value);
      }
    }
  };
  add(600);
  CHECK(told(origins_of(job)) == List{});
  add(599);
  CHECK(told(origins_of(job)) == List{"wrong-sum ?@0 - received:0"});
}

TEST_CASE("origin wrong-sum: the largest of members", "[origin][sum]") {
  const auto sent = parts(3, 40);
  std::vector<float> largest = sent[0];
  for (const auto& part : sent)
    for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], part[i]);
  CHECK(told(reduced(sent, largest, "max")) == List{});
  for (float& value : largest) value = std::min(value, 0.5F);
  CHECK(told(reduced(sent, largest, "max")).size() == 1);
  CHECK(told(reduced(sent, noise(4, 40), "product")) == List{});
  CHECK(told(reduced(sent, noise(4, 40), "premul_sum")) == List{});
}

TEST_CASE("origin wrong-sum: reduce and reduce_scatter", "[origin][sum]") {
  for (const bool faulty : {false, true}) {
    Job job = empty_job(4);
    const auto sent = parts(4, 400);
    auto counted = sent;
    if (faulty) counted.erase(counted.begin() + 1);
    const std::vector<float> sum = sum_of(counted);
    for (uint32_t rank = 0; rank < 4; ++rank) {
      CollectiveSpec reduce = call_of(job, rank, "reduce", 0, sent[rank],
                                      rank == 2 ? sum : std::vector<float>(), "sum");
      reduce.peer = 2;
      job[rank].add(0, reduce);
      const auto begin = sum.begin() + 100 * static_cast<ptrdiff_t>(rank);
      job[rank].add(0, call_of(job, rank, "reduce_scatter", 1, sent[rank],
                               std::vector<float>(begin, begin + 100), "sum"));
      CollectiveSpec list =
          call_of(job, rank, "reduce_scatter", 2, {}, {begin, begin + 100}, "sum");
      for (int part = 0; part < 4; ++part)
        list.sent.emplace_back(sent[rank].begin() + 100 * part,
                               sent[rank].begin() + 100 * (part + 1));
      job[rank].add(0, list);
    }
    const OriginResult result = origins_of(job);
    if (!faulty) {
      CHECK(told(result) == List{});
    } else {
      REQUIRE(!result.origins.empty());
      for (const Origin& origin : result.origins) {  // of one tensor by its sum alone
        CHECK(origin.kind == Kind::kWrongSum);
        CHECK(origin.rank == 1U);
      }
    }
  }
}

TEST_CASE("origin wrong-sum: hashes alone, values of some members, or none", "[origin][sum]") {
  const auto sent = parts(3, 50);
  for (const int without : {0, 1, 2}) {
    Job job = empty_job(3);
    add_to_all(
        job, 0, "all_reduce", 0, [&](uint32_t rank) { return sent[rank]; },
        [&](uint32_t) { return noise(77, 50); }, "sum");
    CollectiveSpec& call = job[1].call(0, "all_reduce");
    if (without == 0) {
      call.capture = format::Capture::kHash;
    } else if (without == 1) {
      call.with_values = false;
    } else {
      for (RankEvents& rank : job) rank.call(0, "all_reduce").with_values = false;
    }
    CHECK(told(origins_of(job)) == List{});
  }
}

}  // namespace
}  // namespace convtrace::test
