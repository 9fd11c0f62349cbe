# SPDX-License-Identifier: Apache-2.0
"""The helpers of Horovod's launcher that programs and tests import."""
