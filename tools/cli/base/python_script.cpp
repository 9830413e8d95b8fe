#include "tools/cli/base/python_script.h"

#include <cstring>

#include "tools/cli/base/tree.h"
#include "tools/common/child.h"
#include "tools/common/complaints.h"

namespace convtrace::tools {

ExitCode become_script(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string relative = "share/convtrace/" + script;
  const std::string path = in_tree(relative.c_str());
  if (path.empty()) {
    complain(MessageId::kPartMissing,
             relative + " is not in this tree; was only a part installed?");
    return ExitCode::kFailure;
  }
  std::vector<std::string> words{"python3", path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const int error = execute(words);
  complain(MessageId::kNoPython, relative + " needs python3: " + std::string(std::strerror(error)));
  return ExitCode::kFailure;
}

}  // namespace convtrace::tools
