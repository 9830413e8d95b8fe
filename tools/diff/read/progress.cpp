#include "tools/diff/read/progress.h"

#include <algorithm>

#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

/// A short comparison shows no progress.
constexpr std::chrono::milliseconds kQuiet{1000}, kEvery{200};
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

Progress::~Progress() {
  if (visible_) out_ << kClearLine << std::flush;
}

void Progress::update(uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (now - begun_ < kQuiet || now - shown_ < kEvery || done == 0) return;
  shown_ = now;
  visible_ = true;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const double speed = static_cast<double>(done) / seconds;
  out_ << kClearLine << tools::count_text(done) << " records, "
       << tools::number_text(speed * 1e-6, 3) << " M/s";
  if (done <= total) {
    const double left = static_cast<double>(total - done) / speed;
    out_ << ", " << done * 100 / std::max<uint64_t>(total, 1) << " %, "
         << static_cast<uint64_t>(left) + 1 << " s left";
  }
  out_ << std::flush;
}

}  // namespace convtrace::diff
