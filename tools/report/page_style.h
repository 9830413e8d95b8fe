#pragma once
/// @file page_style.h
/// The style of all HTML reports, from report.css.

namespace convtrace::diff {

extern const char* const kPageStyle;

}  // namespace convtrace::diff
