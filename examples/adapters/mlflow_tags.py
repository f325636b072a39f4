"""Tag a model version, or a logged model, with its certificate: python mlflow_tags.py tags.json NAME/VERSION (or m-ID)

`fedsrc attest run/ --as mlflow-tags -o tags.json` writes the tags. Those of an earlier certificate are removed.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

from mlflow import MlflowClient


def tag_version(client: MlflowClient, said: dict[str, str], name: str, version: str) -> None:
    for old in client.get_model_version(name, version).tags.keys() - said.keys():
        if old.startswith("fedsrc."):
            client.delete_model_version_tag(name, version, old)
    for tag, text in said.items():
        client.set_model_version_tag(name, version, tag, text)


def tag_logged(client: MlflowClient, said: dict[str, str], model: str) -> None:
    for old in client.get_logged_model(model).tags.keys() - said.keys():
        if old.startswith("fedsrc."):
            client.delete_logged_model_tag(model, old)
    client.set_logged_model_tags(model, said)


def main(tags: Path, model: str) -> None:
    client, said = MlflowClient(), json.loads(tags.read_text(encoding="utf-8"))
    name, _, version = model.rpartition("/")
    if name:
        tag_version(client, said, name, version)
    else:
        tag_logged(client, said, model)
    print(f"{model}: {said['fedsrc.status']}, {len(said)} tags")


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("tags", type=Path)
    arguments.add_argument("model")
    main(**vars(arguments.parse_args()))
