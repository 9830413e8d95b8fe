#include "interposer/core/observer/observer_port.h"

#include <cmath>

#include "cupti/stats/compute.h"
#include "tests/unit/core/observer_port_scene.h"

using namespace convtrace;
using namespace convtrace::engine;

TEST_CASE("observer_port: in mode snapshot values are stored, hashes stay hashes",
          "[engine][observer][snapshot]") {
  PortScene f(settings::Mode::kSnapshot);
  const std::vector<float> values{1, -2, 3, 4};
  MessageBatch batch;
  batch.tensor({.data = values.data(), .shape = {4}})
      .tensor({.capture = format::Capture::kHash, .data = values.data(), .shape = {4}});
  f.submit(batch);
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 2);
  CHECK(stats[0].capture == format::Capture::kSnapshot);
  CHECK(stats[1].capture == format::Capture::kHash);
  CHECK(f.values.has(stats[0]));
}

TEST_CASE("observer_port: an input that no record of the step describes gets statistics",
          "[engine][observer]") {
  PortScene f(settings::Mode::kStats);
  const std::vector<float> values{1, -2, 3, 4, 5, 6};
  const TensorSpec hashed{.capture = format::Capture::kHash,
                          .data = values.data(),
                          .shape = {2, 3},
                          .storage_base = reinterpret_cast<uint64_t>(values.data()),
                          .storage_bytes = 24};
  TensorSpec turned = hashed;  // the same memory in another order is another value
  turned.shape = {3, 2};
  turned.strides = {1, 3};
  TensorSpec backward = hashed;
  backward.phase = format::Phase::kBackward;
  backward.data = values.data() + 2;
  backward.shape = {2};
  MessageBatch batch;
  batch.tensor(hashed).tensor(hashed).tensor(turned).tensor(backward);
  f.submit(batch);
  const auto stats = f.sink.all<format::TensorStats>();
  using enum format::Capture;
  REQUIRE(stats.size() == 4);
  CHECK(stats[0].capture == kStats);
  CHECK(stats[1].capture == kHash);
  CHECK(stats[2].capture == kStats);
  CHECK(stats[3].capture == kHash);

  PortScene hashes(settings::Mode::kHash);
  MessageBatch again;
  again.tensor(hashed);
  hashes.submit(again);
  CHECK(hashes.sink.all<format::TensorStats>()[0].capture == kHash);
}

TEST_CASE("observer_port: tensors behind a collective are its own, also in a later step",
          "[engine][observer][collective]") {
  PortScene f(settings::Mode::kStats, 8, "4");
  const std::vector<float> values{1, 2};
  const TensorSpec tensor{.data = values.data(), .shape = {2}, .storage = 0};
  convtrace_collective call{};
  call.phase = static_cast<uint8_t>(format::Phase::kBackward);
  call.dtype = static_cast<uint8_t>(format::DType::kF32);
  call.op = f.id("all_reduce");
  call.group = f.id("c10d:0");
  call.group_rank = 1;
  call.group_size = 2;
  call.peer = format::kNoPeer;
  call.sent = call.received = 2;
  call.number = 6;
  call.id = 9;
  call.tag = 3;
  MessageBatch sent, received, others;
  f.submit(sent.step(4).collective(call).tensor(tensor));
  f.submit(received.step(5).collective_values(9, 4).tensor(tensor));
  f.submit(others.tensor(tensor));  // of a step without values
  const auto calls = f.sink.all<format::Collective>();
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].header.step == 4);
  CHECK(calls[0].place.phase == format::Phase::kBackward);
  CHECK(calls[0].op == format::StringId{call.op});
  CHECK(calls[0].number == 6);
  CHECK(calls[0].tag == 3);
  CHECK(calls[0].group_size == 2);
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 2);
  for (const format::TensorStats& one : stats) {
    CHECK(one.collective == 9);
    CHECK(one.header.step == 4);
  }
}

TEST_CASE("observer_port: a collective with a number that is none of an enumeration is refused",
          "[engine][observer][collective]") {
  PortScene f;
  convtrace_collective call{};
  call.dtype = 200;
  MessageBatch bad;
  f.submit(bad.collective(call));
  CHECK(f.sink.all<format::Collective>().empty());
  call = {};
  call.device_type = 9;
  MessageBatch worse;
  f.submit(worse.collective(call));
  CHECK(f.sink.all<format::Collective>().empty());
}

TEST_CASE("observer_port: a value there is no room for is recorded as statistics, and counted",
          "[engine][observer][snapshot]") {
  PortScene f(settings::Mode::kSnapshot);
  const std::vector<float> values(200'000, 1.5f);  // 800 kB; a third of a megabyte is for values
  MessageBatch batch;
  batch.tensor({.data = values.data(), .shape = {200'000}});
  f.submit(batch);
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 1);
  CHECK(stats[0].capture == format::Capture::kStats);
  CHECK(stats[0].stats.count == 200'000);
  const auto losses = f.sink.all<format::Loss>();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].reason == format::LossReason::kValueNotStored);
}

TEST_CASE("observer_port: padding is counted in host memory, of each row of a batch",
          "[engine][observer]") {
  PortScene f;
  const std::vector<int64_t> tokens{5, 1, 1, 1, 7, 1};
  const std::vector<uint8_t> labels{255, 3, 255};
  const TensorSpec spec{.capture = format::Capture::kHash,
                        .dtype = format::DType::kI64,
                        .data = tokens.data(),
                        .padding = format::Padding::kEmbedding,
                        .pad_index = 1};
  TensorSpec batch = spec, transposed = spec, scalar = spec, floats = spec, bytes = spec;
  batch.shape = {2, 3};
  transposed.shape = {3, 2};
  transposed.strides = {1, 3};
  transposed.storage_bytes = sizeof(int64_t) * tokens.size();
  bytes.dtype = format::DType::kU8;
  bytes.data = labels.data();
  bytes.shape = {3};
  bytes.pad_index = -1;  // not what 255 is
  floats.dtype = format::DType::kF64;
  f.submit(
      MessageBatch().tensor(batch).tensor(transposed).tensor(scalar).tensor(bytes).tensor(floats));
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 5);
  using Rows = std::vector<uint64_t>;
  const auto rows = [&stats](size_t i) {
    return Rows(stats[i].pad_rows.begin(), stats[i].pad_rows.end());
  };
  CHECK(stats[0].layout == 0);
  CHECK(stats[1].layout != 0);
  CHECK(stats[0].pad_count == 4);
  CHECK(rows(0) == Rows{2, 2});
  CHECK(stats[1].pad_count == 4);
  CHECK(rows(1) == Rows{1, 1, 2});
  CHECK(stats[2].pad_count == 0);
  CHECK(rows(2).empty());
  CHECK(stats[3].pad_count == 0);
  CHECK(stats[4].padding == format::Padding::kNone);
}

TEST_CASE(
    "observer_port: a value of which statistics alone are wanted is left to the writer thread",
    "[engine][observer]") {
  const std::vector<float> values{1, -2, 3, 4, 5, 6};
  PortScene f;
  const auto submit = [](PortScene& scene, const TensorSpec& spec) {
    scene.host.queues_values = true;
    scene.submit(MessageBatch().step(4).tensor(spec));
    const size_t computed = scene.sink.all<format::TensorStats>().size();
    CHECK(scene.host.queued.size() + computed == 1);
    return computed == 0;
  };
  const TensorSpec spec{.scope = f.id("h.0"),
                        .data = values.data(),
                        .shape = {3, 2},
                        .strides = {1, 3},
                        .storage_bytes = 24};

  SECTION("with all that the port knows of it") {
    REQUIRE(submit(f, spec));
    const FakeHost::Queued& queued = f.host.queued[0];
    CHECK(queued.shape == std::vector<uint64_t>{3, 2});
    CHECK(queued.event.header.step == 4);
    CHECK(queued.event.place.scope.value == spec.scope);
    CHECK(queued.event.address == reinterpret_cast<uint64_t>(values.data()));
    CHECK(queued.event.bytes == 24);
    CHECK(queued.event.dtype == format::DType::kF32);
    CHECK(queued.event.capture == format::Capture::kStats);
    CHECK(queued.elements.rank == 2);
    CHECK(queued.elements.count == 6);
  }
  SECTION("an input that no record has described") {
    TensorSpec input = spec;
    input.capture = format::Capture::kHash;
    REQUIRE(submit(f, input));
    CHECK(f.host.queued[0].event.capture == format::Capture::kStats);
  }
  SECTION("a hash, with whatever samples") {
    TensorSpec one = spec;
    one.capture = format::Capture::kHash;
    one.phase = format::Phase::kBackward;
    PortScene none(settings::Mode::kStats, 0), more(settings::Mode::kStats, 9);
    for (PortScene* const scene : {&f, &none, &more}) {
      REQUIRE(submit(*scene, one));
      CHECK(scene->host.queued[0].event.capture == format::Capture::kHash);
    }
  }
  SECTION("not nothing, and not indices") {
    TensorSpec one = spec;
    const bool empty = GENERATE(true, false);
    if (empty) one.shape = {0, 2};
    if (!empty) {
      one.dtype = format::DType::kI32;
      one.padding = format::Padding::kEmbedding;
    }
    CHECK_FALSE(submit(f, one));
  }
  SECTION("not without samples, and not with more of them") {
    PortScene none(settings::Mode::kStats, 0), more(settings::Mode::kStats, 9);
    CHECK_FALSE(submit(none, spec));
    CHECK_FALSE(submit(more, spec));
  }
  SECTION("not what is stored, and not what may be poisoned") {
    PortScene stored(settings::Mode::kSnapshot), poison(settings::Mode::kStats, 8, nullptr, true);
    CHECK_FALSE(submit(stored, spec));
    TensorSpec of_op = spec;
    of_op.op = poison.id("my::op");
    CHECK_FALSE(submit(poison, of_op));
  }
}

TEST_CASE("observer_port: a CPU tensor that is not queued is computed before submit returns",
          "[engine][observer]") {
  PortScene f;
  const std::vector<float> values{1, -2, 3, NAN, 5, 6};
  f.journal.report(values.data(), 24, 0);
  MessageBatch batch;
  batch.step(4).tensor({.scope = f.id("h.0"),
                        .call = 1,
                        .slot = f.id("output:0"),
                        .version = 3,
                        .data = values.data() + 1,
                        .shape = {2, 2},
                        .storage = 77,
                        .storage_base = reinterpret_cast<uint64_t>(values.data()),
                        .storage_bytes = 24});
  CHECK(f.submit(batch) == CONVTRACE_SUBMIT_CAPTURE);
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 1);
  const format::TensorStats& s = stats[0];
  CHECK(s.header.step == 4);
  CHECK(f.definitions.text(s.place.scope) == "h.0");
  CHECK(s.place.call == 1);
  CHECK(std::vector<uint64_t>(s.shape.begin(), s.shape.end()) == std::vector<uint64_t>{2, 2});
  CHECK(s.value.storage == 77);
  CHECK(s.value.offset == 4);
  CHECK(s.value.version == 3);
  CHECK(s.value.generation == f.journal.cpu_block(s.address).generation);
  CHECK(s.value.generation != 0);
  CHECK(s.bytes == 16);
  CHECK(s.stats.count == 4);
  CHECK(s.stats.nan == 1);
  CHECK(s.stats.max.as_f64() == 5);
  CHECK(s.samples.size() == 16);
  stats::StatsResult expected;
  REQUIRE(stats::compute_on_cpu(stats::dense_view(values.data() + 1, format::DType::kF32, 4),
                                format::Capture::kStats, expected)
              .ok());
  CHECK(s.stats.hash == expected.stats.hash);
}

TEST_CASE("observer_port: steps outside the filter cost and record nothing", "[engine][observer]") {
  PortScene f(settings::Mode::kStats, 8, "2");
  const float value = 1;
  const auto tensor_of_step = [&](uint32_t index) {
    MessageBatch batch;
    batch.step(index).tensor({.data = &value, .shape = {1}});
    return f.submit(batch);
  };
  CHECK(tensor_of_step(1) == 0);
  CHECK(tensor_of_step(2) == CONVTRACE_SUBMIT_CAPTURE);
  CHECK(tensor_of_step(3) == 0);
  REQUIRE(f.sink.all<format::TensorStats>().size() == 1);
  CHECK(f.sink.all<format::TensorStats>()[0].header.step == 2);
  CHECK(f.sink.all<format::Step>().size() == 3);
}

TEST_CASE("observer_port: the mode bounds what is computed", "[engine][observer]") {
  const float value = 1;
  MessageBatch batch;
  batch.tensor({.data = &value, .shape = {1}});
  PortScene hash(settings::Mode::kHash);
  hash.submit(batch);
  REQUIRE(hash.sink.all<format::TensorStats>().size() == 1);
  CHECK(hash.sink.all<format::TensorStats>()[0].capture == format::Capture::kHash);
  PortScene launches(settings::Mode::kLaunches);
  CHECK(launches.submit(batch) == 0);
  CHECK(launches.sink.all<format::TensorStats>().empty());
}

TEST_CASE("observer_port: values of a module that is filtered out are not computed",
          "[engine][observer]") {
  PortScene f;
  const std::vector<float> values = {1, 2, 3, 4};
  MessageBatch batch;
  for (const char* scope : {"secret.0", "open.0"}) {
    batch.tensor({.scope = f.id(scope),
                  .data = values.data(),
                  .shape = {4},
                  .storage = 1,
                  .storage_base = reinterpret_cast<uint64_t>(values.data()),
                  .storage_bytes = 16});
  }
  f.submit(batch);
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 1);
  CHECK(f.definitions.text(stats[0].place.scope) == "open.0");
}

TEST_CASE("observer_port: samples are kept as asked", "[engine][observer]") {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  MessageBatch batch;  // transposed: logical order is not memory order
  batch.tensor({.data = values.data(), .shape = {8, 8}, .strides = {1, 8}, .storage_bytes = 256});
  PortScene none(settings::Mode::kStats, 0);
  none.submit(batch);
  REQUIRE(none.sink.all<format::TensorStats>().size() == 1);
  CHECK(none.sink.all<format::TensorStats>()[0].samples.empty());
  PortScene many(settings::Mode::kStats, 10);
  many.submit(batch);
  const auto stats = many.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 1);
  REQUIRE(stats[0].leading.size() == 40);
  std::vector<float> leading(10);
  std::memcpy(leading.data(), stats[0].leading.data(), 40);
  CHECK(leading == std::vector<float>{0, 8, 16, 24, 32, 40, 48, 56, 1, 9});
}

TEST_CASE("observer_port: scopes, facts, losses and diagnostics pass through",
          "[engine][observer]") {
  PortScene f;
  MessageBatch batch;
  batch.scope(f.id("h.1"), 2, true)
      .scope(f.id("h.1"), 2, false)
      .fact(f.id("version.torch"), f.id("2.13.0"))
      .loss(format::LossReason::kTensorKind, 3)
      .spent(4711)
      .diagnostic(format::Level::kWarning, f.id("observer"), f.id("hello"));
  f.submit(batch);
  const auto scopes = f.sink.all<format::Scope>();
  REQUIRE(scopes.size() == 2);
  CHECK(scopes[0].enter);
  CHECK_FALSE(scopes[1].enter);
  CHECK(scopes[1].place.call == 2);
  CHECK(f.host.facts ==
        std::vector<std::pair<std::string, std::string>>{{"version.torch", "2.13.0"}});
  CHECK(f.sink.lost(format::LossReason::kTensorKind) == 3);
  CHECK(f.host.spent_ns == 4711);
  REQUIRE(f.sink.all<format::Diagnostic>().size() == 1);
  CHECK(f.sink.all<format::Diagnostic>()[0].message == "hello");
}

TEST_CASE("observer_port: a fact of the running program is an event of the step at hand",
          "[engine][observer]") {
  PortScene f;
  MessageBatch batch;
  batch.step(7)
      .event_fact(f.id("h.1"), f.id("class"), "GELU")
      .event_fact(0, f.id("rng.torch"), "0123456789abcdef0");
  f.submit(batch);
  const auto facts = f.sink.all<format::Fact>();
  REQUIRE(facts.size() == 2);
  CHECK(facts[0].header.step == 7);
  CHECK(facts[0].scope.value == f.id("h.1"));
  CHECK(facts[0].name.value == f.id("class"));
  CHECK(facts[0].value == "GELU");
  CHECK_FALSE(facts[1].scope);
  CHECK(facts[1].value == "0123456789abcdef0");
  CHECK(f.host.facts.empty());  // nothing for META
}

TEST_CASE("observer_port: what is told of an op becomes its events, with its memory's life",
          "[engine][observer][alias]") {
  using format::OpMoment;
  PortScene f;
  constexpr uint64_t kBase = 0x10000, kBytes = 4096;
  f.ops.expect();
  f.journal.report(reinterpret_cast<const void*>(kBase), kBytes, 0);
  const uint64_t generation = f.journal.cpu_block(kBase).generation;
  MessageBatch batch;
  batch.op_begin({.scope = f.id("mlp"), .op = f.id("demo::relu")})
      .op({.scope = f.id("mlp"),
           .op = f.id("demo::relu"),
           .operands = {operand(f.id("input:0"), false, 1, kBase, kBytes),
                        operand(f.id("output:0"), true, 2, kBase, kBytes)}});
  CHECK(f.submit(batch) == (CONVTRACE_SUBMIT_CAPTURE | CONVTRACE_SUBMIT_WATCH));
  CHECK(f.host.ops > 0);
  f.submit(MessageBatch().op_stack({f.id("forward (train.py:7)")}));
  f.submit(MessageBatch().storage_dead(1, {f.id("<module> (train.py:9)")}));

  const auto events = f.sink.all<format::Op>();
  REQUIRE(events.size() == 6);
  const OpMoment order[] = {OpMoment::kBegin, OpMoment::kInput, OpMoment::kOutput,
                            OpMoment::kEnd,   OpMoment::kStack, OpMoment::kStorageDeath};
  for (size_t i = 0; i < events.size(); ++i) CHECK(events[i].moment == order[i]);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(f.definitions.text(events[i].op) == "demo::relu");
    CHECK(f.definitions.text(events[i].place.scope) == "mlp");
  }
  const format::Op& input = events[1];
  CHECK(f.definitions.text(input.slot) == "input:0");
  CHECK(input.address == kBase);
  CHECK(input.bytes == kBytes);
  CHECK(input.value.storage == 1);
  CHECK(input.value.generation == generation);
  CHECK(input.frees_reported);
  CHECK_FALSE(f.definitions.stack(input.stack).empty());
  CHECK(f.definitions.text(f.definitions.stack(events[4].stack)[0]) == "forward (train.py:7)");
  CHECK(events[5].value.storage == 1);
  CHECK(f.definitions.text(f.definitions.stack(events[5].stack)[0]) == "<module> (train.py:9)");
}

TEST_CASE("observer_port: allocations have stacks while an op is new at its place or shares memory",
          "[engine][observer][alias]") {
  PortScene f;
  uint64_t next = 0x100000;
  const auto has_stack = [&] {
    const uint64_t address = next += 0x1000;
    f.journal.report(reinterpret_cast<const void*>(address), 64, 0);
    return !f.journal.allocation_stack(f.journal.cpu_block(address).generation).empty();
  };
  const auto step = [&](uint32_t index, const char* scope, uint64_t output = 0x20000) {
    MessageBatch batch;
    batch.step(index);
    if (scope != nullptr) {
      batch.op({.scope = f.id(scope),
                .op = f.id("demo::relu"),
                .operands = {operand(f.id("input:0"), false, 1, 0x10000, 64),
                             operand(f.id("output:0"), true, 2, output, 64)}});
    }
    f.submit(batch);
    return has_stack();
  };
  CHECK_FALSE(has_stack());
  f.ops.expect();
  CHECK(step(0, nullptr));
  CHECK(step(9, nullptr));  // they may be called at any time
  CHECK(step(10, "a"));
  CHECK(step(11, "a"));
  CHECK(step(12, "a"));
  CHECK_FALSE(step(13, "a"));
  f.ops.expect();
  CHECK_FALSE(has_stack());
  CHECK(step(20, "b"));
  CHECK(step(22, "a"));
  CHECK_FALSE(step(23, "b"));
  CHECK(step(30, "a", 0x10000));
  CHECK(step(32, "a"));
  CHECK_FALSE(step(33, "a"));
}

TEST_CASE("observer_port: no allocation has a stack because of ops where none are wanted",
          "[engine][observer][alias]") {
  PortScene f;
  MessageBatch batch;
  batch.op(
      {.op = f.id("demo::relu"), .operands = {operand(f.id("input:0"), false, 1, 0x1000, 64)}});
  f.submit(batch);
  f.journal.report(reinterpret_cast<const void*>(0x5000), 64, 0);
  CHECK(f.journal.allocation_stack(f.journal.cpu_block(0x5000).generation).empty());
}

TEST_CASE("observer_port: an op that shares nothing is told, and not watched",
          "[engine][observer][alias]") {
  PortScene f;
  MessageBatch batch;
  batch.op({.op = f.id("demo::relu"),
            .operands = {operand(f.id("input:0"), false, 1, 0x1000, 64),
                         operand(f.id("output:0"), true, 2, 0x2000, 64)}});
  CHECK(f.submit(batch) == CONVTRACE_SUBMIT_CAPTURE);
  CHECK(f.sink.all<format::Op>().size() == 3);
}
