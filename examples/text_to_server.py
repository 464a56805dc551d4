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

BOOKS = """
Baking bread with sourdough: cooking, bread
Sourdough for beginners, a baking course: cooking, bread
Bread from a wood oven: cooking, bread
The flour, the yeast and the oven: cooking, bread
Rolls, loaves and flat bread, fifty recipes: cooking, bread
Soups and stews for winter: cooking
Recipes for a small kitchen: cooking
Vegetables in the oven, a hundred recipes: cooking
Cooking with beans and rice: cooking
The kitchen of my grandmother: cooking
A history of bread and flour: history, bread
Kings and queens of the north: history
The fall of an empire: history
Daily life in a medieval town: history
A short history of the empire of Rome: history
The kings of Egypt: history
Ships of the ancient world, a history: history, sea
A history of trade by sea: history, sea
Sailing alone around the world: sea, travel
A small boat on the ocean: sea, travel
Harbours and islands by boat: sea, travel
The ship, the storm and the sea: sea
Whales and other animals of the ocean: sea
How to sail a boat: sea
Knots and sails for the boat owner: sea
Under the sea, a diver tells: sea
Walking through the Alps: travel, mountains
By train to the mountains: travel, mountains
Mountain huts and how to walk to them: travel, mountains
By bicycle along the rivers: travel
A year of train journeys: travel
Islands of the south, a travel guide: travel
The first ascent of the highest mountain: history, mountains
A history of climbing: history, mountains
Climbing rock and ice: mountains
Mountain flowers: mountains
""".strip().splitlines()


def request_labels(address: str, text: str) -> list[dict[str, object]]:
    """Returns the three most probable labels of a text."""
    body = json.dumps({"texts": [text], "k": 3}).encode()
    request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["predictions"][0]["labels"]


def main() -> None:
    titles, subjects = zip(*(book.rsplit(": ", 1) for book in BOOKS), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "books.safetensors"
        TextSmoothLink(effort="quick", label_separator=", ").fit(titles, subjects).save(path)
        command = [sys.executable, "-m", "smoothlink", "serve", str(path), "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            first = server.stderr.readline()  # books.safetensors (...) is served at http://127.0.0.1:40123
            for text in ("a sourdough recipe", "a boat on the sea", "climbing in the mountains"):
                found = request_labels(first.split()[-1], text)
                print(text, "->", ", ".join(f"{label['label']} {label['probability']:.2f}" for label in found))
            server.terminate()


if __name__ == "__main__":
    main()
