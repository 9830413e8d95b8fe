#pragma once
/// @file part_fields.h
/// The members of all types that a RankPart is made of, for pack.h.
///
/// A structured binding names each member, so a new one does not compile before it is here.

#include <concepts>

#include "tools/diff/ranks/pack.h"
#include "tools/diff/ranks/rank_part.h"
#include "tools/trace/read/trace_set.h"

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

/// All members of a type, in their order.
#define CONVTRACE_PACKED(type, ...)            \
  void packed(Is<type> auto& x, auto& visit) { \
    auto& [__VA_ARGS__] = x;                   \
    visit(__VA_ARGS__);                        \
  }

void packed(Is<format::Scalar> auto& x, auto& visit) { visit(x.bits); }
void packed(Is<format::WideScalar> auto& x, auto& visit) { visit(x.lo, x.hi); }
void packed(Is<format::Sketch> auto& x, auto& visit) { visit(x.exponent, x.bucket); }
CONVTRACE_PACKED(format::Stats, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v)
CONVTRACE_PACKED(format::Device, type, index)
CONVTRACE_PACKED(format::ValueId, storage, offset, generation, version)
CONVTRACE_PACKED(format::TraceMeta, a, b, c, d, e, f, g, h, i, j, k)
CONVTRACE_PACKED(TraceFile, path, meta, events)
CONVTRACE_PACKED(Comparison, a, b, c, d, e, f, g, h, i, j, k, l, m)
CONVTRACE_PACKED(Histogram, low, high, base, cand)
CONVTRACE_PACKED(ElementReport, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
CONVTRACE_PACKED(SideReport, a, b, c, d, e, f, g, h, i, j, k, l)
CONVTRACE_PACKED(RecordReport, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
CONVTRACE_PACKED(OneSidedGroup, a, b, c, d, e, f, g, h, i)
CONVTRACE_PACKED(OneSided, count, in_cand, first)
CONVTRACE_PACKED(OtherForm, first, values)
CONVTRACE_PACKED(Carried, count, first, largest, largest_forward)
CONVTRACE_PACKED(Allowance, a, b, c, d, e, f)
CONVTRACE_PACKED(FlowStep, value, as, by_order)
CONVTRACE_PACKED(DataFlow, sources, consumers, more_sources, more_consumers)
CONVTRACE_PACKED(CodePlace, module_class, qualified_class, forward, call, changed, generated)
CONVTRACE_PACKED(GeneratedCall, kernel, nodes, line, drops_view, region)
CONVTRACE_PACKED(RegionCall, scope, op, kernel, unchanged)
CONVTRACE_PACKED(RegionPlace, name, border_equal, calls)
CONVTRACE_PACKED(Hidden, step, judged, from_first)
CONVTRACE_PACKED(UpdateCount, wrong, all)
CONVTRACE_PACKED(Holder, in_cand, rank)
CONVTRACE_PACKED(UsedWeights, bits, agreed)
CONVTRACE_PACKED(ScalarFactor, value, calls)
CONVTRACE_PACKED(Aligned, matched, base, cand)
CONVTRACE_PACKED(Maker, scope, op, slot, call, in_no_module, own_code)
CONVTRACE_PACKED(MadeBy, how, receiver, makers, around)
CONVTRACE_PACKED(ShownCause, rule, text, evidence, is_certain, factor)
CONVTRACE_PACKED(RootReport, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y,
                 z, before, earlier, offset, written, known, made_of, factor, weights, inside,
                 of_parameters, unclipped, writes, shown, known_in)
CONVTRACE_PACKED(RankReport, rank, values, root, received)
CONVTRACE_PACKED(FindingReport, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v)
CONVTRACE_PACKED(Findings, list, count, errors)
CONVTRACE_PACKED(Unread, reason, base, cand)
CONVTRACE_PACKED(StepOffset, steps, why, counted)
CONVTRACE_PACKED(PreflightEntry, name, base, cand)
CONVTRACE_PACKED(FactDifference, a, b, c, d, e, f, g, h, i, j, k, l)
CONVTRACE_PACKED(FactState, all, places, generated, optimizers)
CONVTRACE_PACKED(RenamedModule, base, cand, confidence)
CONVTRACE_PACKED(AliasDifference, a, b, c, d, e, f, g, h, i)
CONVTRACE_PACKED(StepSummary, a, b, c, d, e, f, g, h)
CONVTRACE_PACKED(ReplicaSums, step, weights, gradients)
/// Leaves out the fields that are decided over all ranks together.
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
CONVTRACE_PACKED(RankPart, a, b, c, d, e, f, g, h)

#undef CONVTRACE_PACKED

}  // namespace convtrace::diff
