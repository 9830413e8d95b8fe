#pragma once
/// @file catch.h
/// The only file that names the test framework's header, so that its next major version changes one
/// file.

#include <catch2/catch.hpp>
