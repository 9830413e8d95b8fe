#include "interposer/core/writer/trace_opener.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "format/base/log.h"
#include "format/file/file_sink.h"
#include "interposer/core/control/output_name.h"
#include "interposer/core/runtime/state.h"

namespace convtrace::engine {
namespace {

constexpr uint64_t kDefaultMaxBytes = uint64_t{20} << 30;

uint64_t byte_limit(uint64_t asked, const std::string& path) {
  if (asked != 0) return asked;
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) return kDefaultMaxBytes;
  return std::min(kDefaultMaxBytes, uint64_t{disk.f_bavail} * disk.f_frsize / 2);
}

OutputFacts output_facts(const std::string& start_folder, const format::TraceMeta& meta) {
  return {.host = meta.host, .pid = meta.pid, .rank = meta.rank, .start_folder = start_folder};
}

void say_path(const OpenTrace& trace) {
  if (trace.announced) {
    announce("tracing to %s", trace.path.c_str());
  } else {
    log_line(messages::kTracing, "tracing to %s", trace.path.c_str());
  }
}

}  // namespace

OpenTrace create_trace(std::shared_ptr<format::FileThread> file, const settings::Settings& settings,
                       const std::string& start_folder, bool announced,
                       const format::TraceMeta& meta, format::Definitions& definitions) {
  const OutputFacts facts = output_facts(start_folder, meta);
  const std::string path = expand_output(settings.output, facts);
  std::string why;
  std::optional<OutputFile> opened;
  file->run([&] {
    Result<OutputFile> created = open_output(path, settings.overwrite, facts, why);
    if (!created.ok()) return;
    opened = std::move(created).value();
    file->hold(opened->fd, opened->path);
  });
  if (!opened) {
    process_state().disable("no output file");
    log_line(messages::kNoOutput, "%s; this process is not traced, the program continues",
             why.c_str());
    return {};
  }
  if (!opened->notice.empty()) log_line(messages::kOtherOutput, "%s", opened->notice.c_str());
  auto writer =
      format::TraceWriter::create(std::make_unique<format::FileSink>(file), meta, definitions);
  if (!writer.ok()) {
    file->run([&] { file->file().unlink(); });
    process_state().disable("the trace cannot be written");
    log_line(messages::kNoOutput,
             "%s cannot be written: %s; this process is not traced, the program continues",
             opened->path.c_str(), to_string(writer.status().code));
    return {};
  }
  OpenTrace trace{.writer = std::move(writer).value(),
                  .path = opened->path,
                  .file = std::move(file),
                  .max_bytes = byte_limit(settings.max_bytes, opened->path),
                  .recorder = nullptr,
                  .all_values = settings.mode == settings::Mode::kSnapshot && settings.all,
                  .announced = announced};
  say_path(trace);
  if (const settings::Ring& ring = settings.ring; ring.steps != 0) {
    trace.recorder =
        std::make_unique<FlightRecorder>(ring, FlightRecorder::kMaxBytes, settings.spike);
  }
  return trace;
}

bool rename_trace(OpenTrace& trace, const settings::Settings& settings,
                  const std::string& start_folder, const format::TraceMeta& meta) {
  const OutputFacts facts = output_facts(start_folder, meta);
  const std::string path = expand_output(settings.output, facts);
  std::string name;
  trace.file->run([&] { name = rename_output(trace.path, path, settings.overwrite, facts); });
  if (name != trace.path) {
    trace.path = name;
    trace.file->set_path(name);
    say_path(trace);
  }
  return name == path;
}

}  // namespace convtrace::engine
