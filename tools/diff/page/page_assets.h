#pragma once
/// @file page_assets.h
/// Style and script of the HTML report, from the folder page/.

namespace convtrace::diff {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace convtrace::diff
