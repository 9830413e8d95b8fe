#include "tools/diff/births/sources.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace convtrace::diff {
namespace {

constexpr uint32_t kNoScope = 0;

/// Inputs of a root module have a phase of their own but belong to the same call.
format::Phase phase_of_call(const ValueRecord& record) {
  return record.key.phase == format::Phase::kData ? format::Phase::kForward : record.key.phase;
}

bool is_of_op(const ValueRecord& record) { return static_cast<bool>(record.key.op); }
bool is_of_kernel(const ValueRecord& record) { return static_cast<bool>(record.key.family); }

}  // namespace

void Difference::add(const Difference& other) {
  rms = std::max(rms, other.rms);
  unit = std::max(unit, other.unit);
  equal &= other.equal;
  known &= other.known;
  other_shape |= other.other_shape;
  if (other.count > count) {
    count = other.count;
    rows = other.rows;
    size = other.size;
  }
}

void Sources::Gradients::add(const Difference& one) {
  const double square = one.size * one.size * static_cast<double>(one.count);
  if (!std::isfinite(square) || !std::isfinite(one.rms)) return;
  squares += square;
  apart += square * one.rms * one.rms;
  equal &= one.equal;
}

Difference Sources::Gradients::total() const {
  return {.rms = squares > 0 ? std::sqrt(apart / squares) : 0, .equal = equal};
}

void Sources::begin_step(const Lineage& lineage, size_t matches) {
  lineage_ = &lineage;
  differences_.assign(matches, {});
  modules_.clear();
  ops_.clear();
  if (gradients_now_.squares > 0) gradients_before_ = std::exchange(gradients_now_, {});
  unit_alone_ = 0;
  gradients_.clear();
  output_gradients_.clear();
  forward_ = backward_ = all_ = outermost_ = {};
  last_outermost_ = kNoScope;
  outputs_before_ = std::exchange(outputs_, {});
}

void Sources::take_alone(const StepRecords& step, std::span<const uint32_t> indices) {
  std::unordered_map<uint32_t, double> squares;
  for (const uint32_t i : indices) {
    const ValueRecord& record = step.values[i];
    if (record.kind == Role::kOutput && is_float(record))
      unit_alone_ = std::max(unit_alone_, unit_roundoff(record.dtype));
    if (record.kind != Role::kGradOutput || record.capture == format::Capture::kHash) continue;
    squares[record.key.scope.value] += record.stats.l2 * record.stats.l2;
  }
  for (const auto& [scope, square] : squares) output_gradients_.try_emplace(scope, square);
}

uint32_t Sources::parent_of(uint32_t scope) const {
  const auto [entry, is_new] = parents_.try_emplace(scope, kNoScope);
  if (is_new) {
    const std::string_view path = names_->text({scope});
    const size_t dot = path.rfind('.');
    const std::string parent(dot == std::string_view::npos ? "" : path.substr(0, dot));
    // The root module has no parent.
    if (!path.empty()) parents_[scope] = names_->intern(parent).value;
    return parents_[scope];
  }
  return entry->second;
}

/// The innermost module, from `scope` outwards, that is being called according to the records.
uint32_t Sources::called(uint32_t scope) const {
  for (; scope != kNoScope; scope = parent_of(scope)) {
    const auto found = modules_.find(scope);
    if (found != modules_.end() && !found->second.over) return scope;
  }
  return kNoScope;
}

Difference Sources::parameters_of(uint32_t scope, double size) const {
  Difference difference;
  const auto own = parameters_.find(scope);
  if (own == parameters_.end()) return difference;
  double vectors = 0;
  for (const auto& [key, parameter] : own->second) {
    difference.rms = std::max(difference.rms, parameter.relative);
    vectors += parameter.absolute;
    difference.equal &= parameter.relative == 0 && parameter.absolute == 0;
  }
  // A vector is added to every row of the output, or scales it, so its own size is irrelevant.
  if (size > 0) difference.rms = std::max(difference.rms, vectors / size);
  return difference;
}

/// Propagates a difference through a product with the module's only matrix. @param output  size of
/// the product; all sizes are root mean squares of elements
/// \n Independent differences in an input of size x become differences of size row_norm * x.
/// Relative to the product they are larger than relative to the input if terms of the product
/// cancel. The difference of the matrix may point along the input, since gradients do; it
/// contributes at most its size times the input's norm.
void Sources::pass_through(uint32_t scope, double output, Difference& difference) const {
  const auto own = parameters_.find(scope);
  if (own == parameters_.end() || output <= 0) return;
  const Parameter* matrix = nullptr;
  for (const auto& [key, parameter] : own->second) {
    if (parameter.row_norm == 0) continue;
    if (matrix != nullptr) return;  // not a plain product
    matrix = &parameter;
  }
  if (matrix == nullptr) return;
  const double random = matrix->row_norm * difference.size / output;
  const double along = matrix->relative * random * std::sqrt(matrix->columns) / kGain;
  difference.rms = difference.rms * std::max(1.0, random) + along;
}

/// The sources of a value that code between modules has made: the inputs of the module around that
/// code, and the outputs of its children.
Difference Sources::around(const ValueRecord& record, double size) const {
  const uint32_t scope = record.key.scope.value;
  const bool inside = is_of_op(record) || is_of_kernel(record);
  const uint32_t outer = called(inside ? scope : parent_of(scope));
  if (outer == kNoScope) return all_;
  Difference difference = modules_.at(outer).made_of;
  difference.add(parameters_of(outer, size));
  return difference;
}

/// The sources of data: none, unless it is an output of the step before.
Difference Sources::of_kept(const ValueRecord& base, const ValueRecord& cand) const {
  const auto kept = outputs_before_.find(base.stats.hash);
  const bool is_same = kept != outputs_before_.end() && kept->second.cand_hash == cand.stats.hash;
  return is_same ? kept->second.difference : Difference{};
}

/// The sources of an output; or of a buffer, whose record comes after the outputs of the same call.
Difference Sources::of_module(const ValueRecord& record, double size) const {
  const uint32_t scope = record.key.scope.value;
  const auto own = modules_.find(scope);
  const bool is_own = own != modules_.end() && own->second.call == record.key.call &&
                      own->second.phase == phase_of_call(record);
  Difference difference = is_own ? own->second.made_of : around(record, size);
  difference.add(parameters_of(scope, size));
  if (is_own && record.kind == Role::kOutput) pass_through(scope, size, difference);
  const auto buffers = buffers_.find(scope);
  if (buffers == buffers_.end()) return difference;
  for (const auto& [key, buffer] : buffers->second) {
    if (record.kind == Role::kBuffer ? key != parameter_key(record)
                                     : record.key.phase != format::Phase::kEvaluation)
      continue;
    difference.equal &= buffer.equal;
    difference.known &= buffer.known;
    if (record.kind != Role::kBuffer) difference.rms = std::max(difference.rms, buffer.rms);
  }
  return difference;
}

double Sources::of_buffer_before(const ValueRecord& buffer) const {
  const auto own = buffers_.find(buffer.key.scope.value);
  if (own == buffers_.end()) return 0;
  const auto before = own->second.find(parameter_key(buffer));
  return before == own->second.end() ? 0 : before->second.rms;
}

Difference Sources::of(uint32_t match, const ValueView& base, const ValueView& cand) const {
  const ValueRecord& record = base.record;
  const format::Stats &a = record.stats, &b = cand.record.stats;
  const double size = std::max(rms_of(a.l2, a.finite), rms_of(b.l2, b.finite));
  const uint32_t producer = lineage_->seen_from[match];
  if (producer != kNoMatch) return differences_[producer];
  switch (record.kind) {
    case Role::kInput:
      return is_given(record, forward_.count > 0) ? of_kept(record, cand.record)
                                                  : around(record, size);
    case Role::kOutput: {
      if (is_of_op(record)) {
        const auto inputs = ops_.find(call_key(record));
        return inputs == ops_.end() ? around(record, size) : inputs->second;
      }
      if (is_of_kernel(record)) return around(record, size);
      return of_module(record, size);
    }
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradient:
    case Role::kUnclipped: {
      Difference difference = forward_;
      difference.add(backward_);
      if (difference.count == 0) {
        difference.add(gradients_before_.total());
        difference.unit = unit_alone_;
      }
      return difference;
    }
    case Role::kLoss: return forward_;
    case Role::kBuffer: return of_module(record, size);
    case Role::kInitialBuffer:
    case Role::kWritten:
    case Role::kParameter: return {};
    case Role::kReceived: return all_;
    case Role::kGradientNorm: {
      Difference difference = all_;
      if (difference.count == 0) difference.add(gradients_now_.total());
      return difference;
    }
    default:  // nothing that flows
      return is_of_kernel(record) ? around(record, size) : all_;
  }
  return all_;
}

Sources::Module& Sources::open(const ValueRecord& record) {
  Module& module = modules_[record.key.scope.value];
  const bool same = module.call == record.key.call && module.phase == phase_of_call(record) &&
                    !(module.over && record.kind == Role::kInput);
  if (!same) {
    module = {};
    module.call = record.key.call;
    module.phase = phase_of_call(record);
  }
  return module;
}

void Sources::take_input(const ValueRecord& record, const Difference& difference) {
  if (is_of_op(record)) {
    ops_[call_key(record)].add(difference);
  } else if (!is_of_kernel(record)) {
    open(record).made_of.add(difference);
  }
}

void Sources::take_output(const ValueRecord& record, const Difference& difference) {
  uint32_t outer = record.key.scope.value;
  if (!is_of_op(record) && !is_of_kernel(record)) {
    Module& module = open(record);
    module.over = true;
    // A call with one output in 16 bits may have computed its other outputs in 16 bits, too.
    module.made_of.unit = std::max(module.made_of.unit, difference.unit);
    outer = called(parent_of(outer));
    if (outer != kNoScope) callers_.insert(outer);
  } else {
    outer = called(outer);
  }
  if (outer != kNoScope) {
    modules_[outer].made_of.add(difference);
  } else if (!is_of_op(record) && !is_of_kernel(record)) {
    outermost_.add(difference);
    if (difference.count > 1) last_outermost_ = record.key.scope.value;
  }
}

void Sources::take(uint32_t match, const ValueRecord& record, const ValueRecord& cand,
                   const Difference& difference) {
  differences_[match] = difference;
  switch (record.kind) {
    case Role::kInput: take_input(record, difference); break;
    case Role::kOutput:
      take_output(record, difference);
      outputs_.insert_or_assign(record.stats.hash, Output{cand.stats.hash, difference});
      forward_.add(difference);
      if (difference.count > 1) {
        forward_.rows = difference.rows;
        forward_.size = difference.size;
      }
      break;
    case Role::kGradOutput:
    case Role::kGradInput:
      backward_.add(difference);
      output_gradients_[record.key.scope.value] += record.stats.l2 * record.stats.l2;
      break;
    case Role::kLoss: forward_.add(difference); break;
    case Role::kBuffer:
      buffers_[record.key.scope.value][parameter_key(record)] = difference;
      return;
    case Role::kGradient:
    case Role::kUnclipped:
      gradients_[parameter_key(record)] = difference.rms;
      gradients_now_.add(difference);
      if (!difference.equal) soil(record);
      return;  // it is a source of parameters only
    case Role::kInitialBuffer:
    case Role::kWritten:
    case Role::kParameter: return;
    case Role::kReceived:  // gradients of parameters are made of it, or outputs
      (record.key.phase == format::Phase::kBackward ? backward_ : forward_).add(difference);
      break;
    default:  // nothing that flows
      break;
  }
  all_.add(difference);
}

void Sources::take_parameter(const ValueRecord& record, const Apart& apart, uint64_t rows) {
  Parameter& parameter = parameters_[record.key.scope.value][parameter_key(record)];
  const double relative = std::max(apart.rms, apart.floor);
  const double rms = rms_of(relative * apart.size, apart.count);
  parameter = record.dims_count > 1
                  ? Parameter{.relative = relative,
                              .row_norm = record.stats.l2 / std::sqrt(static_cast<double>(rows)),
                              .columns = static_cast<double>(record.stats.count / rows)}
                  : Parameter{.absolute = rms};
  if (relative > 0) soil(record);
}

bool Sources::is_clean(const ValueRecord& parameter) const {
  const uint64_t key = parameter_key(parameter);
  return gradients_.contains(key) && !soiled_.contains(key);
}

std::optional<double> Sources::of_gradient(const ValueRecord& parameter) const {
  const auto found = gradients_.find(parameter_key(parameter));
  return found == gradients_.end() ? std::nullopt : std::optional(found->second);
}

/// @return whether the module was inserted by torch.nn.utils.parametrize.
bool Sources::is_parametrized(const ValueRecord& record) const {
  return names_->text(record.key.scope).find("parametrizations.") != std::string_view::npos;
}

bool Sources::is_summed_gradient(const ValueRecord& record) const {
  return is_parameter_gradient(record.kind) ||
         (record.kind == Role::kGradOutput && is_parametrized(record));
}

bool Sources::is_between_calls(const ValueRecord& gradient) const {
  return callers_.contains(gradient.key.scope.value) && !is_parametrized(gradient);
}

double Sources::summed_norm(const ValueView& gradient) const {
  const uint32_t scope = gradient.record.key.scope.value;
  const auto found = output_gradients_.find(scope);
  if (found == output_gradients_.end()) return 0;
  const double norm = std::sqrt(found->second);
  const auto own = modules_.find(scope);
  if (gradient.shape.size() < 2 || own == modules_.end()) return norm;
  const auto columns = static_cast<double>(gradient.record.stats.count / gradient.shape.front());
  return norm * own->second.made_of.size * std::sqrt(columns);
}

}  // namespace convtrace::diff
