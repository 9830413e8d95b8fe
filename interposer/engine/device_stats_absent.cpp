// Built only while cupti/device_stats.cpp is not: every request is answered "GPU work is off".

#include "cupti/device_stats.h"

namespace convtrace::cupti {

struct DeviceStats::Impl {};

DeviceStats::DeviceStats(const DriverApi&, format::EventSink&) {}
DeviceStats::~DeviceStats() = default;
void DeviceStats::prepare(CUcontext) noexcept {}
void DeviceStats::forget(CUcontext) noexcept {}
format::NotSampled DeviceStats::submit(std::span<const DeviceRequest>, CUstream) noexcept {
  return format::NotSampled::kGpuWorkOff;
}
uint64_t DeviceStats::collect() noexcept { return 0; }

}  // namespace convtrace::cupti
