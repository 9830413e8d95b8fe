#include "tools/common/complaints.h"

#include <signal.h>

#include <cstdio>

#include "tools/common/escape.h"

namespace convtrace::tools {

std::string numbered(MessageId id, std::string_view text) {
  return "CT-" + std::to_string(static_cast<unsigned>(id)) + ' ' + std::string(text);
}

void complain(MessageId id, std::string_view text) {
  // An unread error line must not end `convtrace run`, whose command is still to come.
  struct sigaction before {};
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  const bool kept = sigaction(SIGPIPE, &ignored, &before) == 0;
  std::fprintf(stderr, "convtrace: %s\n", numbered(id, text).c_str());
  if (kept) sigaction(SIGPIPE, &before, nullptr);
}

void complain(MessageId id, const std::string& path, std::string_view text) {
  complain(id, escape_text(path) + ": " + std::string(text));
}

}  // namespace convtrace::tools
