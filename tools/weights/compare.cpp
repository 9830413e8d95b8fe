#include "tools/weights/compare.h"

#include <algorithm>
#include <set>

#include "tools/common/text.h"
#include "tools/weights/numbers.h"

namespace convtrace::weights {
namespace {

/// A parameter of a program, or several that the other program has as one.
struct Side {
  const Weights* weights = nullptr;
  std::vector<std::string> names;
  Choice choice;

  [[nodiscard]] const History& history(size_t i) const {
    return weights->parameters.find(names[i])->second;
  }
  /// All versions, the last that counts at the end.
  [[nodiscard]] std::vector<Version> versions() const {
    std::vector<Version> all;
    for (const auto& [version, values] : history(0)) {
      if (choice.start ? version.updated : version.step > choice.step.value_or(version.step)) break;
      all.push_back(version);
    }
    return all;
  }
  [[nodiscard]] Whole at(const Version& version) const {
    std::vector<Whole> parts;
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = history(i).find(version);
      if (found == history(i).end()) return {};
      parts.push_back(joined(found->second));
    }
    return fused(parts);
  }
};

std::string version_text(const Version& version) {
  return version.updated ? "the update of step " + std::to_string(version.step)
                         : "the weights that step " + std::to_string(version.step) + " began with";
}

/// "layers.0.q_proj.weight" of "layers.0.qkv_proj.weight".
std::string beside(const std::string& name, const std::string& whole, const std::string& part) {
  const size_t last = name.rfind('.');
  if (last == std::string::npos) return "";
  const size_t before = name.rfind('.', last - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  if (name.compare(begin, last - begin, whole) != 0) return "";
  return name.substr(0, begin) + part + name.substr(last);
}

class Comparer {
 public:
  Comparer(const Weights& a, const Weights& b, const Names& names, const Choice& of_a,
           const Choice& of_b)
      : a_(a), b_(b), names_(names), of_a_(of_a), of_b_(of_b) {}

  Comparison run() {
    std::map<std::string, std::string> in_b;  // by the name that counts
    for (const auto& [name, history] : b_.parameters) in_b.emplace(moved(name), name);
    for (const auto& [name, history] : a_.parameters) {
      const auto other = in_b.find(renamed(name));
      if (other != in_b.end()) pair({name}, {other->second});
    }
    for (const bool whole_is_b : {true, false}) find_fused(whole_is_b);
    for (const auto& [name, history] : a_.parameters)
      if (!seen_a_.contains(name)) missing(name, true);
    for (const auto& [name, history] : b_.parameters)
      if (!seen_b_.contains(name)) missing(name, false);
    std::ranges::stable_sort(result_.parameters, [](const Compared& x, const Compared& y) {
      return std::pair(y.verdict, x.name) < std::pair(x.verdict, y.name);
    });
    result_.a = &a_;
    result_.b = &b_;
    return std::move(result_);
  }

 private:
  /// The name that the user says a parameter is compared by, else its own.
  [[nodiscard]] std::string moved(const std::string& name) const {
    return diff::path_in_base(name, names_.moved).value_or(name);
  }

  /// The name in B of a parameter of A.
  [[nodiscard]] std::string renamed(const std::string& own) const {
    std::string name = moved(own);
    for (const diff::ScopeRename& rule : names_.modules) {
      if (auto other = diff::renamed(name, rule.base, rule.cand)) return *std::move(other);
    }
    return name;
  }

  void find_fused(bool whole_is_b) {
    const Weights &whole = whole_is_b ? b_ : a_, &parted = whole_is_b ? a_ : b_;
    std::map<std::string, std::string> own;  // of a parameter of `parted`, by its name in `whole`
    for (const auto& [name, history] : parted.parameters)
      own.emplace(whole_is_b ? renamed(name) : name, name);
    for (const auto& [name, history] : whole.parameters) {
      if ((whole_is_b ? seen_b_ : seen_a_).contains(name)) continue;
      for (const auto& [fused_name, parts] : names_.fused) {
        std::vector<std::string> found;
        for (const std::string& part : parts) {
          const std::string there = beside(whole_is_b ? name : renamed(name), fused_name, part);
          const auto known = own.find(there);
          if (!there.empty() && known != own.end()) found.push_back(known->second);
        }
        if (found.size() != parts.size()) continue;
        if (whole_is_b) {
          pair(found, {name});
        } else {
          pair({name}, found);
        }
        break;
      }
    }
  }

  void missing(const std::string& name, bool in_b) {
    Compared one{.name = name, .verdict = Verdict::kMissing};
    (in_b ? one.in_a : one.in_b).push_back(name);
    one.text = name + " is not in the traces of " + (in_b ? b_ : a_).path + ".";
    if ((in_b ? b_ : a_).lacks_ranks) unknown_without_ranks(one);
    result_.parameters.push_back(std::move(one));
  }

  void pair(std::vector<std::string> in_a, std::vector<std::string> in_b) {
    seen_a_.insert(in_a.begin(), in_a.end());
    seen_b_.insert(in_b.begin(), in_b.end());
    const Side a{&a_, in_a, of_a_}, b{&b_, in_b, of_b_};
    Compared one{.name = in_b.size() < in_a.size() ? in_b[0] : in_a[0],
                 .in_a = std::move(in_a),
                 .in_b = std::move(in_b)};
    judge(a, b, one);
    result_.parameters.push_back(std::move(one));
  }

  [[nodiscard]] Alike alike_of(const Whole& a, const Whole& b) const {
    return alike(a, b, a_.hashed_anew == b_.hashed_anew);
  }

  void judge(const Side& a, const Side& b, Compared& one) const {
    const std::vector<Version> of_a = a.versions(), of_b = b.versions();
    if (of_a.empty() || of_b.empty()) {
      one.text = one.name + " was recorded in later steps alone.";
      return;
    }
    const Whole now_a = a.at(of_a.back()), now_b = b.at(of_b.back());
    switch (alike_of(now_a, now_b)) {
      case Alike::kBits:
        one.verdict = Verdict::kEqual;
        one.text = one.name + " has equal bits.";
        return;
      case Alike::kNumbers:
        one.verdict = Verdict::kEqualNumbers;
        one.text = one.name + ": counts, extrema and sums of " + pieces_text(now_a, now_b) +
                   " are those of the whole.";
        return;
      case Alike::kCast:
        one.verdict = Verdict::kCast;
        one.text = one.name + " is " + std::string(to_string(now_a.dtype)) + " in A and " +
                   std::string(to_string(now_b.dtype)) + " in B, and differs by rounding alone.";
        return;
      case Alike::kNotKnown:
        one.text = one.name + ": what is recorded of it cannot be put together.";
        return;
      case Alike::kReordered:
      case Alike::kUnlike: break;
    }
    const bool may_lack_pieces = a_.lacks_ranks || b_.lacks_ranks;
    if (may_lack_pieces &&
        (now_a.stats.count != now_b.stats.count || now_a.pieces > 1 || now_b.pieces > 1)) {
      unknown_without_ranks(one);
      return;
    }
    if (is_parted(now_a, now_b, one) || is_stale(a, of_a, now_b, true, one) ||
        is_stale(b, of_b, now_a, false, one))
      return;
    if (alike_of(now_a, now_b) == Alike::kReordered) {
      one.verdict = Verdict::kPermuted;
      one.text = one.name + " has the same numbers in another order, or another layout.";
      return;
    }
    differs(now_a, now_b, one);
  }

  void unknown_without_ranks(Compared& one) const {
    const std::string sides = a_.lacks_ranks && b_.lacks_ranks ? "A and B"
                              : a_.lacks_ranks                 ? "A"
                                                               : "B";
    one.verdict = Verdict::kNotKnown;
    one.text = one.name + " may be on ranks of " + sides + " that have no trace.";
  }

  static std::string pieces_text(const Whole& a, const Whole& b) {
    return tools::counted(std::max(a.pieces, b.pieces), "piece");
  }

  /// Each of several unlike tensors has as many elements as the other program's whole.
  static bool is_parted(const Whole& a, const Whole& b, Compared& one) {
    const bool in_a = a.pieces > 1 && b.pieces == 1 && a.piece_count == b.stats.count;
    const bool in_b = b.pieces > 1 && a.pieces == 1 && b.piece_count == a.stats.count;
    if ((!in_a && !in_b) || one.in_a.size() != 1 || one.in_b.size() != 1) return false;
    one.verdict = Verdict::kParted;
    one.text = "Ranks of " + std::string(in_a ? "A" : "B") + " hold " +
               std::to_string(in_a ? a.pieces : b.pieces) + " unlike copies of " + one.name + ".";
    return true;
  }

  /// @return whether the other program has an earlier version of this parameter.
  bool is_stale(const Side& fresh, const std::vector<Version>& versions, const Whole& other,
                bool stale_is_b, Compared& one) const {
    for (size_t back = 1; back < versions.size(); ++back) {
      const Version& earlier = versions[versions.size() - 1 - back];
      const Whole then = fresh.at(earlier);
      const Alike found = stale_is_b ? alike_of(then, other) : alike_of(other, then);
      if (found != Alike::kBits && found != Alike::kNumbers && found != Alike::kCast) continue;
      one.verdict = Verdict::kStale;
      one.stale_is_b = stale_is_b;
      one.stale_by = static_cast<uint32_t>(back);
      one.version = earlier.step;
      one.text = one.name + " in " + (stale_is_b ? "B" : "A") + " is " + version_text(earlier) +
                 " of " + (stale_is_b ? "A" : "B") + ", " +
                 tools::counted(back, "recorded version") + " back.";
      return true;
    }
    return false;
  }

  static void differs(const Whole& a, const Whole& b, Compared& one) {
    one.verdict = Verdict::kDiffers;
    if (a.stats.count != b.stats.count) {
      one.text = one.name + " has " + tools::counted(a.stats.count, "element") + " in A and " +
                 tools::count_text(b.stats.count) + " in B.";
      return;
    }
    one.distance = distance(a, b);
    one.text = one.name + " differs" + difference_text(a, b, one.distance) + '.';
  }

  const Weights &a_, &b_;
  const Names& names_;
  Choice of_a_, of_b_;
  std::set<std::string> seen_a_, seen_b_;
  Comparison result_;
};

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[kVerdicts] = {"equal",     "equal-numbers", "cast",
                                                  "not-known", "permuted",      "missing",
                                                  "stale",     "parted",        "differs"};
  return kNames[static_cast<size_t>(verdict)];
}

size_t Comparison::count(Verdict verdict) const {
  return static_cast<size_t>(std::ranges::count(parameters, verdict, &Compared::verdict));
}

size_t Comparison::faults() const {
  return static_cast<size_t>(
      std::ranges::count_if(parameters, [](const Compared& one) { return is_fault(one.verdict); }));
}

std::string refusal(const Weights& weights, const Choice& choice) {
  std::set<uint32_t> steps;
  bool has_start = false;
  for (const auto& [name, history] : weights.parameters) {
    has_start |= !history.empty() && !history.begin()->first.updated;
    for (const auto& [version, values] : history)
      if (version.updated) steps.insert(version.step);
  }
  if (choice.start ? has_start : !choice.step || steps.contains(*choice.step)) return "";
  std::string there = has_start ? "the start" : "";
  for (auto step = steps.begin(); step != steps.end();) {
    const uint32_t first = *step;
    uint32_t last = first;
    while (++step != steps.end() && *step == last + 1) ++last;
    there += (there.empty() ? "" : ", ") + std::to_string(first);
    if (last != first) there += " to " + std::to_string(last);
  }
  return weights.path + " has no weights of " +
         (choice.start ? "the start" : "step " + std::to_string(*choice.step)) +
         "; it has those of " + (there.empty() ? "none" : there);
}

Comparison compare(const Weights& a, const Weights& b, const Names& names, const Choice& of_a,
                   const Choice& of_b) {
  return Comparer(a, b, names, of_a, of_b).run();
}

}  // namespace convtrace::weights
