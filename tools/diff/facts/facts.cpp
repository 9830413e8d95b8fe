#include "tools/diff/facts/facts.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>

#include "reader/kind_set.h"
#include "reader/step_sums.h"
#include "reader/trace_reader.h"
#include "tools/diff/facts/fact_groups.h"
#include "tools/diff/model/scope_map.h"

namespace convtrace::diff {
namespace {

/// Settings that change how an optimizer computes but not what, and initial values that a scheduler
/// keeps.
constexpr std::string_view kOnlyHow[] = {"foreach", "fused", "capturable", "differentiable"};

/// Facts of a module's mode in training, and in evaluation.
constexpr std::string_view kMode = "mode", kModeOfEvaluation = "mode.evaluation";

/// Facts of calls in compiled regions: generated_call.h.
constexpr std::string_view kCompiled = "compiled.";
constexpr std::string_view kDropped = "compiled_dropped.";

/// Facts of the functions that backward passes begin with: "loss.backward", "loss.backward:1".
constexpr std::string_view kLossBackward = "loss.backward";

/// Facts of a module that tell the group of a parameter: "group.weight", "0.1".
constexpr std::string_view kGroupOf = "group.";

constexpr std::string_view kOptimizer = "optimizer.";

using Key = std::pair<std::string, std::string>;  // scope (for facts of the program: none), name

struct Known {
  std::string value;
  bool moved = false;         ///< it had another value in an earlier step that both runs have
  bool moved_before = false;  ///< it had another value before the first step that both runs have
};

/// @return the names of a module's hooks without their files and lines, which change when code is
/// moved or edited. @param hooks  null: none
std::string hooks_of(const Known* hooks) {
  std::string text = hooks != nullptr ? hooks->value : "";
  for (size_t begin = text.find(" ("); begin != text.npos; begin = text.find(" (", begin))
    text.erase(begin, text.find(')', begin) - begin + 1);
  return text;
}

/// Groups of optimizers, one of each run, that have parameters in common.
struct GroupPair {
  std::string base, cand;               ///< "optimizer.0.1"
  std::vector<std::string> parameters;  ///< the baseline's names
};

/// The facts of one trace, step by step.
class FactStream {
 public:
  /// @param shift  added to the numbers of the trace's steps.
  FactStream(std::unique_ptr<reader::TraceReader> reader, StepShift shift,
             std::map<std::string, std::string> names)
      : reader_(std::move(reader)), shift_(shift), names_(std::move(names)) {
    reader_->select([](const format::RecordHeader& chunk) {
      const bool any = (chunk.flags & format::kFlagFacts) != 0;
      return any ? reader::kKindSet<format::Fact> : reader::kNoKinds;
    });
    read();
  }

  /// @return the step of the next fact; nullopt at the end.
  [[nodiscard]] std::optional<uint32_t> next_step() const {
    return next_ == nullptr ? std::nullopt : std::optional(shift_.of(next_->header.step));
  }
  /// Reads the facts of all steps up to this one. @param[in,out] touched  gets their keys.
  void take(uint32_t step, std::set<Key>& touched) {
    for (; next_ != nullptr && shift_.of(next_->header.step) <= step; read()) {
      const format::Definitions& texts = reader_->definitions();
      std::string scope(texts.text(next_->scope));
      if (const auto known = names_.find(scope); known != names_.end()) scope = known->second;
      // The root module's name is ""; a fact of the program has no name.
      Key key{next_->scope ? '.' + scope : "", texts.text(next_->name)};
      const auto [entry, is_new] = known_.try_emplace(key);
      entry->second.moved |= !is_new;
      entry->second.value = next_->value;
      if (!key.first.empty() && key.second.starts_with(kGroupOf))
        groups_[parameter_of(key)] = std::string(kOptimizer).append(next_->value);
      touched.insert(std::move(key));
    }
  }
  /// Begins the steps that both runs have.
  void begin_common() {
    for (auto& [key, known] : known_) known.moved_before = std::exchange(known.moved, false);
  }
  [[nodiscard]] StepShift shift() const { return shift_; }
  [[nodiscard]] const Known* find(const Key& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const std::map<Key, Known>& known() const { return known_; }
  /// @return how many losses of a step are known with their functions.
  [[nodiscard]] ptrdiff_t losses(const std::string& scope) const {
    const auto first = known_.lower_bound({scope, std::string(kLossBackward)});
    return std::distance(first, std::find_if(first, known_.end(), [&scope](const auto& one) {
                           return one.first.first != scope ||
                                  !one.first.second.starts_with(kLossBackward);
                         }));
  }
  /// @return the group of each parameter: "head.weight", "optimizer.0.1".
  [[nodiscard]] const std::map<std::string, std::string>& groups() const { return groups_; }
  [[nodiscard]] bool damaged() const { return reader_->state() == reader::TraceState::kDamaged; }

 private:
  static std::string parameter_of(const Key& key) {
    const std::string scope = key.first.substr(1);
    return scope + (scope.empty() ? "" : ".") + key.second.substr(kGroupOf.size());
  }

  void read() {
    do {
      const format::Event* event = reader_->next();
      next_ = event == nullptr ? nullptr : std::get_if<format::Fact>(event);
      if (event == nullptr) return;
    } while (next_ == nullptr);
  }

  std::unique_ptr<reader::TraceReader> reader_;
  StepShift shift_;
  std::map<std::string, std::string> names_;  ///< from names to those of the baseline
  std::map<Key, Known> known_;
  std::map<std::string, std::string> groups_;
  const format::Fact* next_ = nullptr;
};

bool all_steps_equal(const reader::TraceReader& base, const reader::TraceReader& cand) {
  for (const reader::TraceReader* trace : {&base, &cand}) {
    if (trace->state() != reader::TraceState::kComplete) return false;
  }
  const auto sums = reader::load_step_sums(base.container());
  return !sums.empty() && sums == reader::load_step_sums(cand.container());
}

bool is_generator(const Key& key) { return key.second.starts_with("rng."); }

bool is_optimizer_class(std::string_view fact) {
  return fact.starts_with(kOptimizer) && fact.ends_with(".class");
}

std::string last_part(std::string_view text) {
  return std::string(text.substr(text.rfind('.') + 1));
}

}  // namespace

/// The two traces of one rank.
class FactDiff::Rank {
 public:
  Rank(FactDiff& to, FactStream& base, FactStream& cand, uint32_t rank)
      : to_(to), base_(base), cand_(cand), rank_(rank) {}

  /// @param parts  the runs part in the last step.
  void run(uint32_t last_step, bool parts) {
    std::set<Key> touched;
    // A resumed run begins with the state that the other one has reached by then.
    if (const uint32_t first = std::max(base_.shift().steps, cand_.shift().steps); first > 0) {
      for (FactStream* stream : {&base_, &cand_}) {
        stream->take(first - 1, touched);
        stream->begin_common();
      }
    }
    last_step_ = last_step;
    const auto next = [&] {
      const auto a = base_.next_step(), b = cand_.next_step();
      return a && b ? std::min(a, b) : a ? a : b;
    };
    // A mode is recorded one step late (mode()). A generator's state is recorded after the step, so
    // it shows the draws of the step in which the runs part.
    for (auto step = next(); step && (*step <= last_step || *step - 1 == last_step);
         step = next()) {
      base_.take(*step, touched);
      cand_.take(*step, touched);
      if (std::ranges::any_of(touched,
                              [](const Key& key) { return key.second.starts_with(kGroupOf); }))
        pair_groups();
      for (const Key& key : touched)
        if (*step <= last_step || key.second == kMode || (parts && is_generator(key)))
          compare(key, *step);
      touched.clear();
    }
    for (FactDifference& generator : generators_) {
      if (!generator.from_the_start || moves(generator.name)) to_.add(std::move(generator));
    }
  }

 private:
  void compare(const Key& key, uint32_t step) {
    const Known *a = base_.find(key), *b = cand_.find(key);
    if (key.second.starts_with(kOptimizer)) {
      optimizer(key.second, step);
    } else if (key.first.empty() && !is_generator(key)) {
      return;  // all others are of modules
    } else if (key.second == "autocast") {
      of_first_call(key, a, b, "off", step);
    } else if (key.second == "frozen" || key.second == "tied") {
      of_first_call(key, a, b, "none", step);
    } else if (key.second == kMode || key.second == kModeOfEvaluation) {
      mode(key, a, b, step);
    } else if (key.second == kHooks) {
      // They may only look at the module's values.
      if (hooks_of(a) != hooks_of(b)) of_first_call(key, a, b, "none", step, false);
    } else if (a == nullptr || b == nullptr) {
      return;  // the module ran in one run only, or later
    } else if (is_generator(key)) {
      generator(key.second.substr(4), *a, *b, step);
    } else if (key.second == "class") {
      const std::string ours = last_part(a->value), theirs = last_part(b->value);
      if (ours != theirs) module(key.first, ours, "class", ours, theirs, step, true);
    } else if (key.second == "attributes") {
      attributes(key.first, *a, *b, step);
    } else if (key.second.starts_with(kLossBackward)) {
      // A loss of one pass and the first of two are not each other's. Another function may compute the
      // same.
      if (base_.losses(key.first) == cand_.losses(key.first))
        settings(key.first, std::string(kOfLoss) + key.second.substr(kLossBackward.size()), *a, *b,
                 step, false);
    } else if (key.second.starts_with("loss.")) {
      settings(key.first, key.second.substr(5), *a, *b, step, true);
    }
  }

  /// The baseline's class of a module; nullopt if one of the runs has not called it so far.
  [[nodiscard]] std::optional<std::string> class_in_both(const std::string& scope) const {
    const Known *ours = base_.find({scope, "class"}), *theirs = cand_.find({scope, "class"});
    if (ours == nullptr || theirs == nullptr) return std::nullopt;
    return last_part(ours->value);
  }

  /// Compares a fact of a module's first call: autocast, frozen parameters, parameters of other
  /// modules, hooks. @param none  stands for a module without the fact.
  void of_first_call(const Key& key, const Known* a, const Known* b, const char* none,
                     uint32_t step, bool decides = true) {
    const auto kind = class_in_both(key.first);
    if (!kind) return;
    const auto text = [none](const Known* known) { return known == nullptr ? none : known->value; };
    module(key.first, *kind, key.second, text(a), text(b), step, decides);
  }

  /// Compares whether a module trains in evaluation mode, or is evaluated in training mode. Only
  /// for a module that has a setting for training alone, or whose owner's mode does not differ. The
  /// observer records training of a whole model one step late (step_stream.cpp).
  void mode(const Key& key, const Known* a, const Known* b, uint32_t step) {
    const std::string &scope = key.first, &name = key.second;
    const auto kind = class_in_both(scope);
    if (!kind) return;
    const bool trains = name == kMode;
    // A module that was not evaluated was not in training mode then either.
    const auto training = [trains](const Known* known) -> std::string {
      const std::string mode = known != nullptr ? known->value : trains ? "train" : "eval";
      if (mode == "train") return trains ? "True" : "yes";
      return mode == "eval" ? trains ? "False" : "no" : mode;
    };
    const auto differs = [&](const std::string& of) {
      return training(base_.find({of, name})) != training(cand_.find({of, name}));
    };
    const auto owner = [&](const std::string& of) {
      const size_t dot = of.rfind('.');
      return dot == 0 ? std::string(".") : of.substr(0, dot);
    };
    bool with_owner = false, with_model = scope == ".";
    for (std::string above = scope; above != ".";) {
      above = owner(above);
      with_owner |= base_.find({above, "class"}) != nullptr && differs(above);
      with_model |= above == "." && differs(above);
    }
    if (with_owner && !acts_in_training(scope)) return;
    const uint32_t since = trains && with_model && step != 0 ? step - 1 : step;
    if (since > last_step_) return;
    module(scope, *kind, trains ? "training" : "training in evaluation", training(a), training(b),
           since, true);
  }

  /// @return whether the module has a setting that acts only in training.
  [[nodiscard]] bool acts_in_training(const std::string& scope) const {
    const Known* known = base_.find({scope, "attributes"});
    if (known == nullptr) return false;
    const auto settings = parse_settings(known->value);
    return settings.contains("p") || settings.contains("momentum");
  }

  /// Pairs the groups of optimizers by the parameters that they have in common, since programs number
  /// equal groups otherwise.
  void pair_groups() {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> shared;
    for (const auto& [parameter, ours] : base_.groups()) {
      const auto theirs = cand_.groups().find(parameter);
      if (theirs != cand_.groups().end()) shared[{ours, theirs->second}].push_back(parameter);
    }
    pairs_.clear();
    for (auto& [groups, parameters] : shared) {
      const GroupPair pair{groups.first, groups.second, std::move(parameters)};
      pairs_[pair.base].push_back(pair);
      if (pair.cand != pair.base) pairs_[pair.cand].push_back(pair);
    }
  }

  /// @param fact  "optimizer.0.1.lr"
  void optimizer(const std::string& fact, uint32_t step) {
    const std::string name = last_part(fact), group = fact.substr(0, fact.size() - name.size() - 1);
    if (pairs_.empty() || name == "class" || name == "unread") {
      optimizer(name, {group, group, {}}, step);  // an older trace does not tell members
    } else if (const auto pairs = pairs_.find(group); pairs != pairs_.end()) {
      for (const GroupPair& pair : pairs->second) optimizer(name, pair, step);
    }
  }

  /// Settings that one run lacks are reported only for optimizers and groups that both runs have.
  void optimizer(const std::string& name, const GroupPair& pair, uint32_t step) {
    const auto has_group = [](const FactStream& of, const std::string& group) {
      const auto next = of.known().lower_bound({"", group + '.'});
      return next != of.known().end() && next->first.second.starts_with(group + '.');
    };
    if (!has_group(base_, pair.base) || !has_group(cand_, pair.cand)) return;
    const Known* const a = base_.find({"", pair.base + '.' + name});
    const Known* const b = cand_.find({"", pair.cand + '.' + name});
    const bool both = a != nullptr && b != nullptr;
    if (!both && (base_.damaged() || cand_.damaged())) return;
    tell({.kind = FactKind::kOptimizer,
          .name = name,
          .base = a != nullptr ? std::optional(a->value) : std::nullopt,
          .cand = b != nullptr ? std::optional(b->value) : std::nullopt,
          .step = step,
          .scope = pair.base,
          .module_class = class_of(pair.base),
          .parameters = pairs_.size() > 1 ? pair.parameters : std::vector<std::string>(),
          .configuration = both && std::ranges::find(kOnlyHow, name) == std::end(kOnlyHow)});
  }

  /// The class of an optimizer's group.
  [[nodiscard]] std::string class_of(const std::string& group) const {
    const Known* kind = base_.find({"", group.substr(0, group.rfind('.')) + ".class"});
    return kind != nullptr ? last_part(kind->value) : "";
  }

  void generator(const std::string& name, const Known& a, const Known& b, uint32_t step) {
    if (a.value == b.value) {
      agreed_.insert(name);
      return;
    }
    if (!told_.insert({"rng", name}).second) return;
    generators_.push_back({.kind = FactKind::kGenerator,
                           .name = name,
                           .base = a.value,
                           .cand = b.value,
                           .rank = rank_,
                           .step = step,
                           .from_the_start = !agreed_.contains(name)});
  }

  /// @return whether either run draws from the generator: otherwise it has no effect.
  [[nodiscard]] bool moves(const std::string& name) const {
    const Key key{"", "rng." + name};
    return base_.find(key)->moved || cand_.find(key)->moved;
  }

  void attributes(const std::string& scope, const Known& a, const Known& b, uint32_t step) {
    const Known *ours = base_.find({scope, "class"}), *theirs = cand_.find({scope, "class"});
    if (ours == nullptr || theirs == nullptr) return;
    if (last_part(ours->value) != last_part(theirs->value))
      return;  // that is the difference to report
    // A value that both programs change while they run may be a count or an average. What a program
    // had changed before the other one was resumed is its state.
    const bool is_state = (a.moved && b.moved) || a.moved_before || b.moved_before;
    settings(scope, last_part(ours->value), a, b, step, !is_state);
  }

  /// @param of  a module's class, or a function.
  /// @param decides  whether a setting that both have changes what is computed.
  void settings(const std::string& scope, const std::string& of, const Known& a, const Known& b,
                uint32_t step, bool decides) {
    const auto base = parse_settings(a.value), cand = parse_settings(b.value);
    const auto value = [](const auto& settings, const std::string& name) {
      const auto found = settings.find(name);
      return found == settings.end() ? std::nullopt : std::optional(found->second);
    };
    auto names = base;
    names.insert(cand.begin(), cand.end());
    for (const auto& [name, ignored] : names) {
      // Functions of other kinds have no reduction.
      if (of.starts_with(kOfLoss) && (!base.contains(name) || !cand.contains(name))) continue;
      module(scope, of, name, value(base, name), value(cand, name), step, decides);
    }
  }

  void module(const std::string& scope, const std::string& of, const std::string& name,
              std::optional<std::string> base, std::optional<std::string> cand, uint32_t step,
              bool decides) {
    const bool both = base && cand;
    tell({.kind = FactKind::kModule,
          .name = name,
          .base = base,
          .cand = cand,
          .step = step,
          .scope = scope.substr(1),
          .module_class = of,
          .configuration = both && decides});
  }

  void tell(FactDifference fact) {
    if (fact.base == fact.cand) return;
    const std::string of = fact.parameters.empty() ? "" : ' ' + fact.parameters.front();
    if (!told_.insert({fact.scope + of, fact.name}).second) return;
    fact.rank = rank_;
    fact.first = fact.parameters.empty() ? fact.scope : fact.parameters.front();
    to_.add(std::move(fact));
  }

  FactDiff& to_;
  FactStream &base_, &cand_;
  const uint32_t rank_;
  uint32_t last_step_ = 0;
  std::map<std::string, std::vector<GroupPair>> pairs_;  ///< by the group of either run
  std::set<Key> told_;
  std::set<std::string> agreed_;
  std::vector<FactDifference> generators_;
};

bool FactDiff::compare_rank(const std::string& base_path, const std::string& cand_path,
                            uint32_t rank, const StepOffset& offset, uint32_t last_step, bool parts,
                            std::span<const RenamedModule> renamed) {
  auto base = reader::TraceReader::open(base_path), cand = reader::TraceReader::open(cand_path);
  if (!base.ok() || !cand.ok()) return false;
  if (offset.steps == 0 && all_steps_equal(*base.value(), *cand.value())) return true;
  std::map<std::string, std::string> names;
  for (const RenamedModule& one : renamed) names[one.cand] = one.base;
  std::array streams{FactStream(std::move(base).value(), offset.of_base(), {}),
                     FactStream(std::move(cand).value(), offset.of_cand(), std::move(names))};
  Rank(*this, streams[0], streams[1], rank).run(last_step, parts);
  for (size_t run = 0; run < 2; ++run) {
    for (const auto& [key, known] : streams[run].known()) {
      if (key.first.empty() && is_optimizer_class(key.second))
        state_.optimizers.push_back(known.value);
      if (key.first.empty()) continue;
      CodePlace& place = state_.places[key.first.substr(1)][run];
      if (key.second == "class") {
        place.module_class = last_part(known.value);
        place.qualified_class = known.value;
      }
      if (key.second == "forward") place.forward = known.value;
      if (key.second == "call") place.call = known.value;
      if (key.second == "backward.call") place.backward = known.value;
      if (key.second == kHooks) place.hooks = known.value;
    }
  }
  return true;
}

void FactDiff::compare_code(const format::TraceMeta& base, const format::TraceMeta& cand) {
  for (FactDifference& fact : code_differences(base, cand)) add(std::move(fact));
  for (const format::TraceMeta* meta : {&cand, &base}) {
    for (const auto& [name, value] : meta->facts) {
      if (name.starts_with(kCompiled))
        state_.generated.try_emplace(name.substr(kCompiled.size()), generated_call(value));
      if (name.starts_with(kSource))
        state_.sources.try_emplace(code_name("code." + name.substr(kSource.size())), value);
    }
  }
  for (const auto& [name, value] : cand.facts) {
    if (!name.starts_with(kDropped) || base.fact(name)) continue;
    const auto call = state_.generated.find(name.substr(kDropped.size()));
    if (call != state_.generated.end()) call->second.drops_view = true;
  }
}

std::vector<std::pair<std::string, std::string>> FactDiff::dropped_views() const {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const auto& [name, call] : state_.generated) {
    const size_t dot = name.rfind('.');
    if (call.drops_view && dot != name.npos)
      calls.emplace_back(name.substr(0, dot), name.substr(dot + 1));
  }
  return calls;
}

void FactDiff::add(FactDifference fact) {
  if (state_.all.size() < kMaxFactDifferences) state_.all.push_back(std::move(fact));
}

std::vector<FactDifference> FactDiff::differences() const {
  std::vector<FactDifference> found = grouped(state_.all);
  for (FactDifference& fact : found) {
    const bool of_optimizer = fact.kind == FactKind::kCode &&
                              std::ranges::any_of(state_.optimizers, [&](const auto& kind) {
                                return is_class(fact.name, kind);
                              });
    if (of_optimizer) fact.scope = "optimizer.*";
  }
  return found;
}

void FactDiff::add(FactState other) {
  for (FactDifference& fact : other.all) add(std::move(fact));
  state_.generated.merge(other.generated);
  state_.sources.merge(other.sources);
  std::ranges::move(other.optimizers, std::back_inserter(state_.optimizers));
  for (auto& [scope, runs] : other.places) {
    for (size_t run = 0; run < runs.size(); ++run) {
      CodePlace& place = state_.places[scope][run];
      for (const auto member :
           {&CodePlace::module_class, &CodePlace::qualified_class, &CodePlace::forward,
            &CodePlace::call, &CodePlace::backward, &CodePlace::hooks})
        if (!(runs[run].*member).empty()) place.*member = std::move(runs[run].*member);
    }
  }
}

CodePlace FactDiff::place_of(const std::string& scope, const std::string& op) const {
  CodePlace place;
  const auto found = state_.places.find(scope);
  if (found != state_.places.end()) {
    const auto& [base, cand] = found->second;
    place = cand.module_class.empty() ? base : cand;
  }
  const auto call = state_.generated.find(scope + '.' + op);
  if (call != state_.generated.end()) place.generated = call->second;
  place.changed = std::ranges::any_of(state_.all, [&place](const FactDifference& fact) {
    return fact.kind == FactKind::kCode && is_class_at(fact.name, place);
  });
  for (const auto& [name, text] : state_.sources)
    if (is_class_at(name, place)) place.source = text;
  // Autograd names the backward of a Function by its class.
  std::string_view kind = op;
  if (kind.ends_with("Backward")) kind.remove_suffix(std::string_view("Backward").size());
  const auto of_op = std::ranges::find_if(state_.all, [kind](const FactDifference& fact) {
    return fact.kind == FactKind::kCode && fact.base && fact.cand &&
           is_class_named(fact.name, kind);
  });
  if (of_op != state_.all.end()) place.op_code = fact_text(*of_op);
  return place;
}

CodePlace FactDiff::caller_of(std::string scope) const {
  CodePlace place;
  while (!scope.empty() && place.qualified_class.empty()) {
    const size_t dot = scope.rfind('.');
    scope.resize(dot == scope.npos ? 0 : dot);
    place = place_of(scope, "");
  }
  return place;
}

}  // namespace convtrace::diff
