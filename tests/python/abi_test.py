"""Both sides of the C interface between engine and observer agree on every number and offset."""
import os
import re
import subprocess
import tempfile
import unittest

from fake_engine import ROOT, engine
from convtrace_observer.base import values

HEADER = os.path.join(ROOT, "interposer", "abi", "observer_abi.h")

MESSAGE = ("message.kind", "message.reserved", "message.bytes")
# Struct of engine.py -> (C struct, fields in the order in which they are packed). Fields named
# reserved may be left out: they are pad bytes.
LAYOUTS = {
    "TENSOR_MESSAGE": ("tensor", MESSAGE + (
        "phase", "capture", "device_type", "device_index", "dtype", "rank", "extent", "padding",
        "scope", "call", "slot", "op", "version", "pad_index", "data", "storage", "storage_base",
        "storage_bytes", "stream")),
    "SCOPE_MESSAGE": ("scope", MESSAGE + ("phase", "enter", "scope", "call")),
    "STEP_MESSAGE": ("step", MESSAGE + ("index",)),
    "OP_MESSAGE": ("op", MESSAGE + (
        "phase", "declared_alias", "schema_known", "scope", "call", "op", "operand_count")),
    "OP_OPERAND": ("op_operand", (
        "slot", "is_output", "device_type", "device_index", "written", "data", "bytes", "storage",
        "storage_base", "storage_bytes", "version", "borrows")),
    "FRAMES_MESSAGE": ("frames", MESSAGE + ("storage", "frame_count")),
    "FACT_MESSAGE": ("fact", MESSAGE + ("name", "value")),
    "EVENT_FACT_MESSAGE": ("event_fact", MESSAGE + ("scope", "name", "value_bytes")),
    "LOSS_MESSAGE": ("loss", MESSAGE + ("reason", "count")),
    "SPENT_MESSAGE": ("spent", MESSAGE + ("ns",)),
    "COLLECTIVE_MESSAGE": ("collective", MESSAGE + (
        "phase", "dtype", "device_type", "device_index", "scope", "call", "op", "group", "members", "reduction", "group_rank",
        "group_size", "peer", "stream", "sent", "received", "number", "id", "tag")),
    "COLLECTIVE_VALUES_MESSAGE": ("collective_values", MESSAGE + ("id", "step")),
    "FLIGHT_MESSAGE": ("flight", MESSAGE + (
        "phase", "device_type", "device_index", "awaited", "written", "scope", "call", "op", "slot", "version", "line", "data",
        "bytes", "storage", "storage_base", "storage_bytes")),
    "KERNEL_MESSAGE": ("kernel", MESSAGE + ("function", "name", "param_count")),
    "KERNEL_PARAM": ("kernel_param", ("slot", "dtype", "is_pointer")),
    "DIAGNOSTIC_MESSAGE": ("diagnostic", MESSAGE + ("level", "site", "text")),
}
CONSTANTS = {
    "CONVTRACE_OBSERVER_ABI": engine.ABI,
    "CONVTRACE_MSG_TENSOR": engine.TENSOR,
    "CONVTRACE_MSG_OP_BEGIN": engine.OP_BEGIN,
    "CONVTRACE_MSG_TENSOR_STACK": engine.TENSOR_STACK,
    "CONVTRACE_MSG_EVENT_FACT": engine.EVENT_FACT,
    "CONVTRACE_MSG_SPENT": engine.SPENT,
    "CONVTRACE_MSG_COLLECTIVE": engine.COLLECTIVE,
    "CONVTRACE_MSG_COLLECTIVE_VALUES": engine.COLLECTIVE_VALUES,
    "CONVTRACE_MSG_KERNEL": engine.KERNEL,
    "CONVTRACE_MSG_FLIGHT": engine.FLIGHT,
    "CONVTRACE_MSG_SCOPE": engine.SCOPE,
    "CONVTRACE_MSG_STEP": engine.STEP,
    "CONVTRACE_MSG_OP": engine.OP,
    "CONVTRACE_MSG_OP_STACK": engine.OP_STACK,
    "CONVTRACE_MSG_STORAGE_DEAD": engine.STORAGE_DEAD,
    "CONVTRACE_MSG_FACT": engine.FACT,
    "CONVTRACE_MSG_LOSS": engine.LOSS,
    "CONVTRACE_MSG_DIAGNOSTIC": engine.DIAGNOSTIC,
    "CONVTRACE_SUBMIT_CAPTURE": engine.SUBMIT_CAPTURE,
    "CONVTRACE_SUBMIT_WATCH": engine.SUBMIT_WATCH,
    "CONVTRACE_SUBMIT_OFF": engine.SUBMIT_OFF,
}


def ask_the_compiler(expressions):
    """@return the values of C expressions over the header, as ints."""
    lines = "".join('printf("%%llu\\n", (unsigned long long)(%s));\n' % e for e in expressions)
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "ask.c"), os.path.join(folder, "ask")
        with open(source, "w") as file:
            file.write('#include <stdio.h>\n#include "%s"\nint main(void) {\n%sreturn 0;\n}\n'
                       % (HEADER, lines))
        subprocess.run([os.environ.get("CC", "cc"), source, "-o", program], check=True)
        return [int(line) for line in subprocess.check_output([program]).split()]


def declared_fields():
    """@return {name of a C struct: names of its fields}, read from the header's text."""
    with open(HEADER) as file:
        text = re.sub(r"///.*", "", file.read())
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    structs = {}
    for name, body in re.findall(r"struct convtrace_(\w+) \{(.*?)\n\};", text, flags=re.S):
        structs[name] = [
            re.sub(r"\[.*\]", "", field).split()[-1]
            for declaration in body.split(";") if declaration.strip()
            for field in declaration.split(",")]
    return structs


def events_header(macro):
    """@return {enumerator: (value, spelling)} of one X-macro table of format/."""
    for name in ("model/event_enums.h", "model/dtype.h", "base/level.h"):
        with open(os.path.join(ROOT, "format", name)) as file:
            found = re.search(r"#define %s\(X\)(.*?)\n\n" % macro, file.read(), flags=re.S)
        if found:
            return {key: (int(value), text) for key, value, text in re.findall(
                r'X\((k\w+), (\d+), "([^"]+)"', found.group(1))}
    raise AssertionError(macro + " is not defined")


class AbiLayout(unittest.TestCase):
    def test_every_field_is_packed_at_its_offset(self):
        for name, (struct_name, fields) in LAYOUTS.items():
            packed = getattr(engine, name)
            expected = ask_the_compiler(
                ["sizeof(struct convtrace_%s)" % struct_name]
                + ["offsetof(struct convtrace_%s, %s)" % (struct_name, f) for f in fields])
            self.assertEqual(packed.size, expected[0], name)
            for position, field in enumerate(fields):
                one_set = [int(i == position) for i in range(len(fields))]
                data = packed.pack(*one_set)
                self.assertEqual(data.index(1), expected[1 + position], (name, field))

    def test_no_field_of_the_header_is_forgotten(self):
        declared = declared_fields()
        for struct_name, fields in LAYOUTS.values():
            known = {field.split(".")[0] for field in fields}
            unknown = [f for f in declared[struct_name]
                       if f not in known and not f.startswith("reserved")]
            self.assertEqual(unknown, [], struct_name)
        self.assertEqual(
            set(declared) - {layout[0] for layout in LAYOUTS.values()}, {"message", "thread_scope"})

    def test_scope_slot_is_three_words_of_scope_call_phase_and_calls_of_nccl(self):
        names = ("scope", "call", "phase", "nccl_calls")
        self.assertEqual(
            ask_the_compiler(["sizeof(struct convtrace_thread_scope)"]
                             + ["offsetof(struct convtrace_thread_scope, %s)" % n for n in names]),
            [24, 0, 4, 8, 16])

    def test_constants_agree(self):
        self.assertEqual(ask_the_compiler(CONSTANTS), list(CONSTANTS.values()))
        with open(HEADER) as file:
            in_header = set(re.findall(r"\bCONVTRACE_(?:MSG|SUBMIT)_\w+(?= = )", file.read()))
        self.assertEqual(in_header - set(CONSTANTS), set())


class Enumerations(unittest.TestCase):
    def test_phases_captures_and_reasons_are_those_of_the_trace(self):
        phases = events_header("CONVTRACE_PHASES")
        for spelling, value in (("forward", engine.FORWARD), ("data", engine.DATA),
                                ("loss", engine.LOSS_PHASE), ("backward", engine.BACKWARD),
                                ("optimizer", engine.OPTIMIZER), ("recompute", engine.RECOMPUTE),
                                ("communication", engine.COMMUNICATION),
                                ("evaluation", engine.EVALUATION)):
            self.assertIn((value, spelling), phases.values())
        captures = events_header("CONVTRACE_CAPTURES")
        self.assertEqual(captures["kHash"][0], engine.HASH)
        self.assertEqual(captures["kStats"][0], engine.STATS)
        self.assertEqual(events_header("CONVTRACE_LEVELS")["kWarning"][0], engine.WARNING)
        paddings = events_header("CONVTRACE_PADDINGS")
        self.assertEqual([paddings[name][0] for name in ("kNone", "kEmbedding", "kLabels")],
                         [engine.NO_PADDING[0], engine.EMBEDDING, engine.LABELS])
        reasons = events_header("CONVTRACE_LOSS_REASONS")
        self.assertEqual(reasons["kTensorKind"][0], engine.LOST_TENSOR_KIND)

    def test_every_dtype_of_the_trace_has_its_torch_name_and_size(self):
        with open(os.path.join(ROOT, "format", "model", "dtype.h")) as file:
            rows = re.findall(r'X\(k\w+, (\d+), "(\w+)", (\d+)\)', file.read())
        self.assertEqual(len(rows), len(values._DTYPES) + 1)
        for code, spelling, width in rows:
            self.assertEqual(values.ELEMENT_BYTES[int(code)], int(width), spelling)
            if spelling != "unknown":
                self.assertEqual(values._DTYPES[torch_name(spelling)], int(code), spelling)


def torch_name(spelling):
    """@return torch's name of a dtype: "bfloat16" for "bf16", "float8_e4m3fn" for "f8e4m3fn"."""
    if spelling == "f4e2m1fn":
        return "float4_e2m1fn_x2"  # two of them share a byte
    letters, bits, rest = re.fullmatch(r"(bf|f|i|u|c|bool)(\d*)(\w*)", spelling).groups()
    word = {"bf": "bfloat", "f": "float", "i": "int", "u": "uint", "c": "complex",
            "bool": "bool"}[letters]
    return word + bits + ("_" + rest if rest else "")


if __name__ == "__main__":
    unittest.main()
