#include "format/file/file_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "format/file/trace_writer.h"
#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/faulty_write.h"
#include "tests/support/temp_dir.h"

namespace convtrace::format {
namespace {

using test::FaultyWrites;
using test::TempDir;

std::unique_ptr<Sink> created(const std::string& path) {
  auto sink = FileSink::create(path.c_str());
  REQUIRE(sink.ok());
  return std::move(sink).value();
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Bytes text(std::string_view view) { return bytes_of(view); }

TEST_CASE("file sink: a new file is the owner's alone and appends in order", "[format]") {
  const TempDir dir;
  const auto sink = created(dir / "a");
  REQUIRE(sink->append(text("one"), text("two")).ok());
  REQUIRE(sink->append({}, text("three")).ok());
  CHECK(sink->size() == 11);
  CHECK(content(dir / "a") == "onetwothree");
  struct stat info {};
  REQUIRE(stat((dir / "a").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
}

TEST_CASE("file sink: what exists is neither replaced nor followed", "[format]") {
  const TempDir dir;
  std::ofstream(dir / "a") << "keep";
  const Status status = FileSink::create((dir / "a").c_str()).status();
  CHECK(status.code == StatusCode::kAlreadyExists);
  CHECK(content(dir / "a") == "keep");
  std::filesystem::create_symlink(dir / "target", dir / "link");
  CHECK(FileSink::create((dir / "link").c_str()).status().code == StatusCode::kAlreadyExists);
  CHECK_FALSE(std::filesystem::exists(dir / "target"));
}

TEST_CASE("file sink: a path that cannot be made says why", "[format]") {
  const TempDir dir;
  const Status status = FileSink::create((dir / "missing/a").c_str()).status();
  CHECK(status.code == StatusCode::kIoError);
  CHECK(status.detail == ENOENT);
}

TEST_CASE("file sink: interrupted and short writes are continued", "[format][faults]") {
  const TempDir dir;
  const auto sink = created(dir / "a");
  const FaultyWrites faults(
      {{.error = EINTR}, {.at_most = 1}, {.error = EINTR}, {.at_most = 3}, {.at_most = 2}});
  REQUIRE(sink->append(text("head"), text("payload")).ok());
  CHECK(faults.plan_used_up());
  CHECK(content(dir / "a") == "headpayload");
}

TEST_CASE("file sink: a file system that writes nothing and says nothing is full",
          "[format][faults]") {
  const TempDir dir;
  const auto sink = created(dir / "a");
  const FaultyWrites faults({{.at_most = 3}, {.at_most = 0}});
  CHECK(sink->append(text("head"), text("payload")).code == StatusCode::kNoSpace);
  CHECK(content(dir / "a").empty());
}

TEST_CASE("file sink: a failed append leaves the file as it was", "[format][faults]") {
  const TempDir dir;
  const auto sink = created(dir / "a");
  REQUIRE(sink->append(text("whole"), {}).ok());
  const int error = GENERATE(ENOSPC, EDQUOT, EFBIG, EIO);
  CAPTURE(error);
  Status status;
  {
    const FaultyWrites faults({{.at_most = 2}, {.error = error}});
    status = sink->append(text("head"), text("payload"));
  }
  CHECK(status.code == (error == EIO ? StatusCode::kIoError : StatusCode::kNoSpace));
  CHECK(status.detail == error);
  CHECK(content(dir / "a") == "whole");
  CHECK(sink->size() == 5);
  REQUIRE(sink->append(text("more"), {}).ok());
  CHECK(content(dir / "a") == "wholemore");
}

/// Runs `body` in a child process. @return its wait status.
template <typename Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("file sink: beyond the file size limit writing fails and the process lives",
          "[format][faults]") {
  const TempDir dir;
  const std::string path = dir / "a";
  const int status = in_child([&] {
    const rlimit limit{100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    signal(SIGXFSZ, SIG_DFL);
    auto sink = FileSink::create(path.c_str());
    const std::string sixty(60, 'x');
    if (!sink.ok() || !sink.value()->append(text(sixty), {}).ok()) return false;
    const Status failed = sink.value()->append(text(sixty), {});
    sigset_t pending;
    sigpending(&pending);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return failed.code == StatusCode::kNoSpace && failed.detail == EFBIG &&
           sigismember(&pending, SIGXFSZ) == 0 && sigismember(&mask, SIGXFSZ) == 0;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(content(path) == std::string(60, 'x'));
}

TEST_CASE("file sink: a pending SIGXFSZ of the host's own stays pending", "[format][faults]") {
  const TempDir dir;
  const std::string path = dir / "a";
  const int status = in_child([&] {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    raise(SIGXFSZ);  // the host's own, pending
    auto sink = FileSink::create(path.c_str());
    if (!sink.ok() || !sink.value()->append(text("x"), {}).ok()) return false;
    sigset_t pending;
    sigpending(&pending);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return sigismember(&pending, SIGXFSZ) == 1 && sigismember(&mask, SIGXFSZ) == 1;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("trace writer: on a disk of any size the file ends at a whole record",
          "[format][faults][recovery]") {
  const TempDir dir;
  const auto write_trace = [](const std::string& path) {
    Definitions definitions;
    TraceMeta meta;
    meta.uuid = {1};
    meta.start_monotonic_ns = 1;
    auto writer = TraceWriter::create(created(path), meta, definitions);
    Status status = writer.status();
    for (uint32_t i = 0; status.ok() && i < 4; ++i) {
      Scope event;
      event.place.scope = definitions.intern("scope " + std::to_string(i));
      (void)writer.value()->append(event);
      status = writer.value()->flush();
    }
    if (status.ok()) status = writer.value()->close();
    if (writer.ok()) CHECK(writer.value()->status().code == status.code);  // sticky
    return status;
  };
  REQUIRE(write_trace(dir / "whole").ok());
  const uint64_t size = std::filesystem::file_size(dir / "whole");
  const std::string whole = content(dir / "whole");

  for (uint64_t room = 0; room < size; room += 13) {
    const std::string path = dir / ("room " + std::to_string(room));
    Status status;
    {
      const FaultyWrites disk = FaultyWrites::disk_of(room);
      status = write_trace(path);
    }
    INFO("room for " << room << " of " << size);
    REQUIRE(status.code == StatusCode::kNoSpace);
    REQUIRE(status.detail == ENOSPC);
    const std::string left = content(path);
    REQUIRE(left == whole.substr(0, left.size()));
    REQUIRE(left.size() % 64 == 0);
    auto opened = reader::TraceReader::open(path);
    if (left.size() < 64) {
      REQUIRE(opened.status().code == (left.empty() ? StatusCode::kEmpty : StatusCode::kTruncated));
      continue;
    }
    REQUIRE(opened.ok());
    while (opened.value()->next() != nullptr) {
    }
    REQUIRE(opened.value()->state() == reader::TraceState::kUnclosed);
    REQUIRE(opened.value()->problems().empty());
  }
}

}  // namespace
}  // namespace convtrace::format
