"""hatchling's hook for the build of the wheel (pyproject.toml): the wheel has programs, for one platform and any Python."""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["CONVTRACE_WHEEL_PLATFORM"]
