"""Marks the cases that the short run leaves to `tools/test --full`."""
import sys
import unittest


def long(held_by):
    """Marks a case as long. CMakeLists.txt names a file's long cases in a test of label "long"; by hand one runs if it is
    named, as Class.test_case. The mark must be on one line, directly before the case.

    @param held_by  the test of the same property in the short run
    """
    def mark(case):
        named = case.__qualname__ in sys.argv
        return unittest.skipUnless(named, "long; in the short run: " + held_by)(case)
    return mark
