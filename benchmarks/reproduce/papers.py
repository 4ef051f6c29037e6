"""What the two papers report: the values of their tables, to stand beside what comes out here.

Data: the papers' sets are not ours, so only the order of rows can agree, not the values.
"""

from __future__ import annotations

PRECISIONS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")

INCEPTIONXML = "InceptionXML (Kharbanda et al.)"
DEEPXML = "DeepXML (Dahiya et al., WSDM 2021)"


def rows(metrics: tuple[str, ...], text: str) -> dict[str, dict[str, float]]:
    """A table from lines of "name: value value …".

    >>> rows(("P@1", "P@5"), "Astec: 39.97 32.59")
    {'Astec': {'P@1': 39.97, 'P@5': 32.59}}
    """
    table = {}
    for line in text.strip().splitlines():
        name, _, values = line.strip().partition(": ")
        table[name] = dict(zip(metrics, map(float, values.split()), strict=True))
    return table


# AmazonTitles-670K: InceptionXML, Table 1; Slice and XT from DeepXML, Table 11.
ACCURACY = rows(
    PRECISIONS,
    """
    InceptionXML+: 41.28 37.04 33.92 27.02 30.05 32.72
    InceptionXML: 41.78 37.47 34.15 28.17 30.96 33.31
    Astec: 39.97 35.73 32.59 27.59 29.79 31.71
    Astec-3: 40.63 36.22 33.00 28.07 30.17 32.07
    LightXML: 41.57 37.19 33.90 25.23 28.79 31.92
    AttentionXML: 37.92 33.73 30.57 24.24 26.43 28.39
    XML-CNN: 35.02 31.37 28.45 21.99 24.93 26.84
    MACH: 34.92 31.18 28.56 20.56 23.14 25.79
    Slice: 33.85 30.07 26.97 21.91 24.15 25.81
    DiSMEC: 38.12 34.03 31.15 22.26 25.45 28.67
    Parabel: 38.00 33.54 30.10 23.10 25.57 27.61
    Bonsai: 38.46 33.91 30.53 23.62 26.19 28.41
    XT: 36.57 32.73 29.79 22.11 24.81 27.18
    """,
)
# AmazonTitles-670K: InceptionXML, Table 2; the other training times from DeepXML, Table 1 (on another GPU).
_HOURS = {"Astec-3": 3.85, "MACH": 6.41, "XML-CNN": 23.52, "Slice": 0.22, "AttentionXML": 37.50}
_HOURS |= {"Parabel": 0.09, "Bonsai": 0.53, "DiSMEC": 11.74}
COST = {
    "InceptionXML+": {"GFLOPs": 0.049, "training s": 4.3 * 3600, "ms": 4.67, "MB": 1400.0},
    "InceptionXML": {"GFLOPs": 0.334, "training s": 7.7 * 3600, "ms": 7.97, "MB": 1300.0},
    "Astec": {"training s": 3.0 * 3600, "ms": 8.17, "MB": 10930.0},
    "LightXML": {"GFLOPs": 2.775, "training s": 13.5 * 3600, "ms": 13.11, "MB": 1600.0},
    **{name: {"training s": hours * 3600} for name, hours in _HOURS.items()},
}
# InceptionXML, Table 3: (labels per cluster, form). 8K, 16K, 32K and 65K clusters of 670,091 labels.
FAN_OUT = rows(
    ("P@1", "P@5", "PSP@1", "PSP@5"),
    """
    82 labels per cluster, InceptionXML+: 40.26 32.75 26.05 31.21
    82 labels per cluster, not detached: 40.13 32.68 25.75 31.07
    82 labels per cluster, LightXML: 39.40 32.36 25.14 30.38
    41 labels per cluster, InceptionXML+: 40.67 33.27 26.34 31.81
    41 labels per cluster, not detached: 40.51 32.95 26.03 31.36
    41 labels per cluster, LightXML: 39.47 32.43 24.89 30.67
    20 labels per cluster, InceptionXML+: 41.01 33.65 26.75 32.32
    20 labels per cluster, not detached: 40.24 33.09 26.07 31.67
    20 labels per cluster, LightXML: 39.58 34.81 24.45 30.73
    10 labels per cluster, InceptionXML+: 41.28 33.92 27.02 32.72
    10 labels per cluster, not detached: 40.47 33.23 26.40 31.97
    10 labels per cluster, LightXML: 39.27 32.77 23.54 30.54
    in DeepXML's modules: 38.53 32.21 27.80 31.62
    """,
)
# InceptionXML, Table 4 (AmazonTitles-670K).
WORD_ORDER = rows(("P@3", "P@5"), "as written: 37.04 33.92\nwords permuted: 36.01 32.86")
# InceptionXML, Figures 4 and 5, and DeepXML, Figure 2, have no numbers. DeepXML, Table 4: in `experiments`.
# InceptionXML, Table 5: labels, training texts, test texts, texts per label, labels per text, share of short texts.
DATA = {
    "WikiSeeAlsoTitles-350K": (91_414, 352_072, 629_418, 162_491, 5.24, 2.33, 82, 98),
    "WikiTitles-500K": (185_479, 501_070, 1_699_722, 722_678, 23.62, 4.89, 83, 98),
    "AmazonTitles-670K": (66_666, 670_091, 485_176, 150_875, 5.11, 5.39, 40, 70),
    "AmazonTitles-3M": (165_431, 2_812_281, 1_712_536, 739_665, 31.55, 36.18, 15, 52),
}
# AmazonTitles-670K: InceptionXML, Table 6; DeepXML, Table 5.
OPTIONS = {
    "InceptionXML": {"n_epochs": 42, "batch_size": 128, "learning_rate": 0.005},
    "InceptionXML+": {
        "n_epochs": 35,
        "batch_size": 256,
        "learning_rate": 0.008,
        "n_clusters": 65_536,
        "n_clusters_searched": 800,
    },
    "Astec": {"n_clusters": 65_536, "surrogate_learning_rate": 0.02, "learning_rate": 0.002},
}
# DeepXML, Table 6: (a) to (c) AmazonTitles-670K, (d) WikiTitles-500K; P@1 and P@5, without the re-ranker.
MODULES = {
    "a": rows(("P@1", "P@5"), "Astec: 39.12 32.07\nCNN: 36.91 30.76\nMLP: 37.41 30.65\nBERT: 36.15 29.65"),
    "b": rows(
        ("P@1", "P@5"),
        "Astec: 39.12 32.07\nunsupervised: 34.80 27.42\nrandom groups: 38.11 30.97\nfrequent labels: 38.3 31.25",
    ),
    "c": rows(("P@1", "P@5"), "Astec: 39.12 32.07\nParabel: 37.07 28.75\nSlice: 36.73 30.07\nDiSMEC: 38.42 31.44"),
    "d": rows(
        ("P@1", "P@5"), "Astec: 45.45 17.64\nuniform: 27.3 11.4\nfrequent labels: 30.62 11.87\nSlice: 32.33 14.37"
    ),
}
# DeepXML, Table 9 (AmazonImagesCat-13K): features of images.
FEATURES = rows(
    ("P@1", "P@3", "P@5"),
    "DeepXML: 77.19 54.8 41.45\nMACH: 73.57 53.88 41.99\nSlice: 48.31 35.79 27.75\nParabel: 64.13 45.7 36.00",
)
# DeepXML, Table 10 (Amazon-670K): full texts.
FULL_TEXT = rows(
    PRECISIONS,
    """
    Astec: 46.37 41.54 38.03 31.30 34.23 36.92
    Astec-3: 47.77 42.79 39.10 32.13 35.14 37.82
    AttentionXML: 47.58 42.61 38.92 30.29 33.85 37.13
    XML-CNN: 35.39 31.93 29.32 28.67 33.27 36.51
    Slice: 33.15 29.76 26.93 20.20 22.69 24.70
    DiSMEC: 44.70 39.70 36.10 27.80 30.60 34.20
    Parabel: 44.89 39.80 36.00 25.43 29.43 32.85
    XT: 42.50 37.87 34.41 24.82 28.20 31.24
    """,
)
SHORTLIST_OVERLAP = 87.0  # DeepXML §4, module II: per cent of the labels of both shortlists
