#include "tools/report/brief.h"

#include <algorithm>
#include <array>
#include <utility>

namespace convtrace::report {
namespace {

using tools::Json;
using tools::text_or_null;

constexpr size_t kMostEvidence = 3;

struct Size {
  size_t text_bytes;  ///< of one text
  bool with_next;
};
// Tried in turn until the answer is short enough. With the last one it always is: 14 texts, whose
// bytes take 6 of JSON each where they are not ASCII.
constexpr std::array<Size, 8> kSizes = {{{400, true},
                                         {240, true},
                                         {120, true},
                                         {60, true},
                                         {240, false},
                                         {120, false},
                                         {48, false},
                                         {12, false}}};

/// @return a text of at most `most` bytes, with an ellipsis where it was cut.
std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

Json cut(Json place, size_t most) {
  for (auto& [key, value] : place.items())
    if (value.is_string()) value = cut(value.get<std::string>(), most);
  return place;
}

Json cut(const std::vector<std::string>& texts, size_t most) {
  Json list = Json::array();
  for (size_t i = 0; i < std::min(texts.size(), kMostEvidence); ++i)
    list.push_back(cut(texts[i], most));
  return list;
}

Json confidence_json(Confidence confidence) {
  switch (confidence) {
    case Confidence::kPossible: return "possible";
    case Confidence::kLikely: return "likely";
    case Confidence::kProven: return "proven";
    case Confidence::kNone: break;
  }
  return {};
}

std::string dumped(const Brief& brief, const Size& size) {
  const auto& [text_bytes, with_next] = size;
  const Json evidence = cut(brief.evidence, text_bytes);
  const Json cannot_tell = cut(brief.cannot_tell, text_bytes);
  const size_t left_out = brief.evidence.size() - evidence.size() + brief.cannot_tell.size() -
                          cannot_tell.size() + (with_next ? 0 : brief.next.size());
  return tools::dump_json({{"verdict", brief.verdict},
                           {"headline", cut(brief.headline, text_bytes)},
                           {"place", cut(brief.place, text_bytes)},
                           {"cause", text_or_null(cut(brief.cause, text_bytes))},
                           {"confidence", confidence_json(brief.confidence)},
                           {"evidence", evidence},
                           {"next", with_next ? Json(brief.next) : Json::array()},
                           {"cannot_tell", cannot_tell},
                           {"left_out", left_out}});
}

}  // namespace

Brief nothing_found(std::string headline, const std::vector<std::string>& incomplete,
                    const std::vector<std::string>& notes) {
  Brief brief{.verdict = incomplete.empty() ? "clean" : "incomplete",
              .headline = std::move(headline),
              .cannot_tell = incomplete};
  brief.cannot_tell.insert(brief.cannot_tell.end(), notes.begin(), notes.end());
  return brief;
}

std::string brief_json(const Brief& brief) {
  std::string text;
  for (const Size& size : kSizes) {
    text = dumped(brief, size);
    if (text.size() <= kMostBriefBytes) break;
  }
  return text;
}

}  // namespace convtrace::report
