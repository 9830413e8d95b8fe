#include "tools/diff/ranks/part_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tools/common/json.h"
#include "tools/common/read_stream.h"
#include "tools/common/text.h"
#include "tools/diff/facts/layouts.h"
#include "tools/diff/ranks/diff.h"
#include "tools/diff/ranks/part_fields.h"

namespace convtrace::diff {
namespace {

const std::string kVersion = "convtrace-diff " CONVTRACE_VERSION;
constexpr const char* kOdd = "the parts are damaged, or of another version of convtrace";

void packed(Is<Description> auto& x, auto& visit) {
  auto& [in_cand, in_folder, problem, file, placements] = x;
  visit(in_cand, in_folder, problem, file, placements);
}

template <typename T>
std::string packed_bytes(const T& value) {
  Packer packer;
  packer(kVersion);
  packed(value, packer);
  return packer.take();
}

template <typename T>
bool unpack(const std::string& bytes, T& value) {
  Unpacker unpacker(bytes_of(bytes));
  std::string version;
  unpacker(version);
  if (version != kVersion) return false;
  packed(value, unpacker);
  return unpacker.done();
}

bool read_message(std::istream& in, std::string& bytes) {
  uint64_t length = 0;
  return tools::read_number(in, length) && tools::read_bytes(in, length, bytes);
}

}  // namespace

Description describe(bool in_cand, bool in_folder, const std::string& trace,
                     const std::string& name, const std::string& problem) {
  Description one{.in_cand = in_cand, .in_folder = in_folder};
  one.file.path = name;
  if (!problem.empty()) {
    one.problem = unreadable(name, problem);
    return one;
  }
  const auto reader = reader::TraceReader::open(trace);
  if (!reader.ok()) {
    one.problem = unreadable(name, tools::status_text(reader.status()));
  } else {
    one.file.meta = reader.value()->meta();
    one.file.events = reader.value()->counts().events;
    const std::set<std::string> placements = layouts_of(trace);
    one.placements.assign(placements.begin(), placements.end());
  }
  return one;
}

std::string to_bytes(const Description& description) { return packed_bytes(description); }
std::string to_bytes(const RankPart& part) { return packed_bytes(part); }

bool read_descriptions(std::istream& in, Described& described, std::string& error) {
  error = kOdd;
  uint32_t count = 0;
  if (!tools::read_number(in, count)) return false;
  std::string bytes;
  std::map<std::string, std::vector<std::string>> placements;
  for (uint32_t i = 0; i < count; ++i) {
    Description one;
    if (!read_message(in, bytes) || !unpack(bytes, one)) return false;
    TraceSet& set = one.in_cand ? described.cand : described.base;
    set.is_folder = one.in_folder;
    if (!one.problem.empty()) {
      set.unreadable.push_back(one.problem);
      continue;
    }
    placements[one.file.path] = std::move(one.placements);
    set.files.push_back(std::move(one.file));
  }
  for (TraceSet* set : {&described.base, &described.cand}) {
    if (set->files.empty()) {
      error = set->unreadable.empty() ? unreadable(set->path, "the folder holds no trace")
                                      : set->unreadable.back();
      return false;
    }
    if (set->is_folder) sort_by_rank(set->files);
  }
  described.placed_unlike = placements[described.base.files.front().path] !=
                            placements[described.cand.files.front().path];
  return true;
}

bool read_parts(std::istream& in, std::vector<std::optional<RankPart>>& parts) {
  std::string bytes;
  while (in.peek() != std::istream::traits_type::eof()) {
    if (!read_message(in, bytes)) return false;
    std::optional<RankPart>& part = parts.emplace_back();
    if (!bytes.empty() && !unpack(bytes, part.emplace())) return false;
  }
  return true;
}

void write_pairs(const Described& described, const DiffRules& rules, std::ostream& out) {
  const TraceSet &base = described.base, &cand = described.cand;
  tools::Json pairs = tools::Json::array();
  const std::vector<RankPair> all = pair_ranks(base, cand, rules.base_rank);
  for (const RankPair& pair : all) {
    if (pair.base < 0 || pair.cand < 0) continue;
    pairs.push_back({{"rank", pair.rank},
                     {"base", base.files[static_cast<size_t>(pair.base)].path},
                     {"cand", cand.files[static_cast<size_t>(pair.cand)].path}});
  }
  const bool whole = are_wholes(base, cand, rules, [&] { return described.placed_unlike; });
  out << tools::dump_json({{"whole", whole}, {"several", all.size() > 1}, {"pairs", pairs}})
      << "\n";
}

}  // namespace convtrace::diff
