#include "tools/trace/read/trace_set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "format/file/record_codec.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

namespace fs = std::filesystem;

bool visit_file(const std::string& path, reader::OpenPolicy policy, const VisitTrace& visit,
                std::string& error) {
  auto opened = reader::TraceReader::open(path, policy);
  if (opened.ok())
    visit(path, std::move(opened).value());
  else
    error = unreadable(path, tools::status_text(opened.status()));
  return opened.ok();
}

/// Accepts a trace with any name. A file with a trace's name and other contents is reported as one
/// that cannot be read.
bool looks_like_trace(const fs::path& path) {
  if (path.extension() == ".ctrace") return true;
  format::Slot begin{};
  std::ifstream file(path, std::ios::binary);
  return file.read(reinterpret_cast<char*>(begin.data()), begin.size()) && format::has_magic(begin);
}

bool visit_folder(const std::string& path, reader::OpenPolicy policy, const VisitTrace& visit,
                  std::vector<std::string>& refused, std::string& error) {
  std::vector<std::string> paths;
  std::error_code failed;
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && looks_like_trace(entry->path()))
      paths.push_back(entry->path().string());
  }
  if (failed) {
    error = unreadable(path, failed.message());
    return false;
  }
  std::ranges::sort(paths);
  bool any = false;
  for (const std::string& file : paths) {
    if (visit_file(file, policy, visit, error))
      any = true;
    else
      refused.push_back(error);
  }
  if (paths.empty()) error = unreadable(path, "the folder holds no trace");
  return any;
}

}  // namespace

std::string unreadable(const std::string& path, const std::string& why) {
  return tools::numbered(tools::MessageId::kUnreadable, tools::escape_text(path) + ": " + why);
}

std::string not_whole(const std::string& path) {
  return tools::escape_text(path) + ": the trace was not closed, or is damaged";
}

bool visit_traces(const std::string& path, reader::OpenPolicy policy, const VisitTrace& visit,
                  std::vector<std::string>& refused, std::string& error) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? visit_folder(path, policy, visit, refused, error)
                                         : visit_file(path, policy, visit, error);
}

bool open_trace_set(const std::string& path, TraceSet& set, std::string& error) {
  std::error_code ignored;
  set.path = path;
  set.is_folder = fs::is_directory(path, ignored);
  const auto add = [&set](const std::string& file, std::unique_ptr<reader::TraceReader> trace) {
    set.files.push_back({file, trace->meta(), trace->counts().events});
  };
  if (!visit_traces(path, reader::OpenPolicy::kIndexOrScan, add, set.unreadable, error))
    return false;
  sort_by_rank(set.files);
  return true;
}

void sort_by_rank(std::vector<TraceFile>& files) {
  std::ranges::stable_sort(files, {}, [](const TraceFile& file) {
    return std::tuple(file.meta.rank, file.meta.start_realtime_ns);
  });
}

std::vector<RankPair> pair_ranks(const TraceSet& base, const TraceSet& cand,
                                 const std::map<uint32_t, uint32_t>& base_rank) {
  if (base.files.size() == 1 && cand.files.size() == 1) return {{base.files[0].meta.rank, 0, 0}};
  std::map<std::pair<uint32_t, int>, RankPair>
      pairs;  // by rank, and number among the traces of that rank
  const auto add = [&](const TraceSet& set, int RankPair::*side) {
    std::map<uint32_t, int> seen;
    for (size_t i = 0; i < set.files.size(); ++i) {
      uint32_t rank = set.files[i].meta.rank;
      const auto mapped = base_rank.find(rank);
      if (&set == &cand && mapped != base_rank.end()) rank = mapped->second;
      RankPair& pair = pairs[{rank, seen[rank]++}];
      pair.rank = rank;
      pair.*side = static_cast<int>(i);
    }
  };
  add(base, &RankPair::base);
  add(cand, &RankPair::cand);
  std::vector<RankPair> list;
  for (const auto& [key, pair] : pairs) list.push_back(pair);
  return list;
}

}  // namespace convtrace::diff
