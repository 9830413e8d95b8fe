// c10's reporting functions and somebody who calls them, as libc10.so: what reaches the real ones
// is remembered.
#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
  int8_t type, index;
};

struct Seen {
  int calls;
  void* pointer;
  int64_t bytes;
  int type;
};
static Seen seen;

static void remember(void* pointer, int64_t bytes, Device device) {
  seen = {seen.calls + 1, pointer, bytes, device.type};
}

void reportMemoryUsageToProfiler(void* p, int64_t bytes, Device device) {
  remember(p, bytes, device);
}
void reportMemoryUsageToProfiler(void* p, int64_t bytes, int64_t, int64_t, Device device) {
  remember(p, bytes, device);
}
void reportMemoryUsageToProfiler(void* p, int64_t bytes, size_t, size_t, Device device) {
  remember(p, bytes, device);
}
static bool profiler_runs = false;
bool memoryProfilingEnabled() { return profiler_runs; }

/// As c10's: reports to a profiler, and keeps what it has reported.
class ProfiledCPUMemoryReporter {
 public:
  void New(void* pointer, size_t bytes);
  void Delete(void* pointer);
  int known = 0;
};
void ProfiledCPUMemoryReporter::New(void* pointer, size_t bytes) {
  if (!memoryProfilingEnabled()) return;
  ++known;
  reportMemoryUsageToProfiler(pointer, static_cast<int64_t>(bytes), size_t{0}, size_t{0},
                              Device{0, -1});
}
void ProfiledCPUMemoryReporter::Delete(void* pointer) {
  if (!memoryProfilingEnabled()) return;
  --known;
  reportMemoryUsageToProfiler(pointer, -64, size_t{0}, size_t{0}, Device{0, -1});
}
static ProfiledCPUMemoryReporter reporter;

}  // namespace c10

extern "C" {
c10::Seen double_seen() { return c10::seen; }
bool double_profiling_enabled() { return c10::memoryProfilingEnabled(); }
void double_run_profiler(bool runs) { c10::profiler_runs = runs; }
int double_known_blocks() { return c10::reporter.known; }
void double_new(void* p, size_t bytes) { c10::reporter.New(p, bytes); }
void double_delete(void* p) { c10::reporter.Delete(p); }
void double_report(int spelling, void* p, int64_t bytes, int type) {
  const c10::Device device{static_cast<int8_t>(type), 0};
  if (spelling == 0) c10::reportMemoryUsageToProfiler(p, bytes, device);
  if (spelling == 1) c10::reportMemoryUsageToProfiler(p, bytes, int64_t{1}, int64_t{2}, device);
  if (spelling == 2) c10::reportMemoryUsageToProfiler(p, bytes, size_t{1}, size_t{2}, device);
}
}
