#pragma once
/// @file page_script.h
/// The script of the HTML report, from page/*.js.

namespace convtrace::diff {

extern const char* const kPageScript;

}  // namespace convtrace::diff
