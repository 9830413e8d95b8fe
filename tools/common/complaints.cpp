#include "tools/common/complaints.h"

#include <cstdio>

#include "tools/common/escape.h"

namespace convtrace::tools {

std::string numbered(MessageId id, std::string_view text) {
  return "CT-" + std::to_string(static_cast<unsigned>(id)) + ' ' + std::string(text);
}

void complain(MessageId id, std::string_view text) {
  std::fprintf(stderr, "convtrace: %s\n", numbered(id, text).c_str());
}

void complain(MessageId id, const std::string& path, std::string_view text) {
  complain(id, escape_text(path) + ": " + std::string(text));
}

}  // namespace convtrace::tools
