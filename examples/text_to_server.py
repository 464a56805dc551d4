"""Train on texts, serve the model, send it requests over HTTP; the server is stopped at the end.

python examples/text_to_server.py            (needs smoothlink[serve])
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from smoothlink import TextSmoothLink

BOOKS = {
    "Baking bread with sourdough": ["cooking", "bread"],
    "Soups and stews for winter": ["cooking"],
    "A history of bread": ["history", "bread"],
    "Ships of the ancient world": ["history", "sea"],
    "Sailing alone around the world": ["sea", "travel"],
    "Walking through the Alps": ["travel", "mountains"],
    "The first ascent of the Matterhorn": ["history", "mountains"],
    "Cooking on a sailing boat": ["cooking", "sea"],
}


def request_labels(address: str, text: str) -> list[dict[str, object]]:
    """Returns the three most probable labels of a text."""
    body = json.dumps({"texts": [text], "k": 3}).encode()
    request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["predictions"][0]["labels"]


def main() -> None:
    texts, labels = list(BOOKS) * 5, list(BOOKS.values()) * 5  # five copies each; your texts will all differ
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "books.safetensors"
        TextSmoothLink(effort="quick").fit(texts, labels).save(path)
        command = [sys.executable, "-m", "smoothlink", "serve", str(path), "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            first = server.stderr.readline()  # books.safetensors (...) is served at http://127.0.0.1:40123
            for text in ("sourdough bread", "a boat on the sea"):
                print(text, "->", request_labels(first.split()[-1], text))
            server.terminate()


if __name__ == "__main__":
    main()
