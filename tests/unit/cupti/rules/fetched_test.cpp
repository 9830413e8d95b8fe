// Values on their way to the host wait for nothing of the program's.

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "tests/fakecuda/crowd.h"
#include "tests/unit/cupti/rules/told_scene.h"

namespace convtrace::cupti {
namespace {

using fakecuda::Gatekeeper;
using fakecuda::Streams;

/// Takes one value, of at most one part.
class OneValue final : public ValueSink {
 public:
  bool has(const TensorStats&) noexcept override { return false; }
  Begun begin(const TensorStats& event) noexcept override {
    return {.value = std::make_unique<Incoming>(*this, event.bytes)};
  }
  bool refuse() noexcept override { return true; }
  [[nodiscard]] bool is(const std::vector<uint8_t>& bytes) {
    const std::lock_guard lock(mutex_);
    return value_.size() == bytes.size() &&
           std::memcmp(value_.data(), bytes.data(), bytes.size()) == 0;
  }

 private:
  class Incoming final : public IncomingValue {
   public:
    Incoming(OneValue& owner, uint64_t bytes) : owner_(owner), bytes_(bytes) {}
    std::span<std::byte> next() noexcept override { return bytes_; }
    void filled() noexcept override {
      const std::lock_guard lock(owner_.mutex_);
      owner_.value_ = bytes_;
    }

   private:
    OneValue& owner_;
    std::vector<std::byte> bytes_;
  };
  std::mutex mutex_;
  std::vector<std::byte> value_;
};

TEST_CASE("rules: a value is fetched beside a legacy stream that stalls", "[fetched]") {
  OneValue values;
  ToldScene scene(&values, 1 << 20);
  scene.prepare();
  const Twin tensor(1000);
  const Streams streams(1);
  DeviceRequest request = tensor.request(DType::kF32, Capture::kSnapshot);
  request.event.bytes = tensor.host.size();
  Gatekeeper gatekeeper;
  gatekeeper.stall(nullptr);
  REQUIRE(scene.submit({request}, streams[0]) == SampleOutcome::kSampled);
  for (int i = 0; i < 200 && !values.is(tensor.host); ++i) {
    scene.collect();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(values.is(tensor.host));
  Gatekeeper::let_go();
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

}  // namespace
}  // namespace convtrace::cupti
