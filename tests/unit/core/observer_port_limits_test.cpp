// What is not read, and how much goes to a device at once; and batches that no observer sends.

#include "interposer/core/observer/parsed_messages.h"
#include "tests/unit/core/observer_port_scene.h"

using namespace convtrace;
using namespace convtrace::engine;

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
    PortScene f;
    f.submit(MessageBatch().tensor(spec));
    CHECK(f.sink.all<format::TensorStats>().empty());
    CHECK(f.sink.lost(format::LossReason::kTensorKind) == 1);
  }
  PortScene f;
  f.submit(MessageBatch().tensor({.data = values.data() + 7,
                                  .shape = {8},
                                  .strides = {-1},
                                  .storage_base = base,
                                  .storage_bytes = 32}));
  CHECK(f.sink.all<format::TensorStats>().size() == 1);
}

TEST_CASE("observer_port: device tensors go out in one batch per stream, refusals are counted",
          "[engine][observer]") {
  PortScene f;
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
  f.host.answer = format::SampleOutcome::kRingFull;
  f.submit(batch);
  CHECK(f.sink.lost(format::LossReason::kRingFull) == 3);
  f.host.answer = format::SampleOutcome::kCapturing;
  f.submit(batch);
  CHECK(f.sink.lost(format::LossReason::kStreamUnsafe) == 3);
}

TEST_CASE("observer_port: results may come later while a recorded call is under way",
          "[engine][observer]") {
  PortScene f;
  const TensorSpec one{
      .device = kCuda0, .data = reinterpret_cast<const void*>(0x1000), .shape = {2, 3}};
  const auto tensor = [&](MessageBatch& batch) { batch.tensor(one); };
  const auto submit = [&](auto&&... parts) {
    MessageBatch batch;
    (parts(batch), ...);
    f.host.folds = 0;
    f.submit(batch);
  };
  const auto enter = [](MessageBatch& batch) { batch.scope(1, 0); };
  const auto leave = [](MessageBatch& batch) { batch.scope(1, 0, false); };
  submit(tensor);
  CHECK_FALSE(f.host.later);
  submit(enter, tensor);
  submit(enter, tensor, leave);  // in the first one
  CHECK(f.host.later);
  CHECK(f.host.folds == 0);
  submit(leave);
  CHECK(f.host.folds == 1);
  submit(leave);  // whose beginning was not recorded
  submit(enter, tensor);
  CHECK(f.host.later);
  submit([](MessageBatch& batch) { batch.step(7); });  // whose end is not
  CHECK(f.host.folds == 1);
  submit(tensor);
  CHECK_FALSE(f.host.later);
}

TEST_CASE("observer_port: a device is never sent beyond a tensor's storage", "[engine][observer]") {
  PortScene f;
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

TEST_CASE("observer_port: under poison an op's tensors on a device have statistics",
          "[engine][observer]") {
  const bool poison = GENERATE(false, true);
  PortScene f(settings::Mode::kStats, 8, nullptr, poison);
  TensorSpec hashed{.capture = format::Capture::kHash,
                    .device = kCuda0,
                    .data = reinterpret_cast<const void*>(0x1000),
                    .shape = {2, 3}};
  TensorSpec of_op = hashed;
  of_op.op = f.id("demo::op");
  MessageBatch batch;
  batch.tensor(hashed).tensor(of_op);  // nothing describes the first, that describes the second
  f.submit(batch);
  using enum format::Capture;
  CHECK(f.host.captures == std::vector<format::Capture>{kStats, poison ? kStats : kHash});
}

TEST_CASE("observer_port: thousands of device tensors of one call go out in bounded batches",
          "[engine][observer]") {
  PortScene f;
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

TEST_CASE("observer_port: no truncation of a batch does harm, and none passes unnoticed",
          "[engine][observer][hostile]") {
  configure_log(format::Level::kError, 0);
  const std::vector<float> values(6);
  PortScene f;
  MessageBatch batch;
  batch.step(1)
      .op_begin({})
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
  configure_log(format::Level::kWarning, 0);
}

TEST_CASE("observer_port: a kernel's parameters arrive, and nothing of a malformed message does",
          "[engine][observer][hostile]") {
  configure_log(format::Level::kError, 0);
  PortScene f;
  const uint32_t name = f.id("scaled"), slot = f.id("arg:x_ptr");
  const auto f32 = static_cast<uint8_t>(format::DType::kF32);
  f.submit(MessageBatch().kernel(
      0x10, name, std::vector<convtrace_kernel_param>{{slot, f32, 1, {}}, {slot, 0, 0, {}}}));
  REQUIRE(f.host.kernels.size() == 1);
  const auto& [function, signature] = f.host.kernels[0];
  CHECK(function == 0x10);
  CHECK(signature.kernel == "scaled");
  REQUIRE(signature.params.size() == 2);
  CHECK(signature.params[0].slot.value == slot);
  CHECK(signature.params[0].dtype == format::DType::kF32);
  CHECK(signature.params[0].is_pointer);
  CHECK_FALSE(signature.params[1].is_pointer);

  constexpr uint8_t kNone = format::kEnumCount<format::DType>;
  f.submit(
      MessageBatch().kernel(0x10, name, std::vector<convtrace_kernel_param>{{slot, kNone, 1, {}}}));
  MessageBatch cut;
  cut.kernel(0x10, name, std::vector<convtrace_kernel_param>{{slot, f32, 1, {}}});
  std::vector<std::byte> bytes(cut.bytes().begin(), cut.bytes().end());
  for (const uint32_t count : {2u, 4097u, 0xFFFFFFFFu}) {  // more than there are
    std::memcpy(bytes.data() + offsetof(convtrace_kernel, param_count), &count, sizeof count);
    f.port.submit(bytes);
    f.port.submit({});
  }
  CHECK(f.host.kernels.size() == 1);
  configure_log(format::Level::kWarning, 0);
}

TEST_CASE("observer_port: an unknown phase is a malformed message, and no other phase",
          "[engine][observer][hostile]") {
  configure_log(format::Level::kError, 0);
  constexpr auto kNone = static_cast<format::Phase>(format::kEnumCount<format::Phase>);
  PortScene f;
  f.submit(MessageBatch().scope(1, 0, true, kNone));
  f.submit(MessageBatch().op_begin({.phase = kNone}));
  f.submit(MessageBatch().op({.phase = kNone}));
  CHECK(f.sink.all<format::Scope>().empty());
  CHECK(f.sink.all<format::Op>().empty());
  f.submit(MessageBatch().scope(1, 0, true, format::Phase::kEvaluation));
  REQUIRE(f.sink.all<format::Scope>().size() == 1);
  CHECK(f.sink.all<format::Scope>()[0].place.phase == format::Phase::kEvaluation);
  configure_log(format::Level::kWarning, 0);
}

TEST_CASE("observer_port: no flipped bit of a batch does harm", "[engine][observer][hostile]") {
  configure_log(format::Level::kError, 0);
  const std::vector<float> values(6);
  MessageBatch batch;
  batch.step(1)
      .tensor({.data = values.data(), .shape = {2, 3}})
      .tensor({.data = values.data(), .shape = {2, 3}, .strides = {0, 0}, .storage_bytes = 24})
      .op({.operands = {operand(1, false, 1, 0x1000, 64), operand(2, true, 2, 0x1000, 64)}})
      .op_stack({1, 2, 3})
      .loss(format::LossReason::kTensorKind, 1);
  PortScene f;
  for (size_t bit = 0; bit < batch.bytes().size() * 8; ++bit) {
    std::vector<std::byte> bytes(batch.bytes().begin(), batch.bytes().end());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    f.port.submit(bytes);
    f.state.succeeded(FailureKind::kMalformedBatch);
    f.state.succeeded(FailureKind::kStatistics);
  }
  CHECK(f.state.active());
  CHECK(f.sink.all<format::TensorStats>().size() > 100);
  configure_log(format::Level::kWarning, 0);
}

TEST_CASE("observer_port: a tensor that may be written meanwhile is not read, and counted",
          "[engine][observer]") {
  const std::vector<float> values(8);
  PortScene f;
  f.host.settled = false;
  f.submit(MessageBatch()
               .tensor({.data = values.data(), .shape = {8}})
               .tensor({.device = kCuda0, .data = values.data(), .shape = {8}}));
  CHECK(f.sink.all<format::TensorStats>().empty());
  CHECK(f.host.batches.empty());
  CHECK(f.sink.lost(format::LossReason::kStreamUnsafe) == 2);
}
