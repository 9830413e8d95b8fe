#pragma once
/// @file help.h
/// The help of a command: what it does, examples and exit codes fit on a screen, with the options
/// behind them.
///
/// Place:    main() of convtrace and of convtrace-diff.
/// Threads:  one, before the command line is read.

#include <CLI/App.hpp>
#include <initializer_list>

namespace convtrace::report {

/// Lays out the help of a program and of its commands, in lines as wide as the terminal, else of 80
/// columns.
void lay_out_help(CLI::App& app);

/// Puts examples before the text that ends the help.
void add_examples(CLI::App& command, std::initializer_list<const char*> examples);

}  // namespace convtrace::report
