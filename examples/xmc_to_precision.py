"""Train on a file in XMC format and measure P@k, as `smoothlink train` and `evaluate` do, in a few lines.

python examples/xmc_to_precision.py train.txt.xz test.txt.xz
"""

import sys

from smoothlink import SmoothLinkClassifier, read


def main(train_path: str, test_path: str) -> None:
    train = read(train_path)
    test = read(test_path, n_features=train.X.shape[1], n_labels=train.Y.shape[1])
    model = SmoothLinkClassifier(effort="quick").fit(train.X, train.Y)  # "full" takes ten times longer

    evaluation = model.evaluate(test.X, test.Y)
    for key in ("p@1", "p@3", "p@5", "psp@5"):
        metric = evaluation.metrics[key]
        print(f"{key:6} {100 * metric.value:6.2f}   [{100 * metric.low:.2f}, {100 * metric.high:.2f}]")
    best = model.predict_topk(test.X[:1], k=3)
    print("the first row:", ", ".join(f"{label} {p:.2f}" for label, p in zip(best.indices, best.data, strict=True)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Type: python examples/xmc_to_precision.py TRAIN TEST")
    main(*sys.argv[1:])
