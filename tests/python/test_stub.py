# SPDX-License-Identifier: Apache-2.0
"""python/hvd/_hvd.pyi against the module: names, parameters, which are required.

The module is not initialized, and parameters are checked before values: no call here
does anything.
"""

import ast
import pathlib
import types
import unittest

from hvd import _hvd

STUB = ast.parse(pathlib.Path(_hvd.__file__).with_name("_hvd.pyi").read_text("utf-8"))
ACTS = {"init", "shutdown"}  # without an argument, even now


def public(names):
    return {name for name in names if not name.startswith("_")}


def defined(body, kind):
    return {node.name: node for node in body if isinstance(node, kind)}


def error_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        return str(error)
    return ""


class Stub(unittest.TestCase):
    def test_names(self):
        stub = defined(STUB.body, (ast.FunctionDef, ast.ClassDef))
        self.assertEqual(set(stub), public(dir(_hvd)))

    def test_classes(self):
        for name, node in defined(STUB.body, ast.ClassDef).items():
            stub = set(defined(node.body, ast.FunctionDef))
            module = set(vars(getattr(_hvd, name)))
            with self.subTest(name):
                self.assertEqual(public(stub), public(module))
                # Older versions of Python have no name for the buffer protocol.
                self.assertLessEqual(stub - {"__buffer__"}, module)
                methods = defined(node.body, ast.FunctionDef).values()
                for method in methods:
                    is_property = bool(method.decorator_list)
                    real = getattr(getattr(_hvd, name), method.name, None)
                    self.assertEqual(
                        is_property, isinstance(real, types.GetSetDescriptorType)
                    )

    def test_parameters(self):
        for name, node in defined(STUB.body, ast.FunctionDef).items():
            with self.subTest(name):
                self.check(getattr(_hvd, name), node.args, name not in ACTS)

    def test_methods(self):
        _hvd.init()
        request = _hvd.barrier_async()
        request.wait()
        _hvd.shutdown()
        node = defined(STUB.body, ast.ClassDef)["Request"]
        for name, method in defined(node.body, ast.FunctionDef).items():
            del (method.args.posonlyargs or method.args.args)[0]  # self
            with self.subTest(name):
                self.check(getattr(request, name), method.args, True)

    def check(self, call, args, harmless):
        parameters = [a.arg for a in args.posonlyargs + args.args]
        self.assertFalse(args.vararg or args.kwarg or args.kwonlyargs)
        if args.posonlyargs or not parameters:
            self.check_plain(call, len(args.posonlyargs), len(parameters))
            return
        many = error_of(call, *[None] * (len(parameters) + 1))
        self.assertIn(f"takes {len(parameters)} arguments", many)
        self.assertIn("no parameter 'unknown'", error_of(call, unknown=1))
        for i, parameter in enumerate(parameters):
            twice = error_of(call, *[None] * (i + 1), **{parameter: None})
            self.assertIn(f"got '{parameter}' twice", twice)
        required = len(parameters) - len(args.defaults)
        for i in range(required):
            needs = error_of(call, *[None] * i)
            self.assertIn(f"needs '{parameters[i]}'", needs)
        if harmless:
            self.assertNotIn("needs", error_of(call, *[None] * required))

    def check_plain(self, call, positional, total):
        """Check a function that takes nothing, or one argument without a name."""
        self.assertEqual(positional, total)
        self.assertIn("takes no keyword arguments", error_of(call, x=1))
        text = "takes exactly one argument" if total else "takes no arguments"
        self.assertIn(text, error_of(call, 1, 2))


if __name__ == "__main__":
    unittest.main(verbosity=0)
