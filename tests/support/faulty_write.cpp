#include "tests/support/faulty_write.h"

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace {

std::deque<convtrace::test::WriteFault> g_plan;
std::optional<uint64_t> g_disk_bytes;

}  // namespace

extern "C" ssize_t __real_pwritev(int fd, const iovec* parts, int count, off_t offset);
extern "C" ssize_t __wrap_pwritev(int fd, const iovec* parts, int count, off_t offset);

namespace {

ssize_t write_at_most(int fd, const iovec* parts, int count, off_t offset, size_t limit) {
  std::vector<iovec> cut(parts, parts + count);
  for (iovec& part : cut) {
    part.iov_len = std::min(part.iov_len, limit);
    limit -= part.iov_len;
  }
  return __real_pwritev(fd, cut.data(), count, offset);
}

}  // namespace

ssize_t __wrap_pwritev(int fd, const iovec* parts, int count, off_t offset) {
  if (!g_plan.empty()) {
    const convtrace::test::WriteFault fault = g_plan.front();
    g_plan.pop_front();
    if (fault.error == 0) return write_at_most(fd, parts, count, offset, fault.at_most);
    errno = fault.error;
    return -1;
  }
  if (!g_disk_bytes) return __real_pwritev(fd, parts, count, offset);
  const uint64_t end = static_cast<uint64_t>(offset);
  const ssize_t written =
      write_at_most(fd, parts, count, offset, end < *g_disk_bytes ? *g_disk_bytes - end : 0);
  if (written != 0) return written;
  errno = ENOSPC;
  return -1;
}

namespace convtrace::test {

FaultyWrites::FaultyWrites(std::deque<WriteFault> plan) { g_plan = std::move(plan); }
FaultyWrites::FaultyWrites(uint64_t disk_bytes) { g_disk_bytes = disk_bytes; }
FaultyWrites FaultyWrites::disk_of(uint64_t bytes) { return FaultyWrites(bytes); }

FaultyWrites::~FaultyWrites() {
  g_plan.clear();
  g_disk_bytes.reset();
}

bool FaultyWrites::plan_used_up() const { return g_plan.empty(); }

}  // namespace convtrace::test
