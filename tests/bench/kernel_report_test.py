#!/usr/bin/env python3
"""tests/bench/kernel_report.py reads nvdisasm's graph of basic blocks as it is meant to."""
import re
import sys
import unittest

import kernel_report


def block(name, *ops):
    """@return a block in the format of `nvdisasm -bbcfg` of CUDA 13.0: a branch at the end is a field of its own."""
    lines = [r"\ \ %s\l" % re.sub(r"([ \[\]<>|])", r"\\\1", op) for op in ops]
    if "BRA" in ops[-1]:
        lines[-1] = "|<exit0>" + lines[-1]
    return 'node [fontname="Courier",fontsize=10,shape=Mrecord];\n"%s"\n[label="{<entry>%s:\\l%s}"]\n' % (name, name, "".join(lines))


def edge(source, target):
    return '"%s":exit0:e -> "%s":entry:n [style=solid];\n' % (source, target)


LOAD = "LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;"
DOT = ('digraph f {\nsubgraph "cluster_plain" {\n' +
       block(".L_head", *[LOAD] * 4, "@P0 BRA `(.L_rare) ;") +
       block(".L_work", *["@!P1 FFMA R1, R2, R3, R1 ;"] * 8, "DADD R8, R8, R6 ;") +
       block(".L_rare", *["FFMA R1, R2, R3, R1 ;"] * 2) +
       block(".L_slow", *["FFMA R1, R2, R3, R1 ;"] * 8, *["STL [R1], R2 ;"] * 9) +
       block(".L_end", "@P0 BRA `(.L_head) ;") +
       edge(".L_head", ".L_work") + edge(".L_head", ".L_rare") + edge(".L_head", ".L_slow") + edge(".L_work", ".L_end") +
       edge(".L_rare", ".L_end") + edge(".L_slow", ".L_end") + edge(".L_end", ".L_head") + '}\n' +
       'subgraph "cluster_other" {\n' + block(".L_1", "EXIT ;") + "}\n}\n")


def hash_loop():
    """The hash alone, two chunks a turn, each loaded if the tile has it."""
    products = ["IMMA.16832.U8.S8 R4, R4.ROW, R8.COL, R4 ;"] * 4
    return ('subgraph "cluster__ZN9convtrace5stats11gather_hashILNS_6format5DTypeE1EEEvv" {\n' +
            block(".L_top", "@P0 BRA `(.L_none) ;") + block(".L_first", *[LOAD] * 4) + block(".L_none", *products, "@P1 BRA `(.L_last) ;") +
            block(".L_second", *[LOAD] * 4) + block(".L_last", *products, "@P2 BRA `(.L_top) ;") +
            edge(".L_top", ".L_first") + edge(".L_top", ".L_none") + edge(".L_first", ".L_none") + edge(".L_none", ".L_second") +
            edge(".L_none", ".L_last") + edge(".L_second", ".L_last") + edge(".L_last", ".L_top") + "}\n")


def compiled(dot):
    made = object.__new__(kernel_report.Compiled)
    made.functions = list(kernel_report.functions(dot))
    return made


class ReportTestCase(unittest.TestCase):
    def setUp(self):
        self.functions = {name: (blocks, edges) for name, blocks, edges in kernel_report.functions(DOT)}

    def test_functions_have_blocks_operations_without_predicates_and_edges(self):
        self.assertEqual(sorted(self.functions), ["other", "plain"])
        blocks, edges = self.functions["plain"]
        self.assertEqual(len(blocks), 5)
        self.assertEqual(blocks[".L_work"], ["FFMA"] * 8 + ["DADD"])
        self.assertEqual(edges[".L_head"], {".L_work", ".L_rare", ".L_slow"})

    def test_the_shortest_turn_does_the_work_and_no_rare_way_is_taken_for_it(self):
        ops = kernel_report.shortest_turn(*self.functions["plain"], "FFMA", 8)
        self.assertEqual(len(ops), 5 + 9 + 1)  # not 8 with .L_rare, which does too little
        loop = kernel_report.Loop(ops, 4)
        self.assertEqual(loop.per_element(), 3.75)
        self.assertEqual(loop.per_element(kernel_report.CLASSES["f64"]), 0.25)
        self.assertEqual(loop.per_element(kernel_report.CLASSES["memory"]), 1)
        self.assertEqual(loop.per_element(kernel_report.CLASSES["local"]), 0)
        self.assertEqual(loop.parts(), {"loads and their descriptors": 4, "f32 arithmetic": 8, "f64 arithmetic, conversions to it": 1,
                                        "branches, barriers, the rest": 2})

    def test_a_loop_that_is_not_there_is_not_found(self):
        self.assertIsNone(kernel_report.shortest_turn(*self.functions["plain"], "FFMA", 12))
        self.assertIsNone(kernel_report.shortest_turn(*self.functions["other"], "FFMA", 1))

    def test_a_turn_of_the_hash_loads_both_its_chunks(self):
        _, hash_only = compiled(hash_loop()).loops(False)
        self.assertEqual((len(hash_only.ops), hash_only.elements), (8 + 8 + 3, 8))

    def test_code_without_a_loop_that_is_known_is_said(self):
        for dot in (DOT, DOT.replace("cluster_other", "cluster_gather_laneILNS_6format5DTypeE1E")):
            with self.assertRaisesRegex(SystemExit, "another form"):
                compiled(dot).loops(False)

    def test_goals_are_of_gpus_with_fast_f64_and_25_percent_wider_but_on_sm_90(self):
        made = compiled(DOT.replace("cluster_other", "cluster_convtrace_stats"))
        made.registers, made.spilled = 128, {}
        loops, hash_only = {"bf16": kernel_report.Loop(["FADD"] * 13 + ["STL"], 1, 320)}, kernel_report.Loop(["IMMA"] * 13, 1)
        for sm, met in (("90", (True, False, False, False)), ("100", (True, True, True, False)), ("86", (None,) * 4)):
            rows = kernel_report.rows_of(sm, made, loops, hash_only)
            ok, values = ({row["name"].split(".", 2)[2]: row[what] for row in rows} for what in ("ok", "value"))
            self.assertEqual(values["bf16.code_bytes"], 16 + 320)  # the kernel's one instruction, and the loop's function
            self.assertEqual(tuple(ok[name] for name in ("registers", "hash_only.per_16_bytes", "bf16.instructions_per_element",
                                                         "bf16.local_per_element")), met, sm)

    def test_a_row_over_its_goal_is_missed(self):
        self.assertFalse(kernel_report.row("a", 12.51, "", 12.5, "")["ok"])
        self.assertTrue(kernel_report.row("a", 12.5, "", 12.5, "")["ok"])
        self.assertIsNone(kernel_report.row("a", 1, "", None, "")["ok"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
