#include <algorithm>
#include <map>
#include <set>

#include "tests/integration/cuda_run.h"

namespace convtrace::test {
namespace {

constexpr int kCount = 256;
constexpr uint64_t kFirstId = uint64_t{1} << 32;

/// One call with its values; null where there is none.
struct Recorded {
  Json event, sent, received;
};

/// Runs a scenario of cuda_nccl and holds it to what it prints.
class NcclRun {
 public:
  explicit NcclRun(std::string scenario, std::string how = "linked")
      : scenario_(std::move(scenario)), how_(std::move(how)) {
    cuda_.with("FAKECUDA_DEVICES=2");
  }
  CudaRun& cuda() { return cuda_; }

  std::string run(const std::string& pause = pause_ms()) {
    const ProcessResult result = cuda_.run({"cuda_nccl", scenario_, pause, how_});
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    return result.out;
  }

  /// @return the calls in order; each value belongs to one of them, and has its place.
  std::vector<Recorded> calls() const {
    std::vector<Recorded> found;
    std::map<uint64_t, size_t> by_id;
    for (const Json& event : cuda_.records("collective")) {
      const uint64_t id = event.at("id");
      CHECK(id >= kFirstId);
      REQUIRE(by_id.emplace(id, found.size()).second);
      found.push_back({event, nullptr, nullptr});
    }
    for (const Json& value : cuda_.records("stats")) {
      REQUIRE(by_id.contains(value.at("collective")));
      Recorded& call = found[by_id.at(value.at("collective"))];
      Json& place = value.at("slot") == "sent:0" ? call.sent : call.received;
      CHECK(place.is_null());
      CHECK((value.at("slot") == "sent:0" || value.at("slot") == "received:0"));
      CHECK(value.at("op") == call.event.at("op"));
      CHECK(value.at("device") == call.event.at("device"));
      CHECK(value.at("dtype") == call.event.at("dtype"));
      place = value;
    }
    return found;
  }
  [[nodiscard]] Json lost() const { return CudaRun::info(cuda_.trace()).at("lost"); }

 private:
  std::string scenario_, how_;
  CudaRun cuda_;
};

/// What a buffer of the program holds: its first and last element, and how many.
struct Extremes {
  double min = 0, max = 0;
  int count = 0;
};
/// Of rank r's input, from element `first` on.
Extremes input(int rank, int first = 0, int count = kCount) {
  return {1000.0 * rank + first, 1000.0 * rank + first + count - 1, count};
}

void check_value(const Json& value, const Extremes& expected) {
  CAPTURE(value.dump());
  REQUIRE_FALSE(value.is_null());
  CHECK(value.at("min") == expected.min);
  CHECK(value.at("max") == expected.max);
  CHECK(value.at("count") == expected.count);
}

struct Expected {
  const char* op;
  int sent[2], received[2];  ///< elements, by rank
  const char* reduction = nullptr;
  int root = -1;
};

TEST_CASE("nccl: each function is recorded once, with what it sends and receives") {
  const std::string how = GENERATE("linked", "dlsym");
  CAPTURE(how);
  NcclRun run("all", how);
  CHECK(run.run() == "all right\n");
  CHECK(run.lost().empty());
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 22);
  constexpr int kAll = 2 * kCount;
  const Expected expected[] = {{"all_reduce", {kCount, kCount}, {kCount, kCount}, "sum"},
                               {"broadcast", {0, kCount}, {kCount, kCount}, nullptr, 1},
                               {"reduce", {kCount, kCount}, {kCount, 0}, "max", 0},
                               {"all_gather", {kCount, kCount}, {kAll, kAll}},
                               {"reduce_scatter", {kAll, kAll}, {kCount, kCount}, "avg"},
                               {"all_to_all", {kAll, kAll}, {kAll, kAll}},
                               {"gather", {kCount, kCount}, {0, kAll}, nullptr, 1},
                               {"scatter", {kAll, 0}, {kCount, kCount}, nullptr, 0}};
  for (size_t i = 0; i < 16; ++i) {
    const Expected& one = expected[i / 2];
    const Json& event = calls[i].event;
    const size_t rank = i % 2;
    CAPTURE(event.dump());
    CHECK(event.at("op") == one.op);
    CHECK(event.at("group_rank") == rank);
    CHECK(event.at("group_size") == 2);
    CHECK(event.at("device") == (rank == 0 ? "cuda:0" : "cuda:1"));
    CHECK(event.at("number") == i / 2);
    CHECK(event.at("sent") == one.sent[rank]);
    CHECK(event.at("received") == one.received[rank]);
    CHECK(event.at("reduction") == (one.reduction == nullptr ? Json() : Json(one.reduction)));
    CHECK(event.at("peer") == (one.root < 0 ? Json() : Json(one.root)));
    CHECK(event.at("group") == calls[0].event.at("group"));
    CHECK(calls[i].sent.is_null() == (one.sent[rank] == 0));
    CHECK(calls[i].received.is_null() == (one.received[rank] == 0));
  }
}

TEST_CASE("nccl: values are those of the buffers") {
  NcclRun run("all");
  run.run();
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 22);
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    const auto call = [&](int n) -> const Recorded& {
      return calls[static_cast<size_t>(2 * n + rank)];
    };
    check_value(call(0).sent, input(rank));
    check_value(call(0).received, {1000, 1510, kCount});
    CHECK(call(1).received.at("hash") == calls[1].sent.at("hash"));  // sent under all_reduce, too
    CHECK(call(1).received.at("hash") == calls[3].sent.at("hash"));
    check_value(call(3).received, {0, 1255, 2 * kCount});
    check_value(call(4).sent, input(rank, 0, 2 * kCount));
    check_value(call(4).received, {500.0 + rank * kCount, 755.0 + rank * kCount, kCount});
    check_value(call(5).received, {1.0 * rank * kCount, 1255.0 + rank * kCount, 2 * kCount});
    check_value(call(7).received, input(0, rank * kCount));
    // Of the transfers each rank calls send, then recv.
    const Recorded& send = calls[static_cast<size_t>(16 + 2 * rank)];
    const Recorded& received = calls[static_cast<size_t>(16 + 2 * (1 - rank) + 1)];
    CHECK(send.event.at("op") == "send");
    CHECK(send.event.at("peer") == 1 - rank);
    CHECK(send.event.at("number") == 0);
    CHECK(received.event.at("op") == "recv");
    CHECK(received.event.at("peer") == rank);
    CHECK(send.sent.at("hash") == received.received.at("hash"));
    check_value(call(10).received, input(0));  // bcast
  }
  check_value(calls[4].received, {1000, 1255, kCount});  // reduce: of the root alone
  check_value(calls[13].received, {0, 1255, 2 * kCount});
  check_value(calls[20].sent, input(0));
}

TEST_CASE("nccl: in place what is sent is read before and what is received behind the call") {
  NcclRun run("in-place");
  run.run();
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 6);
  for (int rank = 0; rank < 2; ++rank) {
    const Recorded* const call = &calls[static_cast<size_t>(rank)];
    check_value(call[0].sent, input(rank));
    check_value(call[0].received, {1000, 1510, kCount});
    check_value(call[2].sent, input(rank, rank * kCount));
    check_value(call[2].received, {0, 1511, 2 * kCount});
    check_value(call[4].sent, input(rank, 0, 2 * kCount));
    check_value(call[4].received, {1000.0 + 512 * rank, 1510.0 + 512 * rank, kCount});
    CHECK(call[0].sent.at("address") == call[0].received.at("address"));
  }
}

TEST_CASE("nccl: values are read at their place in the stream") {
  NcclRun run("order");
  run.run();
  for (const Recorded& call : run.calls()) {
    check_value(call.sent, {7, 7, kCount});
    check_value(call.received, {14, 14, kCount});
  }
}

TEST_CASE("nccl: communicators are told apart, and their members know them by one name") {
  NcclRun run("communicators");
  run.run();
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 10);
  const auto group = [&](size_t i) { return calls[i].event.at("group").get<std::string>(); };
  const auto number = [&](size_t i) { return calls[i].event.at("number").get<int>(); };
  for (size_t i = 0; i < 8; i += 2) {
    CHECK(group(i) == group(i + 1));
    CHECK(number(i) == number(i + 1));
  }
  CHECK(std::set{group(0), group(2), group(6), group(8), group(9)}.size() == 5);
  CHECK(group(0) == group(4));
  CHECK(std::vector{number(0), number(2), number(4)} == std::vector{0, 0, 1});
  CHECK(group(0).starts_with("nccl:"));
  CHECK(group(0).size() == std::string("nccl:").size() + 16);
  CHECK(group(6) == group(2) + "/0.0");  // made of the communicator that the second call used
  CHECK(group(8) == group(2) + "/1.5");
  CHECK(group(9) == group(2) + "/2.shrunk");
  CHECK(calls[6].event.at("group_rank") == 1);  // its keys turn the order around
  CHECK(calls[7].event.at("group_rank") == 0);
  CHECK(calls[8].event.at("group_size") == 1);
  CHECK(calls[0].event.at("members").is_null());
  CHECK(run.lost().empty());
}

TEST_CASE("nccl: members are known of a communicator of all ranks of the job") {
  NcclRun run("communicators");
  run.cuda().with("RANK=0").with("WORLD_SIZE=2");
  run.run();
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 10);
  CHECK(calls[0].event.at("members") == "0-1");
  CHECK(calls[1].event.at("members").is_null());  // rank 1 of it is not this process's
  CHECK(calls[8].event.at("members").is_null());
}

TEST_CASE("nccl: a communicator with the handle of a former one is another one") {
  NcclRun run("handles");
  CHECK(run.run() == "all right\n");
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 6);
  std::map<std::string, std::vector<int>> numbers;
  for (const Recorded& call : calls)
    numbers[call.event.at("group")].push_back(call.event.at("number"));
  std::set<std::vector<int>> of_each;
  for (const auto& [group, its] : numbers) of_each.insert(its);
  CHECK(of_each == std::set<std::vector<int>>{{0}, {0, 1}, {0, 1, 2}});
}

TEST_CASE(
    "nccl: while a stream is captured calls are recorded without values, and nothing is added") {
  NcclRun run("capture");
  CHECK(run.run() == "4 nodes\nall right\n");  // two kernels of each collective
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 3);
  CHECK_FALSE(calls[0].sent.is_null());
  CHECK_FALSE(calls[0].received.is_null());
  for (size_t i = 1; i < 3; ++i) {
    CHECK(calls[i].sent.is_null());
    CHECK(calls[i].received.is_null());
  }
  CHECK(run.lost() == Json{{"stream not safe to use", 4}});
}

TEST_CASE("nccl: errors come back unchanged, and nothing is read of what did not come") {
  NcclRun run("errors");
  run.cuda().with("FAKENCCL_FAIL=ncclReduce:3");
  CHECK(run.run() == "4 4 3 5\nall right\n");
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 2);  // the communicator of the other call is none
  for (const Recorded& call : calls) CHECK(call.received.is_null());
}

TEST_CASE("nccl: what NCCL enqueues later is not read before it is there") {
  NcclRun run("nonblocking");
  run.cuda().with("FAKENCCL_NONBLOCKING=1");
  CHECK(run.run() == "7\nall right\n");
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 1);
  check_value(calls[0].sent, input(0));
  CHECK(calls[0].received.is_null());
  CHECK(run.lost() == Json{{"stream not safe to use", 1}});
}

TEST_CASE("nccl: other types and reductions, nothing to move, groups in groups") {
  NcclRun run("oddities");
  run.run();
  const std::vector<Recorded> calls = run.calls();
  REQUIRE(calls.size() == 6);
  CHECK(calls[0].event.at("reduction") == "premul_sum");
  check_value(calls[0].received, {0, 127.5, kCount});
  CHECK(calls[1].event.at("dtype") == "bf16");
  CHECK(calls[1].received.at("bytes") == 2 * kCount);
  CHECK(calls[2].event.at("dtype") == "i64");
  CHECK(calls[2].event.at("reduction") == "min");
  CHECK(calls[2].sent.is_null());
  CHECK(calls[3].event.at("reduction") == "product");
  CHECK(calls[3].sent.is_null());  // its group was given up
  CHECK(calls[3].received.is_null());
  check_value(calls[4].sent, {3, 3, kCount});
  check_value(calls[5].received, {3, 3, kCount});
  CHECK(calls[0].event.at("group") != calls[4].event.at("group"));
}

TEST_CASE("nccl: values are those of the steps and the mode that are asked for") {
  SECTION("no step") {
    NcclRun run("all");
    run.cuda().with("CONVTRACE_STEPS=5-");
    run.run("0");  // nothing is prepared
    CHECK(run.calls().size() == 22);
    CHECK(run.cuda().records("stats").empty());
    CHECK(run.lost().empty());
  }
  SECTION("launches alone") {
    NcclRun run("all");
    run.cuda().with("CONVTRACE_MODE=launches");
    run.run("0");  // nothing is prepared
    CHECK(run.calls().size() == 22);
    CHECK(run.cuda().records("stats").empty());
  }
  SECTION("hashes") {
    NcclRun run("all");
    run.cuda().with("CONVTRACE_MODE=hash");
    run.run();
    const std::vector<Recorded> calls = run.calls();
    REQUIRE(calls.size() == 22);
    CHECK(calls[0].sent.at("capture") == "hash");
    CHECK(calls[0].received.at("hash") == calls[1].received.at("hash"));
  }
}

TEST_CASE("nccl: each thread has its own group and place, and ids are given once") {
  NcclRun run("threads");
  run.run();
  CHECK(run.calls().size() == 400);  // checks the ids
  // On a busy machine results wait longer than the ring has room; what found none is counted.
  const size_t without_room = run.lost().value("statistics ring full", 0);
  CHECK(run.cuda().records("stats").size() + without_room == 800);
}

TEST_CASE("nccl: a program that is not traced gets NCCL's own results") {
  NcclRun run("all");
  run.cuda().with("CONVTRACE=0");
  CHECK(run.run("0") == "all right\n");
  CHECK(run.cuda().traces().empty());
}

}  // namespace
}  // namespace convtrace::test
