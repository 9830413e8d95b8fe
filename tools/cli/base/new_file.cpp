#include "tools/cli/base/new_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "format/file/file_sink.h"
#include "tools/common/complaints.h"
#include "tools/common/text.h"

namespace convtrace::tools {

NewFile::NewFile(std::string path, bool overwrite)
    : path_(std::move(path)),
      written_(overwrite ? path_ + "." + std::to_string(getpid()) + ".partial" : path_) {}

NewFile::~NewFile() {
  std::error_code ignored;
  if (made_ && !kept_) std::filesystem::remove(written_, ignored);
}

std::unique_ptr<format::Sink> NewFile::create() {
  auto sink = format::FileSink::create(written_.c_str());
  made_ = sink.ok();
  if (made_) return std::move(sink).value();
  const bool replaceable = written_ == path_ && sink.status().code == StatusCode::kAlreadyExists;
  if (replaceable) {
    complain(MessageId::kExists, written_, "already exists; --overwrite replaces it");
  } else {
    complain(MessageId::kNotWritten, written_, status_text(sink.status()));
  }
  return nullptr;
}

bool NewFile::keep() {
  if (written_ != path_ && rename(written_.c_str(), path_.c_str()) != 0) {
    complain(MessageId::kNotWritten, path_, strerror(errno));
    return false;
  }
  return kept_ = true;
}

}  // namespace convtrace::tools
