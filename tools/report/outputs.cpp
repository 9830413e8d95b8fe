#include "tools/report/outputs.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "format/file/record_codec.h"
#include "tools/common/escape.h"

namespace convtrace::diff {
namespace {

using tools::MessageId;

namespace fs = std::filesystem;

/// Paths of unfinished files, for the signal handler, which must not read a string that is being
/// destroyed. So a path is added after it is complete and removed before its destruction.
std::array<std::atomic<const char*>, 8> unfinished{};

void replace(const char* from, const char* to) {
  for (auto& place : unfinished) {
    const char* expected = from;
    if (place.compare_exchange_strong(expected, to)) return;
  }
}

/// Cleans up and ends as the signal would have ended it.
extern "C" void end_by(int number) {
  for (const auto& place : unfinished) {
    if (const char* path = place.load()) ::unlink(path);
  }
  signal(number, SIG_DFL);
  raise(number);
}

/// @return the target of a link.
std::string target_of(const std::string& path) {
  std::error_code failed;
  const fs::path target = fs::canonical(path, failed);
  return failed ? path : target.string();
}

/// Naming a trace as a report is a mistake, and a trace cannot be made again.
bool is_trace(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;  // reading from a pipe would block
  std::array<char, 64> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return format::has_magic(std::as_bytes(std::span(begin)));
}

/// Pipes and devices are written in place.
bool is_replaceable(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return !fs::exists(status) || fs::is_regular_file(status);
}

}  // namespace

struct Outputs::File {
  std::string name;        ///< as the user gave it
  std::string target;      ///< the file that it becomes
  std::string unfinished;  ///< empty if it is written in place
  std::ofstream stream;

  explicit File(const std::string& path) : name(path), target(target_of(path)) {
    if (is_replaceable(target)) {
      unfinished = target + '.' + std::to_string(getpid()) + ".unfinished";
      replace(nullptr, unfinished.c_str());
    }
    stream.open(unfinished.empty() ? target : unfinished, std::ios::binary | std::ios::trunc);
  }
  ~File() { forget(true); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool finish() {
    stream.close();
    if (!stream) return false;
    if (unfinished.empty()) return true;
    if (::rename(unfinished.c_str(), target.c_str()) != 0) return false;
    forget(false);
    return true;
  }

  void forget(bool remove) {
    if (unfinished.empty()) return;
    replace(unfinished.c_str(), nullptr);
    if (remove) ::unlink(unfinished.c_str());
    unfinished.clear();
  }
};

Outputs::Outputs(std::string program, std::ostream& out, std::ostream& err)
    : program_(std::move(program)), out_(out), err_(err) {}

Outputs::~Outputs() = default;

std::ostream* Outputs::open(const std::string& path) {
  if (path.empty()) return nullptr;
  if (path == "-") {
    if (stdout_taken_) fail(MessageId::kTwoReports, "only one report can go to standard output");
    stdout_taken_ = true;
    return &out_;
  }
  const std::string target = target_of(path);
  if (is_trace(target)) {
    fail(MessageId::kIsInput, tools::escape_text(path) + ": is a trace, and stays one");
    return nullptr;
  }
  for (const auto& file : files_) {
    if (file->target != target) continue;
    fail(MessageId::kTwoReports, tools::escape_text(path) + ": would hold two reports");
    return nullptr;
  }
  files_.push_back(std::make_unique<File>(path));
  if (!files_.back()->stream)
    fail(MessageId::kNotWritten, tools::escape_text(path) + ": cannot be written");
  return &files_.back()->stream;
}

void Outputs::finish() {
  for (const auto& file : files_) {
    if (!file->finish())
      fail(MessageId::kNotWritten,
           tools::escape_text(file->name) + ": could not be written completely");
  }
}

void Outputs::flush() {
  if (!out_.flush())
    fail(MessageId::kNotWritten, "standard output could not be written completely");
}

void Outputs::fail(MessageId id, const std::string& why) {
  err_ << program_ << ": " << numbered(id, why) << "\n";
  failed_ = true;
}

void remove_unfinished_files_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    if (signal(number, end_by) == SIG_IGN) signal(number, SIG_IGN);
  }
}

}  // namespace convtrace::diff
