"""What a notebook shows of its widgets where no kernel runs: those that live in the browser alone
are kept with their state, the others become a still.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
_MODEL = re.compile(r"IPY_MODEL_(\w+)")
_BOX = "border:1px solid #8888;border-radius:4px;padding:0.6em 0.9em;margin:0.4em 0"
_RUN = "Choose <em>Run this page</em> above the page"


def question_still(texts: Sequence[str], said: str = "") -> dict[str, str]:
    """Questions as output of their cell, and what was ``said`` of the guess."""
    lines = [html.escape(said) or f"{_RUN} to answer here."]
    if texts:
        more = f" (and {len(texts) - 1} more)" if texts[1:] else ""
        lines.insert(0, html.escape(texts[0]) + more)
    return _still(["<strong>A question</strong>", *lines])


def _still(lines: Sequence[str]) -> dict[str, str]:
    body = "".join(f'<p style="margin:0.3em 0">{line}</p>' for line in lines)
    return {"text/html": f'<div class="lt-still" style="{_BOX}">{body}</div>'}


def keep_live(notebook: dict[str, Any]) -> None:
    """Put a still in the place of each widget that needs a kernel, and drop the state that no
    widget of the notebook has any more."""
    saved = notebook["metadata"].get("widgets", {}).get(STATE, {})
    models: dict[str, Any] = saved.get("state", {})
    kept: set[str] = set()
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if VIEW not in data:
                continue
            tree = _tree(data[VIEW]["model_id"], models)
            if tree and all(map(_lives, tree.values())):
                kept |= set(tree)
            else:
                output["data"] = _stand_in(tree)
    for name, model in models.items():
        if model["model_name"].endswith("LinkModel") and set(_named(model)) <= kept:
            kept.add(name)
    if kept:
        saved["state"] = {name: models[name] for name in models if name in kept}
    else:
        notebook["metadata"].pop("widgets", None)


def _named(model: Mapping[str, Any]) -> list[str]:
    return _MODEL.findall(json.dumps(model["state"]))


def _tree(root: str, models: Mapping[str, Any]) -> dict[str, Any]:
    """A widget's model and all that it is made of; empty where one of them is missing."""
    found: dict[str, Any] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in models:
            return {}
        if name not in found:
            found[name] = models[name]
            todo += _named(models[name])
    return found


def _lives(model: Mapping[str, Any]) -> bool:
    """Whether a model needs nobody who answers a press or takes a guess."""
    return model["model_name"] != "ButtonModel" and "form" not in model["state"]


def _stand_in(tree: Mapping[str, Any]) -> dict[str, str]:
    for model in tree.values():
        state = model["state"]
        if "form" in state:
            return question_still(
                [state.get("text", "")], state.get("state", {}).get("message", "")
            )
    return _still([f"{_RUN} to use what stands here."])
