# SPDX-License-Identifier: Apache-2.0
"""Print what the Makefile must know of an interpreter, on one line.

The folder of its headers, the end of an extension's file name, and the flag of the
limited API.  Prints nothing if there are no headers or Python is too old.
"""

import os
import sys
import sysconfig

include = sysconfig.get_path("include")
has_headers = os.path.exists(os.path.join(include, "Python.h"))
free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
if sys.version_info >= (3, 10) and has_headers:
    if sys.version_info >= (3, 11) and not free_threaded:
        print(include, ".abi3.so", "-DPy_LIMITED_API=0x030b0000")
    else:
        print(include, sysconfig.get_config_var("EXT_SUFFIX"))
