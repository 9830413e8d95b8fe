// What kill -9 leaves: every chunk that was closed, and nothing that was not written.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "format/file/file_sink.h"
#include "format/file/trace_writer.h"
#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/describe.h"
#include "tests/support/event_generator.h"
#include "tests/support/temp_dir.h"

namespace convtrace {
namespace {

using reader::TraceReader;
using reader::TraceState;

/// How many events the writing process knows to be stored; survives it.
class SharedCount {
 public:
  SharedCount()
      : page_(mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        count_(page_ != MAP_FAILED ? new (page_) std::atomic<uint64_t>(0) : nullptr) {
    REQUIRE(count_ != nullptr);
  }
  ~SharedCount() { munmap(page_, sizeof(std::atomic<uint64_t>)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  std::atomic<uint64_t>& value() { return *count_; }

 private:
  void* page_;
  std::atomic<uint64_t>* count_;
};

[[noreturn]] void write_until_killed(const std::string& path, uint64_t seed,
                                     std::atomic<uint64_t>& stored) {
  auto sink = format::FileSink::create(path.c_str());
  format::Definitions definitions;
  auto writer = format::TraceWriter::create(std::move(sink).value(), {}, definitions);
  test::EventGenerator generator(seed, definitions);
  std::mt19937_64 random(seed);
  for (;;) {
    if (!writer.value()->append(generator.make()).ok()) _exit(1);
    if (random() % 20 != 0) continue;
    if (!writer.value()->flush().ok()) _exit(1);
    stored = writer.value()->events_written();
  }
}

void kill_and_read(uint64_t seed) {
  const test::TempDir folder;
  const std::string path = folder / "killed.ctrace";
  SharedCount stored;
  const pid_t writer = fork();
  if (writer == 0) write_until_killed(path, seed, stored.value());
  std::mt19937_64 random(seed);
  // Some are killed before the file exists, most while they write.
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
  REQUIRE(kill(writer, SIGKILL) == 0);
  int status = 0;
  REQUIRE(waitpid(writer, &status, 0) == writer);
  REQUIRE(WIFSIGNALED(status));

  auto opened = TraceReader::open(path);
  if (!opened.ok()) {
    REQUIRE(stored.value() == 0);
    return;
  }
  TraceReader& trace = *opened.value();
  format::Definitions definitions;
  test::EventGenerator generator(seed, definitions);
  uint64_t count = 0;
  for (; const format::Event* event = trace.next(); ++count) {
    format::Event expected = generator.make();
    header_of(expected).seq = count;
    REQUIRE(test::describe(*event) == test::describe(expected));
  }
  REQUIRE(trace.state() == TraceState::kUnclosed);
  REQUIRE(count >= stored.value());
}

TEST_CASE("killed writer: every closed chunk is there and none is invented, in 200 runs",
          "[reader][recovery]") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    kill_and_read(seed);
  }
}

}  // namespace
}  // namespace convtrace
