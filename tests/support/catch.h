#pragma once
/// @file catch.h
/// The one place that names the test framework's header, so that its next major version is a
/// one-file change.

#include <catch2/catch.hpp>
