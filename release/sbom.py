"""Returns the bill of materials (CycloneDX) of the `quorlock` command, which `command.py` puts into
its archives and image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COMMAND = "quorlock-cli"
"""The crate of the command."""


def component(crate: dict[str, Any], kind: str) -> dict[str, Any]:
    """Returns the description of one crate, from its entry in `cargo metadata`."""
    name, version = crate["name"], crate["version"]
    # Old manifests separate alternatives by a slash, which is not an SPDX expression.
    licence = crate["license"].replace("/", " OR ")
    return {
        "type": kind,
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
        "licenses": [{"expression": licence}],
    }


def bill(crates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the bill of materials of a program with these crates, one of which is the command."""
    (command,) = (crate for crate in crates if crate["name"] == COMMAND)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(command, "application")},
        "components": [component(crate, "library") for crate in crates if crate["name"] != COMMAND],
    }
