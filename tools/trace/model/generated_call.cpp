#include "tools/trace/model/generated_call.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

constexpr std::string_view kRegion = " region ";

}  // namespace

GeneratedCall generated_call(std::string_view fact) {
  const size_t open = fact.find(" ["), close = fact.rfind(']');
  if (open == fact.npos || close == fact.npos || close < open + 2) return {};
  GeneratedCall call{.kernel = std::string(fact.substr(0, open)),
                     .nodes = {},
                     .line = {},
                     .drops_view = false,
                     .region = {}};
  std::string_view nodes = fact.substr(open + 2, close - open - 2);
  while (!nodes.empty()) {
    const size_t end = std::min(nodes.find(", "), nodes.size());
    call.nodes.emplace_back(nodes.substr(0, end));
    nodes.remove_prefix(std::min(end + 2, nodes.size()));
  }
  std::string_view rest = fact.substr(close + 1);
  if (const size_t region = rest.find(kRegion); region != rest.npos) {
    call.region = rest.substr(region + kRegion.size());
    rest = rest.substr(0, region);
  }
  if (!rest.empty()) call.line = rest.substr(1);
  return call;
}

}  // namespace convtrace::diff
