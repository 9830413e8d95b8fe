#include "interposer/engine/observer_port.h"

#include <cmath>

#include "cupti/stats/compute.h"
#include "format/base/log.h"
#include "interposer/engine/tensor_request.h"
#include "tests/support/catch.h"
#include "tests/support/observer_messages.h"
#include "tests/unit/engine/recording_sink.h"

using namespace convtrace;
using namespace convtrace::engine;
using namespace convtrace::test;

namespace {

class NoListener final : public MemoryListener {
  void on_allocated(const MemoryReport&, const cupti::MemoryRange&,
                    std::span<void* const>) override {}
  void on_freed(const MemoryReport&, const cupti::MemoryRange&) override {}
  void on_reports_lost(uint64_t) noexcept override {}
};

class FakeHost final : public ObserverHost {
 public:
  format::NotSampled submit_to_device(std::span<const cupti::DeviceRequest> batch,
                                      uint64_t stream) noexcept override {
    batches.push_back({stream, batch.size()});
    for (const cupti::DeviceRequest& request : batch) {
      shapes.emplace_back(request.event.shape.begin(), request.event.shape.end());
    }
    return answer;
  }
  void on_custom_op() noexcept override { ++ops; }
  void on_fact(std::string_view name, std::string_view value) override {
    facts.emplace_back(name, value);
  }

  format::NotSampled answer = format::NotSampled::kSampled;
  std::vector<std::pair<uint64_t, size_t>> batches;
  std::vector<std::vector<uint64_t>> shapes;
  std::vector<std::pair<std::string, std::string>> facts;
  int ops = 0;
};

struct Fixture {
  explicit Fixture(settings::Mode mode_in = settings::Mode::kStats, uint32_t samples_in = 8,
                   const char* steps_in = nullptr)
      : mode(mode_in), samples(samples_in), wanted(step_set(steps_in)) {
    REQUIRE(state.begin_arming());
    state.activate();
  }

  static settings::StepSet step_set(const char* text) {
    return text != nullptr ? settings::StepSet::parse_steps(text).value() : settings::StepSet{};
  }
  uint32_t submit(const MessageBatch& batch) { return port.submit(batch.bytes()); }
  uint32_t id(std::string_view text) { return definitions.intern(text).value; }

  settings::Mode mode;
  uint32_t samples;
  settings::StepSet wanted;
  State state;
  RecordingSink sink;
  format::Definitions definitions;
  cupti::AddressMap addresses;
  NoListener listener;
  MemoryJournal journal{addresses, listener};
  StackTexts stacks{definitions};
  settings::RuleBook rules;
  AliasWatch aliases{{sink, definitions, addresses, stacks, rules}};
  StepControl steps{mode, wanted};
  FakeHost host;
  NameFilter names{{}, settings::compile_patterns("secret.*").value(), definitions};
  CaptureRules captures{mode, rules, definitions, true, samples};
  Doorbell doorbell;
  ValueStore values{{.memory_bytes = 1 << 20, .threads = 1}, doorbell, sink};
  ObserverPort port{{state, sink, definitions, addresses, journal, aliases, steps, host, captures,
                     values, names}};
};

const format::Device kCuda0{format::Device::Type::kCuda, 0};

}  // namespace

TEST_CASE("observer_port: in mode snapshot values are stored, hashes stay hashes",
          "[engine][observer][snapshot]") {
  Fixture f(settings::Mode::kSnapshot);
  const std::vector<float> values{1, -2, 3, 4};
  MessageBatch batch;
  batch.tensor({.data = values.data(), .shape = {4}})
      .tensor({.capture = format::Capture::kHash, .data = values.data(), .shape = {2}});
  f.submit(batch);
  const auto stats = f.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 2);
  CHECK(stats[0].capture == format::Capture::kSnapshot);
  CHECK(stats[1].capture == format::Capture::kHash);
  CHECK(f.values.has(stats[0]));
  CHECK_FALSE(f.values.has(stats[1]));
}

TEST_CASE("observer_port: a value there is no room for is recorded as statistics, and counted",
          "[engine][observer][snapshot]") {
  Fixture f(settings::Mode::kSnapshot);
  const std::vector<float> values(200'000, 1.5f);  // 800 kB; half of a megabyte is for values
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
  Fixture f;
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
  CHECK(stats[0].pad_count == 4);
  CHECK(rows(0) == Rows{2, 2});
  CHECK(stats[1].pad_count == 4);
  CHECK(rows(1) == Rows{1, 1, 2});
  CHECK(stats[2].pad_count == 0);
  CHECK(rows(2).empty());
  CHECK(stats[3].pad_count == 0);
  CHECK(stats[4].padding == format::Padding::kNone);
}

TEST_CASE("observer_port: a CPU tensor is computed before submit returns", "[engine][observer]") {
  Fixture f;
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
  CHECK(s.value.generation == f.addresses.find(s.address)->generation);
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
  Fixture f(settings::Mode::kStats, 8, "2");
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
  Fixture hash(settings::Mode::kHash);
  hash.submit(batch);
  REQUIRE(hash.sink.all<format::TensorStats>().size() == 1);
  CHECK(hash.sink.all<format::TensorStats>()[0].capture == format::Capture::kHash);
  Fixture launches(settings::Mode::kLaunches);
  CHECK(launches.submit(batch) == 0);
  CHECK(launches.sink.all<format::TensorStats>().empty());
}

TEST_CASE("observer_port: values of a module that is filtered out are not computed",
          "[engine][observer]") {
  Fixture f;
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
  Fixture none(settings::Mode::kStats, 0);
  none.submit(batch);
  REQUIRE(none.sink.all<format::TensorStats>().size() == 1);
  CHECK(none.sink.all<format::TensorStats>()[0].samples.empty());
  Fixture many(settings::Mode::kStats, 10);
  many.submit(batch);
  const auto stats = many.sink.all<format::TensorStats>();
  REQUIRE(stats.size() == 1);
  REQUIRE(stats[0].leading.size() == 40);
  std::vector<float> leading(10);
  std::memcpy(leading.data(), stats[0].leading.data(), 40);
  CHECK(leading == std::vector<float>{0, 8, 16, 24, 32, 40, 48, 56, 1, 9});
}

TEST_CASE("observer_port: a tensor that reaches outside its storage is not read",
          "[engine][observer]") {
  const std::vector<float> values(8);
  const auto base = reinterpret_cast<uint64_t>(values.data());
  const std::vector<TensorSpec> bad{
      {.data = values.data(), .shape = {9}, .storage_bytes = 32},
      {.data = values.data() + 1, .shape = {8}, .storage_base = base, .storage_bytes = 32},
      {.data = values.data(), .shape = {2}, .strides = {-1}, .storage_bytes = 32},
      {.data = values.data(), .shape = {2}, .strides = {8}, .storage_bytes = 32},
      {.data = values.data(), .shape = {1}, .storage_base = base + 4, .storage_bytes = 32},
      {.data = values.data(), .shape = {int64_t{1} << 40}, .strides = {0}, .storage_bytes = 32},
  };
  for (const TensorSpec& spec : bad) {
    Fixture f;
    f.submit(MessageBatch().tensor(spec));
    CHECK(f.sink.all<format::TensorStats>().empty());
    CHECK(f.sink.lost(format::LossReason::kTensorKind) == 1);
  }
  Fixture f;
  f.submit(MessageBatch().tensor({.data = values.data() + 7,
                                  .shape = {8},
                                  .strides = {-1},
                                  .storage_base = base,
                                  .storage_bytes = 32}));
  CHECK(f.sink.all<format::TensorStats>().size() == 1);
}

TEST_CASE("observer_port: device tensors go out in one batch per stream, refusals are counted",
          "[engine][observer]") {
  Fixture f;
  MessageBatch batch;
  const TensorSpec one{.device = kCuda0,
                       .data = reinterpret_cast<const void*>(0x1000),
                       .shape = {2, 3},
                       .stream = 5};
  TensorSpec other = one;
  other.stream = 6;
  batch.tensor(one).tensor(one).tensor(other);
  f.submit(batch);
  CHECK(f.host.batches == std::vector<std::pair<uint64_t, size_t>>{{5, 2}, {6, 1}});
  CHECK(f.host.shapes[1] == std::vector<uint64_t>{2, 3});
  f.host.answer = format::NotSampled::kRingFull;
  f.submit(batch);
  CHECK(f.sink.lost(format::LossReason::kRingFull) == 3);
  f.host.answer = format::NotSampled::kCapturing;
  f.submit(batch);
  CHECK(f.sink.lost(format::LossReason::kStreamUnsafe) == 3);
}

TEST_CASE("observer_port: a device is never sent beyond a tensor's storage", "[engine][observer]") {
  Fixture f;
  const auto* const data = reinterpret_cast<const void*>(0x1000);
  MessageBatch batch;
  batch.tensor({.device = kCuda0,
                .data = data,
                .shape = {2, 3},
                .storage_base = 0x1000,
                .storage_bytes = 20});  // resized under its view
  batch.tensor({.device = kCuda0,
                .data = data,
                .shape = {1 << 20, 1 << 20},
                .strides = {0, 0},
                .storage_base = 0x1000,
                .storage_bytes = 4});  // expanded: hours of work
  f.submit(batch);
  CHECK(f.host.batches.empty());
  CHECK(f.sink.lost(format::LossReason::kTensorKind) == 2);
  CHECK(f.state.active());
}

TEST_CASE("observer_port: thousands of device tensors of one call go out in bounded batches",
          "[engine][observer]") {
  Fixture f;
  MessageBatch batch;
  for (int i = 0; i < 600; ++i) {
    batch.tensor({.device = kCuda0,
                  .data = reinterpret_cast<const void*>(0x1000),
                  .shape = {2, 3},
                  .stream = 5});
  }
  f.submit(batch);
  CHECK(f.host.batches == std::vector<std::pair<uint64_t, size_t>>{{5, 256}, {5, 256}, {5, 88}});
}

TEST_CASE("observer_port: scopes, facts, losses and diagnostics pass through",
          "[engine][observer]") {
  Fixture f;
  MessageBatch batch;
  batch.scope(f.id("h.1"), 2, true)
      .scope(f.id("h.1"), 2, false)
      .fact(f.id("version.torch"), f.id("2.13.0"))
      .loss(format::LossReason::kTensorKind, 3)
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
  REQUIRE(f.sink.all<format::Diagnostic>().size() == 1);
  CHECK(f.sink.all<format::Diagnostic>()[0].message == "hello");
}

TEST_CASE("observer_port: an op whose output lies over a freed input ends as a finding",
          "[engine][observer][alias]") {
  Fixture f;
  constexpr uint64_t kBase = 0x10000, kBytes = 4096;
  const auto report = [&f](uint64_t address, int64_t bytes) {
    f.journal.report(reinterpret_cast<const void*>(address), bytes, 0);
  };
  f.journal.take_stacks();
  report(kBase, kBytes);
  MessageBatch op;
  op.op({.scope = f.id("mlp"),
         .op = f.id("demo::relu"),
         .operands = {operand(f.id("input:0"), false, 1, kBase, kBytes),
                      operand(f.id("output:0"), true, 2, kBase, kBytes)}});
  CHECK(f.submit(op) == (CONVTRACE_SUBMIT_CAPTURE | CONVTRACE_SUBMIT_WATCH));
  CHECK(f.host.ops == 1);
  f.submit(MessageBatch().op_stack({f.id("forward (train.py:7)")}));
  REQUIRE(f.sink.all<format::Finding>().size() == 1);
  CHECK(f.sink.all<format::Finding>()[0].level == format::Level::kWarning);

  f.submit(MessageBatch().storage_dead(1, {f.id("<module> (train.py:9)")}));
  report(kBase, -static_cast<int64_t>(kBytes));
  f.journal.settle();
  f.aliases.on_freed(f.addresses.find(kBase)->generation, this_thread()->thread);
  f.submit(MessageBatch().op({.op = f.id("demo::next")}));
  const auto findings = f.sink.all<format::Finding>();
  REQUIRE(findings.size() == 2);
  const format::Finding& error = findings[1];
  CHECK(error.kind == format::FindingKind::kFreedUnderOutput);
  CHECK(error.level == format::Level::kError);
  CHECK(f.definitions.text(error.op) == "demo::relu");
  CHECK(f.definitions.text(error.slot) == "output:0");
  CHECK(f.definitions.text(error.other) == "input:0");
  CHECK(error.bytes == kBytes);
  CHECK(error.value.storage == 2);
  CHECK(f.definitions.text(f.definitions.stack(error.launch_stack)[0]) == "forward (train.py:7)");
  CHECK(f.definitions.text(f.definitions.stack(error.free_stack)[0]) == "<module> (train.py:9)");
  CHECK_FALSE(f.definitions.stack(error.alloc_stack).empty());
  CHECK(error.message.find("demo::relu") != std::string_view::npos);
}

TEST_CASE("observer_port: no truncation of a batch does harm, and none passes unnoticed",
          "[engine][observer][hostile]") {
  configure_log(format::Level::kError, 0, 2);
  const std::vector<float> values(6);
  Fixture f;
  MessageBatch batch;
  batch.step(1)
      .tensor({.data = values.data(), .shape = {2, 3}})
      .op({.operands = {operand(1, false, 1, 0x1000, 64), operand(2, true, 2, 0x1000, 64)}})
      .op_stack({1, 2, 3})
      .storage_dead(1, {1});
  const std::vector<std::byte> whole(batch.bytes().begin(), batch.bytes().end());
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<long>(size));
    f.port.submit(cut);
    f.port.submit({});  // a sound batch in between: the five-in-a-row rule stays out of the way
  }
  CHECK(f.state.active());
  for (int i = 0; i < 5; ++i) f.port.submit(std::span(whole).first(9));
  CHECK(f.state.get() == EngineState::kDisabled);
  CHECK(f.port.flags() == CONVTRACE_SUBMIT_OFF);
  configure_log(format::Level::kWarning, 0, 2);
}

TEST_CASE("observer_port: no flipped bit of a batch does harm", "[engine][observer][hostile]") {
  configure_log(format::Level::kError, 0, 2);
  const std::vector<float> values(6);
  MessageBatch batch;
  batch.step(1)
      .tensor({.data = values.data(), .shape = {2, 3}})
      .tensor({.data = values.data(), .shape = {2, 3}, .strides = {0, 0}, .storage_bytes = 24})
      .op({.operands = {operand(1, false, 1, 0x1000, 64), operand(2, true, 2, 0x1000, 64)}})
      .op_stack({1, 2, 3})
      .loss(format::LossReason::kTensorKind, 1);
  Fixture f;
  for (size_t bit = 0; bit < batch.bytes().size() * 8; ++bit) {
    std::vector<std::byte> bytes(batch.bytes().begin(), batch.bytes().end());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    f.port.submit(bytes);
    f.state.succeeded(FailureKind::kMalformedBatch);
    f.state.succeeded(FailureKind::kStatistics);
  }
  CHECK(f.state.active());
  CHECK(f.sink.all<format::TensorStats>().size() > 100);
  configure_log(format::Level::kWarning, 0, 2);
}
