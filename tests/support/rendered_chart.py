"""What a chart renders to, as objects that tests can ask questions of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.helm_engine import CHART

WORKLOADS = {"Deployment", "StatefulSet"}


def ci_values(name: str) -> dict[str, Any]:
    """Return the values of `helm/ci/<name>-values.yaml`."""
    return yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text("utf-8"))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` laid on it, key by key, as Helm does."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


@dataclass(frozen=True)
class Rendered:
    """The objects of one rendering, and the notes."""

    objects: list[dict[str, Any]]
    notes: str

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Rendered:
        """Read every document of every template."""
        objects = [
            document
            for name, text in files.items()
            if name.endswith(".yaml")
            for document in yaml.safe_load_all(text)
            if document is not None
        ]
        return cls(objects, files["harn-streams/templates/NOTES.txt"])

    def of_kind(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the objects of these kinds."""
        return [each for each in self.objects if each["kind"] in kinds]

    def workload(self, role: str) -> dict[str, Any]:
        """Return the Deployment or StatefulSet of a role."""
        (found,) = [
            each
            for each in self.of_kind(*WORKLOADS)
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == role
        ]
        return found

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name of its owner and the template of every pod."""
        for each in self.objects:
            spec = each.get("spec", {})
            if each["kind"] == "CronJob":
                spec = spec["jobTemplate"]["spec"]
            if "template" in spec:
                yield each["metadata"]["name"], spec["template"]


def container(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one container of a pod template."""
    (only,) = pod["spec"]["containers"]
    return only


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return a pod's variables as its process sees them; references get a stand-in."""
    found: dict[str, str] = {}
    for entry in container(pod)["env"]:
        text = entry["value"] if "value" in entry else _stand_in(entry["valueFrom"])
        for name, value in found.items():
            text = text.replace(f"$({name})", value)
        found[entry["name"]] = text
    return found


def _stand_in(source: Mapping[str, Any]) -> str:
    if "secretKeyRef" in source:
        return f"{source['secretKeyRef']['name']}-{source['secretKeyRef']['key']}"
    return source["fieldRef"]["fieldPath"].replace(".", "-")
