#pragma once
/// @file part_fields.h
/// The members of all types that a RankPart is made of, for pack.h.
///
/// A structured binding names each member, so a new one does not compile before it is here.

#include <concepts>

#include "tools/diff/ranks/pack.h"
#include "tools/diff/ranks/rank_part.h"
#include "tools/diff/read/trace_set.h"

namespace convtrace::diff {

template <>
inline constexpr size_t kValues<Class> = kClassCount;
template <>
inline constexpr size_t kValues<Field> = static_cast<size_t>(Field::kNone) + 1;
template <>
inline constexpr size_t kValues<MatchedBy> = static_cast<size_t>(MatchedBy::kRegionEnd) + 1;
template <>
inline constexpr size_t kValues<Shown> = static_cast<size_t>(Shown::kDifferent) + 1;
template <>
inline constexpr size_t kValues<FactKind> = static_cast<size_t>(FactKind::kCode) + 1;
template <>
inline constexpr size_t kValues<HowKnown> = static_cast<size_t>(HowKnown::kBegin) + 1;
template <>
inline constexpr size_t kValues<format::Device::Type> = 3;

/// The type, or const of it.
template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

void packed(Is<format::Scalar> auto& x, auto& visit) { visit(x.bits); }
void packed(Is<format::WideScalar> auto& x, auto& visit) { visit(x.lo, x.hi); }
void packed(Is<format::Sketch> auto& x, auto& visit) { visit(x.exponent, x.bucket); }
void packed(Is<format::Stats> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
}
void packed(Is<format::Device> auto& x, auto& visit) {
  auto& [type, index] = x;
  visit(type, index);
}
void packed(Is<format::ValueId> auto& x, auto& visit) {
  auto& [storage, offset, generation, version] = x;
  visit(storage, offset, generation, version);
}
void packed(Is<format::TraceMeta> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k);
}
void packed(Is<TraceFile> auto& x, auto& visit) {
  auto& [path, meta, events] = x;
  visit(path, meta, events);
}
void packed(Is<Comparison> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l, m);
}
void packed(Is<Histogram> auto& x, auto& visit) {
  auto& [low, high, base, cand] = x;
  visit(low, high, base, cand);
}
void packed(Is<ElementReport> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
}
void packed(Is<SideReport> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l);
}
void packed(Is<RecordReport> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
}
void packed(Is<OneSidedGroup> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i] = x;
  visit(a, b, c, d, e, f, g, h, i);
}
void packed(Is<OneSided> auto& x, auto& visit) {
  auto& [count, in_cand, first] = x;
  visit(count, in_cand, first);
}
void packed(Is<OtherForm> auto& x, auto& visit) {
  auto& [first, values] = x;
  visit(first, values);
}
void packed(Is<Carried> auto& x, auto& visit) {
  auto& [count, first, largest, largest_forward] = x;
  visit(count, first, largest, largest_forward);
}
void packed(Is<Allowance> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f] = x;
  visit(a, b, c, d, e, f);
}
void packed(Is<FlowStep> auto& x, auto& visit) {
  auto& [value, as, by_order] = x;
  visit(value, as, by_order);
}
void packed(Is<DataFlow> auto& x, auto& visit) {
  auto& [sources, consumers, more_sources, more_consumers] = x;
  visit(sources, consumers, more_sources, more_consumers);
}
void packed(Is<CodePlace> auto& x, auto& visit) {
  auto& [module_class, qualified_class, forward, call, changed, generated] = x;
  visit(module_class, qualified_class, forward, call, changed, generated);
}
void packed(Is<GeneratedCall> auto& x, auto& visit) {
  auto& [kernel, nodes, line, drops_view, region] = x;
  visit(kernel, nodes, line, drops_view, region);
}
void packed(Is<RegionCall> auto& x, auto& visit) {
  auto& [scope, op, kernel, unchanged] = x;
  visit(scope, op, kernel, unchanged);
}
void packed(Is<RegionPlace> auto& x, auto& visit) {
  auto& [name, border_equal, calls] = x;
  visit(name, border_equal, calls);
}
void packed(Is<Hidden> auto& x, auto& visit) {
  auto& [step, decides] = x;
  visit(step, decides);
}
void packed(Is<UpdateCount> auto& x, auto& visit) {
  auto& [wrong, all] = x;
  visit(wrong, all);
}
void packed(Is<Holder> auto& x, auto& visit) {
  auto& [in_cand, rank] = x;
  visit(in_cand, rank);
}
void packed(Is<ScalarFactor> auto& x, auto& visit) {
  auto& [value, calls] = x;
  visit(value, calls);
}
void packed(Is<Aligned> auto& x, auto& visit) {
  auto& [matched, base, cand] = x;
  visit(matched, base, cand);
}
void packed(Is<Maker> auto& x, auto& visit) {
  auto& [scope, op, slot, call, in_no_module, own_code] = x;
  visit(scope, op, slot, call, in_no_module, own_code);
}
void packed(Is<MadeBy> auto& x, auto& visit) {
  auto& [how, receiver, makers, around] = x;
  visit(how, receiver, makers, around);
}
void packed(Is<RootReport> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, before, earlier,
         offset, written, known, made_of, factor, weights, inside, of_parameters, unclipped,
         writes] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, before, earlier,
        offset, written, known, made_of, factor, weights, inside, of_parameters, unclipped, writes);
}
void packed(Is<RankReport> auto& x, auto& visit) {
  auto& [rank, values, root, received] = x;
  visit(rank, values, root, received);
}
void packed(Is<FindingReport> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
}
void packed(Is<Findings> auto& x, auto& visit) {
  auto& [list, count, errors] = x;
  visit(list, count, errors);
}
void packed(Is<Unread> auto& x, auto& visit) {
  auto& [reason, base, cand] = x;
  visit(reason, base, cand);
}
void packed(Is<StepOffset> auto& x, auto& visit) {
  auto& [steps, why, counted] = x;
  visit(steps, why, counted);
}
void packed(Is<PreflightEntry> auto& x, auto& visit) {
  auto& [name, base, cand] = x;
  visit(name, base, cand);
}
void packed(Is<FactDifference> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
  visit(a, b, c, d, e, f, g, h, i, j, k, l);
}
void packed(Is<FactState> auto& x, auto& visit) {
  auto& [all, places, generated, optimizers] = x;
  visit(all, places, generated, optimizers);
}
void packed(Is<RenamedModule> auto& x, auto& visit) {
  auto& [base, cand, confidence] = x;
  visit(base, cand, confidence);
}
void packed(Is<AliasDifference> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h, i] = x;
  visit(a, b, c, d, e, f, g, h, i);
}
void packed(Is<StepSummary> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h] = x;
  visit(a, b, c, d, e, f, g, h);
}
void packed(Is<ReplicaSums> auto& x, auto& visit) {
  auto& [step, weights, gradients] = x;
  visit(step, weights, gradients);
}
/// What is decided about all ranks is left out.
void packed(Is<DiffResult> auto& x, auto& visit) {
  auto& [base_path, cand_path, verdict, why_not_comparable, root, cause, first_bit_difference,
         carried, hidden, births, waived, exact, why_exact, bits_known, bits_unknown, counts,
         values, launches, steps, replicas, alias_patterns, summaries, step_offset, preflight,
         facts, renamed, one_sided, other_forms, allowance, base_findings, cand_findings,
         incomplete, unread, ranks, base_command, cand_command, noise_given, wholes] = x;
  visit(root, first_bit_difference, carried, hidden, births, waived, exact, why_exact, bits_known,
        bits_unknown, counts, values, launches, steps, alias_patterns, summaries, step_offset,
        preflight, renamed, one_sided, other_forms, allowance, base_findings, cand_findings,
        incomplete, unread, ranks);
}
void packed(Is<RankPart> auto& x, auto& visit) {
  auto& [a, b, c, d, e, f, g, h] = x;
  visit(a, b, c, d, e, f, g, h);
}

}  // namespace convtrace::diff
