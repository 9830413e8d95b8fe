// The lists of fields in events.h: whether they are complete, and what FORMAT.md says of them.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <vector>

#include "format/file/columns/words.h"
#include "tests/support/catch.h"

namespace convtrace::format {
namespace {

/// Is taken for any member.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: implicit on purpose
};

template <typename T, typename... Members>
constexpr size_t members_of() {
  if constexpr (requires { T{Members{}..., Anything()}; }) {
    return members_of<T, Members..., Anything>();
  } else {
    return sizeof...(Members);
  }
}

template <typename T>
constexpr size_t listed_members() {
  size_t count = 0;
  const T none{};
  T::fields(none, [&count](auto, const char*, const auto& member, bool = true) {
    using Member = std::remove_cvref_t<decltype(member)>;
    count +=
        std::is_array_v<Member> ? std::extent_v<Member> : 1;  // braces of an array may be left out
  });
  return count;
}

template <typename... Kinds>
constexpr bool all_listed(std::variant<Kinds...>* /*of*/) {
  // Of the statistics the list of TensorStats also names two of their members, `count` and the
  // exponent.
  return ((members_of<Kinds>() ==
           1 + listed_members<Kinds>() - (std::is_same_v<Kinds, TensorStats> ? 2 : 0)) &&
          ...);
}
static_assert(all_listed(static_cast<Event*>(nullptr)), "a member of an event is not in its list");
static_assert(members_of<Place>() == listed_members<Place>());
static_assert(members_of<Device>() == listed_members<Device>());
static_assert(members_of<ValueId>() == listed_members<ValueId>());

/// "NAME TYPE" of each field, as FORMAT.md's tables say them.
template <typename Kind>
std::vector<std::string> listed() {
  std::vector<std::string> fields(kColumns<Kind>.ids);
  each_column_of<Kind>([&fields]<Stored kHow, size_t kId, size_t kMore>(
                           Where<kHow, kId, kMore>, std::string_view name, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if (kHow == Stored::kOwn) return;
    const size_t bytes = kHow == Stored::kCount ? kMore : sizeof value;
    const bool is_fixed = kColumns<Kind>.is_fixed(kId);
    fields[kId] = std::string(kHow == Stored::kFlag ? "flags" : name) +
                  (is_fixed                                  ? " fixed, " + std::to_string(bytes)
                   : kHow != Stored::kField                  ? " varying"
                   : std::is_same_v<Value, std::string_view> ? " string"
                   : std::is_same_v<Value, bool>             ? " bool"
                   : bytes == 1                              ? " ubyte"
                   : bytes == 4                              ? " uint"
                                                             : " ulong");
  });
  std::erase(fields, "");
  return fields;
}

std::vector<std::string> split(const std::string& text, const std::string& at) {
  const std::regex separator(at);
  return {std::sregex_token_iterator(text.begin(), text.end(), separator, -1), {}};
}

/// The same of the table of a kind in FORMAT.md, without the rows that have other types.
std::vector<std::string> documented(const std::string& kind) {
  std::ifstream in(CONVTRACE_SOURCE_DIR "/format/FORMAT.md");
  const std::regex title("### [0-9.]+ " + kind + "|(\\*\\*[a-z]+\\*\\*, )?\\*\\*" + kind +
                         "\\*\\*.*");
  std::string line;
  while (std::getline(in, line) && !std::regex_match(line, title)) {
  }
  REQUIRE(in);
  while (std::getline(in, line) && !line.starts_with("|")) {
  }
  std::vector<std::string> fields;
  for (; line.starts_with("|"); std::getline(in, line)) {
    const std::vector<std::string> cells = split(line, " ?\\| ?");
    const std::vector<std::string> names = split(cells.at(1), ", "),
                                   types = split(cells.at(2), ", ");
    for (size_t i = 0; i < names.size(); ++i) {
      const bool fixed = types[0] == "fixed";
      const size_t own = types.size() > (fixed ? 2u : 1u) ? i : 0;  // one for each name, or for all
      const std::string type = fixed ? "fixed, " + types.at(1 + own) : types.at(own);
      const std::regex known("fixed, [1248]|varying|string|bool|ubyte|uint|ulong");
      if (!std::regex_match(type, known)) continue;
      // grid_x/y/z
      const std::string axes = names[i].ends_with("_x/y/z") ? "xyz" : "";
      if (axes.empty()) fields.push_back(names[i] + ' ' + type);
      for (size_t axis = 0; axis < axes.size(); ++axis)
        fields.push_back(names[i].substr(0, names[i].find('_')) + ' ' + type);
    }
  }
  return fields;
}

template <typename Kind>
void check_documented() {
  INFO(Kind::kName);
  std::vector<std::string> now = listed<Kind>();
  if (now.empty()) return;  // a step is a column of the chunk
  std::vector<std::string> said = documented(std::string(Kind::kName));
  if constexpr (!kIsTable<Kind>) {  // columns are grouped there
    std::ranges::sort(now);
    std::ranges::sort(said);
  }
  CHECK(now == said);
}

template <typename... Kinds>
void check_all_documented(std::variant<Kinds...>* /*of*/) {
  (check_documented<Kinds>(), ...);
}

TEST_CASE("events: FORMAT.md has the columns and fields of every kind, and no others", "[format]") {
  check_all_documented(static_cast<Event*>(nullptr));
}

}  // namespace
}  // namespace convtrace::format
