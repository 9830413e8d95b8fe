"""Which cases the short run leaves to `tools/test --full`."""
import sys
import unittest


def long(held_by):
    """Marks a case as long. CMakeLists.txt names those of a file in a test of label "long"; by hand one runs where it is
    named, as Class.test_case. It stands on one line, in front of the case.

    @param held_by  what holds the same truth in the short run
    """
    def mark(case):
        named = case.__qualname__ in sys.argv
        return unittest.skipUnless(named, "long; in the short run: " + held_by)(case)
    return mark
